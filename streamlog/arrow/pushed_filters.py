"""Filters of a query as narrower ranges of offsets: fewer bytes are read, no row is left out.

Of filters on the timestamp only a lower bound does that: a producer's clock may go back, so records
that are early enough may come after one that is too late.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from streamlog.arrow.location import Location, PartitionRange
from streamlog.model import TopicPartition

OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True)
class PushedFilters:
    """What a row must fulfil: all of it."""

    offset_min: int = 0
    offset_end: int = OFFSET_MAX
    timestamp_min_ms: int | None = None
    partitions: frozenset[int] | None = None

    def of(self, ranges: Iterable[PartitionRange], location: Location) -> list[PartitionRange]:
        """A partition that no row can be in has an empty range."""
        ranges = list(ranges)
        earliest = self._earliest(ranges, location)
        return [self._narrowed(range_, earliest.get(range_.name, 0)) for range_ in ranges]

    def _earliest(
        self, ranges: list[PartitionRange], location: Location
    ) -> Mapping[TopicPartition, int]:
        if self.timestamp_min_ms is None:
            return {}
        found = location.offsets_at({range_.name: self.timestamp_min_ms for range_ in ranges})
        return {name: OFFSET_MAX if at is None else at for name, at in found.items()}

    def _narrowed(self, range_: PartitionRange, earliest: int) -> PartitionRange:
        start = max(range_.start_offset, self.offset_min, earliest)
        end = min(range_.end_offset, self.offset_end)
        if self.partitions is not None and range_.name.partition not in self.partitions:
            end = start
        if start >= end:
            start = end = range_.end_offset
        return replace(range_, start_offset=start, end_offset=end)


EVERYTHING: Final = PushedFilters()
