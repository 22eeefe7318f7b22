import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

import pytest
import uvloop

from streamlog.errors import LoginRequired
from streamlog.kafka.net.channel import (
    FILLED,
    ChannelEnded,
    ChannelIdle,
    SocketChannel,
    never,
)
from streamlog.wire.framing import AWAITED_BYTES_MAX, FrameSplitter, frame
from tests.kafka_node import until
from tests.unit.kafka.net.waiting import waiting

LARGE = bytes(range(256)) * 40_000
STANDSTILL_MS = 750
"""Longer than a busy machine stops this process by itself: that, between a full buffer and the read
of it, would be a client that takes nothing.
"""


class Pipe(NamedTuple):
    channel: SocketChannel
    peer: socket.socket


Runs = Callable[[Coroutine[Any, Any, None]], None]


@contextlib.asynccontextmanager
async def piped(idle_timeout_ms: int) -> AsyncIterator[Pipe]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    channel = SocketChannel(ours, asyncio.get_running_loop(), idle_timeout_ms)
    try:
        yield Pipe(channel, theirs)
    finally:
        channel.close()
        theirs.close()


@pytest.fixture
async def pipe() -> AsyncIterator[Pipe]:
    async with piped(idle_timeout_ms=200) as made:
        yield made


async def test_bytes_arrive_and_the_end_is_empty(pipe: Pipe) -> None:
    pipe.peer.send(b"hello")
    assert await pipe.channel.receive() == b"hello"
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(pipe.channel.receive())
        await asyncio.sleep(0.01)
        pipe.peer.send(b"again")
        assert await waiting == b"again"
    pipe.peer.close()
    assert await pipe.channel.receive() == b""


async def test_more_than_the_socket_takes_is_sent_in_the_end(pipe: Pipe) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(pipe.channel.send(LARGE))
        found = bytearray()
        while len(found) < len(LARGE):
            found += await loop.sock_recv(pipe.peer, 1_000_000)
    assert found == LARGE


async def test_waiting_too_long_for_a_byte_or_for_room_is_idleness(pipe: Pipe) -> None:
    with pytest.raises(ChannelIdle):
        await pipe.channel.receive()


async def test_a_peer_that_takes_nothing_is_idle(pipe: Pipe) -> None:
    with pytest.raises(ChannelIdle):
        await pipe.channel.send(LARGE)


async def test_a_peer_that_is_slow_is_not_idle(pipe: Pipe) -> None:
    async with asyncio.TaskGroup() as tasks:
        sending = tasks.create_task(pipe.channel.send(LARGE))
        left = len(LARGE)
        for _ in range(6):
            await asyncio.sleep(0.06)
            left -= len(pipe.peer.recv(1_000_000))
        assert left > 0
        assert not sending.done()
        loop = asyncio.get_running_loop()
        while left:
            left -= len(await loop.sock_recv(pipe.peer, 1_000_000))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_what_came_while_the_process_stood_still_is_read(run: Runs) -> None:
    async def play() -> None:
        async with piped(idle_timeout_ms=STANDSTILL_MS) as pipe, asyncio.TaskGroup() as tasks:
            for _ in range(2):
                waiting = tasks.create_task(pipe.channel.receive())
                await asyncio.sleep(0)
                pipe.peer.send(b"x")
                stand_still()
                assert await waiting == b"x"
            waiting = tasks.create_task(pipe.channel.receive())
            await asyncio.sleep(0)
            pipe.peer.close()
            stand_still()
            assert await waiting == b""

    run(play())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_room_that_came_while_the_process_stood_still_is_used(run: Runs) -> None:
    async def play() -> None:
        async with piped(idle_timeout_ms=STANDSTILL_MS) as pipe, asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(pipe.channel.send(LARGE))
            left, stood = len(LARGE), 0
            while left:
                await asyncio.sleep(0)
                with contextlib.suppress(BlockingIOError):
                    left -= len(pipe.peer.recv(1_000_000))
                if left > len(LARGE) // 2 and stood < 2:
                    stand_still()
                    stood += 1
            await sending

    run(play())


def stand_still() -> None:
    """For longer than the channel may be idle; then timers and sockets are due together."""
    time.sleep(STANDSTILL_MS / 1000 + 0.01)


