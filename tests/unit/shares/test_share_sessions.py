"""Share sessions: epochs, and room."""

from uuid import UUID

from streamlog.shares.share_sessions import STALE_MS, SessionKey, ShareSession, ShareSessions
from streamlog.wire.error_codes import ErrorCode

A, B = SessionKey("g", "a"), SessionKey("g", "b")


def used(sessions: ShareSessions, key: SessionKey, epoch: int, now_ms: int = 0) -> ShareSession:
    found = sessions.use(key, epoch, now_ms, may_open=True)
    assert isinstance(found, ShareSession)
    return found


def refused(
    sessions: ShareSessions, key: SessionKey, epoch: int, now_ms: int = 0, *, may_open: bool = True
) -> ErrorCode:
    found = sessions.use(key, epoch, now_ms, may_open=may_open)
    assert isinstance(found, ErrorCode)
    return found


def test_requests_of_a_session_are_counted() -> None:
    sessions = ShareSessions(10)
    session = used(sessions, A, 0)
    assert used(sessions, A, 1) is used(sessions, A, 2) is session
    assert refused(sessions, A, 2) is ErrorCode.invalid_share_session_epoch
    assert refused(sessions, B, 1) is ErrorCode.share_session_not_found
    assert used(sessions, A, 0) is not session
    again = used(sessions, A, -1)
    assert again is used(sessions, A, 1)
    assert not sessions.remove(A, session)
    assert sessions.remove(A, again)
    assert refused(sessions, A, -1) is ErrorCode.share_session_not_found


def test_an_acknowledgement_opens_no_session() -> None:
    sessions = ShareSessions(10)
    assert refused(sessions, A, 0, may_open=False) is ErrorCode.invalid_share_session_epoch


def test_the_epoch_begins_again_after_the_largest() -> None:
    sessions = ShareSessions(10)
    used(sessions, A, 0).epoch = 2**31 - 1
    used(sessions, A, 1)


def test_one_request_at_a_time() -> None:
    sessions = ShareSessions(10)
    used(sessions, A, 0).busy = True
    assert refused(sessions, A, 1) is ErrorCode.invalid_share_session_epoch


def test_where_there_is_no_room_only_stale_sessions_go() -> None:
    sessions = ShareSessions(1)
    used(sessions, A, 0)
    assert refused(sessions, B, 0, STALE_MS - 1) is ErrorCode.share_session_limit_reached
    used(sessions, B, 0, STALE_MS)
    assert refused(sessions, A, 1) is ErrorCode.share_session_not_found


def test_partitions_have_their_turns() -> None:
    session = ShareSession(0)
    topic = UUID(int=1)
    session.partitions = {(topic, 0): None, (topic, 1): None, (topic, 2): None}
    session.rotate()
    assert [number for _, number in session.partitions] == [1, 2, 0]
