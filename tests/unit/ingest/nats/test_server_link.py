"""The connection against a server that misbehaves."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from streamlog.config import NatsSection
from streamlog.ingest.frames import IngestEndpoint, RecordCollector
from streamlog.ingest.nats import server_link
from streamlog.ingest.nats.options import NatsOptions
from streamlog.ingest.nats.server_link import ServerLink
from streamlog.ingest.nats.subscription_list import Subscriptions
from streamlog.nats.router import Router
from streamlog.nats.sockets import Sockets
from tests.local_node import until
from tests.secured_nats import Certificates
from tests.unit.ingest.nats.fake_nats import INFO, FakeNats, Greeting


class Receiver:
    """Takes what the collector has gathered, and has room for it or not."""

    def __init__(self) -> None:
        self.collector = RecordCollector(message_bytes_max=1000, owner=self)
        self.values = 0
        self.connections = 0
        self.errors: list[str] = []
        self.lost = asyncio.Event()
        self.lost_for: Exception | None = None
        self.room = asyncio.Event()
        self.room.set()
        self.is_small = False
        """One message fills it."""

    def take(self) -> None:
        self.values += self.collector.run.count
        self.collector.run.clear()
        if self.is_small:
            self.room.clear()

    @property
    def has_room(self) -> bool:
        return self.room.is_set()

    async def wait(self) -> None:
        await self.room.wait()

    def connected(self) -> None:
        self.connections += 1

    def disconnected(self, error: Exception | None) -> None:
        self.lost_for = error
        self.lost.set()

    def failed(self, error: Exception) -> None:
        self.errors.append(str(error))


class World:
    def __init__(self) -> None:
        self.server = FakeNats()
        self.receiver = Receiver()
        self.subscriptions = Subscriptions()
        self.inflow = self.receiver.collector
        self.router = Router()
        self.endpoint = IngestEndpoint(self.router)
        self.sockets = Sockets(self.router, write_timeout_ms=1000, read_buffer_bytes=65536)
        self.client = self.link_to("nats://127.0.0.1:1")
        self.url = ""
        self.subscribe("a.>")

    def link_to(self, url: str, *, heeds_room: bool = True, **nats: Any) -> ServerLink:
        return ServerLink(
            NatsOptions(NatsSection(servers=[url], reconnect_backoff_ms=1, **nats)),
            self.router,
            self.sockets,
            self.subscriptions,
            name="test",
            connected=self.receiver.connected,
            disconnected=self.receiver.disconnected,
            failed=self.receiver.failed,
            heeds_room=heeds_room,
            connect_s=0.2,
            handshake_s=0.2,
        )

    def subscribe(self, subject: str) -> None:
        sid = self.subscriptions.add(self.endpoint.subscribe(subject.encode(), self.inflow))
        self.client.subscribe([sid])

    @asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        async with self.serving():
            await until(lambda: self.receiver.connections > 0)
            yield self

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[asyncio.Task[None]]:
        """The link, which runs."""
        async with self.server.serving() as self.url:
            self.sockets.begin(self.receiver)
            looking = asyncio.create_task(self.sockets.run())
            self.client = self.link_to(self.url)
            running = asyncio.create_task(self.client.run())
            try:
                yield running
            finally:
                self.client.close()
                for task in (looking, running):
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
                self.sockets.close()


class ServerTls(NamedTuple):
    server: ssl.SSLContext
    ca: Path


@pytest.fixture
def tls(tmp_path: Path) -> ServerTls:
    made = Certificates(tmp_path / "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*made.issue("nats", "127.0.0.1"))
    return ServerTls(context, made.ca)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with World().running() as running:
        yield running


async def test_subscriptions_are_said_at_the_start_and_after_each_reconnect(world: World) -> None:
    server = world.server
    await until(lambda: server.heard == b"SUB a.> 1\r\n")
    world.subscribe("b")
    await until(lambda: server.heard.endswith(b"SUB b 2\r\n"))
    world.subscriptions.remove(1)  # and not forgotten yet: what is under way may come
    for number in (2, 3):
        assert server.writer is not None
        server.writer.close()
        await until(lambda n=number: server.connections == n and server.heard == b"SUB b 2\r\n")  # type: ignore[misc]
    assert world.receiver.connections == 3


@pytest.mark.parametrize(
    "garbage",
    [
        b"HELLO\r\n", b"MSG a 1\r\n", b"MSG a 1 x\r\n", b"MSG a 1 999999999\r\n",
        b"\x00" * 2_000_000,
        b"HMSG a 1 9 5\r\n", b"MSG a 1 1\r\nxyz", b"-ERR 'Stale Connection'\r\n",
        b"-ERR 'Slow Consumer'\r\n", b"-ERR\r\n",
    ],
)  # fmt: skip
async def test_garbage_and_fatal_errors_end_the_connection_and_it_comes_back(
    world: World, garbage: bytes
) -> None:
    world.server.say(b"MSG a.1 1 1\r\nx\r\nMSG a.1 1 5\r\nha")
    await until(lambda: world.receiver.values == 1)
    world.server.say(b"lf!\r\n" + garbage)
    await until(lambda: world.server.connections == 2 and world.receiver.connections == 2)
    assert world.receiver.lost_for is not None
    await until(lambda: world.server.heard == b"SUB a.> 1\r\n")
    world.server.say(b"MSG a.1 1 1\r\ny\r\n")
    await until(lambda: world.receiver.values >= 2)


@pytest.mark.parametrize(
    "line",
    [
        b"-ERR 'Permissions Violation for Subscription to \"a.>\"'\r\n",
        b"-ERR 'Invalid Subject'\r\n",
        b"+OK\r\n",
        b'INFO {"ldm":true,"connect_urls":[]}\r\n',
        b"INFO {broken\r\n",
        b"INFO 7\r\n",
        b"PONG\r\n",
    ],
)
async def test_lines_that_leave_the_connection_alone(world: World, line: bytes) -> None:
    world.server.say(line + b"MSG a.1 1 1\r\nx\r\nPING\r\n")
    await until(lambda: world.server.heard.endswith(b"PONG\r\n"))
    assert (world.receiver.values, world.server.connections) == (1, 1)
    assert bool(world.receiver.errors) is line.startswith(b"-ERR")


async def test_a_ping_is_answered_before_reading_stops(world: World) -> None:
    world.receiver.is_small = True
    world.server.say(b"MSG a.1 1 1\r\nx\r\nPING\r\n")
    await until(lambda: world.server.heard.endswith(b"PONG\r\n"))
    world.server.say(b"MSG a.1 1 1\r\nx\r\n")
    await asyncio.sleep(0.02)
    assert world.receiver.values == 1
    world.receiver.room.set()
    await until(lambda: world.receiver.values == 2)


async def test_nothing_is_read_while_nats_does_not_take_our_answers(world: World) -> None:
    world.server.taking.clear()
    for _ in range(1000):
        world.client.write(b"x" * 32_000 + b"\r\n")
    world.server.say(b"MSG a.1 1 1\r\nx\r\n")
    await until(lambda: world.receiver.values == 1)
    world.server.say(b"MSG a.1 1 1\r\nx\r\n")
    await asyncio.sleep(0.02)
    assert world.receiver.values == 1
    world.server.taking.set()
    await until(lambda: world.receiver.values == 2)


async def test_a_link_that_heeds_no_room_is_read_without_any(world: World) -> None:
    await until(lambda: world.server.heard == b"SUB a.> 1\r\n")
    world.client.close()
    world.receiver.room.clear()
    world.client = world.link_to(world.url, heeds_room=False)
    running = asyncio.create_task(world.client.run())
    await until(lambda: world.receiver.connections == 2)
    await until(lambda: world.server.heard == b"SUB a.> 1\r\n")
    world.server.say(b"MSG a.1 1 1\r\nx\r\n")
    await until(lambda: world.receiver.values == 1)
    world.client.close()
    await running


async def test_a_round_trip_needs_an_answer(world: World) -> None:
    assert await world.client.round_trip(5)
    world.server.mute = True
    assert not await world.client.round_trip(0.01)
    waiting = asyncio.ensure_future(world.client.round_trip(5))
    await until(lambda: world.server.pings == 3)
    world.server.say(b"PONG\r\n")  # of the one that was given up
    await asyncio.sleep(0.01)
    assert not waiting.done()
    world.server.say(b"PONG\r\n")
    assert await waiting


async def test_a_lost_connection_ends_a_round_trip(world: World) -> None:
    world.server.mute = True
    waiting = asyncio.ensure_future(world.client.round_trip(5))
    await until(lambda: world.server.pings == 1)
    world.server.mute = False
    assert world.server.writer is not None
    world.server.writer.close()
    assert not await waiting


async def test_a_receiver_that_fails_costs_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def take() -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(world.receiver, "take", take)
        world.server.say(b"MSG a.1 1 1\r\nx\r\n")
        await until(lambda: "a bug" in caplog.text)
    world.server.say(b"MSG a.1 1 1\r\nx\r\n")
    await until(lambda: world.receiver.values == 2)  # the one before is still in the run
    assert world.receiver.connections == 1


async def test_a_decision_that_fails_costs_the_connection_only(world: World) -> None:
    def admit(*_: object) -> bool:
        raise RuntimeError("a bug")

    world.inflow.admit = admit
    world.server.say(b"HMSG a.1 1 23 23\r\nNATS/1.0\r\nNats-A: 1\r\n\r\n\r\n")
    await until(lambda: world.receiver.connections == 2)
    world.inflow.admit = None
    await until(lambda: world.server.heard == b"SUB a.> 1\r\n")
    world.server.say(b"MSG a.1 1 1\r\nx\r\n")
    await until(lambda: world.receiver.values == 1)


async def test_greetings_that_go_wrong_are_tried_again() -> None:
    world = World()
    attempts = 0

    async def greeting(writer: asyncio.StreamWriter) -> bool:
        nonlocal attempts
        attempts += 1
        match attempts:
            case 1:
                return False  # closed at once
            case 2:
                writer.write(b"HTTP/1.1 400 Bad Request\r\n")
                return False
            case 3:
                writer.write(b"INFO {broken\r\n")
                return False
            case 4:
                await asyncio.sleep(0.3)  # silent for longer than the connect time-out
                return False
            case 5:
                writer.write(b"INFO {\"auth_required\":true}\r\n-ERR 'Authorization Violation'\r\n")
                return False
        return True

    world.server.greeting = greeting
    async with world.running():
        await until(lambda: world.server.heard == b"SUB a.> 1\r\n")
        assert world.receiver.connections == 1


async def test_connections_lost_in_the_midst_of_reconnecting(world: World) -> None:
    world.server.dropped = {2, 3, 4, 5}
    await until(lambda: world.server.heard == b"SUB a.> 1\r\n")
    assert world.server.writer is not None
    world.server.writer.close()
    await until(lambda: world.server.connections >= 6 and world.server.heard != b"")
    assert await world.client.round_trip(5)
    world.server.say(b"MSG a.1 1 1\r\nx\r\n")
    await until(lambda: world.receiver.values == 1)


async def test_a_greeting_without_an_end_is_tried_again(world: World) -> None:
    async def greeting(writer: asyncio.StreamWriter) -> bool:
        writer.write(b"INFO " + b"x" * 3_000_000)
        return False

    await until(lambda: world.server.heard == b"SUB a.> 1\r\n")
    world.server.greeting = greeting
    assert world.server.writer is not None
    world.server.writer.close()
    await until(lambda: world.server.connections > 3)
    world.server.greeting = None
    await until(lambda: world.receiver.connections == 2)


async def test_a_server_that_answers_no_ping_is_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until(lambda: world.server.heard == b"SUB a.> 1\r\n")
    monkeypatch.setattr(server_link, "PING_INTERVAL_S", 0.005)
    assert world.server.writer is not None
    world.server.writer.close()
    await until(lambda: world.receiver.connections == 2)
    await until(lambda: world.server.pings > 3)
    assert world.receiver.connections == 2
    world.server.mute = True
    await until(lambda: world.receiver.connections > 2)


async def test_nothing_in_the_clear_is_believed_before_tls(world: World, tls: ServerTls) -> None:
    """But a refusal, which a server says without TLS where it is full."""
    said = [
        b"PONG\r\n",
        b"INFO {}\r\n",
        b"MSG a.1 1 1\r\nx\r\nMSG",
        b"-ERR 'maximum connections'\r\n",
    ]
    attempts = iter(said)

    async def greeting(writer: asyncio.StreamWriter) -> bool:
        writer.write(b'INFO {"tls_required":true}\r\n' + next(attempts, b""))
        await writer.drain()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.start_tls(tls.server)
            writer.write(b"PONG\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)
        return False

    await until(lambda: world.server.heard == b"SUB a.> 1\r\n")
    world.client.close()
    world.client = world.link_to(world.url, tls_ca=tls.ca)
    world.server.greeting = greeting
    before = world.server.connections
    running = asyncio.create_task(world.client.run())
    await until(lambda: world.server.connections >= before + len(said) + 1)
    world.client.close()
    await running
    errors = world.receiver.errors
    assert "PONG between the greeting and TLS" in errors[0]
    assert "INFO between the greeting and TLS" in errors[1]
    assert "begins in the clear" in errors[2]
    assert "maximum connections" in errors[3]
    assert (world.receiver.connections, world.receiver.values) == (1, 0)


async def test_without_a_connection_writes_are_dropped() -> None:
    client = World().client
    client.write(b"PUB x 0\r\n\r\n")
    assert not await client.round_trip(1)


STEPS = range(1, 30)
"""Of the loop; fewer of them lead from a connection's start to its last answer."""


