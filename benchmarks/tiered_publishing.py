"""What tiered storage costs publishers and readers of the newest: ``python -m benchmarks.tiered_publishing``.

One node with a NATS port, and a folder in memory as its object store: a store is another machine, whose disk is
not this one's. Acknowledged messages of 1 KiB come
first as fast as they can, into a stream that is not tiered; then at half of that rate,

- *alone*: into such a stream again;
- *while segments go up*: into a tiered stream that keeps little on the node. Each segment goes to the
  store as soon as it is closed, and so does a backlog of BACKLOG_BYTES that another stream had before
  it was tiered;
- *while a reader is cold*: the same, and a Kafka consumer reads the backlog from its beginning, out of
  the store, as fast as it can.

The last is done at a tenth of the rate, too. ``STREAMLOG_TIER__BANDWIDTH_BYTES_PER_S`` limits what goes up.

Another program publishes PROBES_PER_S messages a second meanwhile, and times their acks. The rate, the
probes' median and 99th percentile, the processor time of the node, and what went up are reported for
each. Clients and node share the machine's processors.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import psutil
from confluent_kafka import Consumer, TopicPartition

from benchmarks.connection import BenchmarkError, Connection
from benchmarks.processes import run_client
from benchmarks.side import Port

ROUNDS: Final = 3
SIZE: Final = 1024
SECONDS: Final = 12
COUNT_AT_MOST: Final = 400_000
PROBES_PER_S: Final = 100
MIB: Final = 1024 * 1024
SEGMENT_BYTES: Final = 64 * MIB
BACKLOG_BYTES: Final = 4096 * MIB
MEMORY: Final = "/dev/shm"
TIERED: Final = {
    "streamlog.tiered": "true",
    "streamlog.local_retention_bytes": str(2 * SEGMENT_BYTES),
}


@dataclass
class Found:
    """Of one phase, a figure a round."""

    rates: list[float] = field(default_factory=list)
    p50s_ms: list[float] = field(default_factory=list)
    p99s_ms: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)
    """Of the node, on the average."""
    up_mib_per_s: list[float] = field(default_factory=list)
    read_mib_per_s: list[float] = field(default_factory=list)


def create(side: Port, name: str, metadata: dict[str, str]) -> None:
    config: dict[str, Any] = {
        "name": name,
        "subjects": [f"{name}.a"],
        "storage": "file",
        "metadata": {"streamlog.segment_bytes": str(SEGMENT_BYTES), **metadata},
    }
    _ask(side, f"STREAM.CREATE.{name}", config)


def alter(side: Port, name: str, metadata: dict[str, str]) -> None:
    config = _ask(side, f"STREAM.INFO.{name}", {})["config"]
    config["metadata"] = {**config.get("metadata", {}), **metadata}
    _ask(side, f"STREAM.UPDATE.{name}", config)


def _ask(side: Port, verb: str, body: dict[str, Any]) -> dict[str, Any]:
    with Connection(side.nats) as connection:
        answer = connection.request(f"$JS.API.{verb}", json.dumps(body).encode())
    if "error" in answer:
        raise BenchmarkError(f"{verb}: {answer['error']}")
    return answer


def metric(side: Port, name: str) -> float:
    with urlopen(f"http://{side.http}/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[1])
    raise BenchmarkError(f"no metric {name}")


def publish(side: Port, name: str, mode: str, count: int, *options: str) -> dict[str, Any]:
    """Without ``--stream``: what a tiered stream has is not asked for meanwhile."""
    return run_client(
        "publisher", mode, "--nats", side.nats, "--subject", f"{name}.a",
        "--count", str(count), "--size", str(SIZE), *options,
    )  # fmt: skip


@contextmanager
def probing(side: Port, name: str, seconds: float, found: Found) -> Iterator[None]:
    command = [
        sys.executable, "-m", "benchmarks.publisher", "latency", "--nats", side.nats,
        "--subject", f"{name}.a", "--count", str(int(seconds * PROBES_PER_S) // 200 * 200),
        "--rate", str(PROBES_PER_S), "--size", "100", "--inbox", "probe",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield
    out, _ = process.communicate(timeout=120)
    told = json.loads(out)
    if "failed" in told:
        raise BenchmarkError(told["failed"])
    found.p50s_ms.append(told["p50_ms"])
    found.p99s_ms.append(told["p99_ms"])


@contextmanager
def reading(side: Port, name: str, found: Found) -> Iterator[None]:
    """A consumer that begins at the first offset, again and again until the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": side.kafka,
            "group.id": "cold",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.queue.backoff.ms": 10,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(name, 0, 0)])
    ends, size = threading.Event(), 0

    def read() -> None:
        nonlocal size
        while not ends.is_set():
            for message in consumer.consume(10_000, timeout=0.2):
                if message.error():
                    consumer.seek(TopicPartition(name, 0, 0))
                else:
                    size += len(message)

    thread = threading.Thread(target=read)
    began_s = time.perf_counter()
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
        found.read_mib_per_s.append(size / MIB / (time.perf_counter() - began_s))
        consumer.close()


