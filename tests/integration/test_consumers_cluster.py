"""JetStream consumers of three nodes, through failures: each message is delivered, and none again whose acknowledgement
was confirmed.
"""

import asyncio
import contextlib
import json
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
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

from streamlog.coordination.keys import partition_of
from streamlog.metadata.stream.stream_config import CONSUMERS_STREAM
from tests.integration.test_links import linked
from tests.leaf_hub import Hub
from tests.local_node import until
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import Settings
from tools.nodes.server_process import NatsServer

STATE_PARTITIONS: Final = 3
SETTINGS: Final[Settings] = {
    "nats_listen": {},
    "nats": {"default_api_prefix": True, "reconnect_backoff_ms": 50},
    "consumers": {"state_partitions": STATE_PARTITIONS},
}
FAILED: Final = (nats.errors.Error, nats.js.errors.Error, asyncio.TimeoutError)

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")
"""nats-py leaves them behind where a server is killed in the midst of a handshake."""


@pytest.fixture(scope="module")
def shared_trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Of tests that break nothing."""
    folder = tmp_path_factory.mktemp("consumers-cluster")
    with Cluster(folder, nats=NoNats(), settings=SETTINGS) as cluster:
        yield cluster
        assert_no_faults(cluster)


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, nats=NoNats(), settings=SETTINGS) as cluster:
        yield cluster
        assert_no_faults(cluster)


def assert_no_faults(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        assert "Traceback" not in node.log_text(), f"node {node.number}"


@asynccontextmanager
async def connected(cluster: Cluster, number: int, *others: int) -> AsyncIterator[Client]:
    """To a node's port, and to ``others`` in turn when that is gone."""
    client = await nats.connect(
        [cluster[it].port_url for it in (number, *others)],
        reconnect_time_wait=0.02,
        max_reconnect_attempts=-1,
        dont_randomize=True,
    )
    try:
        yield client
    finally:
        with contextlib.suppress(*FAILED):
            await client.close()


async def retried(ask: Callable[[], Any], timeout_s: float = 20) -> Any:
    """While leaders change, requests fail."""
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                return await ask()
            except FAILED:
                await asyncio.sleep(0.05)


async def make_stream(js: JetStreamContext, name: str, **config: Any) -> None:
    await retried(
        lambda: js.add_stream(name=name, subjects=[f"{name}.>"], num_replicas=3, **config)
    )


def state_partition(stream: str) -> tuple[str, int]:
    """Whose leader coordinates the stream's consumers."""
    return CONSUMERS_STREAM, partition_of(stream, STATE_PARTITIONS)


def elect(cluster: Cluster, partition: tuple[str, int], leader: int) -> None:
    cluster.wait_settled([partition])
    if cluster.leader(partition) != leader:
        stream, number = partition
        cluster.command("cluster", "elect-leader", stream, str(number), "--leader", str(leader))
        cluster.wait_settled([partition])
    assert cluster.leader(partition) == leader


async def spread(cluster: Cluster, stream: str, *, leader: int, coordinator: int) -> None:
    """Have these nodes lead the stream and coordinate its consumers."""
    await asyncio.to_thread(elect, cluster, (stream, 0), leader)
    await asyncio.to_thread(elect, cluster, state_partition(stream), coordinator)


