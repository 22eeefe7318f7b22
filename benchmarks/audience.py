"""Several consumers at once, each of which reads all there is."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.case import Case, Measurement, Target, Variant
from benchmarks.cases import DELIVER_SUBJECT, MEGABYTES, RATE
from benchmarks.connection import BenchmarkError
from benchmarks.processes import cpu_seconds, run_client
from benchmarks.reading import CPU_PER_GB
from benchmarks.side import (
    STREAM,
    Side,
    Sides,
    create_push_consumer,
    create_stream,
    delete_consumer,
    delete_stream,
)

CONSUMERS: Final = (1, 4, 16)
COUNTS: Final = {100: 1_600_000, 1024: 600_000}
"""Records in the stream, by size: enough that what a consumer costs once does not count."""
PULL_SHARE: Final = 0.05
"""nats-py is so much slower that a small part of the records says it."""
TIMEOUT_S: Final = 300.0
CPU_PER_GB_MAX: Final = 0.25

Member = Callable[[int], Sequence[str]]
"""The arguments of a consumer, by its number."""


def read_together(sides: Sides, pids: Sequence[int], consumers: int, member: Member) -> Measurement:
    """All start at once; the rate is of all until the last one ends."""
    machine.settle(sides.directory)
    with _started([member(number) for number in range(consumers)]) as processes:
        for process in processes:
            _line_of(process)
        before = cpu_seconds(pids)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        readings = [_result_of(process) for process in processes]
        used = cpu_seconds(pids) - before
    records = sum(reading["messages"] for reading in readings)
    size_bytes = sum(reading["mb_per_s"] * reading["elapsed_s"] * 1e6 for reading in readings)
    elapsed = max(reading["elapsed_s"] for reading in readings)
    return {
        "rate": records / elapsed,
        "mb_per_s": size_bytes / elapsed / 1e6,
        "messages": records,
        "elapsed_s": elapsed,
        "cpu_s_per_gb": used / (size_bytes / 1e9),
        "server_us": 1e6 * used / records,
    }


@contextmanager
def _started(commands: Sequence[Sequence[str]]) -> Iterator[list["subprocess.Popen[str]"]]:
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.consumer", *arguments, "--together"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        for arguments in commands
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise BenchmarkError(f"{process.args!r} ended before it began")
    return line


def _result_of(process: "subprocess.Popen[str]") -> dict[str, float]:
    result = json.loads(_line_of(process))
    assert isinstance(result, dict)
    if "failed" in result:
        raise BenchmarkError(f"{process.args!r}: {result['failed']}")
    return result


def audience_case(size: int) -> Case[Sides]:
    def count(scale: float, share: float = 1.0) -> list[str]:
        return ["--count", str(int(COUNTS[size] * scale * share)), "--size", str(size)]

    def prepare(sides: Sides, scale: float) -> None:
        for side in (sides.jetstream, sides.streamlog):
            create_stream(side)
            arguments = ["--nats", side.nats, "--stream", STREAM, *count(scale)]
            run_client("publisher", "acked", *arguments)
        # The first consumer ever has the stream of the groups' offsets made.
        first = ["--server", sides.streamlog.kafka, "--source", STREAM, *count(scale, 0.01)]
        run_client("consumer", "kafka", *first)

    def clear(sides: Sides) -> None:
        for side in (sides.jetstream, sides.streamlog):
            delete_stream(side)

    def push(consumers: int) -> Callable[[Sides, float], Measurement]:
        def run(sides: Sides, scale: float) -> Measurement:
            side = sides.jetstream

            def member(number: int) -> Sequence[str]:
                source = f"{DELIVER_SUBJECT}.{number}"
                return ["push", "--server", side.nats, "--source", source, *count(scale)]

            names = [f"push-{number}" for number in range(consumers)]
            for number, name in enumerate(names):
                create_push_consumer(side, f"{DELIVER_SUBJECT}.{number}", name)
            return _then_deleted(sides, side, names, member)

        return run

    def pull(consumers: int) -> Callable[[Sides, float], Measurement]:
        def run(sides: Sides, scale: float) -> Measurement:
            side, names = sides.jetstream, [f"pull-{number}" for number in range(consumers)]

            def member(number: int) -> Sequence[str]:
                source = ["--server", side.nats, "--source", STREAM, "--name", names[number]]
                return ["pull", *source, *count(scale, PULL_SHARE)]

            return _then_deleted(sides, side, names, member)

        return run

    def kafka(consumers: int) -> Callable[[Sides, float], Measurement]:
        def run(sides: Sides, scale: float) -> Measurement:
            side = sides.streamlog

            def member(_: int) -> Sequence[str]:
                return ["kafka", "--server", side.kafka, "--source", STREAM, *count(scale)]

            return read_together(sides, [side.node_pid], consumers, member)

        return run

    limit = Target(CPU_PER_GB, CPU_PER_GB_MAX, absolute=True)
    variants = [
        Variant(f"JetStream, {_named(n)} with push, raw socket", push(n)) for n in CONSUMERS
    ]
    variants += [Variant(f"JetStream, {_named(n)} with pull, nats-py", pull(n)) for n in CONSUMERS]
    variants += [
        Variant(f"streamlog, {_named(n)} of confluent-kafka", kafka(n), (limit,)) for n in CONSUMERS
    ]
    title = f"Each of so many consumers reads all, {'1 KiB' if size == 1024 else f'{size} B'}"
    metrics = (MEGABYTES, RATE, CPU_PER_GB)
    return Case(f"audience-{size}", title, metrics, tuple(variants), prepare, clear)


def _then_deleted(sides: Sides, side: Side, names: Sequence[str], member: Member) -> Measurement:
    """JetStream's consumers stay until they are."""
    try:
        return read_together(sides, side.pids, len(names), member)
    finally:
        for name in names:
            delete_consumer(side, name)


def _named(consumers: int) -> str:
    return "1 consumer" if consumers == 1 else f"{consumers} consumers"


CASES: Final = (audience_case(100), audience_case(1024))
