"""Who may come, and how long they may take, over real sockets."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from streamlog.config import HttpSection
from streamlog.errors import ConfigError
from streamlog.http.server import HttpServer

SOON_S = 0.2
LARGE_BYTES = 64 << 20
HEAD = b"GET /quick HTTP/1.1\r\nHost: x\r\n"
ASK = HEAD + b"\r\n"
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def limits(**changed: int) -> HttpSection:
    return HttpSection(**{"request_timeout_ms": 200, "idle_timeout_ms": 60_000, **changed})


@contextlib.asynccontextmanager
async def serving(section: HttpSection) -> AsyncIterator[int]:
    """The port, of a server with an answer that is quick, one that is slow, and a large one."""

    async def quick(_: web.Request) -> web.Response:
        return web.Response(text="quick")

    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(3 * SOON_S)
        return web.Response(text="slow")

    async def large(_: web.Request) -> web.Response:
        return web.Response(body=bytes(LARGE_BYTES))

    app = web.Application()
    app.add_routes([web.get("/quick", quick), web.get("/slow", slow), web.get("/large", large)])
    server = HttpServer("127.0.0.1", 0, keys="http.", limits=section)
    await server.start(app)
    try:
        yield server.port
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Pair]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def answer(pair: Pair) -> bytes:
    reader, _ = pair
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    (length,) = (line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
    return await reader.readexactly(int(length.split(b":")[1]))


async def is_cut_off(pair: Pair) -> bool:
    try:
        return await asyncio.wait_for(pair[0].read(1), 10) == b""
    except ConnectionError:
        return True


async def dribble(pair: Pair) -> None:
    """A header without an end."""
    with contextlib.suppress(ConnectionError):
        pair[1].write(HEAD)
        for _ in range(1_000):
            pair[1].write(b"X: y\r\n")
            await pair[1].drain()
            await asyncio.sleep(SOON_S / 10)


async def test_the_first_request_has_to_be_there_in_time() -> None:
    async with (
        serving(limits()) as port,
        connected(port) as silent,
        connected(port) as slow,
        asyncio.TaskGroup() as tasks,
    ):
        dribbling = tasks.create_task(dribble(slow))
        assert await is_cut_off(silent)
        assert await is_cut_off(slow)
        dribbling.cancel()


async def test_and_so_has_every_other_one() -> None:
    async with serving(limits()) as port, connected(port) as pair:
        pair[1].write(ASK)
        assert await answer(pair) == b"quick"
        await asyncio.sleep(2 * SOON_S)  # that it rests is another matter
        pair[1].write(ASK)
        assert await answer(pair) == b"quick"
        async with asyncio.TaskGroup() as tasks:
            dribbling = tasks.create_task(dribble(pair))
            assert await is_cut_off(pair)
            dribbling.cancel()


async def test_a_request_may_come_in_pieces() -> None:
    async with serving(limits()) as port, connected(port) as pair:
        for _ in range(2):
            pair[1].write(HEAD + b"\r")
            await pair[1].drain()
            await asyncio.sleep(SOON_S / 10)
            pair[1].write(b"\n")
            assert await answer(pair) == b"quick"


async def test_a_connection_may_not_rest_for_ever() -> None:
    async with serving(limits(idle_timeout_ms=200)) as port, connected(port) as pair:
        pair[1].write(ASK)
        assert await answer(pair) == b"quick"
        assert await is_cut_off(pair)


async def test_an_answer_may_take_longer() -> None:
    """Also with requests that follow before it is there."""
    async with serving(limits(idle_timeout_ms=200)) as port, connected(port) as pair:
        pair[1].write(ASK.replace(b"quick", b"slow") + ASK)
        assert await answer(pair) == b"slow"
        assert await answer(pair) == b"quick"


async def test_who_takes_nothing_is_cut_off() -> None:
    section = limits(idle_timeout_ms=100, send_timeout_ms=600)
    async with serving(section) as port:
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(peer, ASK.replace(b"quick", b"large"))
            await asyncio.sleep(0.3)  # beyond the time to rest: the answer is on its way
            taken = len(await loop.sock_recv(peer, 16))
            assert taken
            await asyncio.sleep(1.2)
            with contextlib.suppress(ConnectionError):
                while data := await loop.sock_recv(peer, 1 << 20):
                    taken += len(data)
            assert taken < LARGE_BYTES


async def test_so_many_are_let_in() -> None:
    async with serving(limits(connections_max=2, request_timeout_ms=60_000)) as port:
        async with connected(port) as first, connected(port):
            async with connected(port) as third:
                assert await is_cut_off(third), "no room"
            first[1].write(ASK)
            assert await answer(first) == b"quick"
        async with connected(port) as later:
            later[1].write(ASK)
            assert await answer(later) == b"quick"


async def test_what_is_no_request_is_answered_and_ends() -> None:
    async with serving(limits()) as port, connected(port) as pair:
        pair[1].write(b"\x16\x03\x01\x02\x00\r\n\r\n")
        assert b"400" in await asyncio.wait_for(pair[0].read(), 10)


async def test_a_port_in_use_is_told_by_its_setting() -> None:
    async with serving(limits()) as port:
        again = HttpServer("127.0.0.1", port, keys="--http-")
        with pytest.raises(ConfigError, match="--http-port"):
            await again.start(web.Application())
