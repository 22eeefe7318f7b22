"""What a node tells its clients of the other nodes' ports, and whom it takes for one of them."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Mapping
from typing import Any

import pytest

from streamlog.config import NatsListenSection
from streamlog.errors import ConfigError
from streamlog.metrics import NodeMetrics
from streamlog.nats import links as links_module
from streamlog.nats.leaf_connection import LeafConnection
from streamlog.nats.links import LINK_LOST, Link, LinkAddress, NodeLinks
from streamlog.nats.port import Port
from streamlog.nats.router import Router
from streamlog.nats.sockets import CloseReason, ServedSocket, Sockets, TlsFilter
from tests.commit_room import Room
from tests.local_node import until


def _links(host: str, told: asyncio.Event) -> NodeLinks:
    async def ask(_: int) -> Mapping[str, Any]:
        return {"host": host, "port": 4222, "token": "other"}

    router = Router()
    return NodeLinks(
        router,
        Sockets(router, write_timeout_ms=1000),
        node_id=1,
        cluster_id="c",
        token="own",
        address=lambda: (host, 4222),
        ask=ask,
        tls=lambda: None,
        payload_bytes_max=1024,
        changed=told.set,
    )


async def test_url_of_a_node_with_an_ipv6_address_has_it_in_brackets() -> None:
    told = asyncio.Event()
    links = _links("2001:db8::7", told)
    links.apply({2: 1}, frozenset({2}))
    running = asyncio.create_task(links.run())
    await asyncio.wait_for(told.wait(), 10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert links.urls == ["[2001:db8::7]:4222"]


async def test_clients_are_told_of_other_urls_alone() -> None:
    """A client such as nats.js takes each INFO for a change."""
    told = asyncio.Event()
    links = _links("127.0.0.1", told)
    links.apply({2: 1}, frozenset({2}))
    assert not told.is_set()  # where its port is is not known yet
    running = asyncio.create_task(links.run())
    await asyncio.wait_for(told.wait(), 10)
    told.clear()
    links.apply({2: 1, 3: 1}, frozenset({2, 3}))
    assert not told.is_set()
    links.apply({2: 1, 3: 1}, frozenset({3}))
    assert told.is_set()
    assert links.urls == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_token_that_is_no_text_makes_no_link() -> None:
    links = _links("127.0.0.1", asyncio.Event())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = LeafConnection(
            Router(),
            fd=ours.fileno(),
            line_bytes_max=64,
            payload_bytes_max=64,
            interest_max=1,
        )

        def ended(_: ServedSocket, __: CloseReason) -> None:
            raise AssertionError

        peer = ServedSocket(ours, connection, None, ended, None)
        assert not links.take(peer, {"cluster": "c", "node": 2, "token": "\ud800"})


async def test_node_number_that_is_a_bool_makes_no_link() -> None:
    links = _links("127.0.0.1", asyncio.Event())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = LeafConnection(Router(), fd=ours.fileno())
        peer = ServedSocket(ours, connection, None, lambda *_: None, None)
        assert not links.take(peer, {"cluster": "c", "node": True, "token": "own"})
        assert links.take(peer, {"cluster": "c", "node": 2, "token": "own"})
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "error",
    [ssl.SSLError(1, "no PEM"), PermissionError("not ours"), ConfigError("tls.ca", "no", "do")],
)
async def test_tls_that_cannot_be_begun_is_a_complaint(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"tls_required":true}\r\n')
        await reader.read()
        writer.close()

    def tls(*_: object) -> TlsFilter:
        raise error

    async def place() -> LinkAddress:
        return LinkAddress("127.0.0.1", listener.sockets[0].getsockname()[1])

    listener = await asyncio.start_server(greet, "127.0.0.1", 0)
    router = Router()
    sockets = Sockets(router, write_timeout_ms=1000)
    sockets.begin()
    link = Link("other", router, sockets, place=place, connect=lambda *_: {}, tls=tls)
    running = asyncio.create_task(link.run())
    await until(lambda: link.complaint == str(error))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    sockets.close()
    listener.close()
    await asyncio.sleep(0.01)  # its side of the last connection ends
    assert [record.exc_info for record in caplog.records] == [None] * len(caplog.records)


@pytest.mark.parametrize("when", ["before it is placed", "while it is dialled", "while it is open"])
async def test_link_of_a_node_that_stops_ends_without_a_word(
    when: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sockets close before the links' tasks do; a link that ends by it must not be made again."""
    caplog.set_level("WARNING")
    calls = 0

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        writer.write(b"INFO {}\r\n")
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    async def place() -> LinkAddress:
        if when == "before it is placed":
            sockets.close()
        return LinkAddress("127.0.0.1", listener.sockets[0].getsockname()[1])

    dialled = links_module.dialled

    async def dial(host: str, port: int) -> socket.socket:
        sock = await dialled(host, port)
        if when == "while it is dialled":
            sockets.close()
        return sock

    monkeypatch.setattr(links_module, "dialled", dial)
    listener = await asyncio.start_server(greet, "127.0.0.1", 0)
    router = Router()
    sockets = Sockets(router, write_timeout_ms=1000)
    sockets.begin()
    link = Link(
        "other", router, sockets, place=place, connect=lambda *_: {}, tls=lambda *_: None, retry_s=0.01
    )  # fmt: skip
    running = asyncio.create_task(link.run())
    if when == "while it is open":
        await until(lambda: calls == 1)
        sockets.close()
    await asyncio.wait_for(running, 10)
    listener.close()
    await asyncio.sleep(0.01)
    assert calls <= 1
    assert [it for it in caplog.records if it.exc_info] == []


