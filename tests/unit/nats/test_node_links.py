"""What a node tells its clients of the other nodes' ports, and whom it takes for one of them."""

import asyncio
import socket
import ssl
from collections.abc import Mapping
from typing import Any

import pytest

from streamlog.errors import ConfigError
from streamlog.nats.leaf_connection import LeafConnection
from streamlog.nats.links import Link, NodeLinks, Place
from streamlog.nats.router import Router
from streamlog.nats.sockets import CloseReason, ServedSocket, Sockets, TlsFilter
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
    told.clear()
    running = asyncio.create_task(links.run())
    await asyncio.wait_for(told.wait(), 10)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert links.urls == ["[2001:db8::7]:4222"]


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

    async def place() -> Place:
        return Place("127.0.0.1", listener.sockets[0].getsockname()[1])

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