async def fill(js: JetStreamContext, stream: str, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        await retried(partial(js.publish, f"{stream}.x", b"%d" % number))


# All of it, where nothing fails


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_client_leader_and_coordinator_are_three_nodes(
    shared_trio: Cluster, number: int
) -> None:
    stream = f"three{number}"
    leader, coordinator = number % 3 + 1, (number + 1) % 3 + 1
    async with connected(shared_trio, number) as client:
        js = client.jetstream()
        await make_stream(js, stream)
        await js.add_consumer(stream, durable_name="worker", ack_policy=api.AckPolicy.EXPLICIT)
        await spread(shared_trio, stream, leader=leader, coordinator=coordinator)
        await fill(js, stream, 50)
        info = await retried(lambda: js.consumer_info(stream, "worker"))
        assert info.cluster.leader == f"node-{coordinator}"
        subscription = await js.pull_subscribe_bind("worker", stream)
        found: list[int] = []
        while len(found) < 50:
            for it in await subscription.fetch(7, timeout=5):
                found.append(int(it.data))
                await it.ack_sync(timeout=5)
        assert found == list(range(50))
        info = await js.consumer_info(stream, "worker")
        assert (info.num_ack_pending, info.num_pending, info.num_redelivered) == (0, 0, 0)

        waiting = asyncio.create_task(subscription.fetch(1, timeout=5))
        await asyncio.sleep(0.3)
        began = time.monotonic()
        await js.publish(f"{stream}.x", b"late")
        (message,) = await waiting
        assert message.data == b"late"
        assert time.monotonic() - began < 0.5, "it is delivered when it comes"


async def test_one_consumer_serves_clients_of_all_nodes(shared_trio: Cluster) -> None:
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(connected(shared_trio, number)) for number in (1, 2, 3)
        ]
        await linked(clients)
        js = clients[0].jetstream()
        await make_stream(js, "shared")
        await js.add_consumer("shared", durable_name="worker", ack_policy=api.AckPolicy.EXPLICIT)
        await fill(js, "shared", 90)
        found: list[list[int]] = [[], [], []]

        async def work(client: Client, mine: list[int]) -> None:
            subscription = await client.jetstream().pull_subscribe_bind("worker", "shared")
            while sum(map(len, found)) < 90:
                with contextlib.suppress(asyncio.TimeoutError):  # and nats-py's own, which is one
                    for it in await subscription.fetch(5, timeout=1):
                        mine.append(int(it.data))
                        await it.ack_sync(timeout=5)

        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            for client, mine in zip(clients, found, strict=True):
                group.create_task(work(client, mine))
        assert sorted(it for mine in found for it in mine) == list(range(90))
        assert all(found)


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_push_ordered_and_watch_from_any_node(shared_trio: Cluster, number: int) -> None:
    stream = f"pushed{number}"
    leader, coordinator = number % 3 + 1, (number + 1) % 3 + 1
    async with connected(shared_trio, number) as client:
        js = client.jetstream()
        await make_stream(js, stream)
        await retried(lambda: js.add_consumer(stream, durable_name="any"))
        await spread(shared_trio, stream, leader=leader, coordinator=coordinator)
        await fill(js, stream, 30)
        heard = asyncio.Queue[Msg]()
        await js.subscribe(f"{stream}.>", durable="push", cb=heard.put, manual_ack=True)
        async with asyncio.timeout(10):
            for expected in range(30):
                message = await heard.get()
                assert int(message.data) == expected
                await message.ack_sync(timeout=5)
        ordered = await js.subscribe(f"{stream}.>", ordered_consumer=True)
        for expected in range(30):
            assert int((await ordered.next_msg(timeout=5)).data) == expected
        await ordered.unsubscribe()

        kv = await js.create_key_value(bucket=f"b{number}", replicas=3)
        await kv.put("a", b"1")
        watcher: Any = await kv.watchall()
        async with asyncio.timeout(10):
            assert (await watcher.updates(timeout=5)).value == b"1"
            assert await watcher.updates(timeout=5) is None
            await kv.put("a", b"2")
            assert (await watcher.updates(timeout=5)).value == b"2"
        await watcher.stop()


async def test_limits_and_counts_are_the_same_at_all_nodes(shared_trio: Cluster) -> None:
    """Of streams with other coordinators, too."""
    names = [f"limited{number}" for number in range(6)]
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(shared_trio, it)) for it in (1, 2, 3)]
        first = clients[0].jetstream()
        for count, name in enumerate(names):
            await make_stream(first, name, max_consumers=max(1, count))
            for number in range(count):
                made = await first.add_consumer(name, durable_name=f"c{number}")
                assert made.name == f"c{number}"
        for client in clients:
            js = client.jetstream()
            with pytest.raises(nats.js.errors.BadRequestError, match="maximum consumers limit"):
                await js.add_consumer(names[3], durable_name="more")
            counts = {it.config.name: it.state.consumer_count for it in await js.streams_info()}
            assert [counts[name] for name in names] == list(range(6))
            config = (await js.stream_info(names[2])).config
            config.consumer_limits = api.StreamConsumerLimits(max_ack_pending=10)
            with pytest.raises(nats.js.errors.ServerError, match="violates consumers: c0, c1"):
                await js.update_stream(config)


async def test_bucket_is_written_by_its_domain_at_all_nodes(shared_trio: Cluster) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(shared_trio, it)) for it in (1, 2, 3)]
        bucket = await clients[0].jetstream().create_key_value(bucket="anywhere", replicas=3)
        for number, client in enumerate(clients):
            subject = f"$JS.streamlog.API.$KV.anywhere.{number}"
            told = await retried(partial(client.request, subject, b"%d" % number, timeout=5))
            assert json.loads(told.data)["stream"] == "KV_anywhere"
        for number in range(len(clients)):
            assert (await bucket.get(str(number))).value == b"%d" % number
        assert (await bucket.status()).values == len(clients)


