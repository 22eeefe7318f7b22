"""Reading: what it costs the server, and what it costs those who publish meanwhile."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from benchmarks import machine
from benchmarks.case import Case, Measurement, Metric, Target, Variant
from benchmarks.cases import COUNTS, RATE
from benchmarks.processes import cpu_seconds, run_client
from benchmarks.side import STREAM, Sides, create_stream, create_streams, delete_stream

SIZE: Final = 1024
PASSES: Final = 5
"""A run reads the stream so many times over."""
PACED_COUNT: Final = 600_000
BACKLOG: Final = "backlog"
BACKLOG_SHARE: Final = 4
"""So many times the messages of a usual run."""
HALF: Final = 0.5

CPU_PER_GB = Metric("cpu_s_per_gb", "CPU s/GB", digits=3, lower_is_better=True)


def _count(scale: float, share: int = 1) -> int:
    return int(COUNTS[SIZE] * scale * share)


def _publish(sides: Sides, subject: str, count: int) -> Measurement:
    arguments = ["--nats", sides.streamlog.nats, "--subject", subject, "--count", str(count)]
    return run_client("publisher", "acked", *arguments, "--size", str(SIZE))


def _read(mode: str, server: str, scale: float, pid: int, sides: Sides) -> Measurement:
    """The server's processor time while one client after the other reads all there is."""
    machine.settle(sides.directory)
    arguments = ["--server", server, "--source", STREAM, "--count", str(_count(scale))]
    before = cpu_seconds([pid])
    readings = [
        run_client("consumer", mode, *arguments, "--size", str(SIZE)) for _ in range(PASSES)
    ]
    used = cpu_seconds([pid]) - before
    gigabytes = sum(reading["messages"] for reading in readings) * SIZE / 1e9
    return {"cpu_s_per_gb": used / gigabytes, "mb_per_s": readings[-1]["mb_per_s"]}


def sendfile(sides: Sides, scale: float) -> Measurement:
    """The same segment files from a server that does nothing else."""
    folder = str(sides.streamlog.streams / STREAM / "0")
    command = [sys.executable, "-m", "benchmarks.sendfile_server", folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = f"127.0.0.1:{server.stdout.readline().strip()}"
        try:
            return _read("drop", address, scale, server.pid, sides)
        finally:
            server.kill()


def fetched(mode: str) -> Callable[[Sides, float], Measurement]:
    """Over the socket API."""

    def run(sides: Sides, scale: float) -> Measurement:
        side = sides.streamlog
        return _read(mode, side.kafka, scale, side.node_pid, sides)

    return run


def cpu_case() -> Case[Sides]:
    def prepare(sides: Sides, scale: float) -> None:
        create_stream(sides.streamlog)
        _publish(sides, f"{STREAM}.a", _count(scale))

    variants = (
        Variant("a plain loop of sendfile, its client drops all", sendfile),
        Variant(
            "streamlog, one confluent-kafka consumer",
            fetched("kafka"),
            (Target(CPU_PER_GB, 1.5),),
        ),
        Variant("streamlog, its own client, whole batches", fetched("batches")),
    )
    title = "Server CPU per GB consumed, 1 KiB"
    return Case(
        "consume-cpu", title, (CPU_PER_GB,), variants, prepare, lambda s: delete_stream(s.streamlog)
    )


class CatchUp:
    """Publishing at half of what the node can take, alone and while a backlog is read."""

    def __init__(self) -> None:
        self._rate = 0

    def prepare(self, sides: Sides, scale: float) -> None:
        create_streams(sides.streamlog, 1, BACKLOG)
        create_stream(sides.streamlog)
        _publish(sides, f"{BACKLOG}.0", _count(scale, BACKLOG_SHARE))
        self._rate = int(HALF * _publish(sides, f"{STREAM}.a", _count(scale))["rate"])

    def clear(self, sides: Sides) -> None:
        delete_stream(sides.streamlog)
        delete_stream(sides.streamlog, f"{BACKLOG}0")

    def alone(self, sides: Sides, scale: float) -> Measurement:
        machine.settle(sides.directory)
        count = str(int(PACED_COUNT * scale))
        arguments = ["--nats", sides.streamlog.nats, "--count", count, "--size", str(SIZE)]
        return run_client("publisher", "paced", *arguments, "--rate", str(self._rate))

    def beside_a_reader(self, sides: Sides, scale: float) -> Measurement:
        command = [sys.executable, "-m", "benchmarks.consumer", "again"]
        command += ["--server", sides.streamlog.kafka, "--source", f"{BACKLOG}0"]
        command += ["--count", "0", "--size", str(SIZE)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            try:
                reader.stdout.readline()
                published = self.alone(sides, scale)
            finally:
                reader.terminate()
                said, _ = reader.communicate()
        read = json.loads(said.splitlines()[-1])
        return {**published, "reader_mb_per_s": read["mb_per_s"]}


def catch_up_case() -> Case[Sides]:
    load = CatchUp()
    variants = (
        Variant("publishing alone", load.alone),
        Variant("while a consumer reads a backlog", load.beside_a_reader, (Target(RATE, 0.8),)),
    )
    title = "Publish at half of the most, every message acked, 1 KiB"
    return Case("catch-up", title, (RATE,), variants, load.prepare, load.clear)


CASES: Final = (cpu_case(), catch_up_case())
