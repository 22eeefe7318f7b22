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
from streamlog.nats_tools.connect import Nats, connect_once

TIMEOUT_S: Final = 5.0
READ_BYTES: Final = 256 * 1024
EDGE_BYTES: Final = len(b"PONG\r\n") - 1
"""Of a read, kept for the next: so much of a line can be without the line."""

T = TypeVar("T")


class SocketReader(asyncio.BufferedProtocol):
    """Reads from NATS straight into one buffer: no stream, and no copy, between socket and parser.

    It takes a connection over from the stream that its handshake was read with. Writing stays with
    the stream's protocol, which is told of everything that concerns it.

    A subclass takes a read in ``buffer_updated``: the first bytes of ``_buffer``, which are the next
    read's once it returns, but none any more where ``_error`` is set. It may ``_pause``, or ``_end``
    the connection by an error.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        reader: asyncio.StreamReader,
        *,
        buffer_bytes: int,
    ) -> None:
        self._transport = transport
        self._reader = reader
        self._buffer = memoryview(bytearray(buffer_bytes))
        self._writing = transport.get_protocol()
        self._error: Exception | None = None
        """Why nothing more will come."""
        self._paused = asyncio.Event()
        """Nothing is read: ``buffer_updated`` asked for it, or there is nothing more to read."""

    def start(self) -> None:
        """Take what the stream has read too far, and everything after it. Raises OSError."""
        read_ahead: bytearray = self._reader._buffer  # type: ignore[attr-defined]
        ended = self._transport.is_closing() or self._reader._eof  # type: ignore[attr-defined]
        if not ended:
            self._transport.pause_reading()  # uvloop changes its way of reading only at a resume
            self._transport.set_protocol(self)
        while read_ahead:
            count = min(len(read_ahead), len(self._buffer))
            self._buffer[:count] = read_ahead[:count]
            del read_ahead[:count]
            self.buffer_updated(count)
        if ended:
            raise ConnectionResetError("NATS closed the connection")
        if not self._paused.is_set():
            self._read_on()

    async def wait_paused(self) -> None:
        """Return after a read has asked for a pause; raises what has ended the connection."""
        await self._paused.wait()
        if self._error is not None:
            raise self._error

    def resume(self) -> None:
        if self._error is None:
            self._paused.clear()
            self._read_on()

    def stop(self) -> None:
        """Take nothing more, whatever still comes."""
        self._end(ConnectionAbortedError("stopped"))

    # As a protocol

    def get_buffer(self, _size_hint: int) -> memoryview:
        return self._buffer

    def eof_received(self) -> bool:
        self._end(ConnectionResetError("NATS closed the connection"))
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or ConnectionResetError("the connection to NATS was lost"))
        self._writing.connection_lost(error)

    def pause_writing(self) -> None:
        self._writing.pause_writing()

    def resume_writing(self) -> None:
        self._writing.resume_writing()

    def _end(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
            self._pause()

    def _read_on(self) -> None:
        if not self._transport.is_closing():  # else it is about to tell us so
            self._transport.resume_reading()

    def _pause(self) -> None:
        self._paused.set()
        if not self._transport.is_closing():
            self._transport.pause_reading()


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
