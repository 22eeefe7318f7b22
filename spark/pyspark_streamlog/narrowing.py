"""Filters of a query as narrower ranges of offsets: fewer bytes are read, no row is left out.

Spark checks every filter once more, so it is enough not to read what certainly does not match. Of
filters on the timestamp only a lower bound does that: a producer's clock may go back, so records
that are early enough may come after one that is too late.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark_streamlog.place import PartitionRange, Place
from streamlog.model import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

OFFSET_MAX: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Narrowing:
    """What a row must fulfil: all of it."""

    offset_min: int = 0
    offset_end: int = OFFSET_MAX
    timestamp_min_ms: int | None = None
    partitions: frozenset[int] | None = None

    def of(self, ranges: Iterable[PartitionRange], place: Place) -> list[PartitionRange]:
        """A partition that no row can be in has an empty range."""
        ranges = list(ranges)
        earliest = self._earliest(ranges, place)
        return [self._narrowed(range_, earliest.get(range_.name, 0)) for range_ in ranges]

    def _earliest(self, ranges: list[PartitionRange], place: Place) -> Mapping[TopicPartition, int]:
        if self.timestamp_min_ms is None:
            return {}
        found = place.offsets_at({range_.name: self.timestamp_min_ms for range_ in ranges})
        return {name: OFFSET_MAX if at is None else at for name, at in found.items()}

    def _narrowed(self, range_: PartitionRange, earliest: int) -> PartitionRange:
        start = max(range_.start_offset, self.offset_min, earliest)
        end = min(range_.end_offset, self.offset_end)
        if self.partitions is not None and range_.name.partition not in self.partitions:
            end = start
        if start >= end:
            start = end = range_.end_offset
        return replace(range_, start_offset=start, end_offset=end)


EVERYTHING: Final = Narrowing()


def narrowing_of(filters: "Iterable[Filter]") -> Narrowing:
    """What of these filters, all of which must hold, can be used."""
    narrowing = EVERYTHING
    for filter_ in filters:
        column, *nested = getattr(filter_, "attribute", ("",))
        if not nested:
            value = getattr(filter_, "value", None)
            narrowing = _and(narrowing, type(filter_).__name__, column, value)
    return narrowing


def _and(narrowing: Narrowing, kind: str, column: str, value: Any) -> Narrowing:
    if column == "offset" and isinstance(value, int):
        return _offset(narrowing, kind, value)
    if column == "partition" and kind in ("EqualTo", "EqualNullSafe") and isinstance(value, int):
        return _partitions(narrowing, frozenset({value}))
    if column == "partition" and kind == "In" and all(isinstance(it, int) for it in value):
        return _partitions(narrowing, frozenset(value))
    lower = kind in ("GreaterThan", "GreaterThanOrEqual", "EqualTo", "EqualNullSafe")
    if column == "timestamp" and lower and isinstance(value, datetime) and value.tzinfo:
        timestamp_ms = (value - _EPOCH) // timedelta(milliseconds=1)
        least = max(narrowing.timestamp_min_ms or 0, timestamp_ms)
        return replace(narrowing, timestamp_min_ms=least)
    return narrowing


def _offset(narrowing: Narrowing, kind: str, value: int) -> Narrowing:
    exactly = kind in ("EqualTo", "EqualNullSafe")
    if exactly or kind == "GreaterThanOrEqual":
        narrowing = replace(narrowing, offset_min=max(narrowing.offset_min, value))
    if kind == "GreaterThan":
        narrowing = replace(narrowing, offset_min=max(narrowing.offset_min, value + 1))
    if exactly or kind == "LessThanOrEqual":
        narrowing = replace(narrowing, offset_end=min(narrowing.offset_end, value + 1))
    if kind == "LessThan":
        narrowing = replace(narrowing, offset_end=min(narrowing.offset_end, value))
    return narrowing


def _partitions(narrowing: Narrowing, wanted: frozenset[int]) -> Narrowing:
    known = narrowing.partitions
    return replace(narrowing, partitions=wanted if known is None else known & wanted)
