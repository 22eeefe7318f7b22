"""Which fetch sessions are kept, and who goes when there are too many (KIP-227). No asyncio."""

import random
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from streamlog.model import NodeId

SLOTS: Final = 1_000
"""As Kafka's ``max.incremental.fetch.session.cache.slots``."""
STALE_MS: Final = 120_000
"""A session unused for so long goes first; a newer one is spared by its like."""
SESSION_ID_MAX: Final = 2**31 - 1


class Session(Protocol):
    """What a caller fetches from request to request."""

    @property
    def size(self) -> int:
        """How many partitions."""

    @property
    def replica_id(self) -> NodeId:
        """Of the follower that it belongs to; below 0 for a consumer."""

    def close(self) -> None:
        """It is not used again."""


S = TypeVar("S", bound=Session)


class _Slot(Generic[S]):
    __slots__ = ("made_ms", "session", "used_ms")

    def __init__(self, session: S, now_ms: int) -> None:
        self.session = session
        self.made_ms = now_ms
        self.used_ms = now_ms


class SessionCache(Generic[S]):
    """At most ``slots`` sessions. Who is put out is closed, and is told so by its next request."""

    def __init__(
        self,
        slots: int = SLOTS,
        *,
        random_id: Callable[[], int] = lambda: random.randint(1, SESSION_ID_MAX),
    ) -> None:
        self._slots = slots
        self._random_id = random_id
        self._kept: dict[int, _Slot[S]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def use(self, session_id: int, now_ms: int) -> S | None:
        slot = self._kept.get(session_id)
        if slot is None:
            return None
        slot.used_ms = now_ms
        return slot.session

    def admit(self, session: S, now_ms: int) -> int | None:
        """The id that it is kept under; None: there is no room for it.

        A follower has one session: one from before is no more.
        """
        if session.replica_id >= 0:
            self._remove_where(lambda it: it.session.replica_id == session.replica_id)
        if len(self._kept) >= self._slots and not self._make_room(session, now_ms):
            return None
        session_id = self._random_id()
        while session_id in self._kept:
            session_id = self._random_id()
        self._kept[session_id] = _Slot(session, now_ms)
        return session_id

    def remove(self, session_id: int) -> None:
        slot = self._kept.pop(session_id, None)
        if slot is not None:
            slot.session.close()

    def _remove_where(self, condition: Callable[[_Slot[S]], bool]) -> None:
        for session_id in [it for it, slot in self._kept.items() if condition(slot)]:
            self.remove(session_id)

    def _make_room(self, session: S, now_ms: int) -> bool:
        """The one unused for longest goes if it is stale; else the least of those that are old, or
        a consumer's before a follower's, if it is no more than ``session``.
        """
        if not self._kept:
            return False
        oldest = min(self._kept, key=lambda it: self._kept[it].used_ms)
        if now_ms - self._kept[oldest].used_ms > STALE_MS:
            self.remove(oldest)
            return True
        least = min(
            (
                (_rank(slot.session), session_id)
                for session_id, slot in self._kept.items()
                if now_ms - slot.made_ms > STALE_MS
                or (session.replica_id >= 0 and slot.session.replica_id < 0)
            ),
            default=None,
        )
        if least is None or least[0] > _rank(session):
            return False
        self.remove(least[1])
        return True


def _rank(session: Session) -> tuple[bool, int]:
    return session.replica_id >= 0, session.size
