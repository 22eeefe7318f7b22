"""A client's socket: received bytes, sent bytes, slices of files sent without a copy (zero-copy), and
the wait of a request (``RequestWait``) while the peer is watched.
"""

import asyncio
import os
import select
import socket
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from streamlog.errors import BrokenInvariant, TlsFailed
from streamlog.log.segment.file_slice import FileSlice
from streamlog.partition.page_cache import is_cold, read_ahead
from streamlog.wire.framing import FrameSplitter

RECEIVE_BYTES: Final = 64 * 1024
FILLED: Final = b"filled"
"""What was received has gone to the large frame that is next."""
TICK_S: Final = 0.001
"""A loop may call a little before it is time: then it is asked again."""
CHUNK_BYTES: Final = 1024 * 1024
"""The most that one turn of the event loop gives to one connection: what most clients ask for at
once, and a fraction of a millisecond.
"""
Bytes = bytes | bytearray | memoryview
_MORE: Final = getattr(socket, "MSG_MORE", 0)  # Linux; elsewhere a packet more


class ChannelIdle(Exception):
    """No byte has moved for the idle timeout while one was awaited."""


class ChannelStuck(ChannelIdle):
    """The peer has not taken a byte for the send timeout while some were to be sent."""


class ChannelEnded(Exception):
    """This side has ended the channel; a task that waits on it stops."""


class SliceTruncated(Exception):
    """The file is shorter than its slice, and the frame has promised more."""


def never() -> bool:
    return False


