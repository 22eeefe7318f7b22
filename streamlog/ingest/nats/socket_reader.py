"""Reads from NATS straight into one buffer: no stream, and no copy, between socket and parser."""

import asyncio
from collections.abc import Callable

Feed = Callable[[memoryview], bool]
"""Takes a read, whose bytes are its own only until it returns; False: pause before the next one."""


class SocketReader(asyncio.BufferedProtocol):
    """Takes a connection over from the stream that its handshake was read with.

    Writing stays with the stream's protocol, which hears of everything that concerns it.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        reader: asyncio.StreamReader,
        feed: Feed,
        *,
        buffer_bytes: int,
    ) -> None:
        self._transport = transport
        self._reader = reader
        self._feed = feed
        self._buffer = memoryview(bytearray(buffer_bytes))
        self._writing = transport.get_protocol()
        self._error: Exception | None = None
        """Why nothing more will come."""
        self._paused = asyncio.Event()
        """Nothing is read: ``feed`` said so, or there is nothing more to read."""

    def start(self) -> None:
        """Feed what the stream has read too far, and everything after it. Raises OSError."""
        read_ahead: bytearray = self._reader._buffer  # type: ignore[attr-defined]
        ended = self._transport.is_closing() or self._reader._eof  # type: ignore[attr-defined]
        if not ended:
            self._transport.pause_reading()  # uvloop changes its way of reading only at a resume
            self._transport.set_protocol(self)
        if read_ahead:
            self._take(memoryview(bytes(read_ahead)))
            read_ahead.clear()
        if ended:
            raise ConnectionResetError("NATS closed the connection")
        if not self._paused.is_set():
            self._read_on()

    async def wait_paused(self) -> None:
        """Return after ``feed`` has asked for a pause; raises what has ended the connection."""
        await self._paused.wait()
        if self._error is not None:
            raise self._error

    def resume(self) -> None:
        if self._error is None:
            self._paused.clear()
            self._read_on()

    def stop(self) -> None:
        """Feed nothing more, whatever still comes."""
        self._end(ConnectionAbortedError("stopped"))

    # As a protocol

    def get_buffer(self, _size_hint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self._take(self._buffer[:count])

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

    def _take(self, data: memoryview) -> None:
        if self._error is not None:
            return
        try:
            go_on = self._feed(data)
        except Exception as error:  # for whoever waits, not for the event loop
            self._end(error)
            return
        if not go_on:
            self._pause()

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