async def test_stream_of_several_partitions_is_delivered_in_full(shared_trio: Cluster) -> None:
    async with connected(shared_trio, 1) as client:
        js = client.jetstream()
        metadata = {"streamlog.partitions": "5", "streamlog.partition_by": "tokens:2"}
        await make_stream(js, "parts", metadata=metadata)
        await js.add_consumer("parts", durable_name="worker", ack_policy=api.AckPolicy.EXPLICIT)
        sent = [f"parts.{number % 20}" for number in range(100)]
        for number, subject in enumerate(sent):
            await retried(partial(js.publish, subject, b"%d" % number))
        subscription = await js.pull_subscribe_bind("worker", "parts")
        found: dict[str, list[int]] = {}
        count = 0
        while count < 100:
            for it in await subscription.fetch(10, timeout=5):
                found.setdefault(it.subject, []).append(int(it.data))
                await it.ack_sync(timeout=5)
                count += 1
        assert {subject: len(numbers) for subject, numbers in found.items()} == dict(Counter(sent))
        assert all(numbers == sorted(numbers) for numbers in found.values())
        info = await js.consumer_info("parts", "worker")
        assert (info.num_ack_pending, info.num_pending, info.num_redelivered) == (0, 0, 0)
        waiting = asyncio.create_task(subscription.fetch(1, timeout=5))
        await asyncio.sleep(0.3)
        began = time.monotonic()
        await js.publish("parts.9", b"late")
        assert (await waiting)[0].data == b"late"
        assert time.monotonic() - began < 0.5


# Failures


class Load:
    """Messages are published, and a worker fetches and acknowledges them, while nodes fail."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        self.published: set[int] = set()
        self.delivered: Counter[int] = Counter()
        self.confirmed: set[int] = set()
        """Acknowledgements that were answered."""
        self.again: list[int] = []
        """What came after that. A coordinator that begins may deliver a message before it hears of the acknowledgement
        of an earlier delivery, which it then confirms: what waits for the worker by then has come before. A node that
        stood still writes what it was about to write: of the consumer's numbers that has no higher one than the
        delivery that was confirmed, since the coordinator after it went on from what was kept.
        """
        self.numbers: Counter[int] = Counter()
        """The highest number, of the consumer's deliveries, that came with each."""
        self.times: list[float] = []
        """Of deliveries."""
        self._is_ending = False
        self._publishing = 0
        """Messages that may still be stored."""

    async def publish(self, js: JetStreamContext, group: asyncio.TaskGroup) -> None:
        """One message does not wait for another one's acknowledgement."""
        number = 0
        while not self._is_ending:
            self._publishing += 1
            group.create_task(self._publish(js, number))
            number += 1
            await asyncio.sleep(0.005)

    async def _publish(self, js: JetStreamContext, number: int) -> None:
        with contextlib.suppress(*FAILED):
            await js.publish(f"{self.stream}.x", b"%d" % number, timeout=1)
            self.published.add(number)
        self._publishing -= 1

    async def work(self, client: Client, group: asyncio.TaskGroup) -> None:
        """Pull again as soon as a status says that the request has ended; nats-py's fetch waits on."""
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox)
        subscription._pending_queue = Arrivals(self)
        verb = f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.worker"
        request = json.dumps({"batch": 10, "expires": 2_000_000_000}).encode()
        while not await self._is_done(client):
            with contextlib.suppress(*FAILED):
                await client.publish(verb, request, reply=inbox)
            for _ in range(10):
                try:
                    message = await subscription.next_msg(timeout=2.5)
                except FAILED:
                    break
                if (message.headers or {}).get("Status"):
                    await asyncio.sleep(0.02)
                    break
                self._take(message, group)

    def _take(self, message: Msg, group: asyncio.TaskGroup) -> None:
        number = int(message.data)
        self.times.append(time.monotonic())
        self.delivered[number] += 1
        group.create_task(self._confirm(message, number))

    async def _confirm(self, message: Msg, number: int) -> None:
        with contextlib.suppress(*FAILED):
            await message.ack_sync(timeout=1)
            self.confirmed.add(number)

    async def _is_done(self, client: Client) -> bool:
        """An acknowledgement may count whose confirmation was lost with a node."""
        is_published = self._is_ending and not self._publishing
        if not (is_published and self.published <= set(self.delivered)):
            return False
        info = await retried(lambda: client.jetstream().consumer_info(self.stream, "worker"))
        return bool(info.num_pending == info.num_ack_pending == 0)

    def end(self) -> None:
        self._is_ending = True

    def gap_s(self, since: float) -> float:
        """From then to the first delivery that was not under way; deliveries stop for a time."""
        after = [it for it in self.times if it > since]
        return max(b - a for a, b in zip([since, *after], after, strict=False))

    def left(self) -> dict[int, int]:
        """What was not confirmed, and how often it was delivered."""
        return {it: self.delivered[it] for it in sorted(self.published - self.confirmed)}

    def check(self) -> None:
        assert not self.again, "an acknowledgement was confirmed, and counts"
        assert self.published <= set(self.delivered)


