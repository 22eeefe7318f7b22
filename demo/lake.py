"""The flights as an Iceberg table, and a question to the table and the log as one; the answer compared with pandas'."""

import time
from dataclasses import dataclass
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


@dataclass(frozen=True)
class FlightsTable:
    """In a SQL catalog of its own."""

    servers: str
    stream: str
    folder: Path

    @property
    def catalog(self) -> dict[str, str]:
        """PyIceberg's properties."""
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.folder / 'catalog.db'}",
            "warehouse": f"file://{self.folder / 'warehouse'}",
        }

    def write(self) -> float:
        """Returns the seconds that it took."""
        self.folder.mkdir()
        name = streamlog.lake.TableName(TABLE, properties=self.catalog)
        read = ReadOptions(servers=self.servers, subscription=StreamSubscription((self.stream,)))
        started = time.monotonic()
        job = LakeJob(JobOptions(self.stream, read, name, period="day"))
        run_without_spark(job, once=True, wait=lambda _: False)
        return time.monotonic() - started

    def ask(self, expected: Flights) -> float:
        """Raises WrongFigure where the answers are not exactly equal. Returns the seconds that it took."""
        started = time.monotonic()
        flights = streamlog.lake.union(
            self.stream, TABLE, catalog_properties=self.catalog, servers=self.servers
        )
        rows: list[Any] = duckdb.connect().execute(QUESTION).fetchall()  # finds flights by its name
        seconds = time.monotonic() - started
        del flights
        answer = {(carrier, origin): (count, dep, arr) for carrier, origin, count, dep, arr in rows}
        compare(answer, expected.delays, "DuckDB over the Iceberg table")
        return seconds
