"""Filters of Spark's as narrower ranges of offsets. Spark checks every filter once more, so it is
enough not to read what certainly does not match.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from streamlog.arrow.filters import EVERYTHING, PushedFilters

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


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
