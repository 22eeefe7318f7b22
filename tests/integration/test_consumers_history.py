"""Consumers of three nodes that are leafnodes of two nats-servers, whose clients are at the nats-servers: all of it is
killed, paused and cut, and the history of what clients saw is judged.

Every acknowledged message is in the log once, in its publisher's order, on all replicas alike, and is delivered. None
is delivered again whose acknowledgement was confirmed. How often a message was delivered does not fall.
"""

import asyncio
import contextlib
import json
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import nats
import nats.errors
import nats.js.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api

from tests.integration.cut_line import CutLine
from tests.integration.test_consumers_cluster import FAILED, retried
from tests.integration.test_moving_publishers import LeafHubs
from tools.nodes.cluster import Cluster
from tools.nodes.replica_log import differences
from tools.nodes.server_process import NatsServer

STREAM: Final = "work"
PLACE: Final = (STREAM, 0)
DOMAIN: Final = "streamlog"
PUBLISHERS: Final = 3
ACK_WAIT_S: Final = 2.0
HOLD_S: Final = 1.5
LATE_S: Final = 3.0
"""Nothing is held back that long on its way. What was sent before an acknowledgement was confirmed has come by then."""
SKIPPED: Final = 0.1
"""Of the deliveries: these are not acknowledged."""
SETTLE_S: Final = 60.0

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")
"""nats-py leaves them behind where a server is killed in the midst of a handshake."""


class History:
    """What clients saw of one consumer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.delivered: dict[int, bytes] = {}
        """By sequence of the stream."""
        self.confirmed_s: dict[int, float] = {}
        """When it was confirmed first that a message is acknowledged."""
        self.count: dict[int, tuple[int, float]] = {}
        """The most deliveries that a message told of, and when."""
        self.problems: list[str] = []

    def come(self, message: Msg) -> None:
        """At once when it is read from the connection."""
        now_s, told = time.monotonic(), message.metadata
        sequence, count = told.sequence.stream, told.num_delivered
        what = f"{self.name}: {sequence}, delivery {count}"
        confirmed_s = self.confirmed_s.get(sequence)
        if confirmed_s is not None and now_s - confirmed_s > LATE_S:
            self.problems.append(f"{what} comes {now_s - confirmed_s:.1f} s after it was confirmed")
        known = self.delivered.setdefault(sequence, message.data)
        if known != message.data:
            self.problems.append(f"{what} is {message.data!r} after {known!r}")
        most, seen_s = self.count.get(sequence, (0, now_s))
        if count < most and now_s - seen_s > LATE_S:
            self.problems.append(f"{what} comes after delivery {most}")
        if count >= most:
            self.count[sequence] = count, now_s


class Arrivals(asyncio.Queue[Msg]):
    """Of a subscription: the history has them before the worker does."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._history = history

    def _put(self, item: Msg) -> None:
        if not (item.headers or {}).get("Status"):
            self._history.come(item)
        super()._put(item)


