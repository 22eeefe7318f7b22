"""Which record of a stream is delivered next, again, or never again. Pure.

Records of a partition are delivered for the first time in its order. From then on a record is
*pending*, until it is acknowledged, terminated, gone from the stream, or given up. A pending record
is in one of two states:

- *waiting*: it has a deadline. ``expire`` makes those due whose deadline has passed.
- *due*: it is in the queue of redeliveries, from which ``take_redelivery`` takes the first one.

::

                deliver                      expire, nak without a delay
    (not seen) ---------> waiting (deadline) --------------------------> due (queue)
                            ^  |  ^                                       |  |
          in_progress, nak  +--+  +--- take_redelivery, nak with a delay -+  |
                               |                                             |
                               +--> acked, terminated, forgotten, gone <-----+--> Exhausted

The rules are those of JetStream's consumers (nats-server 2.15):

- Each delivery takes the next consumer sequence. A pending record is known by the sequence of its
  *first* delivery: the ack floor and ``ack_all`` go by it, and a redelivery does not change it.
- The wait of a delivery is ``ack_wait_ms``; with ``backoff_ms`` it depends on the number of the
  delivery. ``nak`` with a delay replaces it, ``in_progress`` starts it again.
- The queue of redeliveries is first in, first out. Records that expire together are queued in the
  order in which they were delivered first. ``nak`` of a record that is due already leaves its place
  in the queue as it is, and so does ``in_progress``: what is due is delivered again.
- A record that becomes due after ``deliveries_max`` deliveries is *exhausted*. It stays pending
  until it is taken, by ``take_redelivery`` in its turn or by ``take_exhausted`` at once. So it is
  reported once, and an ack until then counts. A caller that has no client to deliver to takes the
  exhausted ones after each ``expire`` and ``nak``, since they count against ``pending_max``.
- New limits hold for pending records too: their deadlines move by as much as their wait changes.

Invariants:

- The ack floor never passes a pending record, and never falls. Its sequence is the one before the
  lowest pending sequence, or the last one delivered if nothing is pending. Its offset in a
  partition is the lowest pending one, or the end of what was delivered if nothing is pending there.
- In a partition, pending offsets and their sequences ascend together, below the end of what was
  delivered, which is not above ``next_offset``. Neither falls. Hence no record is delivered for the
  first time twice.
- A pending record is either due, and in the queue once, or waiting, with one valid entry among the
  deadlines. Nothing that is not pending is delivered again.
- The deliveries of all pending records together are no more than the last sequence.

What is pending lies in a table for each partition. Records that are delivered together for the first
time share a *ticket*, and one entry of the heap of deadlines; any other wait has an entry of its own.
Entries are not removed when their records leave or wait for another time: they are recognised by
their ticket, which no record has then, and swept when they outnumber the records that wait. So every
operation takes O(log n) amortised, plus as much for each record that it removes or makes due; only
``encode`` and new limits visit all pending records, and ``encode`` is compiled.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from streamlog.delivery.pending_records import DUE, PendingRecord, PendingRecords
from streamlog.delivery.state_encoding import DeliveryState, encoded_state
from streamlog.errors import BrokenInvariant

PENDING_CEILING: Final = 1_000_000
"""Pending records of one delivery, whatever ``pending_max`` is: some 80 MB. ``has_room`` is False
when it is reached.
"""
DELAY_MAX_MS: Final = 2**63 // 1_000_000
"""NATS's clients count durations in nanoseconds, in 64 bits."""
OFFSET_MAX: Final = 2**63 - 1
RESTORED_STEP_MS: Final = 100
"""Deadlines are stored as the time that remains, rounded up to this. Records that were delivered
within one step share a run of the encoding. They are redelivered this much later after a change of
leaders, which takes longer than that; no record is redelivered before its time.
"""
SWEPT_FROM: Final = 64
"""Fewer invalid entries among the deadlines than this are not worth a sweep."""


