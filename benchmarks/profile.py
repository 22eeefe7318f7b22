"""``python -m benchmarks.profile``: where the time of an acknowledged message goes.

*Steps*: each step of the path alone, in this process, in nanoseconds per message; messages come from a
client of the node's port (PUB) or from nats-server (MSG). *Processes*, at the port and through nats-server:
what a run of the publisher costs each process, read from ``/proc`` and ``/metrics``; what the node uses
beyond its steps is the event loop and the kernel's sockets.
"""

import os
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import machine, report
from benchmarks.cases import COUNTS
from benchmarks.processes import run_client, times
from benchmarks.publisher import payload
from benchmarks.side import STREAM, Port, Streamlog, create_stream, delete_stream
from streamlog.ingest.frames import IngestEndpoint, RecordCollector
from streamlog.ingest.pub_ack_format import ack_head
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.nats.client_connection import ClientConnection
from streamlog.nats.router import Router
from streamlog.nats.server_connection import ServerConnection
from streamlog.record.codec import RecordRun

README = Path(__file__).with_name("README.md")
BEGIN, END = (
    "<!-- profile: written by `python -m benchmarks.profile` -->",
    "<!-- end of profile -->",
)
READ_BYTES = 128 * 1024
"""One read of the NATS socket, and so one batch, in the steps table."""
REPEATS = 200
AT_PORT = 4
"""The port takes so many times the messages: a run is a second or two."""
STEPS = ("parse PUB", "parse MSG", "seal", "append", "fdatasync", "build acks")


def main() -> int:
    console = Console()
    directory = Path(tempfile.mkdtemp(prefix="streamlog-profile-"))
    try:
        steps = {size: step_ns(size, directory / str(size)) for size in COUNTS}
        port = _processes(Port(directory / "port"), directory)
        through_nats_server = _processes(Streamlog(directory / "streamlog"), directory)
    finally:
        shutil.rmtree(directory)
    tables = [
        _step_cells(steps),
        _process_cells("at the port", port),
        _process_cells("through nats-server", through_nats_server),
    ]
    for cells in tables:
        table = Table(*cells[0], box=box.SIMPLE_HEAD)
        for row in cells[1:]:
            table.add_row(*row)
        console.print(table)
    report.write_section(README, "\n\n".join(map(_markdown, tables)), BEGIN, END)
    return 0


def _processes(side: Port | Streamlog, directory: Path) -> dict[str, Mapping[str, float]]:
    """``process_ns`` by size and ``sync``; the side is stopped."""
    found = {}
    try:
        for size in COUNTS:
            for sync in ("os", "commit"):
                machine.settle(directory)
                found[f"{size} B, sync={sync}"] = process_ns(side, size, sync)
    finally:
        side.stop()
    return found


def step_ns(size: int, directory: Path) -> Mapping[str, float]:
    """Nanoseconds for each message, by step; medians over the repeats."""
    frames, publications, count = inflow_bytes(size)
    router, inflow = Router(), RecordCollector(message_bytes_max=1 << 20)
    connection, endpoint = ServerConnection(router), IngestEndpoint(router)
    connection.bind(1, endpoint.subscribe(b">", inflow))
    client = ClientConnection(router)
    client.is_open = True
    router.begin_turn()
    disk, settings = OsDisk(), LogSettings(segment_bytes=1 << 30)
    log = PartitionLog.open(directory, settings, disk=disk, files=FilePool(disk, 16))
    spent: dict[str, list[float]] = {step: [] for step in STEPS}

    def timed(step: str, call: Callable[..., Any], *arguments: Any) -> Any:
        start = time.perf_counter_ns()
        result = call(*arguments)
        spent[step].append((time.perf_counter_ns() - start) / count)
        return result

    def forget() -> None:
        endpoint.take_touched()
        inflow.take_replies()
        inflow.run.clear()

    for _ in range(REPEATS):
        client.feed(
            publications
        )  # the first parser after a sync finds nothing in the processor's caches
        forget()
        timed("parse PUB", client.feed, publications)
        forget()
        timed("parse MSG", connection.feed, frames)
        endpoint.take_touched()
        base = log.log_end_offset
        batch = timed("seal", seal, inflow.run, base)
        timed("append", log.append, batch, 0)
        timed("build acks", router.acknowledge, inflow.take_replies(), ack_head(STREAM), base)
        ticket = log.begin_sync()
        assert ticket is not None
        timed("fdatasync", ticket.run)
        log.finish_sync(ticket)
    log.close()
    return {step: median(values) for step, values in spent.items()} | {"messages": count}


