"""A connection that is reset is over at once, whatever came with the reset.

libuv stops watching a socket when it tells of an error on it, also where bytes came with the error:
who reads these bytes, and waits for more, is told of nothing any more unless the channel asks anew.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from streamlog.kafka.net.channel import RequestWait, SocketChannel
from streamlog.kafka.net.tls_channel import TlsChannel
from tests.certificate_authority import CertificateAuthority

Play = Callable[[SocketChannel, socket.socket], Awaitable[None]]
LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = socket.create_connection(listening.getsockname())
        own, _ = listening.accept()
    own.setblocking(False)
    return own, peer


async def until_over(channel: SocketChannel) -> bytes:
    """All that is received."""
    found = b""
    async with asyncio.timeout(5):
        try:
            while data := await channel.receive():
                found += data
        except ConnectionError:
            pass
    return found


@LOOPS
def test_bytes_and_a_reset_at_once(run: Callable[[Any], None]) -> None:
    async def play() -> None:
        own, peer = pair()
        channel = SocketChannel(own, asyncio.get_running_loop(), 60_000)
        waiting = asyncio.create_task(until_over(channel))
        await asyncio.sleep(0)
        peer.send(b"x")
        reset(peer)
        assert await waiting == b"x"
        channel.close()

    run(play())


@LOOPS
def test_a_reset_while_an_answer_is_made(run: Callable[[Any], None]) -> None:
    """Who asks for something, and goes, is not waited for until there is an answer."""

    async def play() -> None:
        own, peer = pair()
        channel = SocketChannel(own, asyncio.get_running_loop(), 60_000)
        receiving = asyncio.create_task(channel.receive())
        await asyncio.sleep(0)
        peer.send(b"x")
        reset(peer)
        assert await receiving == b"x"
        wait = RequestWait(channel)
        async with asyncio.timeout(5):
            await wait.wait()
        assert wait.ended
        channel.close()

    run(play())


@LOOPS
def test_the_end_of_a_handshake_a_request_and_a_reset_at_once(
    run: Callable[[Any], None], tmp_path: Path
) -> None:
    authority = CertificateAuthority(tmp_path)
    server = authority.server(authority.issue("node"))
    client = authority.client()

    async def play() -> None:
        own, peer = pair()
        channel = TlsChannel.over(own, server, asyncio.get_running_loop(), 60_000)
        opening = asyncio.create_task(channel.open())
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client.wrap_bio(incoming, outgoing, server_hostname="localhost")
        peer.setblocking(False)
        async with asyncio.timeout(5):
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    peer.send(outgoing.read())
                    incoming.write(await asyncio.get_running_loop().sock_recv(peer, 65_536))
        tls.write(b"request")
        peer.send(outgoing.read())  # the handshake's end with it
        reset(peer)
        await opening
        assert await until_over(channel) == b"request"
        channel.close()

    run(play())
