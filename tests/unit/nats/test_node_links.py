"""What a node tells its clients of the other nodes' ports, and whom it takes for one of them."""

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

from streamlog.nats.leaf_connection import LeafConnection
from streamlog.nats.links import NodeLinks
from streamlog.nats.router import Router
from streamlog.nats.sockets import CloseReason, ServedSocket, Sockets


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
