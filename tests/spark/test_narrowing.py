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

from pyspark_streamlog.narrowing import EVERYTHING, Narrowing, narrowing_of
from pyspark_streamlog.options import ReadOptions
from pyspark_streamlog.reader import open_place
from pyspark_streamlog.snapshot import take_snapshot
from tests.spark.data_folder import HandFolder

OFFSET, TIME, PARTITION = ("offset",), ("timestamp",), ("partition",)
MOMENT = datetime(2023, 11, 14, 22, 13, 20, 1_500, tzinfo=UTC)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], EVERYTHING),
        ([GreaterThan(OFFSET, 4), LessThan(OFFSET, 9)], Narrowing(5, 9)),
        ([GreaterThanOrEqual(OFFSET, 4), LessThanOrEqual(OFFSET, 9)], Narrowing(4, 10)),
        ([EqualTo(OFFSET, 4), GreaterThan(OFFSET, 1)], Narrowing(4, 5)),
        ([EqualTo(PARTITION, 1)], Narrowing(partitions=frozenset({1}))),
        (
            [In(PARTITION, (1, 2)), In(PARTITION, (2, 3))],
            Narrowing(partitions=frozenset({2})),
        ),
        ([GreaterThan(TIME, MOMENT)], Narrowing(timestamp_min_ms=1_700_000_000_001)),
        ([LessThan(TIME, MOMENT)], EVERYTHING),
        ([GreaterThan(TIME, datetime(1960, 1, 1, tzinfo=UTC))], Narrowing(timestamp_min_ms=0)),
        ([Not(EqualTo(OFFSET, 4)), IsNotNull(OFFSET), EqualTo(("value",), b"x")], EVERYTHING),
        ([EqualTo(("headers", "key"), "x"), EqualTo(OFFSET, None)], EVERYTHING),
    ],
)
def test_filters_become_bounds(filters: list[Any], expected: Narrowing) -> None:
    assert narrowing_of(filters) == expected


@pytest.mark.parametrize(
    ("narrowing", "expected"),
    [
        (EVERYTHING, [(0, 20), (0, 3)]),
        (Narrowing(4, 9), [(4, 9), (3, 3)]),
        (Narrowing(partitions=frozenset({1})), [(20, 20), (0, 3)]),
        (Narrowing(30, 40), [(20, 20), (3, 3)]),
        (Narrowing(timestamp_min_ms=101_000), [(5, 20), (3, 3)]),
        (Narrowing(timestamp_min_ms=999_000), [(20, 20), (3, 3)]),
    ],
)
def test_ranges_are_narrowed(
    folder: HandFolder, narrowing: Narrowing, expected: list[tuple[int, int]]
) -> None:
    folder.segment([[b"v"] * 5] * 4, timestamp_ms=100_000)
    folder.segment([[b"v"] * 3], partition=1, timestamp_ms=100_000)
    options = ReadOptions.parse({"path": str(folder.path), "subscribe": "orders"})
    ranges = take_snapshot(open_place(options), options, narrowing)
    assert [(it.start_offset, it.end_offset) for it in ranges] == expected
