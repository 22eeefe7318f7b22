"""The connection against a server that misbehaves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from nats.aio.client import Srv

from streamlog.config import NatsSection
from streamlog.ingest.frames import RecordCollector
from streamlog.ingest.nats.connection import IngestClient
from streamlog.ingest.nats.options import NatsOptions
from streamlog.ingest.nats.subscription_list import Subscription, Subscriptions
from tests.local_node import until
from tests.unit.ingest.nats.fake_nats import INFO, FakeNats, Greeting


class Receiver:
    """Takes what the collector has gathered, and has room for it or not."""

    def __init__(self) -> None:
        self.collector = RecordCollector(message_bytes_max=1000, owner=self)
        self.values = 0
        self.connections = 0
        self.errors: list[str] = []
        self.room = asyncio.Event()
        self.room.set()

    def take(self) -> None:
        self.values += self.collector.run.count
        self.collector.run.clear()

    @property
    def has_room(self) -> bool:
        return self.room.is_set()

    async def wait(self) -> None:
        await self.room.wait()

    def connected(self) -> None:
        self.connections += 1

    async def failed(self, error: Exception) -> None:
        self.errors.append(str(error))


class World:
    def __init__(self) -> None:
        self.server = FakeNats()
        self.receiver = Receiver()
        self.subscriptions = Subscriptions()
        self.access = NatsOptions(NatsSection(reconnect_backoff_ms=1))
        self.client = IngestClient(
            self.access,
            self.subscriptions,
            in_flight=self.receiver,  # type: ignore[arg-type]
            connected=self.receiver.connected,
            read_buffer_bytes=65536,
        )
        self.inflow = self.receiver.collector
        self.subscribe("a.>")

    def subscribe(self, subject: str) -> None:
        sid = self.subscriptions.add(Subscription(subject, self.inflow))
        self.subscriptions.bind(self.client.parser, [sid])
        self.client.write(self.subscriptions.commands([sid]))

    @asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        async with self.serving() as url:
            await self.connect(url)
            yield self

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        async with self.server.serving() as url:
            try:
                yield url
            finally:
                await self.client.close()

    async def connect(self, url: str) -> None:
        options = self.access.options("test") | {"servers": [url], "connect_timeout": 0.2}
        await self.client.connect(**options, error_cb=self.receiver.failed)


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
    world.receiver.room.clear()
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


async def test_a_receiver_that_fails_costs_the_connection_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take() -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(world.receiver, "take", take)
        world.server.say(b"MSG a.1 1 1\r\nx\r\n")
        await until(lambda: world.receiver.connections == 2)
    await until(lambda: world.server.heard == b"SUB a.> 1\r\n")
    world.server.say(b"MSG a.1 1 1\r\nx\r\n")
    await until(lambda: world.receiver.values == 2)  # the one before is still in the run


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


async def test_what_nats_py_does_not_foresee_ends_the_client(world: World) -> None:
    async def greeting(writer: asyncio.StreamWriter) -> bool:
        writer.write(b"INFO " + b"x" * 300_000)
        return False

    await until(lambda: world.server.heard == b"SUB a.> 1\r\n")
    world.server.greeting = greeting
    assert world.server.writer is not None
    world.server.writer.close()
    await until(lambda: world.client.is_closed)
    assert world.server.connections == 2


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
    reconnecting = asyncio.Event()
    connect = client._connect_to_server

    async def told_connect(place: Srv) -> None:
        reconnecting.set()
        await connect(place)

    client._connect_to_server = told_connect  # type: ignore[assignment, method-assign]
    assert server.writer is not None
    server.writer.close()
    await reconnecting.wait()
    for _ in range(steps):
        await asyncio.sleep(0)
    await client.close()
    assert client._reconnection_task is not None
    assert client._reconnection_task.done()
    assert client.is_closed


@pytest.mark.parametrize("steps", STEPS)
async def test_a_connect_that_is_cancelled_ends_at_whatever_moment(steps: int) -> None:
    world = World()
    async with world.serving() as url, asyncio.timeout(5):

        async def connect_and_stay() -> None:
            await world.connect(url)
            await asyncio.Event().wait()

        connecting = asyncio.create_task(connect_and_stay())
        for _ in range(steps):
            await asyncio.sleep(0)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
