"""A soak: three nodes under mixed load and faults, and a sample of them every so often."""

import asyncio
import json
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import quantiles
from typing import Final, NamedTuple

from tests.soak.kafka_load import KafkaLoad
from tests.soak.nats_load import NatsLoad
from tests.soak.progress import Progress
from tests.soak.samples import Sample, look_at
from tools.nodes.cluster import NODES, Cluster, NoNats
from tools.nodes.node_process import NodeProcess, Settings

SAMPLES: Final = "samples.jsonl"
PORTS: Final = "ports.json"
UNTOUCHED: Final = 1
"""This node is stopped for a moment and cut off, and never ended: what grows in it has the whole time to do so."""
NEAR_BEFORE_S: Final = 3.0
NEAR_AFTER_S: Final = 15.0
"""So near to a fault an acknowledgement is no measure of how fast they are."""
FAULTS: Final = ("pause", "kill", "restart", "elect", "transfer")
READY_S: Final = 180.0
"""A machine may have much else to do. A node that takes longer ends the soak."""
DOWN_S: Final = (0.5, 5.0)
PAUSE_S: Final = (0.5, 4.0)
SETTINGS: Final[Settings] = {
    "nats_listen": {},
    "nats": {"default_api_prefix": True, "reconnect_backoff_ms": 50},
    "log": {"segment_bytes": 1 << 20, "retention_check_ms": 5_000},
    "logging": {"format": "console"},
    "groups": {"offsets_partitions": 4},
    "transactions": {"state_partitions": 4},
}


class Plan(NamedTuple):
    hours: float
    rate: float = 200.0
    """Messages a second to each of two streams; the other clients do a tenth of it or less."""
    sample_s: float = 15.0
    fault_s: float = 90.0
    """Between two faults; 0: none."""
    kinds: Sequence[str] = FAULTS
    seed: int = 0


def read_samples(folder: Path) -> list[Sample]:
    path = folder / SAMPLES
    lines = path.read_text().splitlines() if path.exists() else []
    return [Sample.of_fields(json.loads(it)) for it in lines]


@contextmanager
def nodes_in(folder: Path) -> Iterator[Cluster]:
    """With the ports that they had in the last piece, for the nodes know each other by them."""
    path = folder / PORTS
    kept: dict[str, list[int]] = json.loads(path.read_text()) if path.exists() else {}

    def node(number: int, directory: Path) -> NodeProcess:
        found = NodeProcess(number, directory)
        if str(number) in kept:
            found.kafka_port, found.http_port, port = kept[str(number)]
            found.port_url = f"nats://{found.host}:{port}"
        return found

    cluster = Cluster(folder, nats=NoNats(), settings=SETTINGS, make_node=node)
    ports = {
        it.number: [it.kafka_port, it.http_port, int(it.port_url.rpartition(":")[2])]
        for it in cluster.nodes.values()
    }
    path.write_text(json.dumps(ports))
    with cluster:
        yield cluster


def run_piece(folder: Path, plan: Plan, told: Callable[[str], None]) -> list[str]:
    """One piece, after those that the folder has. Returns the violations."""
    folder.mkdir(parents=True, exist_ok=True)
    earlier = read_samples(folder)
    piece = 1 + max((it.piece for it in earlier), default=-1)
    at_s = max((it.at_s for it in earlier), default=0.0)
    with nodes_in(folder) as cluster:
        soak = _Soak(cluster, folder, plan, piece, at_s, told)
        asyncio.run(soak.run())
        return soak.progress.violations


