"""What the limits of a stream cost its publishers: ``python -m benchmarks.limited``.

A raw client publishes acknowledged messages of 100 bytes as fast as it can, into a new stream for each limit; the
server has to let go of as many as come.
"""

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.connection import BenchmarkError, Connection
from benchmarks.processes import run_client
from benchmarks.side import STREAM, SUBJECTS, JetStream, Port

ROUNDS: Final = 3
COUNT: Final = 400_000
LIMITS: Final[dict[str, dict[str, Any]]] = {
    "none": {},
    "max_msgs 10": {"max_msgs": 10},
    "max_msgs 100,000": {"max_msgs": 100_000},
    "max_bytes 4 MiB": {"max_bytes": 4 << 20},
    "max_age 1 s": {"max_age": 10**9, "duplicate_window": 10**9},
}


def rate(side: JetStream | Port, limits: dict[str, Any]) -> float:
    """Acknowledged messages a second."""
    config = {"name": STREAM, "subjects": [SUBJECTS], "storage": "file", **limits}
    _ask(side, f"STREAM.CREATE.{STREAM}", config)
    try:
        arguments = ["--nats", side.nats, "--count", str(COUNT)]  # so many do not stay
        return run_client("publisher", "acked", *arguments)["rate"]
    finally:
        _ask(side, f"STREAM.DELETE.{STREAM}", {})


def _ask(side: JetStream | Port, verb: str, body: dict[str, Any]) -> None:
    with Connection(side.nats) as connection:
        answer = connection.request(f"$JS.API.{verb}", json.dumps(body).encode())
    if "error" in answer:
        raise BenchmarkError(f"{side.name}: {answer['error']}")


def main() -> None:
    found: dict[str, dict[str, list[float]]] = {}
    for _ in range(ROUNDS):
        for kind in (JetStream, Port):
            with tempfile.TemporaryDirectory() as directory:
                side = kind(Path(directory) / "server")
                try:
                    for name, limits in LIMITS.items():
                        rates = found.setdefault(name, {}).setdefault(side.name, [])
                        rates.append(rate(side, limits))
                finally:
                    side.stop()
    for name, sides in found.items():
        medians = ", ".join(
            f"{side} {statistics.median(rates) / 1000:,.0f} k/s" for side, rates in sides.items()
        )
        print(f"{name}: {medians}")


if __name__ == "__main__":
    main()
