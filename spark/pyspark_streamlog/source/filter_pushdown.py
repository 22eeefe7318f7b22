"""Filters of a query as narrower ranges of offsets: fewer bytes are read, no row is left out.

Spark checks every filter once more, so it is enough not to read what certainly does not match. Of
filters on the timestamp only a lower bound does that: a producer's clock may go back, so records
that are early enough may come after one that is too late.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark_streamlog.source.location import Location, PartitionRange
from streamlog.model import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

OFFSET_MAX: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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


def pushed_filters(filters: "Iterable[Filter]") -> PushedFilters:
    """What of these filters, all of which must hold, can be used."""
    pushed = EVERYTHING
    for filter_ in filters:
        column, *nested = getattr(filter_, "attribute", ("",))
        if not nested:
            value = getattr(filter_, "value", None)
            pushed = _and(pushed, type(filter_).__name__, column, value)
    return pushed


def _and(pushed: PushedFilters, kind: str, column: str, value: Any) -> PushedFilters:
    if column == "offset" and isinstance(value, int):
        return _offset(pushed, kind, value)
    if column == "partition" and kind in ("EqualTo", "EqualNullSafe") and isinstance(value, int):
        return _partitions(pushed, frozenset({value}))
    if column == "partition" and kind == "In" and all(isinstance(it, int) for it in value):
        return _partitions(pushed, frozenset(value))
    lower = kind in ("GreaterThan", "GreaterThanOrEqual", "EqualTo", "EqualNullSafe")
    if column == "timestamp" and lower and isinstance(value, datetime) and value.tzinfo:
        timestamp_ms = (value - _EPOCH) // timedelta(milliseconds=1)
        least = max(pushed.timestamp_min_ms or 0, timestamp_ms)
        return replace(pushed, timestamp_min_ms=least)
    return pushed


def _offset(pushed: PushedFilters, kind: str, value: int) -> PushedFilters:
    exactly = kind in ("EqualTo", "EqualNullSafe")
    if exactly or kind == "GreaterThanOrEqual":
        pushed = replace(pushed, offset_min=max(pushed.offset_min, value))
    if kind == "GreaterThan":
        pushed = replace(pushed, offset_min=max(pushed.offset_min, value + 1))
    if exactly or kind == "LessThanOrEqual":
        pushed = replace(pushed, offset_end=min(pushed.offset_end, value + 1))
    if kind == "LessThan":
        pushed = replace(pushed, offset_end=min(pushed.offset_end, value))
    return pushed


def _partitions(pushed: PushedFilters, wanted: frozenset[int]) -> PushedFilters:
    known = pushed.partitions
    return replace(pushed, partitions=wanted if known is None else known & wanted)