async def test_not_waiting_is_not_idleness(pipe: Pipe) -> None:
    await asyncio.sleep(0.5)
    pipe.peer.send(b"x")
    assert await pipe.channel.receive() == b"x"


async def test_the_end_wakes_who_waits_and_stays(pipe: Pipe) -> None:
    asyncio.get_running_loop().call_later(0.01, pipe.channel.end)
    with pytest.raises(ChannelEnded):
        await pipe.channel.receive()
    for again in (pipe.channel.receive, pipe.channel.writable):
        with pytest.raises(ChannelEnded):
            await again()
    with pytest.raises(ChannelEnded):
        await pipe.channel.send(b"x")


async def test_a_wait_ends_with_the_peer_and_takes_no_byte(pipe: Pipe) -> None:
    async with waiting(pipe.channel) as wait:
        await asyncio.sleep(0.01)
        assert not wait.ended
        pipe.peer.close()
        await until(lambda: wait.ended)
    assert await pipe.channel.receive() == b""


async def test_bytes_are_told_of_once_and_are_read_later(pipe: Pipe) -> None:
    async with waiting(pipe.channel) as wait:
        for _ in range(2):
            pipe.peer.send(b"next request")
            await asyncio.sleep(0.02)
            assert wait.is_followed
            assert not wait.ended
            assert pipe.channel.heard is None
    assert await pipe.channel.receive() == b"next request" * 2


