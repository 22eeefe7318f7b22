"""Where single records lie in segments, for batches that a lookup has read before.

A lookup by subject wants one record of a batch that may have thousands. To find it again, every
``STEP``-th of a batch's records is marked, so that a read takes a few records and no whole batch.

Only of batches as they were appended: neither compressed nor encrypted, with dense offsets. What is
known of a segment is of no use once it was cut, is damaged, or another one has taken its place.
"""

from array import array
from bisect import bisect_right
from collections import OrderedDict
from typing import Final, NamedTuple

from streamlog.log.segment.file_slice import FileSlice
from streamlog.log.segment.segment import Segment
from streamlog.record.batch import HEADER_BYTES, BatchHeader, Record
from streamlog.record.codec import decode_records
from streamlog.record.compiled.keys import marks_of, place_of
from streamlog.record.compression import Buffer, Compression

STEP: Final = 8
BYTES_MAX: Final = 16 * 1024 * 1024
"""Of all partitions of a node. Beyond it, what was used longest ago is forgotten."""
BATCH_BYTES: Final = 600
"""What is kept of a batch beside its marks."""
_MARK: Final = "I"


class MarkedBatch(NamedTuple):
    """A batch and its marks."""

    header: BatchHeader
    one: BatchHeader
    """The same of a single record, to decode it with."""
    position: int
    """Of its records, in the segment's file."""
    marks: "array[int]"

    def bounds(self, offset: int) -> tuple[int, int]:
        """Of the few records among which that one is, counted from the first of the batch."""
        group = (offset - self.header.base_offset) // STEP
        return self.marks[group], self.marks[group + 1]

    def record_in(self, data: Buffer, offset: int) -> Record | None:
        """Out of the bytes within ``bounds``. Raises CorruptBatch."""
        place = place_of(data, STEP, offset - self.header.base_offset)
        if place is None:
            return None
        alone = memoryview(data)[place[0] : place[1]]
        return next(iter(decode_records(alone, self.one)))

    @property
    def size_bytes(self) -> int:
        return BATCH_BYTES + self.marks.itemsize * len(self.marks)


class _MarkedSegment:
    """What is known of one segment, for as long as it is not cut."""

    def __init__(self, cuts: int) -> None:
        self.cuts = cuts
        self.bases: list[int] = []
        """In order; of ``batches``."""
        self.batches: list[MarkedBatch] = []
        self.size_bytes = 0

    def at(self, offset: int) -> MarkedBatch | None:
        place = bisect_right(self.bases, offset) - 1
        if place < 0:
            return None
        found = self.batches[place]
        return found if offset < found.header.next_offset else None

    def add(self, batch: MarkedBatch) -> None:
        """One that is not there yet."""
        place = bisect_right(self.bases, batch.header.base_offset)
        self.bases.insert(place, batch.header.base_offset)
        self.batches.insert(place, batch)
        self.size_bytes += batch.size_bytes


class RecordPlaces:
    """Shared by all partitions of a node. Not thread-safe."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._segments: OrderedDict[Segment, _MarkedSegment] = OrderedDict()
        """That was used last is at the end."""
        self.size_bytes = 0

    def find(self, segment: Segment, offset: int) -> MarkedBatch | None:
        """``segment``: the one that has the offset now."""
        known = self._segments.get(segment)
        if known is None:
            return None
        if known.cuts != segment.cuts or not _is_plain(segment):
            self._forget(segment)
            return None
        self._segments.move_to_end(segment)
        return known.at(offset)

    def note(self, segment: Segment, position: int, header: BatchHeader, batch: Buffer) -> None:
        """A whole batch, read at that position of the segment as it is now."""
        if (
            header.compression is not Compression.NONE
            or header.is_control
            or not _is_plain(segment)
        ):
            return
        if self.find(segment, header.base_offset) is not None:
            return
        body = memoryview(batch)[HEADER_BYTES : header.size_bytes]
        marks = marks_of(body, header.record_count, STEP)
        if marks is None or header.record_count != header.next_offset - header.base_offset:
            return
        one = header._replace(record_count=1)
        marked = MarkedBatch(header, one, position + HEADER_BYTES, array(_MARK, marks))
        known = self._segments.setdefault(segment, _MarkedSegment(segment.cuts))
        known.add(marked)
        self.size_bytes += marked.size_bytes
        while self.size_bytes > self._bytes_max:
            self._forget(next(iter(self._segments)))

    def _forget(self, segment: Segment) -> None:
        self.size_bytes -= self._segments.pop(segment).size_bytes


def _is_plain(segment: Segment) -> bool:
    return segment.verified and segment.key is None and not segment.damages


def slice_of(segment: Segment, batch: MarkedBatch, offset: int) -> FileSlice:
    """The few records among which that one is. Raises OSError."""
    start, end = batch.bounds(offset)
    return segment.part(batch.position + start, end - start)
