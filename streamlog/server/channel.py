import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Final

RECEIVE_BYTES: Final = 64 * 1024
_MORE: Final = getattr(socket, "MSG_MORE", 0)  # Linux; elsewhere a packet more


class ChannelIdle(Exception):
    """No byte has moved for the idle timeout while one was awaited."""


class ChannelEnded(Exception):
    """This side has ended the channel; whoever waits on it stops."""


class Channel:
    """A non-blocking socket, read and written by one task at a time, on any event loop.

    The loops' own ``sock_*`` calls are not used, because uvloop has none that sends a file.
    """

    def __init__(
        self, sock: socket.socket, loop: asyncio.AbstractEventLoop, idle_timeout_ms: int
    ) -> None:
        self.sock = sock
        self._loop = loop
        self._idle_timeout_s = idle_timeout_ms / 1000
        self._waiter: asyncio.Future[None] | None = None  # at most one task waits
        self._waiting_since = 0.0  # loop time; of the waiter, or of the last one
        self._ended: Exception | None = None
        self._timer = loop.call_later(self._idle_timeout_s, self._check_idle)

    async def receive(self) -> bytes:
        """What has arrived, at least a byte; b"" at the peer's end."""
        while True:
            self._raise_if_ended()
            try:
                return self.sock.recv(RECEIVE_BYTES)
            except BlockingIOError:
                await self._ready(self._loop.add_reader, self._loop.remove_reader)

    async def send(self, data: bytes | bytearray, *, more: bool = False) -> None:
        """All of ``data``. ``more``: hold back a last half-full packet for what follows."""
        flags = _MORE if more else 0
        with memoryview(data) as whole:
            position = 0
            while position < len(whole):
                self._raise_if_ended()
                try:
                    position += self.sock.send(whole[position:], flags)
                except BlockingIOError:
                    await self.writable()

    async def writable(self) -> None:
        """Until the socket takes bytes again."""
        await self._ready(self._loop.add_writer, self._loop.remove_writer)

    @contextlib.contextmanager
    def watching(self, gone: Callable[[], None], more: Callable[[], None]) -> Iterator[None]:
        """Calls ``gone`` if the peer closes meanwhile, or ``more`` if bytes arrive before that;
        they stay where they are, and end the watch.
        """
        watching = True

        def look() -> None:
            nonlocal watching
            try:
                ended = not self.sock.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return
            except OSError:
                ended = True
            self._loop.remove_reader(self.sock)
            watching = False
            (gone if ended else more)()

        self._loop.add_reader(self.sock, look)
        try:
            yield
        finally:
            if watching:
                self._loop.remove_reader(self.sock)

    def end(self, reason: Exception | None = None) -> None:
        """Whoever waits, now or later, gets ``reason`` raised."""
        self._ended = self._ended or reason or ChannelEnded()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(self._ended)

    def close(self) -> None:
        self._timer.cancel()
        self.sock.close()

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            raise self._ended

    async def _ready(
        self,
        add: Callable[[socket.socket, Callable[[], None]], object],
        remove: Callable[[socket.socket], object],
    ) -> None:
        assert self._waiter is None, "two tasks wait on one channel"
        self._raise_if_ended()
        self._waiter = waiter = self._loop.create_future()
        self._waiting_since = self._loop.time()
        add(self.sock, lambda: None if waiter.done() else waiter.set_result(None))
        try:
            await waiter
        finally:
            remove(self.sock)
            self._waiter = None

    def _check_idle(self) -> None:
        """One timer per channel, set again for when the present wait would be too long."""
        left_s = self._idle_timeout_s
        if self._waiter is not None:
            left_s -= self._loop.time() - self._waiting_since
        if left_s <= 0:
            self.end(ChannelIdle(f"no byte in {round(self._idle_timeout_s * 1000)} ms"))
        else:
            self._timer = self._loop.call_later(left_s, self._check_idle)
