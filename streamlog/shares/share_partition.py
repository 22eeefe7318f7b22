"""A partition as a share group reads it: which records a member acquires, and what it says of them. Pure.

States of a record, as Kafka names them, and what they are in ``delivery``::

    Available      due, or not delivered yet
    Acquired       waiting: a member has its lock, until the deadline
    Acknowledged   not pending: accepted
    Archived       not pending: rejected, delivered too often, or gone from the log

Records are acquired in ranges, of record batches that the caller has read, in the order of the partition: first what
is due again, then what is new. Offsets inside a batch that have no record any more (compaction) are acquired with the
others; the member, which unpacks the batch, says so by acknowledgements of type ``GAP``. Offsets between batches
are passed over.

The lock of a record is the member's that acquired it last, until it expires; only that member acknowledges it.
Either all acknowledgements of a request for this partition count, or none.

``state`` has all that the next leader needs; locks are not in it. ``version`` rises whenever what is in ``state``
changes, but for records given up, or released, which the next leader finds out by itself.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Final, NamedTuple

from streamlog.delivery.delivery import Delivery, DeliveryLimits, Place
from streamlog.errors import InvalidRecordState, InvalidRequest

_NUMBER: Final = 0
"""A ``Delivery`` of one partition: the number that it has there."""
_END: Final = 2**63 - 1


class AcknowledgeType(IntEnum):
    """As Kafka numbers them."""

    GAP = 0
    """There is no record at this offset."""
    ACCEPT = 1
    RELEASE = 2
    """It may be delivered again."""
    REJECT = 3
    """It is not to be delivered again, though it was not processed."""
    RENEW = 4
    """The lock lasts as long again (KIP-1222)."""


_TYPES: Final = frozenset(AcknowledgeType)


class ShareAcknowledgement(NamedTuple):
    """What a member says of the records from ``first`` to ``last``, both inclusive."""

    first: int
    last: int
    types: Sequence[int]
    """One for all of them, or one for each."""


class Acquired(NamedTuple):
    """Records from ``first`` to ``last``, both inclusive, which a member has."""

    first: int
    last: int
    count: int  # type: ignore[assignment]  # not the method of tuples
    """Deliveries, this one included."""


class BatchRange(NamedTuple):
    """Offsets of a record batch; both ends are inclusive."""

    first: int
    last: int


class ReadBatches(NamedTuple):
    """A part of the log, as it was read."""

    start: int
    """A ``wanted_offset`` of before."""
    end: int
    batches: Sequence[BatchRange]
    """Those with records, in order; the first one may begin before the start."""


class Wish(NamedTuple):
    """How much a member asks for."""

    records_max: int
    """0 or less: no limit."""
    is_strict: bool = False
    """Not more than that (KIP-1206); else the last batch is acquired as a whole."""
    batch_records: int = 0
    """The most that one ``Acquired`` is to have, unless a batch has more; 0 or less: no limit."""


class ShareProgress(NamedTuple):
    """As administrators see it."""

    start_offset: int
    end_offset: int
    pending: int


class SharePartition:
    """The records of one partition for one group. Times are in ms, of a clock that only grows."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._owners: dict[int, str] = {}
        """Who acquired a pending record last. The lock is over where the record is due."""
        self.version = 0
        self.archived = 0
        """Records given up because they were delivered too often."""

    @classmethod
    def starting(
        cls, start_offset: int, lock_ms: int, count_max: int, locks_max: int
    ) -> "SharePartition":
        """Nothing of it was delivered yet."""
        limits = _limits(lock_ms, count_max, locks_max)
        return cls(Delivery(limits, starts={_NUMBER: start_offset}))

    @classmethod
    def restored(
        cls, state: bytes, now_ms: int, lock_ms: int, count_max: int, locks_max: int
    ) -> "SharePartition":
        """As another leader has left it: no member has a lock. Raises CorruptData."""
        limits = _limits(lock_ms, count_max, locks_max)
        found = cls(Delivery.decode(state, limits, now_ms))
        for offset in tuple(found._delivery.pending_offsets(_NUMBER)):
            found._delivery.nak(Place(_NUMBER, offset), now_ms)
        found._give_up()
        return found

    # What there is

    def state(self, now_ms: int) -> bytes:
        """For ``restored``."""
        return self._delivery.encode(now_ms)

    @property
    def progress(self) -> ShareProgress:
        delivery = self._delivery
        start = delivery.ack_floor.offsets[_NUMBER]
        end = max(delivery.delivered.offsets[_NUMBER], delivery.next_offset(_NUMBER))
        return ShareProgress(start if delivery.pending_count else end, end, delivery.pending_count)

    @property
    def wanted_offset(self) -> int | None:
        """From where records are to be read for ``acquire``; None: nothing may be acquired now."""
        due = self._delivery.due_offsets(_NUMBER, 0, _END, 1)
        if due:
            return due[0]
        return self._delivery.next_offset(_NUMBER) if self._delivery.has_room else None

    @property
    def has_locks(self) -> bool:
        """A member has a record."""
        return self._delivery.pending_count > self._delivery.due_count

    @property
    def next_deadline_ms(self) -> int | None:
        """When a lock ends next, or earlier."""
        return self._delivery.next_deadline_ms

    def set_limits(self, lock_ms: int, count_max: int, locks_max: int) -> None:
        """From now on, for the locks that there are, too."""
        limits = _limits(lock_ms, count_max, locks_max)
        if limits != self._delivery.limits:
            self._delivery.limits = limits
            self._give_up()

    # What members do

    def acquire(self, member: str, read: ReadBatches, wish: Wish, now_ms: int) -> list[Acquired]:
        """The member has these records from now on. What is pending between the batches is gone from the log."""
        delivery = self._delivery
        left = wish.records_max if wish.records_max > 0 else _END
        found: list[Acquired] = []
        at = read.start
        for batch in read.batches:
            if left <= 0:
                break
            self._pass_over(at, batch.first)
            at = max(at, batch.last + 1)
            taken = self._acquire_batch(batch, left if wish.is_strict else None, now_ms)
            for it in taken:
                self._owners.update(dict.fromkeys(range(it.first, it.last + 1), member))
                left -= it.last - it.first + 1
                add_acquired(found, it, wish.batch_records)
            if not (taken or delivery.has_room or delivery.due_offsets(_NUMBER, at, _END, 1)):
                break
        else:
            self._pass_over(at, read.end)
        if found:
            self.version += 1
        return found

    def acknowledge(
        self, member: str, acknowledgements: Sequence[ShareAcknowledgement], now_ms: int
    ) -> bool:
        """Whether ``version`` has risen. Raises InvalidRequest, and InvalidRecordState where the member does not have
        one of the records; then nothing has changed. What is done with for all anyway is passed over.
        """
        start = self.progress.start_offset
        wanted = list(self._checked(member, acknowledgements, start))
        before = self.version
        released = False
        for first, last, type_ in wanted:
            if type_ is AcknowledgeType.RELEASE:
                released = True
                for offset in range(first, last + 1):
                    self._delivery.nak(Place(_NUMBER, offset), now_ms)
            elif type_ is AcknowledgeType.RENEW:
                for offset in range(first, last + 1):
                    self._delivery.in_progress(Place(_NUMBER, offset), now_ms)
            else:
                self._delivery.ack_run(_NUMBER, first, last + 1)
                for offset in range(first, last + 1):
                    del self._owners[offset]
                self.version = before + 1
        if released:
            self._give_up()
        return self.version != before

    def release_all(self, member: str, now_ms: int) -> bool:
        """The member lets go of what it has. Whether it had anything."""
        mine = [it for it, owner in self._owners.items() if owner == member]
        held = [it for it in mine if not self._delivery.is_due(Place(_NUMBER, it))]
        for offset in held:
            self._delivery.nak(Place(_NUMBER, offset), now_ms)
        self._give_up()
        return bool(held)

    # What happens by itself

    def expire(self, now_ms: int) -> bool:
        """Locks end whose time is over. Whether anything is available that was not."""
        due = self._delivery.due_count
        self._delivery.expire(now_ms)
        has_more = self._delivery.due_count > due
        self._give_up()
        return has_more

    def start_moved(self, offset: int) -> None:
        """Records below are gone from the log."""
        if offset > self.progress.start_offset:
            self._delivery.start_moved(_NUMBER, offset)
            self._owners = {it: owner for it, owner in self._owners.items() if it >= offset}
            self.version += 1

    def rewind(self, end: int) -> None:
        """The log ends there, and was longer when records were delivered: others will have their offsets."""
        if self.progress.end_offset > end:
            self._delivery.rewind(_NUMBER, end)
            self._owners = {it: owner for it, owner in self._owners.items() if it < end}
            self.version += 1

    def _acquire_batch(self, batch: BatchRange, limit: int | None, now_ms: int) -> list[Acquired]:
        """``limit`` None: all that is available of the batch, whatever the number of locks is then."""
        delivery = self._delivery
        left = _END if limit is None else limit
        found: list[Acquired] = []
        for offset in delivery.due_offsets(_NUMBER, batch.first, batch.last + 1):
            if left <= 0:
                return found
            delivered = delivery.redeliver(Place(_NUMBER, offset), now_ms)
            if delivered is not None:
                left -= 1
                add_acquired(found, Acquired(offset, offset, delivered.count), 0)
        first = max(batch.first, delivery.next_offset(_NUMBER))
        last = min(batch.last, first + left - 1)
        if first <= last and delivery.has_room:
            if limit is not None:
                last = min(last, first + delivery.room - 1)
            delivery.deliver_run(_NUMBER, range(first, last + 1), now_ms)
            add_acquired(found, Acquired(first, last, 1), 0)
        return found

    def _pass_over(self, start: int, stop: int) -> None:
        """There are no records from ``start`` up to ``stop``."""
        if start >= stop:
            return
        if self._delivery.ack_run(_NUMBER, start, stop):
            self._owners = {
                it: owner for it, owner in self._owners.items() if not start <= it < stop
            }
            self.version += 1
        if start <= self._delivery.next_offset(_NUMBER) < stop:
            self._delivery.skip(_NUMBER, stop)

    def _checked(
        self, member: str, acknowledgements: Sequence[ShareAcknowledgement], start: int
    ) -> Iterator[tuple[int, int, AcknowledgeType]]:
        for before, it in pairwise(acknowledgements):
            if it.first <= before.last:
                raise InvalidRequest("acknowledgements overlap, or are not in order")
        for it in acknowledgements:
            size = it.last - it.first + 1
            if it.first < 0 or size < 1:
                raise InvalidRequest(f"there are no offsets from {it.first} to {it.last}")
            if len(it.types) not in (1, size):
                raise InvalidRequest(f"{len(it.types)} types of acknowledgement for {size} records")
            if not _TYPES.issuperset(it.types):
                raise InvalidRequest("there are acknowledgements of types 0 to 4 alone")
            first = max(it.first, start)
            if it.last - first + 1 > len(self._owners):
                raise InvalidRecordState(f"not all records from {first} to {it.last} are acquired")
            for offset in range(first, it.last + 1):
                self._check_owner(member, offset)
            if len(it.types) == 1:
                if first <= it.last:
                    yield first, it.last, AcknowledgeType(it.types[0])
                continue
            for offset in range(first, it.last + 1):
                yield offset, offset, AcknowledgeType(it.types[offset - it.first])

    def _check_owner(self, member: str, offset: int) -> None:
        owner = self._owners.get(offset)
        if owner is None or self._delivery.is_due(Place(_NUMBER, offset)):
            raise InvalidRecordState(f"record {offset} is not acquired")
        if owner != member:
            raise InvalidRecordState(f"record {offset} is another member's")

    def _give_up(self) -> None:
        """Records that were delivered as often as they may be."""
        while (given_up := self._delivery.take_exhausted()) is not None:
            self._owners.pop(given_up.place.offset, None)
            self.archived += 1
            self.version += 1


def _limits(lock_ms: int, count_max: int, locks_max: int) -> DeliveryLimits:
    return DeliveryLimits(ack_wait_ms=lock_ms, deliveries_max=count_max, pending_max=locks_max)


def add_acquired(found: list[Acquired], more: Acquired, batch_records: int) -> None:
    """As one with the last, where they are neighbours of the same count, and not too many."""
    if found:
        last = found[-1]
        size = more.last - last.first + 1
        is_small = batch_records <= 0 or size <= batch_records
        if last.last + 1 == more.first and last.count == more.count and is_small:
            found[-1] = Acquired(last.first, more.last, last.count)
            return
    found.append(more)