async def test_bytes_that_nobody_waits_for_are_told_of_once_and_kept(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = 0
    arrived = SocketChannel._arrived

    def count(channel: SocketChannel) -> None:
        nonlocal told
        told += 1
        arrived(channel)

    monkeypatch.setattr(SocketChannel, "_arrived", count)
    for number in range(1, 4):
        pipe.peer.send(b"asked")
        assert await pipe.channel.receive() == b"asked"
        pipe.peer.send(b"early")
        await asyncio.sleep(0.02)
        assert told == 3 * number - 1
        assert await pipe.channel.receive() == b"early"
        assert told == 3 * number


async def test_closing_twice_or_amid_a_watch_is_no_error(pipe: Pipe) -> None:
    async with waiting(pipe.channel):
        pipe.channel.close()
    pipe.channel.close()
    await asyncio.sleep(0)


async def test_a_reset_is_raised_to_who_waits() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    ours.setblocking(False)
    channel = SocketChannel(ours, loop, idle_timeout_ms=1_000)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    loop.call_later(0.01, theirs.close)
    with pytest.raises(ConnectionResetError):
        await channel.receive()
    channel.close()


async def test_a_rest_ends_although_timers_are_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some loops round times: what is to be called may be called before it is time."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        channel = SocketChannel(ours, loop, 60_000)
        monkeypatch.setattr("streamlog.kafka.net.channel.TICK_S", 0.01)
        ends_s = loop.time() + 0.1
        real = channel._loop

        class Early:
            time = staticmethod(real.time)
            create_future = staticmethod(real.create_future)

            @staticmethod
            def call_later(delay_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
                return real.call_later(delay_s / 2, call)

        channel._loop = Early()  # type: ignore[assignment]
        async with asyncio.timeout(10):
            await channel.rest_unless(lambda: False, ends_s)
        assert loop.time() >= ends_s
        channel._loop = real
        channel.close()


@contextlib.asynccontextmanager
async def connected(idle_timeout_ms: int) -> AsyncIterator[Pipe]:
    """By TCP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        ours, _ = server.accept()
    ours.setblocking(False)
    channel = SocketChannel(ours, asyncio.get_running_loop(), idle_timeout_ms)
    try:
        yield Pipe(channel, theirs)
    finally:
        channel.close()
        theirs.close()


async def begun(pipe: Pipe, body: bytes) -> FrameSplitter:
    """The first 64 KiB of its frame have come."""
    frames = FrameSplitter(len(body))
    pipe.peer.sendall(frame(body)[: 64 << 10])
    while frames.next_frame() is None and frames.partial is None:
        data = await pipe.channel.receive()
        assert data
        frames.feed(data)
    return frames


def low_water_mark(channel: SocketChannel) -> int:
    return channel.sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


async def test_the_rest_of_a_large_frame_goes_to_the_frames() -> None:
    body = bytes(range(256)) * 3_900
    async with connected(idle_timeout_ms=10_000) as pipe:
        frames = await begun(pipe, body)
        sending = asyncio.to_thread(pipe.peer.sendall, frame(body)[64 << 10 :] + frame(b"next"))
        task, times = asyncio.create_task(sending), 0
        while (request := frames.next_frame()) is None:
            assert await pipe.channel.receive(frames=frames) is FILLED
            times += 1
        assert request == body
        assert times <= 2 * len(body) // AWAITED_BYTES_MAX, "the loop is told of many at once"
        assert low_water_mark(pipe.channel) == 1
        await task
        data = await pipe.channel.receive(frames=frames)
        assert data == frame(b"next"), "no large frame is next"
        pipe.peer.close()
        assert await pipe.channel.receive(frames=frames) == b""


async def test_a_peer_that_leaves_in_a_large_frame_is_seen_to() -> None:
    async with connected(idle_timeout_ms=10_000) as pipe:
        frames = await begun(pipe, bytes(1_000_000))
        pipe.peer.sendall(b"a few")
        pipe.peer.close()
        assert await pipe.channel.receive(frames=frames) is FILLED
        assert await pipe.channel.receive(frames=frames) == b""
        assert frames.buffered == (64 << 10) + len(b"a few")


async def test_a_slow_large_frame_is_not_idle_and_silence_is() -> None:
    """Although the loop is not told of a few bytes."""
    async with connected(idle_timeout_ms=200) as pipe:
        frames = await begun(pipe, bytes(1_000_000))
        for _ in range(5):
            pipe.peer.sendall(b"x")
            assert await pipe.channel.receive(frames=frames) is FILLED
        with pytest.raises(ChannelIdle):
            await pipe.channel.receive(frames=frames)
        assert low_water_mark(pipe.channel) == 1


async def test_what_is_dealt_with_at_once_does_not_end_the_wait(pipe: Pipe) -> None:
    seen: list[bytes] = []

    def at_once(data: bytes) -> bool:
        seen.append(data)
        if data == b"wrong":
            raise LoginRequired("who?")
        return data.startswith(b"a")

    def has_seen(count: int) -> bool:
        return len(seen) == count

    async with asyncio.TaskGroup() as tasks:
        receiving = tasks.create_task(pipe.channel.receive(never, at_once))
        for number, data in enumerate((b"ab", b"ac", b"no")):
            pipe.peer.send(data)
            await until(partial(has_seen, number + 1))
        assert await receiving == b"no"
    assert seen == [b"ab", b"ac", b"no"]
    pipe.peer.send(b"wrong")
    with pytest.raises(LoginRequired):
        await pipe.channel.receive(never, at_once)
    pipe.peer.send(b"ad")
    assert await pipe.channel.receive() == b"ad", "nobody is asked"
    pipe.peer.close()
    assert await pipe.channel.receive(never, at_once) == b"", "the end is not for them"


async def test_what_is_dealt_with_at_once_is_no_idleness(pipe: Pipe) -> None:
    """Bytes every tenth of a second, where two tenths are too long."""
    loop = asyncio.get_running_loop()
    receiving = asyncio.create_task(pipe.channel.receive(never, lambda _: True))
    for step in range(6):
        loop.call_later(0.1 * step, pipe.peer.send, b"x")
    with pytest.raises(ChannelIdle):
        await receiving
    with pytest.raises(BlockingIOError):
        pipe.channel.sock.recv(1)


async def test_a_reset_right_behind_what_is_dealt_with_at_once_is_heard() -> None:
    """libuv tells of both together, once, and watches no longer."""
    async with connected(idle_timeout_ms=5_000) as pipe:
        receiving = asyncio.create_task(pipe.channel.receive(never, lambda _: True))
        await asyncio.sleep(0.01)
        pipe.peer.sendall(b"a")
        pipe.peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        pipe.peer.close()
        async with asyncio.timeout(3):
            with contextlib.suppress(ConnectionResetError):
                assert await receiving == b""