class Place(NamedTuple):
    """A record of the stream."""

    partition: int
    offset: int


class DeliveryLimits(NamedTuple):
    """How long, how often and how many at a time. Durations of 0 are due at once."""

    ack_wait_ms: int = 30_000
    backoff_ms: tuple[int, ...] = ()
    """Waits instead of ``ack_wait_ms``, by the number of the delivery; the last one holds for all
    later ones.
    """
    deliveries_max: int = 0
    """0: no limit."""
    pending_max: int = 0
    """0: no limit."""

    def wait_ms(self, count: int) -> int:
        """How long delivery number ``count``, from 1, waits for its ack."""
        if not self.backoff_ms:
            return self.ack_wait_ms
        return self.backoff_ms[min(count, len(self.backoff_ms)) - 1]


class Delivered(NamedTuple):
    """One delivery of a record."""

    place: Place
    sequence: int
    """Consumer sequence: 1 for the first delivery, one more with each one, redeliveries too."""
    count: int  # type: ignore[assignment]  # not the method of tuples
    """Deliveries of this record, this one included."""


class Exhausted(NamedTuple):
    """A record was delivered as often as allowed, and is given up."""

    place: Place
    sequence: int
    """Of its first delivery."""
    count: int  # type: ignore[assignment]  # not the method of tuples


class DeliveredRecord(NamedTuple):
    """A pending record."""

    sequence: int
    """Of its first delivery."""
    count: int  # type: ignore[assignment]  # not the method of tuples
    delivered_ms: int
    """When it was delivered last, or was said to be in progress. A delay of ``nak`` shifts it."""


class Position(NamedTuple):
    """How far a delivery has come, or its acks."""

    sequence: int
    """The last consumer sequence that counts; 0: none does."""
    offsets: Mapping[int, int]
    """By partition the offset after the last one that counts."""


class _Partition:
    __slots__ = ("delivered_end", "next_offset", "pending")

    def __init__(self, start: int) -> None:
        if start < 0:
            raise BrokenInvariant(f"a partition starts at offset {start}")
        self.next_offset = start
        self.delivered_end = start
        self.pending = PendingRecords()


class _Deadline:
    """An entry of the heap: some records wait until the same time. Those in [low, high) that have its ticket."""

    __slots__ = ("deadline_ms", "high", "low", "partition", "ticket")

    def __init__(self, deadline_ms: int, ticket: int, partition: int, low: int, high: int) -> None:
        self.deadline_ms = deadline_ms
        self.ticket = ticket
        self.partition = partition
        self.low = low
        self.high = high

    def __lt__(self, other: "_Deadline") -> bool:
        return (self.deadline_ms, self.ticket) < (other.deadline_ms, other.ticket)