@contextmanager
def using(side: Port, found: Found) -> Iterator[None]:
    """Processor time of the node, and what it sends to the store."""
    node = psutil.Process(side.pids[0])
    used, up = node.cpu_times(), metric(side, "streamlog_tier_uploaded_bytes_total")
    began_s = time.perf_counter()
    yield
    took_s, now = time.perf_counter() - began_s, node.cpu_times()
    found.cores.append((now.user + now.system - used.user - used.system) / took_s)
    up = metric(side, "streamlog_tier_uploaded_bytes_total") - up
    found.up_mib_per_s.append(up / MIB / took_s)


def phase(side: Port, name: str, rate: int, found: Found) -> None:
    with using(side, found), probing(side, name, SECONDS, found):
        told = publish(side, name, "paced", rate * SECONDS, "--rate", str(rate))
    found.rates.append(told["rate"])


def until(condition: Callable[[], bool], timeout_s: float = 300) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise BenchmarkError("it takes too long")
        time.sleep(0.2)


def run_round(folder: Path, store: Path, phases: dict[str, Found]) -> None:
    side = Port(
        folder / "node",
        STREAMLOG_TIER__URL=store.as_uri(),
        STREAMLOG_TIER__INTERVAL_MS="200",
        STREAMLOG_LOG__RETENTION_CHECK_MS="200",
    )
    try:
        create(side, "plain", {})
        most = publish(side, "plain", "acked", COUNT_AT_MOST)["rate"]
        rate = int(most / 2)
        phases["as fast as it can, not tiered"].rates.append(most)
        _ask(side, "STREAM.PURGE.plain", {})
        create(side, "backlog", {})
        publish(side, "backlog", "acked", BACKLOG_BYTES // SIZE)
        phase(side, "plain", rate, phases["half, alone"])
        _ask(side, "STREAM.DELETE.plain", {})
        create(side, "tiered", TIERED)
        alter(side, "backlog", TIERED)
        phase(side, "tiered", rate, phases["half, while segments go up"])
        until(lambda: metric(side, "streamlog_tier_lag_segments") < 2)
        _ask(side, "STREAM.DELETE.tiered", {})
        create(side, "tiered2", TIERED)
        found = phases["half, while a reader is cold"]
        with reading(side, "backlog", found):
            phase(side, "tiered2", rate, found)
        until(lambda: metric(side, "streamlog_tier_lag_segments") < 2)
        create(side, "little", {})
        phase(side, "little", rate // 5, phases["a tenth, alone"])
        found = phases["a tenth, while a reader is cold"]
        with reading(side, "backlog", found):
            phase(side, "little", rate // 5, found)
    finally:
        side.stop()


def main(rounds: int) -> None:
    names = (
        "as fast as it can, not tiered",
        "half, alone",
        "half, while segments go up",
        "half, while a reader is cold",
        "a tenth, alone",
        "a tenth, while a reader is cold",
    )
    phases = {name: Found() for name in names}
    for _ in range(rounds):
        with (
            tempfile.TemporaryDirectory(prefix="tiered-publishing-") as directory,
            tempfile.TemporaryDirectory(prefix="tiered-publishing-", dir=MEMORY) as store,
        ):
            run_round(Path(directory), Path(store), phases)
    for name, it in phases.items():
        told = [f"{statistics.median(it.rates) / 1000:,.0f} k/s"]
        told += [f"({min(it.rates) / 1000:,.0f}-{max(it.rates) / 1000:,.0f})"]
        if it.p50s_ms:
            told += [
                f"probes p50 {statistics.median(it.p50s_ms):.2f} ms,"
                f" p99 {statistics.median(it.p99s_ms):.1f} ms,"
                f" node {statistics.median(it.cores):.2f} cores,"
                f" up {statistics.median(it.up_mib_per_s):,.0f} MiB/s"
            ]
        if it.read_mib_per_s:
            told += [f"read {statistics.median(it.read_mib_per_s):,.0f} MiB/s"]
        print(f"{name}: {' '.join(told)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else ROUNDS)
