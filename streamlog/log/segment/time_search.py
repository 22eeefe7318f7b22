"""Finds records by time. Times need not grow from batch to batch: clocks go back."""

from collections.abc import Callable, Iterable, Iterator

from streamlog.errors import CorruptData
from streamlog.log.segment.batch_scan import BatchPlace
from streamlog.log.segment.index import FIRST, SECOND
from streamlog.log.segment.segment import NO_TIMESTAMP, Segment
from streamlog.record.batch import read_header
from streamlog.record.codec import iter_records

TimedOffset = tuple[int, int]
"""An offset, and the time of its record."""

Verify = Callable[[Segment], None]
"""Returns once the segment is verified."""


def latest_time(segment: Segment) -> int | None:
    """The latest time of a sealed segment's records, if it can be told. Raises OSError.

    Before the segment is verified its time index is not trusted; the end of the segment is read
    too. Another log's file, or an older one, tells nothing: retention would remove what is stored
    on the other replicas.
    """
    if segment.is_lost:
        return None
    if segment.max_timestamp_ms is None and segment.size_bytes:
        if not segment.verified and segment.has_other_ends():
            return None
        latest = max((place.max_timestamp_ms for place in segment.tail()), default=NO_TIMESTAMP)
        indexed = _time_of_index(segment)
        if indexed is None or indexed < latest:  # a whole one ends with the latest time
            latest = max((place.max_timestamp_ms for place in segment.head()), default=NO_TIMESTAMP)
        segment.max_timestamp_ms = max(latest, NO_TIMESTAMP if indexed is None else indexed)
    return segment.max_timestamp_ms


def first_time(segment: Segment) -> int | None:
    """The time of the first batch of a segment, verified or not. Raises OSError."""
    place = next(segment.head(), None)
    return place.max_timestamp_ms if place else None


def first_record_since(
    segments: Iterable[Segment],
    timestamp_ms: int,
    offset: int,
    upper_offset: int,
    *,
    verify: Verify,
) -> TimedOffset | None:
    """The first record of that time or later in ``[offset, upper_offset)``.

    Has the segments that it reads verified. Raises OSError, CorruptData, Unavailable.
    """
    for segment in segments:
        if segment.base_offset >= upper_offset:
            break
        if not segment.sealed:  # its latest time comes from its index
            verify(segment)
        latest = latest_time(segment)
        if latest is None or latest < timestamp_ms:
            continue
        verify(segment)
        found = _first_since(segment, timestamp_ms, offset, upper_offset)
        if found is not None:
            return found
    return None


def first_batch_since(
    segment: Segment, timestamp_ms: int, offset: int, upper_offset: int
) -> BatchPlace | None:
    """The first batch with a record of that time or later in ``[offset, upper_offset)`` of a verified segment.
    Raises OSError, CorruptData.
    """
    return next(_batches_since(segment, timestamp_ms, offset, upper_offset), None)


def _batches_since(
    segment: Segment, timestamp_ms: int, offset: int, upper_offset: int
) -> Iterator[BatchPlace]:
    """All of them. As above."""
    entry = segment.times.floor(FIRST, timestamp_ms)
    start = max(offset, segment.base_offset + entry[1] if entry else segment.base_offset)
    for place in segment.places(start):
        if place.base_offset >= upper_offset:
            return
        if place.max_timestamp_ms >= timestamp_ms:
            yield place


def latest_record(
    segments: Iterable[Segment],
    offset: int,
    upper_offset: int,
    *,
    verify: Verify,
) -> TimedOffset | None:
    """The first record of the latest time in ``[offset, upper_offset)``. As above."""
    best: tuple[int, Segment] | None = None
    for segment in segments:
        if segment.base_offset >= upper_offset:
            break
        if not segment.sealed:
            verify(segment)
        latest = latest_time(segment)
        if latest is not None and segment.base_offset < offset:
            verify(segment)
            latest = _latest_between(segment, offset, upper_offset)
        elif latest is not None and segment.next_offset > upper_offset:
            verify(segment)
            latest = _latest_below(segment, upper_offset)
        if latest is not None and (best is None or latest > best[0]):
            best = latest, segment
    if best is None:
        return None
    return first_record_since([best[1]], best[0], offset, upper_offset, verify=verify)


def time_at(segment: Segment, offset: int) -> int | None:
    """The time of the batch with ``offset``, unless that is damaged. Raises OSError."""
    try:
        place = next(segment.places(offset), None)
    except CorruptData:
        return None
    return place.max_timestamp_ms if place else None


def _first_since(
    segment: Segment, timestamp_ms: int, offset: int, upper_offset: int
) -> TimedOffset | None:
    """The first record of that time or later in ``[offset, upper_offset)`` of a verified segment.

    Raises OSError, CorruptData.
    """
    for place in _batches_since(segment, timestamp_ms, offset, upper_offset):
        found = _first_in_batch(segment, place, timestamp_ms, offset)
        if found is not None:
            return found if found[0] < upper_offset else None
    return None


def _latest_below(segment: Segment, upper_offset: int) -> int | None:
    """The latest time of the records below ``upper_offset`` of a verified segment.

    Raises OSError.
    """
    last = upper_offset - 1 - segment.base_offset
    indexed = segment.offsets.floor(FIRST, last)
    timed = segment.times.floor(SECOND, indexed[0]) if indexed else None
    start = segment.base_offset + indexed[0] if indexed else segment.base_offset
    later = _latest_between(segment, start, upper_offset)
    return max((time for time in (timed and timed[0], later) if time is not None), default=None)


def _latest_between(segment: Segment, offset: int, upper_offset: int) -> int | None:
    latest = None
    for place in segment.places(offset):
        if place.base_offset >= upper_offset:
            break
        latest = max(place.max_timestamp_ms, NO_TIMESTAMP if latest is None else latest)
    return latest


def _time_of_index(segment: Segment) -> int | None:
    try:
        last = segment.times.last()
    except CorruptData:
        return None
    return last[0] if last else None


def _first_in_batch(
    segment: Segment, place: BatchPlace, timestamp_ms: int, offset: int
) -> TimedOffset | None:
    """Decoded are batches with times of their records' own, and those that compaction has thinned
    out, of which no record may be left.
    """
    batch = segment.read_batch(place)
    header = read_header(batch)
    if header.is_log_append_time and header.record_count > header.last_offset_delta:
        return max(offset, place.base_offset), place.max_timestamp_ms
    for record in iter_records(batch):
        if record.timestamp_ms >= timestamp_ms and record.offset >= offset:
            return record.offset, record.timestamp_ms
    return None
