"""Kafka's producers: beside the least that storing their bytes takes."""

from typing import Final

from benchmarks import machine
from benchmarks.case import Case, Measurement, Target, Variant
from benchmarks.cases import COUNTS, MEGABYTES, RATE, measured, publishing
from benchmarks.processes import run_client
from benchmarks.side import STREAM, Side, Sides, create_stream, delete_stream

SIZE: Final = 1024


def _count(scale: float) -> str:
    return str(int(COUNTS[SIZE] * scale))


def write(sides: Sides, scale: float) -> Measurement:
    """On the disk where the node keeps its segments."""
    machine.settle(sides.directory)
    path = sides.directory / "raw-write"
    arguments = ["--target", str(path), "--count", _count(scale), "--size", str(SIZE)]
    return run_client("kafka_producer", "write", *arguments)


def produce(sync: str) -> Variant[Sides]:
    def run(sides: Sides, scale: float) -> Measurement:
        side = sides.streamlog
        create_stream(side, sync=sync)
        arguments = ["--target", side.kafka, "--topic", STREAM]
        arguments += ["--count", _count(scale), "--size", str(SIZE)]
        try:
            return measured(sides, side, "kafka_producer", "kafka", *arguments)
        finally:
            delete_stream(side)

    targets = (Target(RATE, 0.5),) if sync == "os" else ()
    return Variant(f"streamlog, one confluent-kafka producer, acks=all, sync={sync}", run, targets)


def _streamlog(sides: Sides) -> Side:
    return sides.streamlog


def by_nats(sides: Sides, scale: float) -> Measurement:
    result = publishing("acked", _streamlog, SIZE, sync="os")(sides, scale)
    return {**result, MEGABYTES.key: result[RATE.key] * SIZE / 1e6}


def case() -> Case[Sides]:
    variants = (
        Variant("write() of the same bytes", write),
        produce("os"),
        produce("commit"),
        Variant("streamlog, by NATS, every message acked, sync=os", by_nats),
    )
    return Case("produce-kafka", "Produce with Kafka, 1 KiB", (MEGABYTES, RATE), variants)


CASES: Final = (case(),)
