"""A follower's side of a fetch session: what the leader has to be told."""

from streamlog.partition.replication.fetch_session import FetchedPosition, FollowerFetchSession
from streamlog.partition.replication.partition_follower import FetchPosition
from streamlog.wire.fetch import FetchedPartition, FetchResponse, TopicIdPartition

ID = b"s" * 16
A, B, C = (TopicIdPartition(ID, n) for n in range(3))
GIVEN = FetchResponse(0, [], 77)
REFUSED = FetchResponse(70, [])


def at(offset: int, *, epoch: int = 1, high_watermark: int = 0) -> FetchedPosition:
    return FetchedPosition(FetchPosition(offset, epoch, epoch), high_watermark, 0)


def begun(**standings: FetchedPosition) -> FollowerFetchSession:
    session = FollowerFetchSession()
    session.ask({TopicIdPartition(ID, int(name[1:])): it for name, it in standings.items()})
    session.answered(GIVEN)
    return session


def test_the_first_request_wants_a_session() -> None:
    session = FollowerFetchSession()
    assert (session.id, session.epoch, session.is_new) == (0, 0, True)
    assert session.ask({A: at(1), B: at(2)}) == [A, B]
    session.answered(GIVEN)
    assert (session.id, session.epoch, session.is_new) == (77, 1, False)
    session.answered(GIVEN)
    assert session.epoch == 2


def test_only_what_differs_is_named() -> None:
    session = begun(p0=at(1), p1=at(2))
    assert session.ask({A: at(1), B: at(3), C: at(0)}) == [B, C]
    assert session.ask({A: at(1, epoch=2), B: at(3), C: at(0)}) == [A]
    assert len(session) == 3


def test_the_leader_knows_what_it_has_told() -> None:
    session = begun(p0=at(1, high_watermark=1))
    session.told(A, FetchedPartition(0, 0, 5, 0))
    session.told(B, FetchedPartition(1, 0, 5, 0))
    assert session.ask({A: at(1, high_watermark=5)}) == []
    assert session.ask({A: at(1, high_watermark=1)}) == [A], "it was not taken"
    assert session.position(B) is None


def test_what_is_forgotten_is_told_once() -> None:
    session = begun(p0=at(1), p1=at(2))
    session.forget(A)
    session.forget(C)
    assert session.position(A) is None
    assert session.take_forgotten() == (A,)
    assert session.take_forgotten() == ()
    assert session.ask({A: at(1)}) == [A]


def test_what_comes_back_before_it_was_told_is_named_and_not_forgotten() -> None:
    session = begun(p0=at(1))
    session.forget(A)
    assert session.ask({A: at(1)}) == [A]
    assert session.take_forgotten() == ()


def test_a_lost_session_is_begun_anew_and_ends_the_old_one() -> None:
    session = begun(p0=at(1), p1=at(2))
    session.forget(A)
    session.answered(REFUSED)
    assert (session.id, session.epoch, len(session)) == (77, 0, 0)
    assert session.take_forgotten() == ()
    assert session.ask({B: at(2)}) == [B]


def test_without_a_session_all_is_named_each_time() -> None:
    session = FollowerFetchSession()
    for _ in range(2):
        assert session.ask({A: at(1)}) == [A]
        session.answered(FetchResponse(0, []))
        assert session.is_new