class Node:
    """As much of a node as its links need."""

    def __init__(self, node_id: int, nodes: dict[int, "Node"]) -> None:
        self.node_id = node_id
        self.room = Room()
        self.router = router = Router()
        self.sockets = Sockets(router, write_timeout_ms=60_000)

        async def ask(other: int) -> Mapping[str, Any]:
            return nodes[other].links.answer()

        self.links = NodeLinks(
            router,
            self.sockets,
            node_id=node_id,
            cluster_id="c",
            token=f"token {node_id}",
            address=lambda: self.port.address,
            ask=ask,
            tls=lambda: None,
            payload_bytes_max=1024,
            changed=lambda: None,
        )
        self.port = Port(
            NatsListenSection(host="127.0.0.1", port=0),
            router,
            self.sockets,
            node_id=node_id,
            cluster_id="c",
            domain="d",
            metrics=NodeMetrics(),
            link=self.links.take,
        )
        nodes[node_id] = self

    async def run(self) -> None:
        self.port.open()
        self.sockets.begin(self.room)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.sockets.run())
                tasks.create_task(self.port.run())
                tasks.create_task(self.links.run())
        finally:
            self.sockets.close()


@pytest.mark.parametrize("paused", [1, 2], ids=["called", "caller"])
async def test_link_outlives_a_pause_in_which_one_side_reads_nothing(
    paused: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(links_module, "PING_S", 0.05)
    monkeypatch.setattr(links_module, "SILENCE_S", 0.2)
    caplog.set_level("INFO")
    nodes: dict[int, Node] = {}
    for node_id in (1, 2):
        Node(node_id, nodes).links.apply({3 - node_id: 1}, frozenset({1, 2}))
    running = [asyncio.create_task(node.run()) for node in nodes.values()]
    try:
        async with asyncio.timeout(10):
            while caplog.messages.count("link open") < 2:  # noqa: ASYNC110 (of several tasks)
                await asyncio.sleep(0.01)
            node = nodes[paused]
            node.room.free.clear()
            while not node.sockets.is_paused:  # noqa: ASYNC110 (of several tasks)
                await asyncio.sleep(0.01)
        await asyncio.sleep(1.0)
        assert node.sockets.is_paused
        node.room.free.set()
        await asyncio.sleep(0.3)
        assert caplog.messages.count("link open") == 2
        assert LINK_LOST not in [record.msg for record in caplog.records]
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_client_of_another_node_sees_the_subject_of_a_stored_message() -> None:
    nodes: dict[int, Node] = {}
    for node_id in (1, 2):
        Node(node_id, nodes).links.apply({3 - node_id: 1}, frozenset({1, 2}))
    running = [asyncio.create_task(node.run()) for node in nodes.values()]
    try:
        await asyncio.sleep(0)  # their ports are open then
        for other in (1, 2):
            here = nodes[3 - other].router
            reader, writer = await asyncio.open_connection(*nodes[other].port.address)
            await reader.readline()
            writer.write(b'CONNECT {"verbose":false,"headers":true}\r\nSUB in.* q 5\r\n')
            await until(lambda: here.interest(b"in.1", queue=b"q") == 1)  # noqa: B023
            ack = b"$JS.ACK.d.p0.orders.worker.1.2.3.4.5.0"
            assert here.deliver_as(b"in.1", b"orders.eu", b"hello", reply=ack) == 1
            wanted = b"MSG orders.eu 5 %b 5\r\nhello\r\n" % ack
            assert await asyncio.wait_for(reader.readexactly(len(wanted)), 10) == wanted
            writer.close()
            await writer.wait_closed()
            await until(lambda: here.interest(b"in.1", queue=b"q") == 0)  # noqa: B023
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
