"""The state of a delivery as bytes: small where pending records are neighbours, as they mostly are.

All numbers are unsigned varints (LEB128), or zigzag varints where they may be negative::

    format (1), last consumer sequence, number of partitions
    of each partition, by ascending number:
        number, end of what was delivered, next offset minus this end, number of pending records
        four columns of the pending records, by ascending offset:
            offsets and sequences, each as the difference to the one before (the first one: to 0)
            counts of deliveries
            0 if it is due, else 1 plus the steps until its deadline
    the queue of redeliveries in its order, as zigzag differences of sequences

A column is a list of runs: a value and how often it repeats. It ends with the last pending record.
The queue is such a column too; its length is the number of records that are due.

A thousand neighbours with the same deadline take some 30 bytes; records that have nothing in common
take up to 12 bytes each. Record batches have checksums, so this has none. ``decode`` accepts only
states that a ``Delivery`` can be in.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby, repeat
from typing import Final, NamedTuple

from streamlog.errors import CorruptData

FORMAT: Final = 1
PARTITIONS_MAX: Final = 65_536
BITS_MAX: Final = 63
"""Of a number: offsets are signed 64-bit integers in all protocols."""

SEQUENCE_MAX: Final = (1 << BITS_MAX - 1) - 1
"""A difference of two has a sign."""


class PendingState(NamedTuple):
    """A pending record."""

    offset: int
    sequence: int
    """Of its first delivery."""
    count: int  # type: ignore[assignment]  # not the method of tuples
    steps_left: int | None
    """Until its deadline; None: it is due."""


class DeliveredPartition(NamedTuple):
    """What was delivered of a partition."""

    delivered_end: int
    next_offset: int
    pending: list[PendingState]
    """By ascending offset."""


class DeliveryState(NamedTuple):
    """All that a delivery knows."""

    sequence: int
    """Of the last delivery."""
    partitions: dict[int, DeliveredPartition]
    due: list[int]
    """The queue of redeliveries: sequences of first deliveries."""

    def encode(self) -> bytes:
        parts = (
            (number, it.delivered_end, it.next_offset, len(it.pending), columns_of(it.pending))
            for number, it in sorted(self.partitions.items())
        )
        return encoded_state(self.sequence, len(self.partitions), parts, self.due)

    @classmethod
    def decode(cls, data: bytes, pending_max: int) -> "DeliveryState":
        """Raises CorruptData, also if more than ``pending_max`` records are pending."""
        reader = _Reader(data)
        if (kind := reader.number()) != FORMAT:
            raise CorruptData(f"a state of deliveries has the format {kind}, not {FORMAT}")
        sequence = reader.number(SEQUENCE_MAX)
        partition_count = reader.number(PARTITIONS_MAX)
        partitions: dict[int, DeliveredPartition] = {}
        above = -1
        for _ in range(partition_count):
            number = reader.number()
            _check(number > above, "partitions are out of order")
            above = number
            partitions[number] = _read_partition(reader, pending_max)
            pending_max -= len(partitions[number].pending)
        pending = [record for it in partitions.values() for record in it.pending]
        _check(sum(record.count for record in pending) <= sequence, "deliveries are missing")
        sequences = {record.sequence for record in pending}
        _check(len(sequences) == len(pending), "two records have the same sequence")
        _check(max(sequences, default=0) <= sequence, "a sequence is above the last one")
        due = {record.sequence for record in pending if record.steps_left is None}
        queue = list(accumulate(_unzigzag(it) for it in reader.column(len(due))))
        _check(due == set(queue), "the queue has not what is due")
        _check(reader.is_at_end, "bytes follow")
        return cls(sequence, partitions, queue)


def encoded_state(
    sequence: int,
    partition_count: int,
    parts: Iterable[tuple[int, int, int, int, bytes]],
    due: Iterable[int],
) -> bytes:
    """``parts``: by ascending number that number, the end of what was delivered, the next offset, the number of
    pending records and their columns.
    """
    out = bytearray()
    _write(out, FORMAT, sequence, partition_count)
    for number, end, next_offset, count, columns in parts:
        _write(out, number, end, next_offset - end, count)
        out += columns
    _write_column(out, (_zigzag(it) for it in _differences(due)))
    return bytes(out)


def columns_of(pending: Iterable[PendingState]) -> bytes:
    out, records = bytearray(), list(pending)
    _write_column(out, _differences(record.offset for record in records))
    _write_column(out, _differences(record.sequence for record in records))
    _write_column(out, (record.count for record in records))
    steps = (record.steps_left for record in records)
    _write_column(out, (0 if left is None else left + 1 for left in steps))
    return bytes(out)


def _read_partition(reader: "_Reader", pending_max: int) -> DeliveredPartition:
    end = reader.number()
    next_offset = end + reader.number()
    _check(next_offset < 1 << BITS_MAX, "an offset is too large")
    count = reader.number(pending_max)
    offsets = list(accumulate(reader.ascending(count, lowest=0)))
    sequences = list(accumulate(reader.ascending(count, lowest=1)))
    counts = reader.column(count)
    steps = reader.column(count)
    if count:
        _check(offsets[-1] < end, "a record is pending that was not delivered")
        _check(min(counts) > 0, "a pending record was never delivered")
    lefts = (None if it == 0 else it - 1 for it in steps)
    return DeliveredPartition(
        end, next_offset, list(map(PendingState, offsets, sequences, counts, lefts))
    )


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._data)

    def number(self, highest: int = (1 << BITS_MAX) - 1) -> int:
        value = shift = 0
        while True:
            _check(self._position < len(self._data), "it ends too early")
            byte = self._data[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            _check(value <= highest, "a number is too large")
            if byte < 0x80:
                return value
            shift += 7
            _check(shift < BITS_MAX, "a number is too long")

    def column(self, length: int) -> list[int]:
        values: list[int] = []
        while len(values) < length:
            value = self.number()
            times = self.number(length - len(values))
            _check(times > 0, "a run is empty")
            values += repeat(value, times)
        return values

    def ascending(self, length: int, lowest: int) -> list[int]:
        """The differences of a column that starts at ``lowest`` or above, and never stays."""
        differences = self.column(length)
        if length:
            _check(differences[0] >= lowest, "a number is too small")
            _check(min(differences[1:], default=1) > 0, "a column does not ascend")
        return differences


def _check(holds: bool, problem: str) -> None:
    if not holds:
        raise CorruptData(f"a state of deliveries is corrupt: {problem}")


def _write(out: bytearray, *values: int) -> None:
    for value in values:
        rest = value
        while rest >= 0x80:
            out.append(rest & 0x7F | 0x80)
            rest >>= 7
        out.append(rest)


def _write_column(out: bytearray, values: Iterable[int]) -> None:
    for value, run in groupby(values):
        _write(out, value, sum(1 for _ in run))


def _differences(values: Iterable[int]) -> Iterator[int]:
    before = 0
    for value in values:
        yield value - before
        before = value


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _unzigzag(value: int) -> int:
    return value >> 1 if value & 1 == 0 else -(value + 1 >> 1)