def seal(run: RecordRun, base_offset: int) -> bytes:
    return run.seal(base_offset=base_offset, leader_epoch=1, timestamp_ms=0)


def inflow_bytes(size: int) -> tuple[bytes, bytes, int]:
    """One read's worth of messages as nats-server sends them, the same as a client does, and how many they are."""
    body = payload(size, seed=1)
    message = b"MSG bench.a 1 _INBOX.b.%06d %d\r\n%s\r\n"
    publication = b"PUB bench.a _INBOX.b.%06d %d\r\n%s\r\n"
    count = READ_BYTES // len(message % (0, size, body))
    messages = b"".join(message % (number, size, body) for number in range(count))
    return messages, b"".join(publication % (n, size, body) for n in range(count)), count


def process_ns(side: Port | Streamlog, size: int, sync: str) -> Mapping[str, float]:
    """Processor time for each message of every process, by user and system, in an acked run."""
    create_stream(side, sync=sync)
    pids = dict(zip(("node", "nats-server"), side.pids, strict=False))
    count = COUNTS[size] * (AT_PORT if isinstance(side, Port) else 1)
    before, counted = {name: times(pid) for name, pid in pids.items()}, scrape(side.http)
    arguments = ["--nats", side.nats, "--stream", STREAM, "--count", str(count)]
    result = run_client("publisher", "acked", *arguments, "--size", str(size))
    after, counted_after = {name: times(pid) for name, pid in pids.items()}, scrape(side.http)
    delete_stream(side)
    per = 1e9 / result["messages"]
    costs = {"records/s": result["rate"]}
    for name in pids:
        costs[f"{name} user"] = per * (after[name][0] - before[name][0])
        costs[f"{name} system"] = per * (after[name][1] - before[name][1])
    costs["publisher"] = 1e9 * result["client_cpu_s"] / result["messages"]

    def grown(key: str) -> float:
        return counted_after.get(key, 0.0) - counted.get(key, 0.0)

    costs["records/batch"] = result["messages"] / grown("streamlog_append_batches_total")
    syncs = grown("streamlog_fsync_duration_seconds_count") if sync == "commit" else 0.0
    costs["records/sync"] = result["messages"] / syncs if syncs else 0.0
    costs["ms/sync"] = (
        1000 * grown("streamlog_fsync_duration_seconds_sum") / syncs if syncs else 0.0
    )
    return costs


def scrape(http: str) -> dict[str, float]:
    """The node's counters that have no labels."""
    with urllib.request.urlopen(f"http://{http}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    pairs = [line.split(" ") for line in lines if not line.startswith("#") and "{" not in line]
    return {name: float(value) for name, value in pairs}


def _step_cells(steps: Mapping[int, Mapping[str, float]]) -> list[list[str]]:
    head = ["step, ns per message"]
    head += [f"{size} B, {int(costs['messages'])} in a batch" for size, costs in steps.items()]
    return [head] + [[s] + [f"{costs[s]:.0f}" for costs in steps.values()] for s in STEPS]


def _process_cells(where: str, processes: Mapping[str, Mapping[str, float]]) -> list[list[str]]:
    names = list(next(iter(processes.values())))
    rows = [
        [n] + [f"{costs[n]:,.{2 * (n == 'ms/sync')}f}" for costs in processes.values()]
        for n in names
    ]
    return [[f"acked run {where}, ns of processor time per message", *processes], *rows]


def _markdown(cells: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([lines[0], "|---" + "|--:" * (len(cells[0]) - 1) + "|", *lines[1:]])


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "error")
    sys.exit(main())