class Arrivals(asyncio.Queue[Msg]):
    """Of a subscription: the client puts what it has read there at once, and the worker takes it later."""

    def __init__(self, load: Load) -> None:
        super().__init__()
        self._load = load

    def _put(self, item: Msg) -> None:
        if not (item.headers or {}).get("Status"):
            number, delivery, load = int(item.data), item.metadata.sequence.consumer, self._load
            if number in load.confirmed and delivery > load.numbers[number]:
                load.again.append(number)
            load.numbers[number] = max(load.numbers[number], delivery)
        super()._put(item)


@asynccontextmanager
async def under_load(
    cluster: Cluster, stream: str, *, publisher: int, worker: int
) -> AsyncIterator[Load]:
    """Until all that was published is delivered and acknowledged."""
    load = Load(stream)
    others = [it for it in (1, 2, 3) if it != worker]
    rest = [it for it in (1, 2, 3) if it != publisher]
    async with (
        connected(cluster, publisher, *rest) as publishing,
        connected(cluster, worker, *others) as working,
    ):
        try:
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                group.create_task(load.publish(publishing.jetstream(timeout=2), group))
                group.create_task(load.work(working, group))
                yield load
                load.end()
        except TimeoutError:
            info = await working.jetstream().consumer_info(stream, "worker")
            pytest.fail(f"not all is delivered: {load.left()}; {info}")
        load.check()


async def prepare(cluster: Cluster, stream: str, *, leader: int, coordinator: int) -> None:
    async with connected(cluster, 1) as client:
        js = client.jetstream()
        await make_stream(js, stream)
        config = api.ConsumerConfig(ack_policy=api.AckPolicy.EXPLICIT, ack_wait=4.0)
        await js.add_consumer(stream, config, durable_name="worker")
    await spread(cluster, stream, leader=leader, coordinator=coordinator)


async def until_delivered(load: Load, count: int) -> None:
    aim = len(load.times) + count
    await until(lambda: len(load.times) >= aim)


ROLES: Final = {"coordinator": 3, "leader": 2, "client": 1, "leader and coordinator": 2}


@pytest.mark.parametrize("role", ROLES)
async def test_deliveries_go_on_after_kill_9(
    trio: Cluster, role: str, capsys: pytest.CaptureFixture[str]
) -> None:
    struck = ROLES[role]
    coordinator = 2 if role == "leader and coordinator" else 3
    await prepare(trio, "orders", leader=2, coordinator=coordinator)
    gaps = []
    async with under_load(trio, "orders", publisher=1 if struck != 1 else 3, worker=1) as load:
        for turn in range(3):
            await until_delivered(load, 200)
            began = time.monotonic()
            trio.kill(struck)
            await until_delivered(load, 100)
            gaps.append(load.gap_s(began))
            await asyncio.to_thread(trio.start, struck)
            if turn < 2:
                await spread(trio, "orders", leader=2, coordinator=coordinator)
    with capsys.disabled():
        shown = ", ".join(f"{it:.2f}" for it in gaps)
        print(f"\nkill -9 of the {role}: {statistics.median(gaps):.2f} s ({shown})")
    assert max(gaps) < 10


async def test_coordinator_that_stood_still_delivers_nothing_more(trio: Cluster) -> None:
    await prepare(trio, "orders", leader=2, coordinator=3)
    async with under_load(trio, "orders", publisher=1, worker=1) as load:
        for _ in range(2):
            await until_delivered(load, 200)
            trio[3].pause()
            try:
                await asyncio.sleep(5)  # longer than its lease, and than ``ack_wait``
                await until_delivered(load, 200)
            finally:
                trio[3].resume()
            await until_delivered(load, 200)
            await spread(trio, "orders", leader=2, coordinator=3)


