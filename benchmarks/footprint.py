"""The memory of a node: with many partitions, and with very many messages at once."""

import time
from typing import Final

from benchmarks.case import Case, Measurement, Metric, Target, Variant
from benchmarks.connection import BenchmarkError, Connection
from benchmarks.processes import peak_mib, resident_mib, run_client
from benchmarks.side import STREAM, Sides, Streamlog, create_stream

NAME: Final = "footprint"
PARTITIONS: Final = 1_000
MESSAGES: Final = 1_000_000
SETTLE_S: Final = 5.0
LED_TIMEOUT_S: Final = 60.0

RESIDENT = Metric("resident_mib", "MiB resident", lower_is_better=True)
PEAK = Metric("peak_mib", "MiB at the peak", lower_is_better=True)


def idle(partitions: int) -> "Variant[Sides]":
    def run(sides: Sides, scale: float) -> Measurement:
        side = sides.own(NAME, Streamlog)
        try:
            count = max(1, int(partitions * scale)) if partitions else 0
            if count:
                create_stream(side, partitions=count)
                _wait_led(side, f"{STREAM}.{count - 1}" if count > 1 else STREAM)
            time.sleep(SETTLE_S * scale)
            return {"resident_mib": resident_mib([side.node_pid])}
        finally:
            sides.drop(NAME)

    if not partitions:
        return Variant("a node without streams", run)
    label = f"{partitions:,} partitions, nobody uses them"
    return Variant(label, run, (Target(RESIDENT, 150, absolute=True),))


def _wait_led(side: Streamlog, subject: str) -> None:
    """The last partition stores what it is sent, so all are led: they are opened in turn."""
    deadline = time.monotonic() + LED_TIMEOUT_S
    with Connection(side.nats) as connection:
        while True:
            try:
                if "seq" in connection.request(subject, b"x"):
                    return
            except BenchmarkError:  # nobody listens yet
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)


def flooded(in_flight: int) -> "Variant[Sides]":
    """Each asks for an ack, under ``sync=commit``; refusals count as lost."""

    def run(sides: Sides, scale: float) -> Measurement:
        side = sides.own(NAME, Streamlog)
        try:
            create_stream(side, sync="commit")
            count, most = str(int(MESSAGES * scale)), str(max(200, int(in_flight * scale)))
            arguments = ["--nats", side.nats, "--count", count, "--in-flight", most, "--rate", "0"]
            result = run_client("publisher", "paced", *arguments)
            return {**result, "peak_mib": peak_mib(side.node_pid)}
        finally:
            sides.drop(NAME)

    return Variant(f"{in_flight:,} unacknowledged", run)


CASES: Final = (
    Case("memory", "Memory of a node, idle", (RESIDENT,), (idle(0), idle(PARTITIONS)), rounds=1),
    Case(
        "memory-flood",
        "Memory of a node, 1,000,000 messages of 100 B",
        (PEAK,),
        (flooded(4_000), flooded(MESSAGES)),
        rounds=1,
    ),
)
