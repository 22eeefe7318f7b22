"""How far a micro-batch of a streaming query goes, and what that leaves to read. Pure.

Partitions that have come since begin where their log starts. A stream that was created again is a
new one, and its predecessor's unread records are lost, as are records that retention has taken
before they were read, and records above the end of a log that was cut back.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from pyspark_streamlog.source.checkpoint_offsets import StreamOffsets
from streamlog.arrow.location import Bounds, PartitionRange
from streamlog.model import TopicPartition

K = TypeVar("K")


@dataclass(frozen=True)
class Present:
    """The partitions of the subscription as they are now."""

    stream_ids: Mapping[TopicPartition, str]
    bounds: Mapping[TopicPartition, Bounds]

    def latest(self) -> dict[TopicPartition, int]:
        return {name: it.high_watermark for name, it in self.bounds.items()}


@dataclass(frozen=True)
class Loss:
    """Records ``[first, end)``; ``end`` is ``first`` if their number is unknown."""

    name: TopicPartition
    first: int
    end: int
    why: str


def losses(start: StreamOffsets, now: Present) -> list[Loss]:
    """What cannot be read any more of what follows ``start``."""
    found: list[Loss] = []
    for name, first in sorted(start.ends.items()):
        if name not in now.bounds:
            found.append(Loss(name, first, first, "the stream was deleted"))
            continue
        bounds = now.bounds[name]
        if not start.knows(name, now.stream_ids[name]):
            found.append(Loss(name, first, first, "the stream was deleted and created again"))
        elif bounds.log_start > first:
            why = f"the log starts at {bounds.log_start} now"
            found.append(Loss(name, first, bounds.log_start, why))
        elif bounds.high_watermark < first:
            why = f"the log ends at {bounds.high_watermark} now"
            found.append(Loss(name, bounds.high_watermark, first, why))
    return found


def backlog(
    start: StreamOffsets, now: Present, ceiling: StreamOffsets | None
) -> list[PartitionRange]:
    """What there is to read after ``start``, up to ``ceiling``; empty ranges included.

    What was lost is left out: see ``losses``.
    """
    ranges = []
    for name, bounds in sorted(now.bounds.items()):
        stream_id = now.stream_ids[name]
        first = bounds.log_start
        if start.knows(name, stream_id):
            first = max(first, start.ends[name])
        end = bounds.high_watermark
        if ceiling is not None:
            end = min(end, ceiling.ends[name]) if ceiling.knows(name, stream_id) else first
        ranges.append(PartitionRange(name, stream_id, first, max(first, end)))
    return ranges


def limited(
    ranges: list[PartitionRange],
    offsets_max: int | None,
    bytes_max: int | None,
    sizes: Mapping[TopicPartition, int],
) -> list[PartitionRange]:
    """The same starts, and ends that keep to the limits. ``sizes``: what each range takes.

    At least one record is left where there is any, or nothing would ever move.
    """
    counts = {it.name: it.end_offset - it.start_offset for it in ranges}
    if bytes_max is not None and sum(sizes.values()) > bytes_max:
        parts = share(sizes, bytes_max)
        counts = {
            name: count * parts[name] // sizes[name] if sizes[name] else count
            for name, count in counts.items()
        }
        if not any(counts.values()):
            fullest = max(ranges, key=lambda it: sizes[it.name]).name
            counts[fullest] = 1
    if offsets_max is not None:
        counts = share(counts, offsets_max)
    return [replace(it, end_offset=it.start_offset + counts[it.name]) for it in ranges]


def share(wanted: Mapping[K, int], limit: int) -> dict[K, int]:
    """What each gets of ``limit``: in proportion to what it wants, and all of it if that fits.

    The parts add up to the limit. Who wants anything gets at least one, while there is enough for
    all: a short partition is not starved by a long one.
    """
    total = sum(wanted.values())
    if total <= limit:
        return dict(wanted)
    wanting = [key for key, want in wanted.items() if want > 0]
    parts = dict.fromkeys(wanted, 0)
    for key in wanting[:limit]:
        parts[key] = 1
    left = limit - min(limit, len(wanting))
    unmet = total - len(wanting)
    due = [((wanted[key] - 1) * left, key) for key in wanting] if left else []
    for product, key in due:
        parts[key] += product // unmet
    left -= sum(product // unmet for product, _ in due)
    for _, key in sorted(due, key=lambda it: -(it[0] % unmet))[:left]:
        parts[key] += 1
    return parts


def advanced(start: StreamOffsets, ranges: list[PartitionRange]) -> StreamOffsets:
    """Where the batch of these ranges ends; ``start`` itself where it would be empty.

    Partitions that are not there any more stay as they were: who was gone for a moment is not read
    again.
    """
    if all(it.start_offset == it.end_offset for it in ranges):
        return start
    ends, ids = dict(start.ends), dict(start.stream_ids)
    begins: dict[TopicPartition, int] = {}
    for it in ranges:
        if not start.knows(it.name, it.stream_id):
            begins[it.name] = it.start_offset
    renewed = {name.stream for name in begins if name in ends}
    ends = {name: end for name, end in ends.items() if name.stream not in renewed}
    for it in ranges:
        known = start.ends.get(it.name, 0) if it.name not in begins else 0
        ends[it.name] = max(it.end_offset, known)
        ids[it.name.stream] = it.stream_id or ids.get(it.name.stream, "")
    return StreamOffsets(ends, ids, begins)


def planned(start: StreamOffsets, end: StreamOffsets) -> list[PartitionRange]:
    """The batch between two offsets, the same whenever it is asked for."""
    ranges = []
    for name, end_offset in sorted(end.ends.items()):
        stream_id = end.stream_ids.get(name.stream, "")
        first = end.begins.get(name)
        if start.knows(name, stream_id):
            first = start.ends[name]
        if first is not None and first < end_offset:
            ranges.append(PartitionRange(name, stream_id, first, end_offset))
    return ranges


def with_cuts(end: StreamOffsets, tasks: Iterable[PartitionRange]) -> StreamOffsets:
    """Where the batch ends, and where each of these tasks does."""
    cuts: dict[TopicPartition, list[int]] = {}
    for it in tasks:
        if it.end_offset != end.ends[it.name]:
            cuts.setdefault(it.name, []).append(it.end_offset)
    return replace(end, cuts=cuts)


def tasks_of(range_: PartitionRange, cuts: Iterable[int], first: int) -> Iterator[PartitionRange]:
    """The range's tasks, of what follows ``first``: those before it are there, and empty."""
    inside = [it for it in cuts if range_.start_offset < it < range_.end_offset]
    for start, end in pairwise([range_.start_offset, *inside, range_.end_offset]):
        yield replace(range_, start_offset=min(max(start, first), end), end_offset=end)
