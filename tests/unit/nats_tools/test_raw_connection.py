import asyncio
from collections.abc import AsyncIterator

import pytest

from streamlog.errors import NodeUnreachable, Overloaded, RequestTimedOut
from streamlog.nats_tools.raw_connection import RawConnection

INFO = b'INFO {"server_id":"x","version":"2.11.0","max_payload":1048576,"headers":true}\r\n'


class Server:
    """A nats-server that greets, answers the first PING, and then does what the test says."""

    def __init__(self) -> None:
        self.port = 0
        self.received = bytearray()
        self._heard = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        writer.write(INFO)
        while line := await reader.readline():
            self.received += line
            self._heard.set()
            if line == b"PING\r\n":
                writer.write(b"PONG\r\n")

    async def send(self, data: bytes) -> None:
        assert self._writer is not None, "connected"
        self._writer.write(data)
        await self._writer.drain()

    def drop(self) -> None:
        assert self._writer is not None, "connected"
        self._writer.transport.abort()

    async def wait_received(self, data: bytes) -> None:
        async with asyncio.timeout(5):
            while data not in self.received:
                self._heard.clear()
                await self._heard.wait()

    def stop(self) -> None:
        assert self._server is not None, "started"
        self._server.close()
        if self._writer is not None:
            self._writer.transport.abort()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    await made.start()
    yield made
    made.stop()


async def connect(server: Server, chunks: list[bytes]) -> RawConnection:
    return await RawConnection.open(f"nats://127.0.0.1:{server.port}", chunks.append)


async def test_bytes_go_out_and_come_in_as_they_are(server: Server) -> None:
    chunks: list[bytes] = []
    async with await connect(server, chunks) as raw:

        async def work() -> str:
            raw.write(b"PUB a 1\r\nx\r\n")
            await raw.round_trip()
            await server.send(b"MSG b 1 1\r\ny\r\n")
            while b"y" not in b"".join(chunks):
                await raw.wait_arrived()
            return "done"

        assert await raw.run(work()) == "done"
        assert b"PUB a 1\r\nx\r\n" in server.received


async def test_a_ping_is_answered_however_it_is_cut(server: Server) -> None:
    async with await connect(server, []) as raw:

        async def work() -> None:
            for byte in b"PING\r\n":
                await server.send(bytes([byte]))
                await raw.wait_arrived()
            await server.wait_received(b"PONG\r\n")

        await raw.run(work())
        assert server.received.count(b"PONG\r\n") == 1


async def test_a_broken_connection_ends_the_work(server: Server) -> None:
    async with await connect(server, []) as raw:
        asyncio.get_running_loop().call_soon(server.drop)
        with pytest.raises(ExceptionGroup) as raised:
            await raw.run(asyncio.Event().wait())
        assert raised.group_contains(NodeUnreachable)


async def test_what_the_receiver_raises_ends_the_work(server: Server) -> None:
    def refuse(_: bytes) -> None:
        raise Overloaded("refused")

    url = f"nats://127.0.0.1:{server.port}"
    async with await RawConnection.open(url, refuse) as raw:
        await server.send(b"MSG b 1 1\r\ny\r\n")
        with pytest.raises(ExceptionGroup) as raised:
            await raw.run(asyncio.Event().wait())
        assert raised.group_contains(Overloaded)


async def test_a_silent_server_is_not_waited_for_for_ever(server: Server) -> None:
    async with await connect(server, []) as raw:
        with pytest.raises(RequestTimedOut):
            await raw.wait_arrived(0.01)


async def test_nobody_there() -> None:
    with pytest.raises(NodeUnreachable):
        await RawConnection.open("nats://127.0.0.1:1", lambda _: None)