class _Soak:
    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        plan: Plan,
        piece: int,
        at_s: float,
        told: Callable[[str], None],
    ) -> None:
        self.progress = Progress()
        self._cluster = cluster
        self._path = folder / SAMPLES
        self._plan = plan
        self._piece = piece
        self._began = time.monotonic() - at_s
        self._told = told
        self._random = random.Random(plan.seed * 1_000 + piece)
        self._faults: list[str] = []
        self._near: list[tuple[float, float]] = []
        """Times that are near to a fault."""
        self._ended = threading.Event()

    async def run(self) -> None:
        servers = [it.port_url for it in self._cluster.nodes.values()]
        nats = NatsLoad(servers, self.progress, self._plan.rate, self._piece)
        kafka = KafkaLoad(self._cluster.servers, self.progress, self._plan.rate, self._piece)
        await nats.prepare()
        await asyncio.to_thread(kafka.prepare)
        kafka.start()
        working = asyncio.create_task(nats.run())
        striking = asyncio.create_task(asyncio.to_thread(self._strike))
        deadline = time.monotonic() + 3_600 * self._plan.hours
        while time.monotonic() < deadline:
            await asyncio.sleep(min(self._plan.sample_s, max(0.1, deadline - time.monotonic())))
            await asyncio.to_thread(self._sample)
            for task in (working, striking):
                if task.done():
                    task.result()
        self._ended.set()
        await striking
        nats.stop()
        await working
        await asyncio.to_thread(kafka.stop, nats.published)
        await nats.finish()

    def _sample(self) -> None:
        nodes = {}
        for number, node in self._cluster.nodes.items():
            if node.is_running() and (found := look_at(node.pid, node.data_dir)):
                nodes[number] = found
        near = self._near[-50:]
        took = [
            1e3 * seconds
            for began, seconds in self.progress.take_latencies()
            if not any(start <= began + seconds and began <= end for start, end in near)
        ]
        p50_ms = p99_ms = None
        if len(took) >= 100:
            cuts = quantiles(took, n=100)
            p50_ms, p99_ms = cuts[49], cuts[98]
        faults, self._faults = tuple(self._faults), []
        at_s = time.monotonic() - self._began
        counts = self.progress.counts
        sample = Sample(at_s, self._piece, nodes, p50_ms, p99_ms, counts, faults)
        with self._path.open("a") as file:
            file.write(json.dumps(sample.to_fields()) + "\n")
        memory = " ".join(f"{it.resident_mib:.0f}" for it in nodes.values())
        slow = "" if p99_ms is None else f", p99 {p99_ms:.1f} ms"
        self._told(
            f"{at_s / 60:7.1f} min: {counts.get('orders', 0):,} orders, {memory} MiB{slow}"
            f"{''.join(f'; {it}' for it in faults)}"
        )

    # Faults

    def _strike(self) -> None:
        kinds = [getattr(self, f"_{it}") for it in self._plan.kinds]
        while kinds and self._plan.fault_s and not self._ended.wait(self._plan.fault_s):
            began = time.monotonic()
            self._near.append((began - NEAR_BEFORE_S, float("inf")))
            done = self._random.choice(kinds)()
            self._near[-1] = (began - NEAR_BEFORE_S, time.monotonic() + NEAR_AFTER_S)
            self._faults.append(done)

    def _pause(self) -> str:
        node = self._cluster[self._random.randrange(1, NODES + 1)]
        node.pause()
        try:
            self._wait(PAUSE_S)
        finally:
            node.resume()
        self._wait_ready()
        return f"node {node.number} paused"

    def _kill(self) -> str:
        number = self._mortal()
        self._cluster.kill(number)
        self._wait(DOWN_S)
        self._start(number)
        return f"node {number} killed"

    def _restart(self) -> str:
        number = self._mortal()
        try:
            self._cluster[number].stop()
        except subprocess.TimeoutExpired:
            self._cluster.kill(number)
        self._start(number)
        return f"node {number} restarted"

    def _elect(self) -> str:
        stream, number = self._random.choice((("orders", 0), ("orders", 1), ("jobs", 0)))
        wanted = self._random.randrange(1, NODES + 1)
        self._command("cluster", "elect-leader", stream, str(number), "--leader", str(wanted))
        return f"node {wanted} elected for {stream}/{number}"

    def _transfer(self) -> str:
        self._command("cluster", "transfer-controller")
        return "controller transferred"

    def _mortal(self) -> int:
        return self._random.choice([it for it in self._cluster.nodes if it != UNTOUCHED])

    def _command(self, *arguments: str) -> None:
        """It may be refused while the last fault is still felt."""
        with suppress(AssertionError):
            self._cluster.command(*arguments)

    def _start(self, number: int) -> None:
        self._cluster[number].spawn()
        self._wait_ready()

    def _wait_ready(self) -> None:
        for node in self._cluster.nodes.values():
            node.wait_ready(READY_S)

    def _wait(self, bounds_s: Sequence[float]) -> None:
        threading.Event().wait(self._random.uniform(*bounds_s))
