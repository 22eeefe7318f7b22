from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from pyspark_streamlog.options.read_options import SourceOptions
from pyspark_streamlog.source.filter_pushdown import pushed_filters
from streamlog.arrow.filters import EVERYTHING, PushedFilters
from streamlog.arrow.offset_ranges import plan_offset_ranges
from streamlog.arrow.range_reader import open_location
from tests.spark.data_folder import DataFolder

OFFSET, TIME, PARTITION = ("offset",), ("timestamp",), ("partition",)
MOMENT = datetime(2023, 11, 14, 22, 13, 20, 1_500, tzinfo=UTC)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], EVERYTHING),
        ([GreaterThan(OFFSET, 4), LessThan(OFFSET, 9)], PushedFilters(5, 9)),
        ([GreaterThanOrEqual(OFFSET, 4), LessThanOrEqual(OFFSET, 9)], PushedFilters(4, 10)),
        ([EqualTo(OFFSET, 4), GreaterThan(OFFSET, 1)], PushedFilters(4, 5)),
        ([EqualTo(PARTITION, 1)], PushedFilters(partitions=frozenset({1}))),
        (
            [In(PARTITION, (1, 2)), In(PARTITION, (2, 3))],
            PushedFilters(partitions=frozenset({2})),
        ),
        ([GreaterThan(TIME, MOMENT)], PushedFilters(timestamp_min_ms=1_700_000_000_001)),
        ([LessThan(TIME, MOMENT)], EVERYTHING),
        ([GreaterThan(TIME, datetime(1960, 1, 1, tzinfo=UTC))], PushedFilters(timestamp_min_ms=0)),
        ([Not(EqualTo(OFFSET, 4)), IsNotNull(OFFSET), EqualTo(("value",), b"x")], EVERYTHING),
        ([EqualTo(("headers", "key"), "x"), EqualTo(OFFSET, None)], EVERYTHING),
    ],
)
def test_filters_become_bounds(filters: list[Any], expected: PushedFilters) -> None:
    assert pushed_filters(filters) == expected


@pytest.mark.parametrize(
    ("narrowing", "expected"),
    [
        (EVERYTHING, [(0, 20), (0, 3)]),
        (PushedFilters(4, 9), [(4, 9), (3, 3)]),
        (PushedFilters(partitions=frozenset({1})), [(20, 20), (0, 3)]),
        (PushedFilters(30, 40), [(20, 20), (3, 3)]),
        (PushedFilters(timestamp_min_ms=101_000), [(5, 20), (3, 3)]),
        (PushedFilters(timestamp_min_ms=999_000), [(20, 20), (3, 3)]),
    ],
)
def test_ranges_are_narrowed(
    folder: DataFolder, narrowing: PushedFilters, expected: list[tuple[int, int]]
) -> None:
    folder.segment([[b"v"] * 5] * 4, timestamp_ms=100_000)
    folder.segment([[b"v"] * 3], partition=1, timestamp_ms=100_000)
    options = SourceOptions.parse({"path": str(folder.path), "subscribe": "orders"})
    ranges = plan_offset_ranges(open_location(options), options, narrowing)
    assert [(it.start_offset, it.end_offset) for it in ranges] == expected
