"""Which fetch sessions are kept, and who goes when there are too many (KIP-227). No asyncio."""

import secrets
from collections import Counter
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from streamlog.access.principal import Principal
from streamlog.model import NodeId

SLOTS: Final = 1_000
"""As Kafka's ``max.incremental.fetch.session.cache.slots``."""
STALE_MS: Final = 120_000
"""A session unused for so long goes first; a newer one is spared by its like."""
SESSION_ID_MAX: Final = 2**31 - 1
Owner = tuple[Principal, str]
"""Principal and address. Not the connection: a client that has lost its connection ends the session
of it over the next one."""


class Session(Protocol):
    """What a caller fetches from request to request."""

    @property
    def size(self) -> int:
        """How many partitions."""

    @property
    def replica_id(self) -> NodeId:
        """Of the follower that it belongs to; below 0 for a consumer."""

    @property
    def owner(self) -> Owner:
        """Nobody else goes on with it, or ends it."""

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
        random_id: Callable[[], int] = lambda: 1 + secrets.randbelow(SESSION_ID_MAX),
    ) -> None:
        self._slots = slots
        self._random_id = random_id
        self._kept: dict[int, _Slot[S]] = {}
        self._owned = Counter[Owner]()

    def __len__(self) -> int:
        return len(self._kept)

    def use(self, session_id: int, owner: Owner, now_ms: int) -> S | None:
        """None: there is none, or it is another's."""
        slot = self._kept.get(session_id)
        if slot is None or slot.session.owner != owner:
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
        self._owned[session.owner] += 1
        return session_id

    def remove(self, session_id: int, owner: Owner) -> None:
        """Not if it is another's: who guesses an id ends nothing."""
        slot = self._kept.get(session_id)
        if slot is not None and slot.session.owner == owner:
            self._remove(session_id)

    def _remove(self, session_id: int) -> None:
        session = self._kept.pop(session_id).session
        self._owned[session.owner] -= 1
        if not self._owned[session.owner]:
            del self._owned[session.owner]
        session.close()

    def _remove_where(self, condition: Callable[[_Slot[S]], bool]) -> None:
        for session_id in [it for it, slot in self._kept.items() if condition(slot)]:
            self._remove(session_id)

    def _make_room(self, session: S, now_ms: int) -> bool:
        """The one unused for longest goes if it is stale; else the least of those that are old, or
        a consumer's before a follower's, if it is no more than ``session``. An owner of more than
        half of all makes room for others, and nobody else makes room for that one.
        """
        if not self._kept:
            return False
        some = self._kept
        hog, count = self._owned.most_common(1)[0]
        if 2 * count > self._slots and session.replica_id < 0:
            some = {it: slot for it, slot in self._kept.items() if slot.session.owner == hog}
            if session.owner != hog:
                self._remove(min(some, key=lambda it: some[it].used_ms))
                return True
        oldest = min(some, key=lambda it: some[it].used_ms)
        if now_ms - some[oldest].used_ms > STALE_MS:
            self._remove(oldest)
            return True
        least = min(
            (
                (_rank(slot.session), session_id)
                for session_id, slot in some.items()
                if now_ms - slot.made_ms > STALE_MS
                or (session.replica_id >= 0 and slot.session.replica_id < 0)
            ),
            default=None,
        )
        if least is None or least[0] > _rank(session):
            return False
        self._remove(least[1])
        return True


def _rank(session: Session) -> tuple[bool, int]:
    return session.replica_id >= 0, session.size
