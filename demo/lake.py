"""The flights as an Iceberg table, and a question to the table and the log as one; the answer compared with pandas'."""

import time
from pathlib import Path
from typing import Any, Final

import duckdb

import streamlog.lake
from demo.ask import QUESTION
from demo.compute import compare
from demo.flights import Flights
from streamlog.arrow.options.read_options import ReadOptions
from streamlog.arrow.options.subscription import StreamSubscription
from streamlog.lake.job import JobOptions, LakeJob, run_without_spark

TABLE: Final = "lake.flights"
VIEW: Final = f'flights = streamlog.lake.union("flights", "{TABLE}", servers=SERVERS)'


def write_table(servers: str, stream: str, expected: Flights, folder: Path) -> tuple[float, float]:
    """Raises WrongFigure where the answers are not exactly equal. Returns the seconds to write, and to ask."""
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder / 'catalog.db'}",
        "warehouse": f"file://{folder / 'warehouse'}",
    }
    name = streamlog.lake.TableName(TABLE, "demo", properties)
    read = ReadOptions(servers=servers, subscription=StreamSubscription((stream,)))
    started = time.monotonic()
    job = LakeJob(JobOptions(stream, read, name, period="day"))
    run_without_spark(job, once=True, wait=lambda _: False)
    written = time.monotonic()
    flights = streamlog.lake.union(
        stream, TABLE, catalog="demo", catalog_properties=properties, servers=servers
    )
    rows: list[Any] = duckdb.connect().execute(QUESTION).fetchall()  # finds flights by its name
    asked = time.monotonic()
    del flights
    answer = {(carrier, origin): (count, dep, arr) for carrier, origin, count, dep, arr in rows}
    compare(answer, expected.delays, "the Iceberg table")
    return written - started, asked - written
