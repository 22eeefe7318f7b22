"""``streamlog.arrow`` reads a stream, without Spark, beside a loop over a plain consumer."""

import importlib.util
from collections.abc import Callable
from typing import Final

from benchmarks import machine
from benchmarks.case import Case, Measurement, Metric, Target, Variant
from benchmarks.cases import MEGABYTES, RATE
from benchmarks.processes import run_client
from benchmarks.side import STREAM, Sides, create_stream, delete_stream

PER_CORE: Final = Metric("per_core", "records/s of processor time")
"""Of the reading program, all of its threads."""
TARGET: Final = 5_000_000
DISK_BYTES_PER_RECORD: Final = 100
"""Beside its value."""


def _missing() -> str:
    return "" if importlib.util.find_spec("pyarrow") else "the extra arrow"


def arrow_case(size: int, title: str, count: int, *, has_target: bool) -> Case[Sides]:
    def prepare(sides: Sides, scale: float) -> None:
        create_stream(sides.streamlog, sync="os")
        arguments = ["--nats", sides.streamlog.nats, "--subject", f"{STREAM}.a", "--distinct"]
        arguments += ["--count", str(int(count * scale)), "--size", str(size)]
        run_client("publisher", "acked", *arguments)

    def reading(kind: str) -> Callable[[Sides, float], Measurement]:
        def run(sides: Sides, scale: float) -> Measurement:
            machine.settle(sides.directory)
            side = sides.streamlog
            return run_client(
                "arrow_query",
                kind,
                *("--server", side.kafka, "--path", str(side.streams.parent)),
                *("--stream", STREAM, "--count", str(int(count * scale)), "--size", str(size)),
            )

        return run

    targets = (Target(PER_CORE, TARGET, absolute=True),) if has_target else ()
    return Case(
        f"arrow-{size}",
        f"Reading all columns in one thread of Python, {title}",
        (RATE, PER_CORE, MEGABYTES),
        (
            Variant("confluent-kafka, consume() in a loop", reading("kafka")),
            Variant("streamlog.arrow by servers", reading("servers"), targets),
            Variant("streamlog.arrow by path", reading("path"), targets),
        ),
        prepare,
        lambda sides: delete_stream(sides.streamlog),
        missing=_missing,
        disk_bytes=count * (size + DISK_BYTES_PER_RECORD),
    )


CASES: Final = (
    arrow_case(100, "100 B", 10_000_000, has_target=True),
    arrow_case(1024, "1 KiB", 2_000_000, has_target=False),
)
