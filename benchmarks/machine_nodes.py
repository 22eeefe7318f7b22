"""What a second process brings: ``python -m benchmarks.machine_nodes``.

A machine with ``node.processes = 2``. Two publishers publish 100 bytes, all acknowledged, to two streams
that node 1 leads, and then to one that node 1 leads and one that node 2 leads; in turn, for some rounds.

The publishers (``connections.c``) take processor time of the same cores. So beside the rates it is told
what a message costs the nodes and the publishers, and two ratios are made of that: the most that these
cores have room for, and the one with a core for each node and others for the publishers.

``--realtime`` (for root, and for seconds) puts nodes and publishers before all other programs of the
machine, and publishers before nodes. Without it a publisher waits for its core until the node there has
nothing more to do, which it has when the other publisher waits, too. ``--dir /dev/shm`` leaves the disk
out, which one process can keep busy.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import psutil
import tomli_w

from benchmarks.processes import binary, compiled, cpu_seconds
from tools.nodes.ports import free_ports
from tools.nodes.server_process import ServerProcess, http_get, run_streamlog, wait_until

NODES: Final = 2
CONNECTIONS: Final = 8
IN_FLIGHT: Final = 1_024
COUNT: Final = 400_000
SIZE: Final = 100
ROUNDS: Final = 9
STREAM_BYTES: Final = 256 << 20
READY_TIMEOUT_S: Final = 60.0
COMMAND_TIMEOUT_S: Final = 30.0


class Run(NamedTuple):
    """One measurement."""

    rate: float
    node_us: float
    """Processor time of the nodes for a message."""
    publisher_us: float


class Place(NamedTuple):
    """A stream, and the node that leads it."""

    node: int
    stream: str


class Machine:
    """Nodes 1 to ``NODES``, each bound to a core."""

    def __init__(self, directory: Path, sync: str, *, realtime: bool) -> None:
        self._realtime = realtime
        self._kafka, self._http, self._nats = (free_ports(NODES) for _ in range(3))
        config = directory / "node.toml"
        content = {
            "node": {"data_dir": str(directory / "data"), "processes": NODES},
            "kafka": {"port": self._kafka},
            "http": {"port": self._http},
            "nats": {"servers": []},
            "nats_listen": {"port": self._nats},
            "cluster": {"id": "cores"},
            "log": {"sync": sync, "segment_bytes": 64 << 20},
        }
        config.write_text(tomli_w.dumps(content))
        command = [binary("streamlog"), "serve", "--config", str(config)]
        self._process = ServerProcess(command, directory / "log")
        self.pids: dict[int, int] = {}

    def start(self) -> None:
        self._process.spawn()
        wait_until(self._is_ready, "the nodes are ready", READY_TIMEOUT_S)
        for child in psutil.Process(self._process.pid).children():
            words = child.cmdline()
            self.pids[int(words[words.index("--node") + 1])] = child.pid
        for node, pid in self.pids.items():
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), {core_of(node)})
                if self._realtime:
                    os.sched_setscheduler(int(task.name), os.SCHED_RR, os.sched_param(1))

    def _is_ready(self) -> bool:
        self._process.check_running()
        ports = range(self._http, self._http + NODES)
        return all(http_get(f"http://127.0.0.1:{port}/readyz")[0] == 200 for port in ports)

    def add_streams(self) -> list[Place]:
        """Two that node 1 leads and one that node 2 leads."""
        found: list[Place] = []
        for number in range(3):
            name = f"s{number}"
            add = ["stream", "add", name, "--subject", name, "--max-bytes", str(STREAM_BYTES)]
            servers = ["--bootstrap-server", f"127.0.0.1:{self._kafka}"]
            done = run_streamlog([*add, *servers], os.environ, timeout_s=COMMAND_TIMEOUT_S)
            if done.returncode:
                raise SystemExit(done.stderr)
            found.append(Place(1 + number % NODES, name))  # as the controller spreads them
        return found

    def measure(self, places: Sequence[Place], count: int) -> Run:
        """A publisher for each, at the port of the stream's node, on the core of the other one."""
        before = cpu_seconds([*self.pids.values()])
        first = ["chrt", "--rr", "2"] if self._realtime else []
        running = [
            subprocess.Popen(
                [
                    *first, "taskset", "-c", str(core_of(1 + it.node % NODES)), compiled("connections"),
                    str(self._nats + it.node - 1), str(CONNECTIONS), str(IN_FLIGHT), str(count),
                    str(SIZE), it.stream,
                ],
                stdout=subprocess.PIPE, text=True,
            )
            for it in places
        ]  # fmt: skip
        found = [json.loads(each.communicate()[0]) for each in running]
        for each in found:
            if "failed" in each:
                raise SystemExit(str(each["failed"]))
        used = cpu_seconds([*self.pids.values()]) - before
        messages = count * len(places)
        elapsed_s = max(each["elapsed_s"] for each in found)
        publisher_s = sum(each["client_cpu_s"] for each in found)
        return Run(messages / elapsed_s, 1e6 * used / messages, 1e6 * publisher_s / messages)

    def stop(self) -> None:
        self._process.end()


def core_of(node: int) -> int:
    cores = sorted(os.sched_getaffinity(0))
    return cores[(node - 1) % len(cores)]


@contextmanager
def machine(sync: str, parent: Path | None, *, realtime: bool) -> Iterator[Machine]:
    directory = Path(tempfile.mkdtemp(prefix="streamlog-machine-", dir=parent))
    nodes = Machine(directory, sync, realtime=realtime)
    try:
        nodes.start()
        yield nodes
    finally:
        nodes.stop()
        shutil.rmtree(directory, ignore_errors=True)


def report(one: Sequence[Run], two: Sequence[Run]) -> None:
    for name, runs in (("led by one process", one), ("led by two processes", two)):
        rate, node_us, publisher_us = (median(each) for each in zip(*runs, strict=True))
        best = max(run.rate for run in runs)
        print(
            f"{name:21} {rate:12,.0f} messages/s (best {best:,.0f}); of processor time a message takes"
            f" {node_us:.3f} us of the nodes, {publisher_us:.3f} us of the publishers"
        )
    raw = median(two_run.rate / one_run.rate for one_run, two_run in zip(one, two, strict=True))
    best = max(run.rate for run in two) / max(run.rate for run in one)
    alone_us, node_us = (median(run.node_us for run in runs) for runs in (one, two))
    publisher_us = median(run.publisher_us for run in two)
    room = NODES * alone_us / (node_us + publisher_us)
    print(
        f"ratio of the rates: {raw:.2f} by round, {best:.2f} of the best rounds;"
        f" these cores have room for {room:.2f}"
    )
    cost = NODES * alone_us / node_us
    print(f"ratio with a core for each node and others for the publishers: {cost:.2f}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machine_nodes", description=__doc__)
    parser.add_argument("--sync", default="os", choices=("os", "interval", "commit"))
    parser.add_argument("--count", type=int, default=COUNT, help="messages of a publisher")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--realtime", action="store_true", help="before all other programs")
    parser.add_argument("--dir", type=Path, help="where the nodes keep their data")
    options = parser.parse_args()
    with machine(options.sync, options.dir, realtime=options.realtime) as nodes:
        first, other, second = nodes.add_streams()
        plans = ([first, second], [first, other])
        for plan in plans:
            nodes.measure(plan, options.count // 4)
        one, two = [], []
        for _ in range(options.rounds):
            one.append(nodes.measure(plans[0], options.count))
            two.append(nodes.measure(plans[1], options.count))
    report(one, two)
    return 0


if __name__ == "__main__":
    sys.exit(main())
