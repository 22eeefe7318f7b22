"""A NATS connection as bytes in and out, for code that must be faster than any library.

nats-py opens it: servers, login, TLS, CONNECT. Then its own tasks end, and every read goes, as it
comes, to one function.
"""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self, TypeVar, cast

from nats.aio.client import Client
from nats.aio.transport import TcpTransport

from streamlog.errors import ConfigError, NodeUnreachable, RequestTimedOut
from streamlog.ingest.nats.connection import SocketReader
from streamlog.nats_tools.connect import Nats, connect_once

TIMEOUT_S: Final = 5.0
READ_BYTES: Final = 256 * 1024
EDGE_BYTES: Final = len(b"PONG\r\n") - 1
"""Of a read, kept for the next: so much of a line can be without the line."""

T = TypeVar("T")


class _RawReader(SocketReader):
    """Each read goes to ``feed``, never with a pause."""

    def __init__(
        self,
        transport: asyncio.Transport,
        reader: asyncio.StreamReader,
        feed: Callable[[memoryview], None],
        *,
        buffer_bytes: int,
    ) -> None:
        super().__init__(transport, reader, buffer_bytes=buffer_bytes)
        self._feed = feed

    def buffer_updated(self, count: int) -> None:
        if self._error is None:
            try:
                self._feed(self._buffer[:count])
            except Exception as error:
                self._end(error)


class RawConnection:
    """``async with await RawConnection.open(url, receive) as raw: await raw.run(work())``.

    ``receive`` takes each read; what it raises ends ``run``.
    """

    def __init__(self, client: Client, receive: Callable[[bytes], None]) -> None:
        transport = client._transport
        if not isinstance(transport, TcpTransport):
            raise ConfigError(
                "--nats-server", "a web socket cannot be used here", "use nats:// or tls://"
            )
        assert transport._io_writer is not None and transport._io_reader is not None, "connected"
        self._client = client
        self._receive = receive
        self._writer = transport._io_writer
        wire = cast(asyncio.Transport, self._writer.transport)
        self._intake = _RawReader(wire, transport._io_reader, self._feed, buffer_bytes=READ_BYTES)
        self._arrived = asyncio.Event()
        self._pongs = 0
        self._edge = b""

    @classmethod
    async def open(cls, nats: Nats, receive: Callable[[bytes], None]) -> Self:
        """Raises NodeUnreachable and ConfigError."""
        client = await connect_once(nats, timeout_s=TIMEOUT_S)
        for task in (client._reading_task, client._ping_interval_task):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        return cls(client, receive)

    async def __aenter__(self) -> Self:
        self._intake.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._intake.stop()
        self._writer.transport.abort()
        await self._client.close()

    async def run(self, work: Awaitable[T]) -> T:
        """``work``, unless the connection breaks first or ``receive`` raises."""
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(self._watch())
            result = await work
            watch.cancel()
        return result

    def write(self, data: bytes) -> None:
        """Whole protocol lines."""
        self._writer.write(data)

    @property
    def unsent_bytes(self) -> int:
        """Written, and not yet taken by the system."""
        return self._writer.transport.get_write_buffer_size()

    async def drain(self) -> None:
        """Wait while much is unsent."""
        try:
            await self._writer.drain()
        except OSError as error:
            raise _broken(error) from None

    async def wait_arrived(self, timeout_s: float = TIMEOUT_S) -> None:
        """The next read has been received. Raises RequestTimedOut."""
        self._arrived.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._arrived.wait()
        except TimeoutError:
            raise RequestTimedOut(f"nothing came from NATS in {timeout_s:g} s") from None

    async def round_trip(self) -> None:
        """NATS has taken all that was written."""
        wanted = self._pongs + 1
        self.write(b"PING\r\n")
        while self._pongs < wanted:
            await self.wait_arrived()

    def _feed(self, data: memoryview) -> None:
        chunk = bytes(data)
        whole = self._edge + chunk
        self._edge = whole[-EDGE_BYTES:]
        if b"PING\r\n" in whole:
            self.write(b"PONG\r\n")
        self._pongs += whole.count(b"PONG\r\n")
        self._receive(chunk)
        self._arrived.set()

    async def _watch(self) -> None:
        try:
            await self._intake.wait_paused()
        except OSError as error:
            raise _broken(error) from None


def _broken(error: OSError) -> NodeUnreachable:
    return NodeUnreachable(f"the connection to NATS broke: {error}")