async def greet(_: asyncio.StreamWriter) -> bool:
    return True


async def say_nothing(_: asyncio.StreamWriter) -> bool:
    await asyncio.Event().wait()
    return False


async def hear_nothing(writer: asyncio.StreamWriter) -> bool:
    writer.write(INFO)
    return await say_nothing(writer)


@pytest.mark.parametrize("greeting", [greet, say_nothing, hear_nothing])
@pytest.mark.parametrize("steps", STEPS)
async def test_a_client_closed_in_the_midst_of_a_reconnect_stays_closed(
    world: World, steps: int, greeting: Greeting
) -> None:
    client, server = world.client, world.server
    await until(lambda: server.writer is not None)
    server.greeting = greeting
    assert server.writer is not None
    server.writer.close()
    await world.receiver.lost.wait()
    for _ in range(steps):
        await asyncio.sleep(0)
    client.close()
    await asyncio.sleep(0.01)
    connections = server.connections
    assert not client.is_connected
    await asyncio.sleep(0.02)
    assert (client.is_connected, server.connections) == (False, connections)
    assert not await client.round_trip(1)


@pytest.mark.parametrize("steps", STEPS)
async def test_a_run_that_is_cancelled_ends_at_whatever_moment(steps: int) -> None:
    world = World()
    async with world.serving() as running, asyncio.timeout(5):
        for _ in range(steps):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not world.client.is_connected
        world.sockets.end_turn()
        assert not world.sockets._peers
