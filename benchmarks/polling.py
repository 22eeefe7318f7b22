"""What consumers cost that wait for records."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.case import Case, Measurement, Metric, Variant
from benchmarks.connection import BenchmarkError
from benchmarks.processes import cpu_seconds, resident_mib
from benchmarks.side import STREAM, JetStream, Side, Sides, Streamlog, create_stream

CONSUMERS: Final = 1_000
KAFKA_WAIT_MS: Final = 500
"""``fetch.wait.max.ms`` of librdkafka and ``fetch.max.wait.ms`` of the Java client."""
PULL_WAIT_MS: Final = 5_000
"""How long nats-py's ``fetch`` waits."""
MEASURED_S: Final = 20.0
SETTLE_S: Final = 5.0
NAME: Final = "polling"

CPU = Metric("cpu_percent", "% of one core", digits=1, lower_is_better=True)
MEMORY = Metric("resident_mib", "MiB resident", lower_is_better=True)


def waiting(
    mode: str, wait_ms: int, consumers: int, start: Callable[[Path], JetStream | Streamlog]
) -> Callable[[Sides, float], Measurement]:
    """A server of its own, on which nothing else happens."""

    def run(sides: Sides, scale: float) -> Measurement:
        side = sides.own(NAME, start)
        try:
            create_stream(side)
            address = side.kafka if isinstance(side, Streamlog) else side.nats
            arguments = [mode, "--server", address, "--source", STREAM]
            arguments += ["--count", str(int(consumers * scale)), "--wait-ms", str(wait_ms)]
            return _measured(side, arguments, scale)
        finally:
            sides.drop(NAME)

    return run


def _measured(side: Side, arguments: list[str], scale: float) -> Measurement:
    command = [sys.executable, "-m", "benchmarks.poller", *arguments]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    ) as poller:
        assert poller.stdout is not None
        said = poller.stdout.readline()
        if said != "waiting\n":
            raise BenchmarkError(f"{arguments}: {said}")
        time.sleep(SETTLE_S * scale)
        before, begun = cpu_seconds(side.pids), time.monotonic()
        time.sleep(MEASURED_S * scale)
        used, elapsed = cpu_seconds(side.pids) - before, time.monotonic() - begun
        memory = resident_mib(side.pids)
        said, _ = poller.communicate("\n")
    result = json.loads(said.splitlines()[-1])
    if "failed" in result:
        raise BenchmarkError(f"{arguments}: {result['failed']}")
    return {**result, "cpu_percent": 100 * used / elapsed, "resident_mib": memory}


def case() -> Case[Sides]:
    def jetstream(mode: str, label: str) -> Variant[Sides]:
        return Variant(label, waiting(mode, PULL_WAIT_MS, CONSUMERS, JetStream))

    def ours(wait_ms: int) -> Variant[Sides]:
        label = f"streamlog, 1,000 long polls of {wait_ms / 1000:g} s"
        return Variant(label, waiting("kafka", wait_ms, CONSUMERS, Streamlog))

    variants = (
        jetstream("pull", "JetStream, 1,000 pull requests of 5 s"),
        jetstream("push", "JetStream, 1,000 push consumers"),
        ours(KAFKA_WAIT_MS),
        ours(PULL_WAIT_MS),
    )
    title = "1,000 consumers wait, each on its own connection"
    return Case("polling", title, (CPU, MEMORY), variants, rounds=1)


CASES: Final = (case(),)
