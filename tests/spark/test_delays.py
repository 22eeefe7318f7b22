"""The job in ``spark/jobs``, against figures computed record by record."""

import importlib.util
import json
import statistics
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from tests.record_batches import HandRecord
from tests.spark.data_folder import DataFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

FLIGHTS = [
    {"carrier": c, "origin": o, "dep_delay": d, "arr_delay": a}
    for c, o, d, a in [
        ("UA", "EWR", 2, 11),
        ("UA", "EWR", -4, None),
        ("UA", "JFK", 7, -3),
        ("B6", "JFK", None, None),
        ("UA", "EWR", 5, 8),
        ("B6", "JFK", 13, 1),
    ]
]


def load_job() -> ModuleType:
    path = Path(__file__).parents[2] / "spark" / "jobs" / "delays.py"
    spec = importlib.util.spec_from_file_location("delays", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mean(carrier: str, origin: str, name: str) -> float | None:
    flights = [f for f in FLIGHTS if (f["carrier"], f["origin"]) == (carrier, origin)]
    delays = [delay for f in flights if isinstance(delay := f[name], int)]
    return statistics.fmean(delays) if delays else None


def test_delays_are_those_of_the_records(spark: "SparkSession", folder: DataFolder) -> None:
    records = [HandRecord(json.dumps(flight).encode()) for flight in FLIGHTS]
    folder.segment([records[:2], records[2:]], stream="flights")
    job = load_job()
    rows = job.delays(job.in_files(spark, str(folder.path), "flights")).collect()
    counts = {("B6", "JFK"): 2, ("UA", "EWR"): 3, ("UA", "JFK"): 1}
    assert [tuple(row) for row in rows] == [
        (*name, count, mean(*name, "dep_delay"), mean(*name, "arr_delay"))
        for name, count in counts.items()
    ]
