"""The fetch sessions of a node (KIP-227), and the rule which one goes when there are too many."""

import secrets
from collections import Counter
from collections.abc import Callable
from typing import Final

from streamlog.kafka.fetch.fetch_session import FetchCaller, FetchSession, Owner
from streamlog.wire import fetch as wire
from streamlog.wire.error_codes import ErrorCode

SLOTS: Final = 1_000
"""As Kafka's ``max.incremental.fetch.session.cache.slots``."""
PARTITIONS_MAX: Final = 500_000
"""In the sessions of all consumers together. One takes half a KiB, whether there is such a
partition or not, and a request may name 400,000: without a limit, slots alone allow 200 GiB.
"""
STALE_MS: Final = 120_000
"""A session that is unused for so long goes first."""
SESSION_ID_MAX: Final = 2**31 - 1


class _Slot:
    __slots__ = ("counted", "made_ms", "session", "used_ms")

    def __init__(self, session: FetchSession, now_ms: int) -> None:
        self.session = session
        self.counted = 0
        """Its partitions, as they are counted against the limit."""
        self.made_ms = now_ms
        self.used_ms = now_ms


class SessionCache:
    """At most ``slots`` sessions, and ``partitions_max`` partitions in those of consumers. A session
    that is put out is closed, and the next request of it is refused.

    Policy when there are too many partitions: the owner that has the most loses the sessions that
    it has not used for longest; if that is the one that asks for more, it gets no session.
    """

    def __init__(
        self,
        slots: int = SLOTS,
        *,
        partitions_max: int = PARTITIONS_MAX,
        random_id: Callable[[], int] = lambda: 1 + secrets.randbelow(SESSION_ID_MAX),
    ) -> None:
        self._slots = slots
        self._partitions_max = partitions_max
        self._partitions = Counter[Owner]()  # in the sessions of consumers
        self._random_id = random_id
        self._kept: dict[int, _Slot] = {}
        self._owned = Counter[Owner]()

    def __len__(self) -> int:
        return len(self._kept)

    def use(
        self, request: wire.FetchRequest, caller: FetchCaller, now_ms: int, *, by_id: bool
    ) -> FetchSession | ErrorCode:
        """The session that the request goes on with, or a new one, to be admitted once it has been
        answered. An error where the session is another's or none, or this is not its next
        request.
        """
        if request.session_epoch in (wire.SESSIONLESS, wire.NEW_SESSION):
            if request.session_id != wire.NO_SESSION:
                self.remove(request.session_id, caller.owner)
            return FetchSession(caller, by_id=by_id)
        slot = self._kept.get(request.session_id)
        if slot is None or slot.session.owner != caller.owner:
            return ErrorCode.fetch_session_id_not_found
        slot.used_ms = now_ms
        session = slot.session
        if session.caller != caller:
            return ErrorCode.fetch_session_id_not_found
        if session.busy or session.epoch != request.session_epoch:
            return ErrorCode.invalid_fetch_session_epoch
        if session.by_id != by_id:
            return ErrorCode.fetch_session_topic_id_error
        session.epoch = wire.next_session_epoch(session.epoch)
        return session

    def admit(self, session: FetchSession, now_ms: int) -> int | None:
        """The id that it is kept under; None: there is no room for it.

        A follower has one session: one from before is no more.
        """
        if session.replica_id >= 0:
            self._remove_where(lambda it: it.session.replica_id == session.replica_id)
        count = _counted(session)
        if count and not self._make_room_for(count, session.owner):
            return None
        if len(self._kept) >= self._slots and not self._make_room(session, now_ms):
            return None
        session_id = self._random_id()
        while session_id in self._kept:
            session_id = self._random_id()
        self._kept[session_id] = slot = _Slot(session, now_ms)
        self._owned[session.owner] += 1
        self._count(slot, count)
        return session_id

    def changed(self, session_id: int) -> None:
        """The session has other partitions than before; if they are too many, it is no more."""
        slot = self._kept.get(session_id)
        if slot is None:
            return
        owner, count = slot.session.owner, _counted(slot.session)
        if count == slot.counted:
            return  # nearly always
        if count > slot.counted:
            before = slot.counted
            self._count(slot, 0)
            if not self._make_room_for(count, owner, but=session_id):
                self._count(slot, before)
                self._remove(session_id)
                return
        self._count(slot, count)

    def remove(self, session_id: int, owner: Owner) -> None:
        """Not if it is another's: to guess an id ends nothing."""
        slot = self._kept.get(session_id)
        if slot is not None and slot.session.owner == owner:
            self._remove(session_id)

    def _remove(self, session_id: int) -> None:
        slot = self._kept.pop(session_id)
        self._count(slot, 0)
        session = slot.session
        self._owned[session.owner] -= 1
        if not self._owned[session.owner]:
            del self._owned[session.owner]
        session.close()

    def _count(self, slot: _Slot, count: int) -> None:
        owner = slot.session.owner
        self._partitions[owner] += count - slot.counted
        slot.counted = count
        if not self._partitions[owner]:
            del self._partitions[owner]

    def _make_room_for(self, count: int, owner: Owner, *, but: int | None = None) -> bool:
        """False: ``owner`` would have more than any other. ``but``: its session, which stays."""
        total = self._partitions.total()
        while total + count > self._partitions_max:
            hog, most = next(iter(self._partitions.most_common(1)), (owner, 0))
            if hog == owner or most <= self._partitions[owner] + count:
                return False
            counted = {it: slot for it, slot in self._kept.items() if slot.session.owner == hog}
            oldest = min(
                (it for it, slot in counted.items() if slot.counted and it != but),
                key=lambda it: counted[it].used_ms,
            )
            total -= counted[oldest].counted
            self._remove(oldest)
        return True

    def _remove_where(self, condition: Callable[[_Slot], bool]) -> None:
        for session_id in [it for it, slot in self._kept.items() if condition(slot)]:
            self._remove(session_id)

    def _make_room(self, session: FetchSession, now_ms: int) -> bool:
        """The one unused for longest goes if it is stale; else the least of those that are old, or
        a consumer's before a follower's, if it is no more than ``session``. An owner of more than
        half of all makes room for others, and no other makes room for that one.
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


def _counted(session: FetchSession) -> int:
    """What counts against the limit: followers have what there is, and are nodes."""
    return 0 if session.replica_id >= 0 else session.size


def _rank(session: FetchSession) -> tuple[bool, int]:
    return session.replica_id >= 0, session.size
