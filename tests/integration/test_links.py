"""Three nodes among themselves: what clients of their NATS ports publish and subscribe, without nats-server."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import nats
import nats.js
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from tests.integration.conftest import read_stream
from tests.local_node import until
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import Settings

SETTINGS: Settings = {"nats_listen": {}, "nats": {"default_api_prefix": True}}


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("links"), nats=NoNats(), settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
async def clients(trio: Cluster) -> AsyncIterator[list[Client]]:
    """One at each node, all linked."""
    async with AsyncExitStack() as stack:
        made = [await connected(stack, trio[number].port_url) for number in (1, 2, 3)]
        await linked(made)
        yield made


async def connected(stack: AsyncExitStack, url: str) -> Client:
    client = await nats.connect(url, allow_reconnect=False)
    stack.push_async_callback(client.close)
    return client


async def linked(clients: list[Client]) -> None:
    """Return when each hears each other one."""
    for listener in clients:
        heard: set[bytes] = set()

        async def take(message: Msg, heard: set[bytes] = heard) -> None:
            heard.add(message.data)

        subject = f"probe.{id(listener)}"
        subscription = await listener.subscribe(subject, cb=take)
        await listener.flush()
        async with asyncio.timeout(20):
            while len(heard) < len(clients):
                for number, client in enumerate(clients):
                    await client.publish(subject, b"%d" % number)
                await asyncio.sleep(0.02)
        await subscription.unsubscribe()


async def test_nodes_name_each_others_ports(trio: Cluster) -> None:
    ports = {trio[number].port_url.removeprefix("nats://") for number in (1, 2, 3)}
    for number in (1, 2, 3):
        async with asyncio.timeout(20):
            while True:
                if (await greeting(trio[number].port_url))["connect_urls"] == sorted(ports):
                    break
                await asyncio.sleep(0.05)


async def test_a_node_that_is_alone_names_no_ports(tmp_path: Path) -> None:
    with Cluster(tmp_path, nodes=1, nats=NoNats(), settings=SETTINGS) as lone:
        assert (await greeting(lone[1].port_url))["connect_urls"] == []


async def test_clients_are_told_the_level_of_the_api(trio: Cluster, clients: list[Client]) -> None:
    account = json.loads((await clients[0].request("$JS.streamlog.API.INFO", b"")).data)
    assert (await greeting(trio[1].port_url))["api_lvl"] == account["api"]["level"] > 0


async def greeting(url: str) -> dict[str, Any]:
    """The INFO of a port, its list of ports sorted."""
    host, _, port = url.removeprefix("nats://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    info: dict[str, Any] = json.loads((await reader.readline()).removeprefix(b"INFO "))
    writer.close()
    await writer.wait_closed()
    return info | {"connect_urls": sorted(info.get("connect_urls", ()))}


async def test_subscribers_hear_each_publisher_once(clients: list[Client]) -> None:
    heard: list[list[bytes]] = [[] for _ in range(6)]
    """By subscription: nats-py has a task for each."""
    for number, client in enumerate(clients):
        for which, subject in enumerate(("news.*", "news.>")):

            async def take(message: Msg, place: int = 2 * number + which) -> None:
                heard[place].append(message.data)

            await client.subscribe(subject, cb=take)
        await client.flush()
    await linked(clients)
    for number, client in enumerate(clients):
        for turn in range(50):
            await client.publish("news.x", b"%d.%02d" % (number, turn))
        await client.flush()
    await until(lambda: all(len(each) >= 150 for each in heard))
    for each in heard:
        for number in range(3):
            own = [text for text in each if text.startswith(b"%d." % number)]
            assert own == [b"%d.%02d" % (number, turn) for turn in range(50)], "once, in order"


async def test_one_member_of_a_queue_group_answers(clients: list[Client]) -> None:
    answered = [0, 0, 0]
    for number, client in enumerate(clients[1:], 1):

        async def answer(message: Msg, number: int = number) -> None:
            answered[number] += 1
            await message.respond(b"%d" % number)

        await client.subscribe("work", queue="workers", cb=answer)
        await client.flush()
    await linked(clients)
    replies = await asyncio.gather(*(clients[0].request("work", b"") for _ in range(100)))
    assert len(replies) == sum(answered) == 100
    assert min(answered[1:]) > 10
    answered[:] = [0, 0, 0]
    await asyncio.gather(*(clients[1].request("work", b"") for _ in range(50)))
    assert answered == [0, 50, 0], "a member of one's own node is preferred"


async def test_where_no_one_answers_a_client_is_told_at_once(clients: list[Client]) -> None:
    for client in clients:
        with pytest.raises(NoRespondersError):
            await client.request("nobody", b"", timeout=5)


async def test_any_node_takes_messages_for_any_stream(trio: Cluster, clients: list[Client]) -> None:
    js = [client.jetstream() for client in clients]
    leaders = set()
    for number in range(3):
        info = await js[0].add_stream(name=f"any{number}", subjects=[f"any{number}.>"])
        assert info.cluster is not None
        leaders.add(info.cluster.leader)
    assert len(leaders) == 3
    for stream in range(3):
        for turn in range(20):
            ack = await published(js[turn % 3], f"any{stream}.{turn}", b"%d" % turn)
            assert ack == turn + 1
        read = read_stream(trio.servers, f"any{stream}")
        assert [record.value for record in read] == [b"%d" % turn for turn in range(20)]


async def published(js: nats.js.JetStreamContext, subject: str, payload: bytes) -> int:
    """A node that has not heard yet that another one leads has no responders for a moment."""
    async with asyncio.timeout(20):
        while True:
            try:
                return (await js.publish(subject, payload)).seq
            except nats.js.errors.NoStreamResponseError:
                await asyncio.sleep(0.02)


async def test_a_stream_spread_over_nodes_takes_all_from_any(
    trio: Cluster, clients: list[Client]
) -> None:
    config = {"partitions": "6", "partition_by": "tokens:2"}
    metadata = {f"streamlog.{name}": value for name, value in config.items()}
    await clients[0].jetstream().add_stream(name="spread", subjects=["spread.>"], metadata=metadata)
    keys = [f"spread.{number}" for number in range(60)]
    for turn, key in enumerate(keys):
        await published(clients[turn % 3].jetstream(), key, key.encode())
    state = (await clients[0].jetstream().stream_info("spread")).state
    assert state.messages == len(keys)


async def test_a_node_that_is_killed_and_returns_is_linked_again(
    new_trio: Callable[[], Cluster],
) -> None:
    trio = new_trio()
    async with AsyncExitStack() as stack:
        first = await connected(stack, trio[1].port_url)
        third = await connected(stack, trio[3].port_url)
        await linked([first, third])
        trio[2].kill()
        await linked([first, third])
        trio[2].start()
        second = await connected(stack, trio[2].port_url)
        await linked([first, second, third])


@pytest.fixture
def new_trio(tmp_path: Path) -> Iterator[Callable[[], Cluster]]:
    made: list[Cluster] = []

    def create() -> Cluster:
        made.append(Cluster(tmp_path / "trio", nats=NoNats(), settings=SETTINGS).__enter__())
        return made[-1]

    yield create
    for cluster in made:
        cluster.close()
