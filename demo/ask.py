"""DuckDB over the stream, without Spark: one line, its answer compared with that of pandas."""

import time
from typing import Any, Final

import duckdb

import streamlog.arrow
from demo.compute import compare
from demo.flights import Flights

FIELDS: Final = (
    '{"carrier": "varchar", "origin": "varchar", "dep_delay": "int", "arr_delay": "int"}'
)
QUESTION: Final = (
    "select f.carrier, f.origin, count(*), avg(f.dep_delay), avg(f.arr_delay)"
    f" from (select from_json(decode(value), '{FIELDS}') as f from flights) group by all"
)
QUERY: Final = (
    f'flights = streamlog.arrow.read("flights", servers=SERVERS); duckdb.sql("""{QUESTION}""")'
)


def ask_duckdb(servers: str, stream: str, expected: Flights) -> float:
    """Raises WrongFigure where they are not exactly equal. Returns the seconds that it took."""
    started = time.monotonic()
    flights = streamlog.arrow.read(stream, servers=servers, columns=["value"])
    rows: list[Any] = duckdb.connect().execute(QUESTION).fetchall()  # finds flights by its name
    seconds = time.monotonic() - started
    del flights
    answer = {(carrier, origin): (count, dep, arr) for carrier, origin, count, dep, arr in rows}
    compare(answer, expected.delays, "DuckDB")
    return seconds
