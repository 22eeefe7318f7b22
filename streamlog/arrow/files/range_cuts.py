"""Ranges cut into tasks of about equal bytes, at batch boundaries: no batch is decoded twice."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from streamlog.arrow.files.partition_folder import PartitionFiles
from streamlog.arrow.files.segment_reader import SegmentFile
from streamlog.arrow.location import PartitionRange, piece_bytes


@dataclass(frozen=True)
class _Stretch:
    """The part of a segment that a range touches, in bytes."""

    segment: SegmentFile
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def bytes_between(files: PartitionFiles, range_: PartitionRange) -> int:
    """What the batches of a range take."""
    if range_.start_offset >= range_.end_offset:
        return 0
    return sum(stretch.size for stretch in _stretches(files, range_))


def cut(
    ranges: Iterable[tuple[PartitionRange, PartitionFiles]], bytes_max: int | None, tasks_min: int
) -> list[PartitionRange]:
    """Each range, none of which is empty, in pieces of about ``piece_bytes`` of all; fewer where there are fewer
    batches.
    """
    stretches = [(range_, _stretches(files, range_)) for range_, files in ranges]
    total = sum(stretch.size for _, of_range in stretches for stretch in of_range)
    size = piece_bytes(total, bytes_max, tasks_min)
    return [piece for range_, of_range in stretches for piece in _pieces(range_, of_range, size)]


def _pieces(
    range_: PartitionRange, stretches: list[_Stretch], bytes_max: int
) -> list[PartitionRange]:
    size = sum(stretch.size for stretch in stretches)
    count = max(1, -(-size // bytes_max))
    cuts = [size * i // count for i in range(1, count)]
    bounds = {range_.start_offset, range_.end_offset}
    begin = 0  # of the stretch, counted in bytes of the range
    for stretch in stretches:
        inside = [cut for cut in cuts if begin <= cut < begin + stretch.size]
        positions = [stretch.start + cut - begin for cut in inside]
        if positions:
            bounds |= stretch.segment.boundaries_before(positions)
        begin += stretch.size
    ordered = sorted(b for b in bounds if range_.start_offset <= b <= range_.end_offset)
    return [replace(range_, start_offset=start, end_offset=end) for start, end in pairwise(ordered)]


def _stretches(files: PartitionFiles, range_: PartitionRange) -> list[_Stretch]:
    segments = files.segments_between(range_.start_offset, range_.end_offset)
    return [
        _Stretch(
            segment,
            segment.position_before(range_.start_offset) if segment == segments[0] else 0,
            segment.position_after(range_.end_offset - 1)
            if segment == segments[-1]
            else segment.size(),
        )
        for segment in segments
    ]
