"""A node that is a leafnode of nats-server, beside its JetStream: clients on both sides hear each other."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import nats
import nats.js
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from tests.integration.conftest import read_stream
from tests.leaf_hub import (
    Hub,
    heard_from,
    node_of,
    published,
    stored_messages_have_their_subject,
)
from tests.local_node import until
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import wait_until

ACKS = (
    b"$JS.ACK.streamlog.p0.orders.worker.1.2.3.4.5.0",
    b"$JS.ACK.streamlog.p0.orders@home.worker@1.1.2.3.4.5.0",
)


class Pair(NamedTuple):
    hub: Hub
    node: NodeProcess


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    hub = Hub(tmp_path)
    hub.start()
    node = node_of(hub, tmp_path / "node")
    try:
        node.start()
        yield Pair(hub, node)
    finally:
        node.kill()
        hub.kill()


@pytest.fixture
async def clients(pair: Pair) -> AsyncIterator[tuple[Client, Client]]:
    """Of nats-server, and of the node's port."""
    async with AsyncExitStack() as stack:
        made = []
        for url in (pair.hub.url, pair.node.port_url):
            client = await nats.connect(url, reconnect_time_wait=0.05, max_reconnect_attempts=-1)
            stack.push_async_callback(client.close)
            made.append(client)
        yield made[0], made[1]


async def test_clients_on_both_sides_hear_each_other(clients: tuple[Client, Client]) -> None:
    heard: list[tuple[str, str, bytes]] = []
    for name, client in zip(("hub", "port"), clients, strict=True):

        async def take(message: Msg, name: str = name) -> None:
            heard.append((name, message.subject, message.data))

        await client.subscribe("x.*", cb=take)
        await client.flush()
    hub, port = clients
    await heard_from(hub, port)
    await heard_from(port, hub)
    await hub.publish("x.1", b"from hub", headers={"A": "b"})
    await port.publish("x.2", b"from port")
    await until(lambda: len(heard) >= 4)
    assert sorted(heard) == [
        ("hub", "x.1", b"from hub"), ("hub", "x.2", b"from port"),
        ("port", "x.1", b"from hub"), ("port", "x.2", b"from port"),
    ]  # fmt: skip


async def test_requests_are_answered_on_both_sides(clients: tuple[Client, Client]) -> None:
    hub, port = clients

    async def answer(message: Msg) -> None:
        await message.respond(b"re " + message.data)

    await port.subscribe("at.port", queue="q", cb=answer)
    await hub.subscribe("at.hub", queue="q", cb=answer)
    await port.flush()
    await hub.flush()
    await heard_from(hub, port)
    await heard_from(port, hub)
    assert (await hub.request("at.port", b"1")).data == b"re 1"
    assert (await port.request("at.hub", b"2")).data == b"re 2"
    for client in clients:
        with pytest.raises(NoRespondersError):
            await client.request("at.none", b"", timeout=5)


async def test_messages_from_both_sides_are_stored_and_acknowledged(
    pair: Pair, clients: tuple[Client, Client]
) -> None:
    hub, port = clients
    await heard_from(hub, port)
    await hub.jetstream(domain="streamlog").add_stream(name="orders", subjects=["orders.>"])
    for number in range(40):
        assert (
            await published(clients[number % 2], f"orders.{number}", b"%d" % number) == number + 1
        )
    assert [record.value for record in read_stream(pair.node.kafka, "orders")] == [
        b"%d" % number for number in range(40)
    ]
    info = await port.jetstream(domain="streamlog").stream_info("orders")
    assert info.state.messages == 40


async def test_jetstream_of_the_nats_server_is_untouched(clients: tuple[Client, Client]) -> None:
    hub, port = clients
    await heard_from(hub, port)
    await hub.jetstream().add_stream(name="theirs", subjects=["theirs"])
    assert (await hub.jetstream().publish("theirs", b"1")).seq == 1
    assert await published(port, "theirs", b"2") == 2
    assert [it.config.name for it in await hub.jetstream().streams_info()] == ["theirs"]
    assert await hub.jetstream(domain="streamlog").streams_info() == []


async def test_a_nats_server_that_goes_and_comes_back(
    pair: Pair, clients: tuple[Client, Client]
) -> None:
    hub, port = clients
    await heard_from(hub, port)
    await port.jetstream(domain="streamlog").add_stream(name="orders", subjects=["orders.*"])
    assert await published(hub, "orders.1", b"1") == 1
    pair.hub.kill()
    assert await published(port, "orders.2", b"2") == 2, "the port needs no nats-server"
    pair.hub.start()
    await until(lambda: hub.is_connected)
    header = {"Nats-Msg-Id": "three"}
    assert await published(hub, "orders.3", b"3", **header) == 3
    assert await published(port, "orders.4", b"4") == 4
    values = [record.value for record in read_stream(pair.node.kafka, "orders")]
    assert values == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("ack", ACKS)
async def test_client_of_nats_server_sees_the_subject_of_a_stored_message(
    ack: bytes, tmp_path: Path
) -> None:
    hub = Hub(tmp_path)
    hub.start()
    try:
        async with await nats.connect(hub.url) as client:
            await stored_messages_have_their_subject(hub, client, ack, b"orders@home.eu")
    finally:
        hub.kill()


async def test_a_login_that_is_refused_is_told(tmp_path: Path) -> None:
    hub = Hub(tmp_path, more='authorization { user: "leaf", password: "right" }')
    hub.start()
    node = node_of(hub, tmp_path / "node", "leaf:wrong@")
    try:
        node.spawn()
        wait_until(lambda: "Authorization Violation" in node.log_text(), "the refusal is logged")
        assert "wrong" not in node.log_text()
        assert "Authorization" in node.http("/readyz")[1]
        node.kill()
        node.add_settings(nats={"servers": [f"nats-leaf://leaf:right@127.0.0.1:{hub.leaf_port}"]})
        node.start()
    finally:
        node.kill()
        hub.kill()
