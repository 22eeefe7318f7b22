"""Spark reads a stream: our source by files and by sockets, Spark's Kafka source, and Parquet.

Beside them a Python source that reads nothing, which is the floor of Spark's own part.
"""

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.case import Case, Measurement, Metric, Target, Variant
from benchmarks.cases import MEGABYTES, RATE
from benchmarks.processes import run_client
from benchmarks.side import STREAM, Sides, create_stream, delete_stream

COUNT: Final = 10_000_000
DECODED_COUNT: Final = 2_000_000
DISK_BYTES_PER_RECORD: Final = 250
"""Beside what its value takes twice over: the log and Parquet."""
CPU: Final = Metric("cpu_s_per_gb", "s of processors/GB", digits=2, lower_is_better=True)
PARQUET: Final = "Parquet of the same rows"
DECODER_RATE: Final = 5_000_000


def _missing() -> str:
    return "" if importlib.util.find_spec("pyspark") else "the extra spark"


def _folder(sides: Sides) -> Path:
    return sides.directory / "parquet"


def _query(kind: str, sides: Sides, count: int, size: int) -> Measurement:
    side = sides.streamlog
    return run_client(
        "spark_query",
        kind,
        *("--server", side.kafka, "--path", str(side.streams.parent)),
        *("--folder", str(_folder(sides)), "--stream", STREAM),
        *("--count", str(count), "--size", str(size)),
        *("--node-pid", str(side.node_pid)),
    )


def _publish(sides: Sides, count: int, size: int) -> None:
    create_stream(sides.streamlog, sync="os")
    arguments = ["--nats", sides.streamlog.nats, "--subject", f"{STREAM}.a"]
    arguments += ["--distinct"]  # Parquet keeps equal values once
    run_client("publisher", "acked", *arguments, "--count", str(count), "--size", str(size))


def _clear(sides: Sides) -> None:
    delete_stream(sides.streamlog)
    shutil.rmtree(_folder(sides), ignore_errors=True)


def reading_case(size: int, title: str) -> Case[Sides]:
    def prepare(sides: Sides, scale: float) -> None:
        _publish(sides, int(COUNT * scale), size)
        _query("make-parquet", sides, int(COUNT * scale), size)

    def reading(kind: str) -> Callable[[Sides, float], Measurement]:
        def run(sides: Sides, scale: float) -> Measurement:
            machine.settle(sides.directory)
            return _query(kind, sides, int(COUNT * scale), size)

        return run

    targets = (Target(RATE, 2), Target(RATE, 0.5, beside=PARQUET))
    return Case(
        f"spark-{size}",
        f"Spark reads all columns, {title}",
        (RATE, MEGABYTES, CPU),
        (
            Variant("Spark's Kafka source, from streamlog", reading("kafka")),
            Variant("streamlog's source by servers", reading("servers"), targets),
            Variant("streamlog's source by path", reading("path"), targets),
            Variant(PARQUET, reading("parquet")),
            Variant("a Python source that reads nothing", reading("floor")),
        ),
        prepare,
        _clear,
        missing=_missing,
        disk_bytes=COUNT * (2 * size + DISK_BYTES_PER_RECORD),
    )


def decoder_case() -> Case[Sides]:
    def prepare(sides: Sides, scale: float) -> None:
        _publish(sides, int(DECODED_COUNT * scale), 100)

    def run(sides: Sides, scale: float) -> Measurement:
        return _query("decoder", sides, int(DECODED_COUNT * scale), 100)

    target = Target(RATE, DECODER_RATE, absolute=True)
    variants = (Variant("segment bytes to Arrow, one core", run, (target,)),)
    title = "The decoder of Spark's source alone, 100 B"
    return Case(
        "spark-decoder", title, (RATE, MEGABYTES), variants, prepare, _clear, missing=_missing
    )


CASES: Final = (reading_case(100, "100 B"), reading_case(1024, "1 KiB"), decoder_case())