async def test_stream_and_consumer_of_the_same_names_are_others(trio: Cluster) -> None:
    """Node 3 learns of it late."""
    await prepare(trio, "orders", leader=2, coordinator=1)
    async with connected(trio, 1) as client:
        js = client.jetstream()
        await fill(js, "orders", 20)
        subscription = await js.pull_subscribe_bind("worker", "orders")
        old = await subscription.fetch(20, timeout=5)
        for it in old[:10]:
            await it.ack_sync(timeout=5)
        trio[3].pause()
        try:
            await retried(lambda: js.delete_stream("orders"))
            await retried(
                lambda: js.add_stream(name="orders", subjects=["orders.>"], num_replicas=2)
            )
            config = api.ConsumerConfig(ack_policy=api.AckPolicy.EXPLICIT)
            await retried(lambda: js.add_consumer("orders", config, durable_name="worker"))
            await fill(js, "orders", 5, first=100)
        finally:
            trio[3].resume()
        await asyncio.to_thread(elect, trio, state_partition("orders"), 3)
        for it in old[10:]:
            await it.ack()
        async with connected(trio, 3) as late:
            info = await retried(lambda: late.jetstream().consumer_info("orders", "worker"))
            assert (info.num_pending, info.num_ack_pending, info.delivered.stream_seq) == (5, 0, 0)
            subscription = await late.jetstream().pull_subscribe_bind("worker", "orders")
            fetched = await subscription.fetch(5, timeout=5)
            assert [int(it.data) for it in fetched] == [100, 101, 102, 103, 104]
            for it in fetched:
                await it.ack_sync(timeout=5)


# At a nats-server


async def test_clients_of_nats_server_use_consumers_over_a_leafnode_link(tmp_path: Path) -> None:
    hub = Hub(tmp_path)
    leaf = HubOfCluster(hub)
    settings: Settings = {"nats_listen": {}, "consumers": {"state_partitions": STATE_PARTITIONS}}
    with Cluster(tmp_path, nats=leaf, settings=settings) as cluster:
        async with await nats.connect(hub.url) as client:
            js = client.jetstream(domain="streamlog")
            await make_stream(js, "orders")
            config = api.ConsumerConfig(ack_policy=api.AckPolicy.EXPLICIT)
            await retried(lambda: js.add_consumer("orders", config, durable_name="worker"))
            await spread(cluster, "orders", leader=2, coordinator=3)
            await fill(js, "orders", 10)
            subscription = await js.pull_subscribe_bind("worker", "orders")
            found = await subscription.fetch(10, timeout=5)
            assert [(it.subject, int(it.data)) for it in found] == [
                ("orders.x", number) for number in range(10)
            ]
            await found[0].nak()
            for it in found[1:]:
                await it.ack_sync(timeout=5)
            (again,) = await subscription.fetch(1, timeout=5)
            assert (int(again.data), again.metadata.num_delivered) == (0, 2)
            await again.ack_sync(timeout=5)

            heard = asyncio.Queue[Msg]()
            await js.subscribe("orders.>", durable="push", cb=heard.put, manual_ack=True)
            async with asyncio.timeout(10):
                for expected in range(10):
                    message = await heard.get()
                    assert int(message.data) == expected
                    await message.ack_sync(timeout=5)
            await watch_from_afar(js, cluster)
        assert_no_faults(cluster)


async def watch_from_afar(js: JetStreamContext, cluster: Cluster) -> None:
    """Of what a client of a node puts: nats-server lets no $KV.> pass between two domains of JetStream."""
    async with connected(cluster, 1) as near:
        kv = await retried(
            lambda: near.jetstream(domain="streamlog").create_key_value(bucket="b", replicas=3)
        )
        await retried(lambda: kv.put("a", b"1"))
        watcher: Any = await (await js.key_value("b")).watchall()
        assert (await watcher.updates(timeout=5)).value == b"1"
        assert await watcher.updates(timeout=5) is None
        await kv.put("a", b"2")
        assert (await watcher.updates(timeout=5)).value == b"2"
        await watcher.stop()


class HubOfCluster:
    """Nodes are leafnodes of it."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    @property
    def url(self) -> str:
        return f"nats-leaf://127.0.0.1:{self._hub.leaf_port}"

    def start(self) -> None:
        self._hub.start()

    def kill(self) -> None:
        self._hub.kill()


async def test_client_of_nats_server_alone_serves_no_consumers(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    with Cluster(tmp_path, nodes=1, nats=server):
        async with await nats.connect(server.url) as client:
            js = client.jetstream(domain="streamlog")
            await retried(lambda: js.add_stream(name="orders", subjects=["orders.>"]))
            with pytest.raises(nats.js.errors.APIError) as raised:
                await js.add_consumer("orders", durable_name="worker")
            assert raised.value.err_code == 10012
            assert "only a client of NATS serves no consumers" in (raised.value.description or "")
