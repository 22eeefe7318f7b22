import asyncio
import contextlib
import select
import socket
from collections.abc import Callable, Iterator
from typing import Final

from streamlog.errors import BrokenInvariant, TlsFailed

RECEIVE_BYTES: Final = 64 * 1024
TICK_S: Final = 0.001
"""A loop may call a little before it is time: then it is asked again."""
Bytes = bytes | bytearray | memoryview
_MORE: Final = getattr(socket, "MSG_MORE", 0)  # Linux; elsewhere a packet more


class ChannelIdle(Exception):
    """No byte has moved for the idle timeout while one was awaited."""


class ChannelStuck(ChannelIdle):
    """The peer has not taken a byte for the send timeout while some were to be sent."""


class ChannelEnded(Exception):
    """This side has ended the channel; whoever waits on it stops."""


class _WokenError(Exception):
    """Something else than bytes has come."""


class SocketChannel:
    """A non-blocking socket, read and written by one task at a time, on any event loop.

    The loops' own ``sock_*`` calls are not used, because uvloop has none that sends a file. The
    loop is asked once to tell of what arrives, and told to stop only where that would be told again
    and again because nobody takes it: to ask anew for each request is half a dozen system calls.

    Who waits for bytes longer than ``idle_timeout_ms`` gets ChannelIdle, who waits for room to send
    longer than ``send_timeout_ms`` ChannelStuck, or at the latest twice as long.
    """

    path = "sendfile"
    """How slices of files go out."""
    copies = False
    """They do so through this process, instead of by the kernel alone."""
    is_encrypted = False
    peer_subject: str | None = None
    """Of the certificate that the peer has shown and that is trusted; as RFC 4514 writes it."""

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        idle_timeout_ms: int,
        send_timeout_ms: int | None = None,
    ) -> None:
        self.sock = sock
        # What another channel does otherwise, where this one needs no call of its own.
        self._recv: Callable[[int], bytes] = sock.recv
        self._peek: Callable[[int, int], bytes] = sock.recv
        self._put: Callable[[Bytes, int], int] = sock.send
        self._loop = loop
        self._idle_timeout_s = idle_timeout_ms / 1000
        self._send_timeout_s = min(send_timeout_ms or idle_timeout_ms, idle_timeout_ms) / 1000
        self._waiter: asyncio.Future[bytes] | None = None  # at most one task waits
        self._waiting_since = 0.0  # loop time; of the waiter, or of the last one
        self._heard: Callable[[], None] | None = None  # takes what arrives
        self._listens = False  # the loop tells of what arrives
        self._has_heard = False  # it has told of something since it began to
        self._may_wake = False  # who waits for bytes waits for something else, too
        self._ended: Exception | None = None
        self._timer = loop.call_later(self._send_timeout_s, self._check_idle)

    async def open(self) -> None:
        """What comes before the first byte of a request. Raises TlsFailed."""

    async def receive(self) -> bytes:
        """What has arrived, at least a byte; b"" at the peer's end. Others have a turn before."""
        waiter = self._wait()
        self._heard = self._take
        self._listen()
        try:
            return await waiter
        finally:
            self._waiter = self._heard = None

    async def receive_unless(self, due: Callable[[], bool]) -> bytes | None:
        """As ``receive``; but None once ``due`` holds, which is asked again at each ``wake``."""
        self._may_wake = True
        try:
            while not due():
                try:
                    return await self.receive()
                except _WokenError:
                    pass
        finally:
            self._may_wake = False
        return None

    async def rest_unless(self, due: Callable[[], bool], until_s: float) -> None:
        """Takes nothing in until then, in loop time, or once ``due`` holds, as above.

        Whoever is kept waiting is not idle.
        """
        self._may_wake = True
        try:
            while (left_s := until_s - self._loop.time()) > 0 and not due():
                waiter = self._wait()
                self._waiting_since = until_s
                timer = self._loop.call_later(max(left_s, TICK_S), self.wake)
                try:
                    with contextlib.suppress(_WokenError):
                        await waiter
                finally:
                    timer.cancel()
                    self._waiter = None
        finally:
            self._may_wake = False

    def wake(self) -> None:
        """Who waits in ``receive_unless`` or ``rest_unless`` looks again."""
        if self._may_wake and self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(_WokenError())

    async def send(self, data: bytes | bytearray, *, more: bool = False) -> None:
        """All of ``data``. ``more``: hold back a last half-full packet for what follows."""
        flags = _MORE if more else 0
        sent = self._send(data, flags)
        if sent < len(data):
            with memoryview(data) as whole:
                while sent < len(whole):
                    await self.writable()
                    sent += self._send(whole[sent:], flags)

    async def writable(self) -> None:
        """Until the socket takes bytes again."""
        waiter = self._wait()
        self._loop.add_writer(self.sock, lambda: None if waiter.done() else waiter.set_result(b""))
        try:
            await waiter
        finally:
            self._loop.remove_writer(self.sock)
            self._waiter = None

    @contextlib.contextmanager
    def watching(self, gone: Callable[[], None], more: Callable[[], None]) -> Iterator[None]:
        """Calls ``gone`` if the peer closes meanwhile, or ``more`` if bytes arrive before that;
        they stay where they are, and end the watch.
        """

        def look() -> None:
            try:
                ended = not self._peek(1, socket.MSG_PEEK)
            except BlockingIOError:
                return
            except (OSError, TlsFailed):
                ended = True
            self._heard = None
            (gone if ended else more)()

        self._heard = look
        self._listen()
        try:
            yield
        finally:
            self._heard = None

    def end(self, reason: Exception | None = None) -> None:
        """Whoever waits, now or later, gets ``reason`` raised."""
        self._ended = self._ended or reason or ChannelEnded()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(self._ended)

    def close(self) -> None:
        self._timer.cancel()
        self._mute()
        self.sock.close()

    def _send(self, data: Bytes, flags: int) -> int:
        """How much of it the socket takes."""
        if self._ended is not None:
            raise self._ended
        try:
            return self._put(data, flags) if data else 0
        except BlockingIOError:
            return 0

    def _wait(self) -> asyncio.Future[bytes]:
        if self._waiter is not None:
            raise BrokenInvariant("two tasks wait on one channel")
        if self._ended is not None:
            raise self._ended
        self._waiter = waiter = self._loop.create_future()
        self._waiting_since = self._loop.time()
        return waiter

    def _take(self) -> None:
        waiter = self._waiter
        if waiter is None or waiter.done():
            self._mute()
            return
        try:
            waiter.set_result(self._recv(RECEIVE_BYTES))
        except BlockingIOError:
            return
        except (OSError, TlsFailed) as error:
            waiter.set_exception(error)
        self._heard = None

    def _listen(self) -> None:
        """libuv tells of an error once and watches no longer, also where bytes came with it. So a
        socket on which something has come since it began to watch is asked whether that is over.
        """
        if self._listens:
            if not self._has_heard or not self._has_hung_up():
                return
            self._mute()
        self._loop.add_reader(self.sock, self._arrived)
        self._listens, self._has_heard = True, False

    def _has_hung_up(self) -> bool:
        """Both ways are closed, or there was an error; poll tells of these unasked."""
        poll = select.poll()
        poll.register(self.sock, 0)
        return bool(poll.poll(0))

    def _arrived(self) -> None:
        """Bytes, or the end. Nobody waits for them: the socket keeps them till somebody does."""
        self._has_heard = True
        if self._heard is not None:
            self._heard()
        else:
            self._mute()

    def _mute(self) -> None:
        if self._listens:
            self._listens = False
            self._loop.remove_reader(self.sock)

    def _check_idle(self) -> None:
        """One timer per channel, set again for when the present wait would be too long."""
        sends = self._heard is None
        limit_s = self._send_timeout_s if sends else self._idle_timeout_s
        left_s = limit_s
        if self._waiter is not None and not self._waiter.done():
            left_s -= self._loop.time() - self._waiting_since
        if left_s <= 0 and self._has_moved():
            left_s = TICK_S
        if left_s <= 0:
            limit_ms = round(limit_s * 1000)
            stuck = ChannelStuck(f"the client took nothing of its answer in {limit_ms} ms")
            self.end(stuck if sends else ChannelIdle(f"no byte in {limit_ms} ms"))
        else:
            left_s = min(left_s, self._send_timeout_s)  # it may begin to send meanwhile
            self._timer = self._loop.call_later(left_s, self._check_idle)

    def _has_moved(self) -> bool:
        """The loop has not told it yet: after a standstill of the process, timers may come first.

        Only who waits for bytes, or for room to write, is ever found idle.
        """
        poll = select.poll()
        poll.register(self.sock, select.POLLOUT if self._heard is None else select.POLLIN)
        return bool(poll.poll(0))
