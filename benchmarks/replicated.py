"""Three replicas: the rate of acknowledged publishing, and what an idle cluster costs."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks import machine
from benchmarks.case import Case, Measurement, Metric, Target, Variant
from benchmarks.connection import BenchmarkError
from benchmarks.processes import cpu_seconds, resident_mib, run_client
from benchmarks.trio import Trio, create_stream, delete_stream, leader, wait_whole
from benchmarks.trios import Trios

STREAM: Final = "bench"
COUNTS: Final = {100: 400_000, 1024: 200_000}
TUNED: Final = "JetStream R3, nats-servers set up as ours"
MORE_AT_PORT: Final = 3
"""So many times the messages of the other runs: a run is a second or two."""
IDLE_STREAMS: Final = 1_000
IDLE_S: Final = 20.0
SETTLE_S: Final = 10.0

RATE = Metric("rate", "records/s")
CPU = Metric("cpu_percent", "% of one core", digits=1, lower_is_better=True)
MEMORY = Metric("resident_mib", "MiB resident", lower_is_better=True)
FILES = Metric("open_files", "open files", lower_is_better=True)
CREATE = Metric("create_s", "s to create them", digits=1, lower_is_better=True)


def acked(
    size: int, sync: str | None, share: float = 1.0
) -> Callable[[Trio, Path, float], Measurement]:
    """A run of the publisher into a fresh stream, by the shortest way to its leader."""

    def run(trio: Trio, directory: Path, scale: float) -> Measurement:
        create_stream(trio, STREAM, metadata={"streamlog.sync": sync} if sync else None)
        nats = trio.nats_of(leader(trio, STREAM))
        count = str(int(COUNTS[size] * share * scale))
        arguments = ["--nats", nats, "--stream", STREAM, "--subject", STREAM, "--count", count]
        try:
            machine.settle(directory)
            before = cpu_seconds(trio.pids)
            result = run_client("publisher", "acked", *arguments, "--size", str(size))
            used = cpu_seconds(trio.pids) - before
        finally:
            delete_stream(trio, STREAM)
        return {**result, "server_us": 1e6 * used / result["messages"]}

    return run


def _ours(trios: Trios) -> Trio:
    return trios.streamlog


def acked_case(size: int) -> Case[Trios]:
    def variant(
        label: str, trio_of: Callable[[Trios], Trio], sync: str | None, *targets: Target
    ) -> Variant[Trios]:
        run = acked(size, sync)
        return Variant(
            label, lambda trios, scale: run(trio_of(trios), trios.directory, scale), targets
        )

    variants = (
        variant("JetStream R3", lambda trios: trios.jetstream, None),
        variant("streamlog, 3 replicas, sync=os", _ours, "os", Target(RATE, 2.0)),
        variant("streamlog, 3 replicas, sync=commit", _ours, "commit", Target(RATE, 1.5)),
        variant(TUNED, lambda trios: trios.jetstream_tuned, None),
    )
    named = "1 KiB" if size == 1024 else f"{size} B"
    title = f"Publish, every message acked, three replicas, {named}"
    return Case(f"replicated-{size}", title, (RATE,), variants, clear=lambda trios: trios.stop())


def port_case(size: int, targets: dict[str, float]) -> Case[Trios]:
    """The same at the nodes' own ports. ``targets``: by ``sync``."""

    def variant(
        label: str, trio_of: Callable[[Trios], Trio], sync: str | None, share: float
    ) -> Variant[Trios]:
        run = acked(size, sync, share)
        wanted = (Target(RATE, targets[sync]),) if sync in targets else ()
        return Variant(
            label, lambda trios, scale: run(trio_of(trios), trios.directory, scale), wanted
        )

    def ports(trios: Trios) -> Trio:
        return trios.port

    ours = "streamlog's ports, 3 replicas, sync="
    variants = (
        variant("JetStream R3", lambda trios: trios.jetstream, None, 1.0),
        variant(f"{ours}os", ports, "os", MORE_AT_PORT),
        variant(f"{ours}commit", ports, "commit", MORE_AT_PORT),
    )
    named = "1 KiB" if size == 1024 else f"{size} B"
    title = f"Publish to the port, every message acked, three replicas, {named}"
    return Case(f"port-replicated-{size}", title, (RATE,), variants, clear=lambda it: it.stop())


def idle(trio_of: Callable[[Trios], Trio]) -> Callable[[Trios, float], Measurement]:
    """Many streams that nobody uses. No other servers run meanwhile."""

    def run(trios: Trios, scale: float) -> Measurement:
        trios.stop()
        trio, count = trio_of(trios), max(1, int(IDLE_STREAMS * scale))
        start = time.monotonic()
        for i in range(count):
            create_stream(trio, f"idle-{i}", wait=False)
        create_s = time.monotonic() - start
        for i in range(count):
            wait_whole(trio, f"idle-{i}")
        time.sleep(SETTLE_S)
        pids = trio.member_pids
        before, begun = cpu_seconds(pids), time.monotonic()
        time.sleep(IDLE_S)
        used, elapsed = cpu_seconds(pids) - before, time.monotonic() - begun
        result = {
            "cpu_percent": 100 * used / elapsed,
            "resident_mib": resident_mib(pids),
            "open_files": float(sum(_open_files(pid) for pid in pids)),
            "create_s": create_s,
        }
        trios.stop()
        return result

    return run


def _open_files(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 (names are enough)
    except OSError as error:
        raise BenchmarkError(f"process {pid} is gone: {error}") from None


def idle_case() -> Case[Trios]:
    variants = (
        Variant("JetStream, 1,000 streams R3", idle(lambda trios: trios.jetstream)),
        Variant("streamlog, 1,000 streams of 3 replicas", idle(lambda trios: trios.streamlog)),
    )
    title = "Idle, three servers together"
    return Case("idle-cluster", title, (CPU, MEMORY, FILES, CREATE), variants, rounds=1)


CASES: Final = (
    acked_case(100),
    acked_case(1024),
    port_case(100, {"os": 4.0, "commit": 2.5}),
    port_case(1024, {}),
    idle_case(),
)
