"""Ranges cut into tasks of about equal bytes, at batch boundaries: no batch is decoded twice."""

from dataclasses import dataclass
from itertools import pairwise

from pyspark_streamlog.partition_files import PartitionFiles, Segment
from pyspark_streamlog.snapshot import PartitionRange


@dataclass(frozen=True)
class _Stretch:
    """The part of a segment that a range touches, in bytes."""

    segment: Segment
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def cut(ranges: list[PartitionRange], bytes_max: int, tasks_min: int) -> list[PartitionRange]:
    """Each range in pieces of about ``bytes_max`` or less, ``tasks_min`` or more of them in all.

    Fewer where there are fewer batches. Ranges without records are left out.
    """
    stretches = [
        (range_, _stretches(range_)) for range_ in ranges if range_.start_offset < range_.end_offset
    ]
    total = sum(stretch.size for _, of_range in stretches for stretch in of_range)
    piece_bytes = max(1, min(bytes_max, -(-total // tasks_min)))
    return [
        piece for range_, of_range in stretches for piece in _pieces(range_, of_range, piece_bytes)
    ]


def _pieces(
    range_: PartitionRange, stretches: list[_Stretch], piece_bytes: int
) -> list[PartitionRange]:
    size = sum(stretch.size for stretch in stretches)
    count = max(1, -(-size // piece_bytes))
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
    return [
        PartitionRange(range_.name, range_.folder, start, end) for start, end in pairwise(ordered)
    ]


def _stretches(range_: PartitionRange) -> list[_Stretch]:
    files = PartitionFiles(range_.folder)
    segments = files.segments_between(range_.start_offset, range_.end_offset)
    return [
        _Stretch(
            segment,
            segment.position_before(range_.start_offset) if segment == segments[0] else 0,
            segment.position_after(range_.end_offset - 1)
            if segment == segments[-1]
            else segment.path.stat().st_size,
        )
        for segment in segments
    ]