class SocketChannel:
    """A non-blocking socket, read and written by one task at a time, on any event loop.

    The loops' own ``sock_*`` calls are not used, because uvloop has none that sends a file. The
    loop is asked once to tell of what arrives, and told to stop only where that would be told again
    and again because no task takes it: to ask again for each request is half a dozen system calls.

    A wait for bytes of more than ``idle_timeout_ms`` raises ChannelIdle, a wait for room to send of
    more than ``send_timeout_ms`` ChannelStuck; at the latest after twice that time.
    """

    path = "sendfile"
    """How slices of files are sent; a label of the metrics."""
    fills = True
    """The rest of a large frame is received where it will be read."""
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
        self._waiter: asyncio.Future[bytes | None] | None = None
        """At most one task waits; None: something else than bytes has come."""
        self._waiting_since = 0.0  # loop time; of the waiter, or of the last one
        self._receives = False  # the waiter gets the bytes that arrive
        self._at_once: Callable[[bytes], bool] | None = None  # see ``receive``
        self._frames: FrameSplitter | None = None  # the rest of its large frame is awaited
        self.heard: Callable[[], None] | None = None
        """Called for what arrives while no task receives it."""
        self._listens = False  # the loop tells of what arrives
        self._has_heard = False  # it has told of something since it began to
        self._trouble: select.poll | None = None
        self._may_wake = False  # who waits for bytes waits for something else, too
        self._ended: Exception | None = None
        self._timer = loop.call_later(self._send_timeout_s, self._check_idle)

    async def open(self) -> None:
        """What comes before the first byte of a request. Raises TlsFailed."""

    async def receive(
        self,
        unless: Callable[[], bool] = never,
        at_once: Callable[[bytes], bool] | None = None,
        frames: FrameSplitter | None = None,
    ) -> bytes | None:
        """What has arrived, at least a byte; b"" at the peer's end. Others have a turn before.

        None once ``unless`` holds, which is asked at first and again at each ``wake``. ``at_once`` is shown what
        arrives outside a turn of the task: where it says that it has dealt with that, the wait goes on. What it raises
        ends the wait. The rest of a large frame may go straight to ``frames``: FILLED.
        """
        self._may_wake, self._at_once = True, at_once
        if frames is not None and frames.partial is not None and self.fills:
            self._await_rest(frames)
        try:
            while not unless():
                waiter = self._wait()
                self._receives = True
                self.listen()
                try:
                    found = await waiter
                finally:
                    self._waiter, self._receives = None, False
                if found is not None:
                    return found
        finally:
            self._may_wake, self._at_once = False, None
            if self._frames is not None:
                self._frames = None
                self._await_bytes(1)
        return None

    def _await_rest(self, frames: FrameSplitter) -> None:
        """Where many bytes are missing the loop is told when many are here: each time that it is told costs as much as
        to receive a tenth of a megabyte.
        """
        self._frames = frames
        self._await_bytes(frames.awaited_bytes)

    def _await_bytes(self, count: int) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def _fill(self, frames: FrameSplitter) -> bytes:
        assert frames.partial is not None, "it is not whole before that"
        count = self.sock.recv_into(frames.partial)
        frames.filled(count)
        return FILLED if count else b""

    async def rest_unless(self, due: Callable[[], bool], until_s: float) -> None:
        """Receives nothing until then, in loop time, or once ``due`` holds, as in ``receive``.

        A peer that is kept waiting is not idle.
        """
        self._may_wake = True
        try:
            while (left_s := until_s - self._loop.time()) > 0 and not due():
                waiter = self._wait()
                self._waiting_since = until_s
                timer = self._loop.call_later(max(left_s, TICK_S), self.wake)
                try:
                    await waiter
                finally:
                    timer.cancel()
                    self._waiter = None
        finally:
            self._may_wake = False

    def wake(self) -> None:
        """A wait in ``receive`` or ``rest_unless`` asks its condition again."""
        if self._may_wake and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def is_receiving(self) -> bool:
        """A task waits for bytes, so that none sends."""
        return self._receives

    def send_at_once(self, data: bytes) -> int:
        """How many bytes of it the socket has taken; what is wrong with the socket, the next call tells."""
        try:
            return 0 if self._ended is not None else self._put(data, 0)
        except (OSError, TlsFailed):
            return 0

    async def send(self, data: bytes | bytearray, *, more: bool = False) -> None:
        """All of ``data``. ``more``: hold back a last half-full packet for what follows."""
        flags = _MORE if more else 0
        left: Bytes = data
        while True:
            if self._ended is not None:
                raise self._ended
            try:
                sent = self._put(left, flags) if left else 0
            except BlockingIOError:
                sent = 0
            if sent == len(left):
                return
            left = memoryview(left)[sent:]
            await self.writable()

    async def send_slice(self, part: FileSlice, readers: Executor) -> None:
        """All of the slice by ``sendfile``, a chunk per turn of the event loop.

        Bytes that are not in the page cache would hold the event loop for a disk read: ``readers``,
        threads, read them ahead first. A filesystem that has no such question counts as cached.
        """
        if part.held is not None:
            await self._send_held(part.held, CHUNK_BYTES)
            return
        out, file = self.sock.fileno(), part.fileno()
        position = warm = part.position  # bytes before ``warm`` are known to be in the page cache
        end = position + len(part)
        while position < end:
            length = min(CHUNK_BYTES, end - position)
            if position >= warm:
                if is_cold(file, position, length):
                    await read_ahead(file, position, length, readers)
                warm = position + length
            try:
                sent = os.sendfile(out, file, position, length)
            except BlockingIOError:
                await self.writable()
                continue
            if sent == 0:
                raise SliceTruncated(f"file ends at {position}, slice at {end}")
            position += sent
            if sent < length:
                await self.writable()  # another try now would only find it full
            elif position < end:
                await asyncio.sleep(0)

    async def _send_held(self, data: bytes, chunk_bytes: int) -> None:
        for position in range(0, len(data), chunk_bytes):
            if position:
                await asyncio.sleep(0)
            await self.send(data[position : position + chunk_bytes], more=True)

    async def writable(self) -> None:
        """Until the socket takes bytes again."""
        waiter = self._wait()
        self._loop.add_writer(self.sock, lambda: None if waiter.done() else waiter.set_result(b""))
        try:
            await waiter
        finally:
            self._loop.remove_writer(self.sock)
            self._waiter = None

    def peer_has_left(self) -> bool | None:
        """False: it has sent bytes, which stay where they are; None: nothing has come."""
        try:
            return not self._peek(1, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except (OSError, TlsFailed):
            return True

    def end(self, reason: Exception | None = None) -> None:
        """A task that waits, now or later, gets ``reason`` raised."""
        self._ended = self._ended or reason or ChannelEnded()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(self._ended)

    def close(self) -> None:
        self._timer.cancel()
        self._mute()
        self.sock.close()

    def _wait(self) -> asyncio.Future[bytes | None]:
        if self._waiter is not None:
            raise BrokenInvariant("two tasks wait on one channel")
        if self._ended is not None:
            raise self._ended
        self._waiter = waiter = self._loop.create_future()
        self._waiting_since = self._loop.time()
        return waiter

    def listen(self) -> None:
        """Have the loop call ``_arrived``.

        libuv tells of an error once and watches no longer, also where bytes came with it. So a
        socket on which something has come since it began to watch is asked whether that is over.
        """
        if self._listens:
            if not self._has_heard:
                return
            if self._trouble is None:
                self._trouble = select.poll()
                # Both ways closed, or an error: it tells of these unasked.
                self._trouble.register(self.sock, 0)
            if not self._trouble.poll(0):
                return
            self._mute()
        self._loop.add_reader(self.sock, self._arrived)
        self._listens, self._has_heard = True, False

    def _arrived(self) -> None:
        """Bytes, or the end. While no task wants them, the socket keeps them."""
        self._has_heard = True
        if self.heard is not None:
            self.heard()
            return
        waiter, at_once = self._waiter, self._at_once
        if not self._receives or waiter is None or waiter.done():
            self._mute()
            return
        try:
            if self._frames is not None:
                waiter.set_result(self._fill(self._frames))
            elif not (data := self._recv(RECEIVE_BYTES)) or at_once is None or not at_once(data):
                waiter.set_result(data)
            else:
                self._waiting_since = self._loop.time()
                self.listen()  # the peer's end may have come with it
                return
        except BlockingIOError:
            return
        except Exception as error:
            waiter.set_exception(error)
        self._receives = False

    def _mute(self) -> None:
        if self._listens:
            self._listens = False
            self._loop.remove_reader(self.sock)

    def _check_idle(self) -> None:
        """One timer per channel, set again for when the present wait would be too long."""
        sends = self._sends
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
        if self._frames is not None:  # few bytes count, too
            self._await_bytes(1)
        poll = select.poll()
        poll.register(self.sock, select.POLLOUT if self._sends else select.POLLIN)
        return bool(poll.poll(0))

    @property
    def _sends(self) -> bool:
        """What is waited for is room to send."""
        return self.heard is None and not self._receives


class RequestWait:
    """The wait of one request: woken when there may be more to answer, ended when it has to be
    answered now. Meanwhile the channel is watched for the peer's end.
    """

    def __init__(self, channel: SocketChannel, *, is_followed: bool = False) -> None:
        self.is_followed = is_followed
        """The next request is here already."""
        self.yields = False
        """A next request ends the wait; else it has its turn when this one is answered."""
        self._channel = channel
        self._ended = False  # never goes back
        self._woken = False  # since the last wait
        self._waiter: asyncio.Future[None] | None = None

    @property
    def ended(self) -> bool:
        """To be answered now: the peer is gone, the node stops, or the time is over."""
        return self._ended

    def wake(self) -> None:
        """There may be more to answer."""
        self._woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def end(self) -> None:
        """No more waiting."""
        self._ended = True
        self.wake()

    async def wait(self) -> None:
        """Until ``wake`` or ``end``; at once if either was called since the last wait."""
        if self.yields and self.is_followed:
            self.end()
        if not self._woken and not self._ended:
            self._waiter = asyncio.get_running_loop().create_future()
            self._channel.heard = self._look
            self._channel.listen()
            try:
                await self._waiter
            finally:
                self._channel.heard = self._waiter = None
        self._woken = False

    def _look(self) -> None:
        """Something has come from the peer, perhaps its end: that is looked at once."""
        has_left = self._channel.peer_has_left()
        if has_left is None:
            return
        self._channel.heard = None
        self.is_followed = True
        if has_left or self.yields:
            self.end()
