"""The jobs in ``spark/jobs`` on real flights, against figures computed without Spark."""

import importlib
import json
import sys
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from demo.flights import load_flights
from tests.spark.live_node import LiveNode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

TIMEOUT_S = 300
EVERY = 150
"""So many flights of which one is taken."""


@pytest.fixture(scope="module")
def flights() -> list[dict[str, Any]]:
    """Of a whole year, in the order in which they should depart."""
    chosen = [json.loads(payload) for payload in load_flights().payloads[::EVERY]]
    return sorted(chosen, key=lambda it: it["time_hour"])


def job(name: str) -> ModuleType:
    folder = str(Path(__file__).parents[2] / "spark" / "jobs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [folder, *sys.path])
        return importlib.import_module(name)


def packed(flights: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(it).encode() for it in flights]


def by_day(flights: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter((it["time_hour"][:10], it["origin"]) for it in flights)


@pytest.mark.parametrize("runs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_departures_of_days_that_are_over(
    spark: "SparkSession",
    node: LiveNode,
    flights: list[dict[str, Any]],
    tmp_path: Path,
    runs: int,
) -> None:
    """Two runs with one checkpoint: what was open at the end of the first is written by the second,
    and a day that is long over is not counted again.
    """
    source, sink = f"flights-{runs}", f"departures-{runs}"
    node.create(source)
    node.create(sink, 2)

    def run() -> dict[tuple[str, str], int]:
        checkpoint = str(tmp_path / "checkpoint")
        start = job("departures").start
        query = start(spark, node.kafka, source, sink, checkpoint, once=True)
        assert query.awaitTermination(TIMEOUT_S)
        rows = [json.loads(it or b"") for it in node.values(sink, 2)]
        found = {(row["day"], row["origin"]): row["count"] for row in rows}
        assert len(found) == len(rows)
        return found

    half = len(flights) // 2
    node.produce(source, packed(flights[:half]))
    last = flights[half - 1]["time_hour"][:10]
    first = run()
    expected = by_day(flights[:half])
    assert len(first) > 400
    assert first.items() <= expected.items()
    assert {day for day, _ in expected.keys() - first.keys()} <= {last, day_before(last)}
    if runs == 1:
        return
    node.produce(source, packed([*flights[half:], flights[0]]))
    second, expected = run(), by_day(flights)
    last = flights[-1]["time_hour"][:10]
    assert first.items() <= second.items() <= expected.items()
    assert {day for day, _ in expected.keys() - second.keys()} <= {last, day_before(last)}


def day_before(day: str) -> str:
    return str(date.fromisoformat(day) - timedelta(days=1))


def test_the_latest_flight_of_each_aircraft(
    spark: "SparkSession", node: LiveNode, flights: list[dict[str, Any]]
) -> None:
    node.create("aircraft", 2, **{"cleanup.policy": "compact"})
    expected: dict[bytes, bytes] = {}
    written = []
    for number, flight in enumerate(flights):
        if flight["tailnum"] is None:
            continue
        key, value = flight["tailnum"].encode(), json.dumps(flight).encode()
        written.append((key, None if number % 7 == 0 else value))
    for key, last in written:
        if last is None:
            expected.pop(key, None)
        else:
            expected[key] = last
    node.produce_keyed("aircraft", written)
    rows = job("latest").latest(spark, node.kafka, "aircraft").collect()
    assert {bytes(row.key): bytes(row.value) for row in rows} == expected
    assert len(rows) == len(expected) > 500


def test_export_goes_on_where_it_stopped_and_replay_brings_all_back(
    spark: "SparkSession", node: LiveNode, flights: list[dict[str, Any]], tmp_path: Path
) -> None:
    node.create("exported", 2)
    node.create("replayed", 2)
    export, folder = job("export").export, str(tmp_path / "parquet")
    keys = [str(it["tailnum"]).encode() for it in flights]
    keyed = list(zip(keys, packed(flights), strict=True))
    for part in (keyed[:1500], keyed[1500:]):
        node.produce_keyed("exported", part)
        export(spark, node.kafka, "exported", folder, offsets_max=600)
    rows = spark.read.parquet(folder).collect()
    found = {(row.partition, row.offset): (bytes(row.key), bytes(row.value)) for row in rows}
    assert len(rows) == len(found)
    records = {number: node.records("exported", number) for number in (0, 1)}
    assert found == {
        (number, it.offset): (it.key, it.value) for number in records for it in records[number]
    }
    for _ in range(2):
        job("replay").replay(spark, folder, node.kafka, "replayed", write_id="test", tasks=3)
        for number, expected in records.items():
            assert node.records("replayed", number) == expected