class Traffic:
    """Publishers, and a worker of each consumer, until ``end`` and all is delivered."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.acked: dict[str, list[int]] = {f"p{it}": [] for it in range(PUBLISHERS)}
        """By publisher, the sequences in the order of its messages."""
        self.pull, self.push = History("pull"), History("push")
        self.is_ending = self.is_calm = False

    async def publish(self, js: JetStreamContext, name: str) -> None:
        """One after the other, each again until it is acknowledged."""
        sequences = self.acked[name]
        while not self.is_ending:
            body = f"{name}-{len(sequences)}"
            headers = {"Nats-Msg-Id": body}
            try:
                ack = await js.publish(
                    f"{STREAM}.{name}", body.encode(), timeout=1, headers=headers
                )
            except FAILED:
                await asyncio.sleep(0.02)
            else:
                sequences.append(ack.seq)
                await asyncio.sleep(0.005)

    async def take(self, history: History, message: Msg, group: asyncio.TaskGroup) -> None:
        if self.is_calm or self.rng.random() >= SKIPPED:
            group.create_task(self._confirm(history, message))

    @staticmethod
    async def _confirm(history: History, message: Msg) -> None:
        with contextlib.suppress(*FAILED):
            await message.ack_sync(timeout=1)
            history.confirmed_s.setdefault(message.metadata.sequence.stream, time.monotonic())

    async def fetch(self, client: Client, group: asyncio.TaskGroup) -> None:
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox)
        subscription._pending_queue = Arrivals(self.pull)
        verb = f"$JS.{DOMAIN}.API.CONSUMER.MSG.NEXT.{STREAM}.pull"
        request = json.dumps({"batch": 20, "expires": 1_000_000_000}).encode()
        while True:
            with contextlib.suppress(*FAILED):
                await client.publish(verb, request, reply=inbox)
            for _ in range(20):
                try:
                    message = await subscription.next_msg(timeout=1.5)
                except FAILED:
                    break
                if (message.headers or {}).get("Status"):
                    await asyncio.sleep(0.02)
                    break
                await self.take(self.pull, message, group)

    async def listen(self, client: Client, group: asyncio.TaskGroup) -> None:
        subscription = await client.subscribe("deliver.push")
        subscription._pending_queue = Arrivals(self.push)
        while True:
            with contextlib.suppress(*FAILED):
                message = await subscription.next_msg(timeout=1.5)
                if not (message.headers or {}).get("Status"):
                    await self.take(self.push, message, group)

    async def settle(self, js: JetStreamContext) -> None:
        """Return once everything is acknowledged."""
        self.is_calm = True
        async with asyncio.timeout(SETTLE_S):
            for name in ("pull", "push"):
                while True:
                    info = await retried(partial(js.consumer_info, STREAM, name))
                    if info.num_pending == info.num_ack_pending == 0:
                        break
                    await asyncio.sleep(0.1)

    def check(self, cluster: Cluster) -> None:
        cluster.wait_settled([PLACE])
        end = cluster.wait_replicated(PLACE)
        replicas = cluster.replicas(PLACE)
        assert differences(replicas, end) == []
        stored = [it.value for it in replicas[0].records]
        assert len(stored) == len(set(stored)), "a message is stored twice"
        for name, sequences in self.acked.items():
            assert sequences == sorted(sequences), f"{name} is stored in another order"
            for number, sequence in enumerate(sequences):
                assert stored[sequence - 1] == f"{name}-{number}".encode()
        for history in (self.pull, self.push):
            assert history.problems == []
            missing = {it for its in self.acked.values() for it in its} - set(history.delivered)
            assert not missing, f"{history.name} was not delivered {sorted(missing)}"
            assert all(stored[it - 1] == data for it, data in history.delivered.items())


class World:
    """Nodes, nats-servers, and the lines between them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.hubs = LeafHubs(folder / "hubs")
        self.servers: list[NatsServer] = list(self.hubs.servers)
        self.cluster = Cluster(folder, nats=self.hubs, settings={"nats_listen": {}})
        self.leaves = [CutLine(port) for port in self.hubs.leaf_ports]
        self.ports = []
        for number, node in self.cluster.nodes.items():
            leaf = self.leaves[number % 2]
            self.ports.append(CutLine(int(node.port_url.rpartition(":")[2])))
            node.add_settings(
                nats={"servers": [f"nats-leaf://127.0.0.1:{leaf.port}"]},
                nats_listen={"advertised_port": self.ports[-1].port},
            )
        self._pause = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            with self.cluster:
                yield
        finally:
            for line in (*self.leaves, *self.ports):
                line.close()

    def _wait(self, most_s: float) -> None:
        self._pause.wait(self.rng.uniform(0.1, most_s))

    def kill_a_server(self) -> None:
        server = self.rng.choice(self.servers)
        server.kill()
        self._wait(1.0)
        server.start()

    def kill_a_node(self) -> None:
        number = self.rng.choice(list(self.cluster.nodes))
        self.cluster.kill(number)
        self._wait(1.0)
        self.cluster.start(number)

    def pause_a_node(self) -> None:
        node = self.cluster[self.rng.choice(list(self.cluster.nodes))]
        node.pause()
        self._wait(HOLD_S)
        node.resume()

    def cut_a_line(self) -> None:
        line = self.rng.choice((*self.leaves, *self.ports))
        for _ in range(3):
            line.reset()
            self._wait(0.4)

    def hold_a_line(self) -> None:
        line = self.rng.choice((*self.leaves, *self.ports))
        line.hold()
        self._wait(HOLD_S)
        if self.rng.random() < 0.5:
            line.reset()
        line.flow()

    def fail(self, rounds: int) -> None:
        """Every kind of failure in each round, one after the other."""
        kinds: list[Callable[[], None]] = [
            self.kill_a_server, self.kill_a_node, self.pause_a_node, self.cut_a_line,
            self.hold_a_line,
        ]  # fmt: skip
        for _ in range(rounds):
            self.rng.shuffle(kinds)
            for kind in kinds:
                kind()
                self._wait(1.0)
            self.cluster.wait_settled([PLACE])


