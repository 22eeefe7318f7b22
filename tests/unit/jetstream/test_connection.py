"""The connection of the management API, against a server that says what is wanted."""

import asyncio
from collections.abc import AsyncIterator

import nats.errors
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.aio.client import Client

from streamlog.config import NatsSection
from streamlog.ingest.nats.options import NatsOptions
from streamlog.jetstream.connection import (
    KEPT_BYTES_MAX,
    AdminConnection,
    Request,
    headers_of,
)
from streamlog.nats.router import Router
from streamlog.nats.sockets import Sockets
from tests.local_node import until
from tests.unit.ingest.nats.fake_nats import FakeNats


class World:
    """A client that listens to ``a.>``."""

    def __init__(self, url: str, server: FakeNats) -> None:
        self.server = server
        router = Router()
        self.sockets = Sockets(router, write_timeout_ms=1000)
        self.client = AdminConnection(
            NatsOptions(NatsSection(servers=[url], reconnect_backoff_ms=1)),
            router,
            self.sockets,
            name="test",
            connected=lambda: None,
            disconnected=lambda _: None,
            failed=lambda _: None,
        )
        self.taken: list[Request] = []
        self.subscription = self.client.listen("a.>", self.taken.append, queue="q")

    async def said(self) -> None:
        await until(lambda: b"SUB a.> q 1\r\n" in self.server.heard)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    server = FakeNats()
    async with server.serving() as url:
        world = World(url, server)
        world.sockets.begin()
        running = asyncio.create_task(world.client.run())
        await world.said()
        yield world
        world.client.close()
        await running
        world.sockets.close()


async def test_requests_of_one_read_are_taken_as_they_are(world: World) -> None:
    block = b"NATS/1.0\r\nOne: 1\r\nTwo : 2 \r\n\r\n"
    head = b"HMSG a.y 1 r.2 %d %d\r\n" % (len(block), len(block) + 4)
    world.server.say(b"MSG a.x 1 r.1 2\r\n{}\r\nMSG a.unasked 1 1\r\n!\r\n")
    world.server.say(head + block + b"body\r\nMSG a.\xff 1 r.3 0\r\n\r\n")
    await until(lambda: len(world.taken) == 3)
    first, second, third = world.taken
    assert (first.subject, first.reply, first.data, first.headers) == ("a.x", "r.1", b"{}", {})
    assert (second.reply, second.data) == ("r.2", b"body")
    assert second.headers == {"One": "1", "Two": "2"}
    assert third.subject.encode(errors="surrogateescape") == b"a.\xff"


async def test_a_reply_that_is_no_text_ends_nothing(world: World) -> None:
    world.server.say(b"MSG a.x 1 r.\xff 0\r\n\r\nMSG a.x 1 r.1 0\r\n\r\n")
    await until(lambda: len(world.taken) == 1)
    assert world.server.connections == 1


async def test_answers_of_a_turn_leave_together(world: World) -> None:
    before = len(world.server.heard)
    await world.client.answer("r.1", b"one")
    await world.client.answer("r.2", b"two", b"NATS/1.0\r\n\r\n")
    await world.client.answer("r.3", b"")
    (peer,) = world.sockets._peers.values()
    said = b"PUB r.1 3\r\none\r\nHPUB r.2 12 15\r\nNATS/1.0\r\n\r\ntwo\r\nPUB r.3 0\r\n\r\n"
    assert peer.connection.pending_bytes == len(said)
    await asyncio.sleep(0)
    assert peer.connection.pending_bytes == 0
    await until(lambda: world.server.heard[before:] == said)


async def test_answers_wait_for_a_connection_but_not_without_a_limit(world: World) -> None:
    world.server.greeting = refuse
    assert world.server.writer is not None
    world.server.writer.close()
    await until(lambda: not world.client.is_connected)
    await world.client.answer("r.1", b"one")
    with pytest.raises(nats.errors.ConnectionReconnectingError):
        await world.client.answer("r.2", b"two", b"NATS/1.0\r\n\r\n")
    with pytest.raises(nats.errors.ConnectionReconnectingError):
        await world.client.publish("r.2", b"two")
    with pytest.raises(nats.errors.OutboundBufferLimitError):
        for _ in range(KEPT_BYTES_MAX // 500):
            await world.client.answer("x", bytes(500))
    world.server.greeting = None
    await until(lambda: b"SUB a.> q 1\r\nPUB r.1 3\r\none\r\n" in world.server.heard)


async def refuse(_: asyncio.StreamWriter) -> bool:
    return False


async def test_what_the_server_would_end_the_connection_for_is_not_said(world: World) -> None:
    for reply, size, error in (
        ("r", world.client.max_payload + 1, nats.errors.MaxPayloadError),
        ("r" * 5_000, 0, nats.errors.BadSubjectError),
        ("r 3\r\nPUB x", 0, nats.errors.BadSubjectError),
        ("", 0, nats.errors.BadSubjectError),
    ):
        with pytest.raises(error):
            await world.client.answer(reply, bytes(size))


async def test_what_comes_after_the_end_is_dropped(world: World) -> None:
    assert await world.client.round_trip(1)
    await world.client.stop_listening(world.subscription, 1)
    world.server.say(b"MSG a.x 1 r 0\r\n\r\nPING\r\n")
    await until(lambda: world.server.heard.endswith(b"PONG\r\n"))
    assert world.taken == [] and world.server.connections == 1


async def test_it_listens_again_after_a_reconnect(world: World) -> None:
    assert world.server.writer is not None
    world.server.writer.close()
    await until(lambda: world.server.connections == 2)
    await until(lambda: b"SUB a.> q 1\r\n" in world.server.heard)
    world.server.say(b"MSG a.x 1 r 0\r\n\r\n")
    await until(lambda: len(world.taken) == 1)


@given(
    st.lists(st.text(alphabet="aB-: \t\u00e4\r\n\x0b\x1c", max_size=8).map(str.encode), max_size=5),
    st.binary(max_size=30),
)
def test_headers_are_read_as_nats_py_reads_them(lines: list[bytes], junk: bytes) -> None:
    rest = b"\r\n".join([*lines, junk]) + b"\r\n\r\n"
    assert headers_of(b"NATS/1.0\r\n" + rest) == Client._parse_header_lines(rest)
