"""Messages that say themselves how long they stay (``Nats-TTL``): when each of them goes.

The leader reads the log as it is committed, from its start on when it begins to lead, and remembers
of each such message its offset and its time. The log alone says what there is, so nothing has to
be kept over a restart or a failover.
"""

import asyncio
import heapq
from array import array
from collections.abc import Iterator
from typing import Final

from streamlog.errors import OffsetOutOfRange
from streamlog.log.segment.file_slice import FileSlice
from streamlog.partition.deletes.message_deletes import MessageDeletes
from streamlog.partition.reader import Reader
from streamlog.partition.state import PartitionState
from streamlog.record.batch import batches
from streamlog.record.codec import iter_records
from streamlog.record.offset_set import OffsetSet
from streamlog.record.published import TTL_HEADER, asked, lifetime_s

KNOWN_MAX: Final = 4_000_000
"""Messages of one partition, 8 bytes each. Of more, those that go last are forgotten, and the log
is read again when the first of them is due."""
READ_BYTES: Final = 4 * 1024 * 1024
PARTS_AT_ONCE: Final = 16
"""... then other partitions have their turn."""
SHORT_S: Final = 60
SHORT_GRAIN_MS: Final = 100
GRAIN_MS: Final = 1_000
"""Times are rounded up to these, for lifetimes up to the short one and longer ones: many messages
share a time, so a time costs little."""
_HEADER_BYTES: Final = TTL_HEADER.encode()

Due = tuple[int, int]
"""When a message is to be gone, in milliseconds, and its offset."""


class TtlDeadlines:
    """Pure: which messages go when."""

    def __init__(self, known_max: int = KNOWN_MAX) -> None:
        self._known_max = known_max
        self._by_ms: dict[int, array[int]] = {}
        self._times_ms: list[int] = []
        """A heap of the keys."""
        self.count = 0
        self.horizon_ms: int | None = None
        """Of messages that go then or later some are not known."""

    def add(self, due: Due) -> None:
        due_ms, offset = due
        if self.horizon_ms is not None and due_ms >= self.horizon_ms:
            return
        known = self._by_ms.get(due_ms)
        if known is None:
            known = self._by_ms[due_ms] = array("q")
            heapq.heappush(self._times_ms, due_ms)
        known.append(offset)
        self.count += 1
        if self.count > self._known_max:
            self._forget_last()

    @property
    def next_ms(self) -> int | None:
        """When the first of them is due."""
        return self._times_ms[0] if self._times_ms else None

    def take(self, now_ms: int) -> list[int]:
        """The offsets of all that are due, in order."""
        found: list[int] = []
        while self._times_ms and self._times_ms[0] <= now_ms:
            found += self._by_ms.pop(heapq.heappop(self._times_ms))
        self.count -= len(found)
        return sorted(found)

    def is_passed(self, now_ms: int) -> bool:
        """Messages may be due that are not known."""
        return self.horizon_ms is not None and self.horizon_ms <= now_ms

    def _forget_last(self) -> None:
        """About half of them; those of one time stay together."""
        ordered = sorted(self._by_ms)
        kept = 0
        for place, due_ms in enumerate(ordered):
            if place and kept + len(self._by_ms[due_ms]) > self._known_max // 2:
                self.horizon_ms = due_ms
                break
            kept += len(self._by_ms[due_ms])
        else:
            return
        for due_ms in ordered[place:]:
            del self._by_ms[due_ms]
        self._times_ms = ordered[:place]
        self.count = kept


class MessageTtl:
    """Of one partition; on the event loop, while it leads."""

    __slots__ = ("_deadlines", "_erasing", "_losses", "_reader", "_state", "_until")

    def __init__(self, state: PartitionState, reader: Reader, erasing: MessageDeletes) -> None:
        self._state = state
        self._reader = reader
        self._erasing = erasing
        self._deadlines: TtlDeadlines | None = None
        """None: nothing was read."""
        self._losses = 0
        """Of ``erasing``, when the first of it was read."""
        self._until = 0
        """All below was read."""

    def forget(self) -> None:
        """The partition is not led any more, or messages stay as long as others."""
        self._deadlines = None

    async def settle(self, now_ms: int) -> None:
        """Read what was committed since, and foresee that go what is due. Raises StreamlogError."""
        deadlines = self._deadlines
        taken_in_vain = self._losses != self._erasing.losses
        if deadlines is None or deadlines.is_passed(now_ms) or taken_in_vain:
            deadlines = self._deadlines = TtlDeadlines()
            self._until, self._losses = 0, self._erasing.losses
        self._until = max(self._until, self._state.log.log_start_offset)
        for _ in range(PARTS_AT_ONCE):
            if self._until >= self._upper() or self._deadlines is not deadlines:
                break
            await self._read_on(deadlines)
        self.take_due(now_ms)

    @property
    def next_ms(self) -> int | None:
        """When the first of the messages that are known is due."""
        return self._deadlines.next_ms if self._deadlines is not None else None

    def take_due(self, now_ms: int) -> None:
        """Foresee that go what is known to be due."""
        if self._deadlines is None or not self._state.is_leader:
            return
        gone = OffsetSet.in_order(self._deadlines.take(now_ms))
        gone.keep_between(self._state.log.log_start_offset, self._upper())
        gone.remove_all(self._erasing.erased)
        if gone:
            self._erasing.foresee(gone)

    async def _read_on(self, deadlines: TtlDeadlines) -> None:
        try:
            with await self._reader.read(self._until, READ_BYTES, self._upper) as part:
                found, until = await asyncio.to_thread(_look, part, self._until)
        except OffsetOutOfRange:  # retention was quicker
            return
        erased = self._erasing.erased
        for due in found:
            if due[1] not in erased:
                deadlines.add(due)
        self._until = max(self._until, until)

    def _upper(self) -> int:
        return self._state.high_watermark


def _look(part: FileSlice, from_offset: int) -> tuple[list[Due], int]:
    """What a piece of the log tells, and where it ends. Blocks. Raises CorruptBatch."""
    data, until = part.read(), from_offset
    found: list[Due] = []
    uncompressed = _HEADER_BYTES in data
    for header, batch in batches(data):
        until = header.next_offset
        if header.is_published and (header.compression or uncompressed):
            found += (due for due in _dues(batch) if due[1] >= from_offset)
    return found, until


def _dues(batch: memoryview) -> Iterator[Due]:
    """Of messages that came over NATS: a Kafka producer's header asks for nothing."""
    for record in iter_records(batch):
        lifetime = lifetime_s(asked(record.headers).get(TTL_HEADER, b""))
        if lifetime is not None and lifetime > 0:
            yield _rounded_up(record.timestamp_ms, lifetime), record.offset


def _rounded_up(stored_ms: int, lifetime_s: int) -> int:
    grain_ms = SHORT_GRAIN_MS if lifetime_s <= SHORT_S else GRAIN_MS
    return -(-(stored_ms + lifetime_s * 1_000) // grain_ms) * grain_ms
