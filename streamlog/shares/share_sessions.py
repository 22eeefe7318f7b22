"""Share sessions (KIP-932): what each member of a share group fetches from this node. Pure.

A member opens its session with epoch 0, names partitions that come and go, and counts its requests: each has the
epoch after the one before. Epoch -1 closes the session, and the member lets go of all that it has. A member has one
session at a node; if it opens another one, the first is gone.
"""

from typing import Final, NamedTuple
from uuid import UUID

from streamlog.wire.error_codes import ErrorCode

OPENING_EPOCH: Final = 0
CLOSING_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
STALE_MS: Final = 300_000
"""A session that is unused for so long goes where there is no room for another one."""

SharedPartition = tuple[UUID, int]
"""A topic's id and a partition's number."""


class SessionKey(NamedTuple):
    """Whose session."""

    group: str
    member_id: str


class ShareSession:
    """One member's, at this node."""

    def __init__(self, now_ms: int) -> None:
        self.epoch = OPENING_EPOCH
        """Of the request that came last."""
        self.partitions: dict[SharedPartition, None] = {}
        """In the order in which they are looked at."""
        self.used_ms = now_ms
        self.busy = False
        """A request of it is being answered."""

    def rotate(self) -> None:
        """The first partition is looked at last from now on: none is always the last to be read."""
        if len(self.partitions) > 1:
            first = next(iter(self.partitions))
            del self.partitions[first]
            self.partitions[first] = None


class ShareSessions:
    """At most ``sessions_max``."""

    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def use(
        self, key: SessionKey, epoch: int, now_ms: int, *, may_open: bool
    ) -> ShareSession | ErrorCode:
        """The session that a request goes on with; or why it cannot."""
        session = self._sessions.get(key)
        if session is not None and session.busy:
            return ErrorCode.invalid_share_session_epoch
        if epoch == OPENING_EPOCH:
            if not may_open:
                return ErrorCode.invalid_share_session_epoch
            if session is None and not self._has_room(now_ms):
                return ErrorCode.share_session_limit_reached
            session = self._sessions[key] = ShareSession(now_ms)
            return session
        if session is None:
            return ErrorCode.share_session_not_found
        if epoch != CLOSING_EPOCH:
            if epoch != (session.epoch + 1 if session.epoch < _EPOCH_MAX else 1):
                return ErrorCode.invalid_share_session_epoch
            session.epoch = epoch
        session.used_ms = now_ms
        return session

    def remove(self, key: SessionKey, session: ShareSession) -> bool:
        """Whether that was the member's session still."""
        if self._sessions.get(key) is not session:
            return False
        del self._sessions[key]
        return True

    def _has_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self._sessions_max:
            return True
        stale = [
            key
            for key, it in self._sessions.items()
            if not it.busy and now_ms - it.used_ms >= STALE_MS
        ]
        for key in stale:
            del self._sessions[key]
        return bool(stale)