class Delivery:
    """The deliveries of one consumer of a stream. Times are in ms, of any clock that only grows.

    A partition that is not named at the start, since it was added later, begins at offset 0.
    """

    __slots__ = (
        "_deadlines",
        "_due",
        "_exhausted",
        "_last_ticket",
        "_limits",
        "_needs_acks",
        "_partitions",
        "_pending_count",
        "_redelivered_count",
        "_sequence",
    )

    def __init__(
        self, limits: DeliveryLimits, *, starts: Mapping[int, int], needs_acks: bool = True
    ) -> None:
        """``starts``: by partition the first offset to be delivered. Without ``needs_acks`` each
        record counts as acked when it is delivered.
        """
        self._limits = limits
        self._needs_acks = needs_acks
        self._partitions = {partition: _Partition(start) for partition, start in starts.items()}
        self._sequence = 0
        """Of the last delivery."""
        self._pending_count = 0
        self._redelivered_count = 0
        self._due: OrderedDict[int, Place] = OrderedDict()
        """The queue of redeliveries, by the sequence of their first delivery. Not a dict, of which the first entry
        is slow to find after many were removed in front of it.
        """
        self._exhausted: OrderedDict[int, Place] = OrderedDict()
        """Those in the queue that were delivered as often as allowed, in the same order."""
        self._deadlines: list[_Deadline] = []
        """A heap."""
        self._last_ticket = DUE

    # What there is

    @property
    def limits(self) -> DeliveryLimits:
        return self._limits

    @limits.setter
    def limits(self, limits: DeliveryLimits) -> None:
        before, self._limits = self._limits, limits
        self._sweep()
        for entry in self._deadlines:
            pending = self._partitions[entry.partition].pending
            records = pending.with_ticket(entry.ticket, entry.low, entry.high)
            count = records[0].count  # which records with a common ticket share
            entry.deadline_ms += limits.wait_ms(count) - before.wait_ms(count)
            for it in records:
                pending.update(
                    it.offset, count=count, deadline_ms=entry.deadline_ms, ticket=it.ticket
                )
        heapify(self._deadlines)
        self._exhausted.clear()
        for sequence, place in self._due.items():
            if self._is_exhausted(self.delivery_count(place)):
                self._exhausted[sequence] = place

    @property
    def has_room(self) -> bool:
        """One more record may be delivered for the first time."""
        return self.room > 0

    @property
    def room(self) -> int:
        """How many may be delivered for the first time."""
        pending_max = min(self._limits.pending_max or PENDING_CEILING, PENDING_CEILING)
        return pending_max - self._pending_count if self._needs_acks else PENDING_CEILING

    @property
    def pending_count(self) -> int:
        return self._pending_count

    @property
    def redelivered_count(self) -> int:
        """Pending records that were delivered more than once."""
        return self._redelivered_count

    @property
    def last_sequence(self) -> int:
        """The consumer sequence of the last delivery; 0: there was none."""
        return self._sequence

    @property
    def delivered(self) -> Position:
        ends = {number: it.delivered_end for number, it in self._partitions.items()}
        return Position(self._sequence, ends)

    @property
    def ack_floor(self) -> Position:
        floor = self._sequence
        offsets = {}
        for number, partition in self._partitions.items():
            offsets[number] = partition.delivered_end
            first = partition.pending.first()
            if first is not None:
                offsets[number] = first.offset
                floor = min(floor, first.sequence - 1)
        return Position(floor, offsets)

    @property
    def has_redelivery(self) -> bool:
        """``take_redelivery`` has something to return."""
        return bool(self._due)

    @property
    def next_deadline_ms(self) -> int | None:
        """When ``expire`` has something to do next; None: nothing waits."""
        deadlines = self._deadlines
        while deadlines and not self._is_valid(deadlines[0]):
            heappop(deadlines)
        return deadlines[0].deadline_ms if deadlines else None

    def next_offset(self, partition: int) -> int:
        """No record below it will be delivered for the first time."""
        known = self._partitions.get(partition)
        return 0 if known is None else known.next_offset

    def pending_offsets(self, partition: int) -> Iterable[int]:
        """In order."""
        known = self._partitions.get(partition)
        return () if known is None else known.pending.offsets()

    def is_pending(self, place: Place) -> bool:
        return self._find(place) is not None

    @property
    def due_count(self) -> int:
        return len(self._due)

    def is_due(self, place: Place) -> bool:
        """It is pending, and in the queue of redeliveries."""
        record = self._find(place)
        return record is not None and record.ticket == DUE

    def due_offsets(self, partition: int, low: int, high: int, limit: int = -1) -> list[int]:
        """Those from ``low`` up to ``high`` that are in the queue of redeliveries, in the order of the partition; the
        first ``limit`` of them.
        """
        known = self._partitions.get(partition)
        if known is None or not self._due:
            return []
        return [it.offset for it in known.pending.with_ticket(DUE, low, high, limit=limit)]

    def pending(self, place: Place) -> "DeliveredRecord | None":
        """None: it is not pending."""
        record = self._find(place)
        if record is None:
            return None
        waited_ms = self._limits.wait_ms(record.count)
        return DeliveredRecord(record.sequence, record.count, record.deadline_ms - waited_ms)

    def delivery_count(self, place: Place) -> int:
        """How often a pending record was delivered; 0: it is not pending."""
        record = self._find(place)
        return 0 if record is None else record.count

    # Deliveries

    def deliver(self, place: Place, now_ms: int) -> Delivered:
        """The first delivery of a record. Ask ``has_room`` first."""
        return Delivered(place, self.deliver_run(place.partition, (place.offset,), now_ms), 1)

    def deliver_run(self, partition: int, offsets: Sequence[int], now_ms: int) -> int:
        """The first deliveries of some records, at least one, whose offsets rise; the sequence of the first one. Ask
        for ``room`` first.
        """
        known, first = self._partition(partition), self._sequence + 1
        if offsets[0] < known.next_offset:
            raise BrokenInvariant(
                f"{offsets[0]} of partition {partition} is delivered first, below {known.next_offset}"
            )
        if self._pending_count + len(offsets) > PENDING_CEILING:
            raise BrokenInvariant(f"{self._pending_count} records are pending")
        self._sequence += len(offsets)
        known.next_offset = known.delivered_end = offsets[-1] + 1
        if not self._needs_acks:
            return first
        deadline_ms = now_ms + self._limits.wait_ms(1)
        self._last_ticket += 1
        known.pending.append_run(offsets, first, deadline_ms, self._last_ticket)
        self._pending_count += len(offsets)
        self._note_deadline(deadline_ms, partition, offsets[0], offsets[-1] + 1)
        return first

    def take_redelivery(self, now_ms: int) -> Delivered | Exhausted | None:
        """The first one of the queue; None: nothing is due. ``expire`` first."""
        if not self._due:
            return None
        sequence, place = next(iter(self._due.items()))
        if sequence in self._exhausted:
            return self._give_up(place)
        return self._redeliver(place, self._known(place), now_ms)

    def redeliver(self, place: Place, now_ms: int) -> Delivered | None:
        """This one of the queue, out of turn; None: it is not due, or exhausted."""
        record = self._find(place)
        if record is None or record.ticket != DUE or record.sequence in self._exhausted:
            return None
        return self._redeliver(place, record, now_ms)

    def take_exhausted(self) -> Exhausted | None:
        """The first one of the queue that is exhausted, out of turn; None: there is none."""
        if not self._exhausted:
            return None
        return self._give_up(next(iter(self._exhausted.values())))

    def skip_sequences(self, count: int) -> None:
        """The next delivery has a sequence that is higher by so much."""
        self._sequence += count

    def skip(self, partition: int, offset: int) -> None:
        """Nothing below ``offset`` is to be delivered for the first time: filtered out, or gone."""
        known = self._partition(partition)
        known.next_offset = max(known.next_offset, offset)

    def expire(self, now_ms: int) -> None:
        """Make those due whose deadline has come."""
        expired: list[tuple[int, int, PendingRecord]] = []
        deadlines = self._deadlines
        while deadlines and deadlines[0].deadline_ms <= now_ms:
            it = heappop(deadlines)
            records = self._partitions[it.partition].pending.with_ticket(it.ticket, it.low, it.high)
            expired += ((record.sequence, it.partition, record) for record in records)
        expired.sort(key=itemgetter(0))
        for _, partition, record in expired:
            self._queue(Place(partition, record.offset), record)

    # What consumers answer: False if the record is not pending

    def ack(self, place: Place) -> bool:
        return self.ack_run(place.partition, place.offset, place.offset + 1) > 0

    def ack_run(self, partition: int, start: int, stop: int) -> int:
        """Acks those from offset ``start`` up to ``stop``; how many of them were pending."""
        known = self._partitions.get(partition)
        return 0 if known is None else self._remove(known, start, stop)

    def ack_all(self, place: Place) -> int:
        """Acks it and all that were first delivered before it; how many were pending.

        Those after it stay pending, also if it was redelivered after they were delivered: its
        client may not have seen them. If it is not pending itself, the last pending one before it in its
        partition takes its part.
        """
        partition = self._partitions.get(place.partition)
        if partition is None or place.offset >= partition.next_offset:
            return 0
        last = partition.pending.last_before(place.offset + 1)
        if last is None:
            return 0
        before = self._pending_count
        self._remove(partition, 0, last.offset + 1)
        for other in self._partitions.values():
            while (first := other.pending.first()) is not None and first.sequence <= last.sequence:
                self._remove(other, first.offset, first.offset + 1)
        return before - self._pending_count

    def nak(self, place: Place, now_ms: int, delay_ms: int = 0) -> bool:
        """Due at once, or when the delay is over if there is one."""
        record = self._find(place)
        if record is None:
            return False
        if delay_ms > 0:
            self._unqueue(record.sequence)
            self._wait(place, record.count, now_ms + min(delay_ms, DELAY_MAX_MS))
        elif record.ticket != DUE:
            self._queue(place, record)
        return True

    def in_progress(self, place: Place, now_ms: int) -> bool:
        """The wait starts again."""
        record = self._find(place)
        if record is None:
            return False
        if record.ticket != DUE:
            self._wait(place, record.count, now_ms + self._limits.wait_ms(record.count))
        return True

    def terminate(self, place: Place) -> bool:
        """It is not delivered again, although no client has processed it."""
        return self.ack(place)

    # What happens to the stream

    def start_moved(self, partition: int, offset: int) -> int:
        """Records below ``offset`` are gone (retention, purge); how many of them were pending."""
        known = self._partition(partition)
        known.next_offset = max(known.next_offset, offset)
        known.delivered_end = max(known.delivered_end, offset)
        return self._remove(known, 0, offset)

    def rewind(self, partition: int, offset: int) -> int:
        """The records from ``offset`` on are others now, not delivered yet. How many lost ones were pending."""
        known = self._partition(partition)
        known.next_offset = min(known.next_offset, offset)
        known.delivered_end = min(known.delivered_end, offset)
        return self._remove(known, offset, OFFSET_MAX)

    def reset(self, offsets: Mapping[int, int]) -> None:
        """Begin again as a new delivery would that starts at these offsets."""
        self._partitions = {number: _Partition(offset) for number, offset in offsets.items()}
        self._sequence = self._pending_count = self._redelivered_count = 0
        self._due.clear()
        self._exhausted.clear()
        self._deadlines.clear()

    def forget(self, place: Place) -> bool:
        """This record alone is gone (erased, compacted). False: it was not pending."""
        return self.ack(place)

    # The state as bytes

    def encode(self, now_ms: int) -> bytes:
        """All that ``decode`` needs beside the limits, at any later time and by another clock."""
        parts = (
            (
                number,
                it.delivered_end,
                it.next_offset,
                len(it.pending),
                it.pending.columns(now_ms, RESTORED_STEP_MS),
            )
            for number, it in sorted(self._partitions.items())
        )
        return encoded_state(self._sequence, len(self._partitions), parts, self._due)

    @classmethod
    def decode(
        cls, data: bytes, limits: DeliveryLimits, now_ms: int, *, needs_acks: bool = True
    ) -> "Delivery":
        """What remained of each wait when it was encoded begins now. Raises CorruptData."""
        state = DeliveryState.decode(data, PENDING_CEILING)
        delivery = cls(limits, starts={}, needs_acks=needs_acks)
        delivery._sequence = state.sequence
        due = {}
        for number, kept in state.partitions.items():
            partition = delivery._partitions[number] = _Partition(kept.next_offset)
            partition.delivered_end = kept.delivered_end
            delivery._pending_count += len(kept.pending)
            for (steps_left, count), run in groupby(kept.pending, key=itemgetter(3, 2)):
                records = list(run)
                deadline_ms = ticket = DUE
                if steps_left is not None:
                    delivery._last_ticket += 1
                    deadline_ms = now_ms + steps_left * RESTORED_STEP_MS
                    ticket = delivery._last_ticket
                for it in records:
                    partition.pending.append(
                        PendingRecord(it.offset, it.sequence, count, deadline_ms, ticket)
                    )
                    if steps_left is None:
                        due[it.sequence] = Place(number, it.offset)
                if steps_left is not None:
                    delivery._note_deadline(
                        deadline_ms, number, records[0].offset, records[-1].offset + 1
                    )
                delivery._redelivered_count += len(records) if count > 1 else 0
        for sequence in state.due:
            place = due[sequence]
            delivery._queue(place, delivery._known(place))
        return delivery

    # Records between their states

    def _partition(self, number: int) -> _Partition:
        partition = self._partitions.get(number)
        if partition is None:
            partition = self._partitions[number] = _Partition(0)
        return partition

    def _find(self, place: Place) -> PendingRecord | None:
        partition = self._partitions.get(place.partition)
        return None if partition is None else partition.pending.find(place.offset)

    def _known(self, place: Place) -> PendingRecord:
        record = self._find(place)
        if record is None:
            raise BrokenInvariant(f"{place} is not pending")
        return record

    def _is_exhausted(self, count: int) -> bool:
        return 0 < self._limits.deliveries_max <= count

    def _wait(self, place: Place, count: int, deadline_ms: int) -> None:
        """From no state, or from waiting until another time."""
        self._last_ticket += 1
        partition, offset = place
        self._partitions[partition].pending.update(
            offset, count=count, deadline_ms=deadline_ms, ticket=self._last_ticket
        )
        self._note_deadline(deadline_ms, partition, offset, offset + 1)

    def _note_deadline(self, deadline_ms: int, partition: int, low: int, high: int) -> None:
        """Of the records in [low, high) that have the last ticket."""
        heappush(self._deadlines, _Deadline(deadline_ms, self._last_ticket, partition, low, high))
        valid_max = self._pending_count - len(self._due)
        if len(self._deadlines) > 2 * valid_max + SWEPT_FROM:
            self._sweep()

    def _sweep(self) -> None:
        self._deadlines = [entry for entry in self._deadlines if self._is_valid(entry)]
        heapify(self._deadlines)

    def _is_valid(self, entry: _Deadline) -> bool:
        """Some record still has its ticket. What was passed over is not looked at again."""
        pending = self._partitions[entry.partition].pending
        found = pending.with_ticket(entry.ticket, entry.low, entry.high, limit=1)
        entry.low = found[0].offset if found else entry.high
        return bool(found)

    def _redeliver(self, place: Place, record: PendingRecord, now_ms: int) -> Delivered:
        del self._due[record.sequence]
        self._sequence += 1
        count = record.count + 1
        self._redelivered_count += count == 2
        self._wait(place, count, now_ms + self._limits.wait_ms(count))
        return Delivered(place, self._sequence, count)

    def _queue(self, place: Place, record: PendingRecord) -> None:
        self._partitions[place.partition].pending.update(
            place.offset, count=record.count, deadline_ms=0, ticket=DUE
        )
        self._due[record.sequence] = place
        if self._is_exhausted(record.count):
            self._exhausted[record.sequence] = place

    def _unqueue(self, sequence: int) -> None:
        if self._due.pop(sequence, None) is not None:
            self._exhausted.pop(sequence, None)

    def _remove(self, partition: _Partition, low: int, high: int) -> int:
        removed = partition.pending.remove(low, high)
        self._pending_count -= removed.count
        self._redelivered_count -= removed.redelivered
        for sequence in removed.due:
            self._unqueue(sequence)
        return removed.count

    def _give_up(self, place: Place) -> Exhausted:
        record = self._known(place)
        self._remove(self._partitions[place.partition], place.offset, place.offset + 1)
        return Exhausted(place, record.sequence, record.count)