@asynccontextmanager
async def connected(*urls: str) -> AsyncIterator[Client]:
    """To the first, and to the others in turn while that is gone."""

    async def ignore(_: Exception) -> None:
        """That servers go away is what this is about."""

    options: dict[str, Any] = {"reconnect_time_wait": 0.05, "max_reconnect_attempts": -1}
    client = await nats.connect(list(urls), dont_randomize=True, error_cb=ignore, **options)
    try:
        yield client
    finally:
        with contextlib.suppress(*FAILED):
            await client.close()


async def prepare(js: JetStreamContext) -> None:
    await retried(lambda: js.add_stream(name=STREAM, subjects=[f"{STREAM}.>"], num_replicas=3))
    config = api.ConsumerConfig(
        ack_policy=api.AckPolicy.EXPLICIT, ack_wait=ACK_WAIT_S, max_ack_pending=1_000
    )
    await retried(lambda: js.add_consumer(STREAM, config, durable_name="pull"))
    pushed: dict[str, Any] = {"durable_name": "push", "deliver_subject": "deliver.push"}
    await retried(lambda: js.add_consumer(STREAM, config, **pushed))


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.slow)])
async def test_consumers_of_nats_servers_while_all_fails(tmp_path: Path, rounds: int) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")  # shown when it fails
    world, traffic = World(tmp_path, seed), Traffic(seed)
    one, other = (it.url for it in world.servers)
    port = world.cluster[1].port_url
    with world.running():
        async with (
            connected(one, other) as first,
            connected(other, one) as second,
            connected(port, *(world.cluster[it].port_url for it in (2, 3))) as third,
        ):
            clients = [it.jetstream(domain=DOMAIN, timeout=2) for it in (first, second, third)]
            await prepare(clients[0])
            async with asyncio.TaskGroup() as group:
                workers = [
                    group.create_task(traffic.fetch(second, group)),
                    group.create_task(traffic.listen(first, group)),
                ]
                for name, js in zip(traffic.acked, clients, strict=True):
                    group.create_task(traffic.publish(js, name))
                await asyncio.to_thread(world.fail, rounds)
                traffic.is_ending = True
                try:
                    await traffic.settle(clients[0])
                finally:
                    for worker in workers:
                        worker.cancel()
        traffic.check(world.cluster)
        for number, node in world.cluster.nodes.items():
            assert "Traceback" not in node.log_text(), f"node {number}"
    counts = {
        it.name: (len(it.delivered), len(it.confirmed_s)) for it in (traffic.pull, traffic.push)
    }
    print(f"{sum(map(len, traffic.acked.values()))} acknowledged; delivered, confirmed: {counts}")
