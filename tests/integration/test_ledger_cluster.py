"""Ordering nodes over a cluster, killed with -9 as it is: all come to the chain of the stream."""

import asyncio
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from streamlog.errors import StreamlogError
from streamlog.ledger.api import LedgerClient
from streamlog.ledger.core.encoding import decode_block, decode_records
from tests.integration.ledger_offline import cut_offline
from tools.nodes.cluster import Cluster
from tools.nodes.ordering_process import OrderingProcess
from tools.nodes.server_process import wait_until

CHANNEL: Final = "contracts"
CONSENTERS: Final = ("a", "b", "c")
BATCH_SIZE: Final = 7
BATCH_TIMEOUT_MS: Final = 100
"""So short that the timers of all nodes expire again and again, and race."""
CLIENTS: Final = 4
SETTLE_S: Final = 60.0


class Ordering:
    """Three consenters, and a follower that the configuration does not name."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        directory.mkdir()
        genesis = directory / "genesis.json"
        limits = {"batch_size": BATCH_SIZE, "batch_timeout_ms": BATCH_TIMEOUT_MS}
        named = [{"name": name} for name in CONSENTERS]
        genesis.write_text(json.dumps({"limits": limits, "consenters": named}))
        self.nodes = {
            name: OrderingProcess(
                name,
                directory / name,
                CHANNEL,
                "--genesis",
                str(genesis),
                servers=lambda: cluster.servers,
                nats=cluster.nats.url,
            )
            for name in (*CONSENTERS, "f")
        }

    def start(self) -> None:
        for node in self.nodes.values():
            node.spawn()
        for node in self.nodes.values():
            node.wait_ready()

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def wait_settled(self) -> int:
        """Until all have the same blocks, and the consenters have nothing pending; the height."""

        def settled() -> bool:
            found = [node.metrics() for node in self.nodes.values()]
            heights = {each.get("height", -1) for each in found}
            waits = sum(each.get("pending_records", 1) for each in found)
            return len(heights) == 1 and not waits and -1 not in heights

        def state() -> str:
            return str({name: node.metrics() for name, node in self.nodes.items()})

        try:
            wait_until(settled, "not settled", SETTLE_S)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {state()}") from None
        return self.nodes["a"].height


@contextmanager
def ordering(tmp_path: Path) -> Iterator[Ordering]:
    with Cluster(tmp_path / "cluster") as cluster:
        nodes = Ordering(cluster, tmp_path / "ledger")
        try:
            nodes.start()
            yield nodes
        finally:
            nodes.kill()


class Clients:
    """Broadcast without a pause to any node; what is acknowledged is noted, with its offset."""

    def __init__(self, nats: str) -> None:
        self.acked: dict[bytes, int] = {}
        self.errors = 0
        self._nats = nats
        self._over = False

    async def run(self, number: int) -> None:
        async with LedgerClient(self._nats) as ledger:
            count = 0
            while not self._over:
                value = f"{number}-{count}".encode()
                count += 1
                try:
                    ack = await ledger.broadcast(CHANNEL, value, timeout_s=10.0)
                except StreamlogError:
                    self.errors += 1
                    await asyncio.sleep(0.05)
                else:
                    self.acked[value] = ack.offset
                await asyncio.sleep(random.choice((0.0, 0.0, 0.2)) * random.random())

    def end(self) -> None:
        self._over = True


def kill_again_and_again(nodes: Ordering, duration_s: float) -> Callable[[], None]:
    """One ordering node or one streamlog node at a time, or one of each; each comes back."""

    def faults() -> None:
        deadline = time.monotonic() + duration_s
        pause = threading.Event()
        while time.monotonic() < deadline:
            kind = random.choice(("ordering", "ordering", "cluster", "both"))
            name, number = random.choice(list(nodes.nodes)), random.choice((1, 2, 3))
            pause.wait(random.uniform(0.2, 1.5))
            if kind != "cluster":
                nodes.nodes[name].kill()
            if kind != "ordering":
                nodes.cluster.kill(number)
            pause.wait(random.uniform(0.0, 2.0))
            if kind != "ordering":
                nodes.cluster.start(number)
            if kind != "cluster":
                nodes.nodes[name].spawn()  # it may be killed before it is ready
        for node in nodes.nodes.values():
            node.wait_ready()

    return faults


async def campaign(nodes: Ordering, faults: Callable[[], None]) -> Clients:
    clients = Clients(nodes.cluster.nats.url)
    async with asyncio.TaskGroup() as tasks:
        for number in range(CLIENTS):
            tasks.create_task(clients.run(number))
        try:
            await asyncio.to_thread(faults)
        finally:
            clients.end()
    return clients


def check(nodes: Ordering, clients: Clients) -> None:
    """One chain everywhere, that of the stream, with all that was acknowledged, once."""
    height = nodes.wait_settled()
    for node in nodes.nodes.values():
        assert node.stop() == 0, node.log_text()[-4000:]
    expected = cut_offline(nodes.cluster.servers, CHANNEL)
    assert len(expected) == height
    chains = {name: node.blocks() for name, node in nodes.nodes.items()}
    for name, chain in chains.items():
        assert len(chain) == height, name
        different = [i for i, encoded in enumerate(chain) if encoded != expected[i]]
        assert not different, f"block {different[0]} of {name} is not that of the stream"
    files = [node.segments() for node in nodes.nodes.values()]
    assert all(each == files[0] for each in files), "the files are the same, byte for byte"
    found = [
        (record.value, record.offset)
        for encoded in expected[1:]
        for record in decode_records(decode_block(encoded).data)
    ]
    ordered = dict(found)
    assert len(ordered) == len(found), "nothing is ordered twice"
    assert {value: ordered.get(value) for value in clients.acked} == clients.acked
    for node in nodes.nodes.values():
        report = node.verify()
        assert (report["height"], report["records"]) == (height, len(found))


async def test_all_ledgers_are_the_chain_of_the_stream(tmp_path: Path) -> None:
    with ordering(tmp_path) as nodes:
        clients = await campaign(nodes, kill_again_and_again(nodes, 12.0))
        assert len(clients.acked) > 50, clients.errors
        check(nodes, clients)


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(3))
async def test_all_ledgers_are_the_chain_of_the_stream_for_long(tmp_path: Path, turn: int) -> None:
    with ordering(tmp_path) as nodes:
        clients = await campaign(nodes, kill_again_and_again(nodes, 180.0))
        check(nodes, clients)
