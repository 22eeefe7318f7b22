"""What of a range of offsets is read from the object store, and what from servers. Pure.

The manifest that counts names segments without a hole. So what of a range is in the store is one run of offsets. What
comes before it is below the log start, and gone: a server is asked for it, which tells so. What comes after it is on
the nodes alone.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from streamlog.arrow.location import PartitionRange, StoredSegments
from streamlog.tier.manifest import TieredSegment
from streamlog.tier.object_layout import PartitionPrefix

SMALL_FACTOR: Final = 4
"""A segment is not parted where a task would have so many of its size."""

BatchEnds = Callable[[TieredSegment], list[tuple[int, int]]]
"""Of a segment: offsets at which batches end, and up to where the batches before each take its bytes."""


@dataclass(frozen=True)
class StoredPartition:
    """What of a partition is in the store: ``[log_start_offset, end of the last segment)``."""

    stream_id: str
    prefix: PartitionPrefix
    log_start_offset: int
    segments: tuple[TieredSegment, ...] = ()
    """As in the manifest; the first ones may be below the log start."""


@dataclass(frozen=True)
class PlacedRange:
    """Offsets that are read in one place."""

    range: PartitionRange
    is_stored: bool


class _StoredStretch(NamedTuple):
    """What a range touches of a segment, in bytes, about."""

    segment: TieredSegment
    position: int
    size_bytes: int


def with_segments(range_: PartitionRange, there: StoredPartition | None) -> PartitionRange:
    """The range with those of its segments that are in the store. ``there``: None: nothing is.

    Of another stream of the name nothing is taken.
    """
    if there is None or there.stream_id != range_.stream_id or not there.segments:
        return replace(range_, stored=None)
    start = max(range_.start_offset, there.log_start_offset, there.segments[0].base_offset)
    found = _between(there.segments, start, range_.end_offset)
    return replace(range_, stored=StoredSegments(there.prefix, start, found) if found else None)


def parts(range_: PartitionRange) -> Iterator[PlacedRange]:
    """What is read where, in the order of the offsets; each offset is in one of them, and none is empty."""
    start, end, stored = range_.start_offset, range_.end_offset, range_.stored
    bounds = [start, start, end]
    if stored is not None:
        first = min(max(start, stored.start_offset), end)
        bounds = [start, first, max(first, min(end, stored.end_offset))]
    bounds.append(end)
    for (first, stop), is_stored in zip(pairwise(bounds), (False, True, False), strict=True):
        if first < stop:
            within = stored if is_stored else None
            part = replace(range_, start_offset=first, end_offset=stop, stored=within)
            yield PlacedRange(part, is_stored and within is not None)


def stored_end(range_: PartitionRange) -> int:
    """From there on servers are asked."""
    *_, last = [range_.start_offset, *(it.range.end_offset for it in parts(range_) if it.is_stored)]
    return last


def stored_bytes(range_: PartitionRange) -> int:
    """What the batches in the store take, about."""
    return sum(it.size_bytes for it in _stretches(range_))


def cut(range_: PartitionRange, piece_bytes: int, batch_ends: BatchEnds) -> list[PartitionRange]:
    """A range that ends with ``stored_end``, in pieces of about ``piece_bytes``, at ends of batches. Each has its own
    segments. ``batch_ends`` is asked of segments that are parted.
    """
    stretches = _stretches(range_)
    ends = [0, *accumulate(it.size_bytes for it in stretches)]
    total = ends[-1]
    count = max(1, -(-total // piece_bytes))
    bounds = {range_.start_offset, range_.end_offset}
    for i in range(1, count):
        wanted = total * i // count
        at = bisect_right(ends, wanted) - 1
        bounds.add(_boundary(stretches[at], wanted - ends[at], piece_bytes, batch_ends))
    ordered = sorted(it for it in bounds if range_.start_offset <= it <= range_.end_offset)
    pieces = (replace(range_, start_offset=a, end_offset=b) for a, b in pairwise(ordered))
    return [_narrowed(it) for it in pieces]


def _boundary(stretch: _StoredStretch, into: int, piece_bytes: int, batch_ends: BatchEnds) -> int:
    """Where to part ``into`` bytes of what is touched of a segment; its beginning where it is small."""
    segment, position = stretch.segment, stretch.position + into
    if into <= 0 or segment.size_bytes * SMALL_FACTOR <= piece_bytes:
        return segment.base_offset
    ends = batch_ends(segment)
    at = bisect_right(ends, position, key=lambda it: it[1]) - 1
    return ends[at][0] if at >= 0 else segment.base_offset


def _narrowed(range_: PartitionRange) -> PartitionRange:
    """With the segments alone that it needs."""
    stored = range_.stored
    if stored is None:
        return range_
    start = max(range_.start_offset, stored.start_offset)
    segments = _between(stored.segments, start, range_.end_offset)
    narrowed = replace(stored, start_offset=start, segments=segments) if segments else None
    return replace(range_, stored=narrowed)


def _between(
    segments: tuple[TieredSegment, ...], start: int, end: int
) -> tuple[TieredSegment, ...]:
    """Those with an offset of ``[start, end)``."""
    if start >= end:
        return ()
    return tuple(it for it in segments if it.base_offset < end and it.end_offset > start)


def _stretches(range_: PartitionRange) -> list[_StoredStretch]:
    """Of the segments in the store that the range touches."""
    found: list[_StoredStretch] = []
    for part in parts(range_):
        if part.is_stored and part.range.stored is not None:
            start, end = part.range.start_offset, part.range.end_offset
            for it in _between(part.range.stored.segments, start, end):
                first, stop = max(start, it.base_offset), min(end, it.end_offset)
                begin, finish = _position(it, first), _position(it, stop)
                found.append(_StoredStretch(it, begin, finish - begin))
    return found


def _position(segment: TieredSegment, offset: int) -> int:
    """Of an offset in a segment, about: its records are taken to be of one size."""
    count = segment.end_offset - segment.base_offset
    return segment.size_bytes * (offset - segment.base_offset) // count
