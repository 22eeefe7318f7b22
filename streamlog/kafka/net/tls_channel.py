"""A channel over TLS.

OpenSSL reads and writes the socket itself, for only then can the kernel take over what is sent
(kTLS, Linux 4.13): it encrypts what ``sendfile`` sends, and files need not come through here. Where
it cannot, slices are read in chunks and encrypted here.
"""

import asyncio
import contextlib
import errno
import functools
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from streamlog.errors import TlsFailed
from streamlog.kafka.net.channel import Bytes, SliceTruncated, SocketChannel, never
from streamlog.log.segment.file_slice import FileSlice
from streamlog.partition.page_cache import read_ahead, read_now
from streamlog.tls.certificate import read_certificate
from streamlog.tls.errors import trouble
from streamlog.wire.framing import FrameSplitter

RECORD_BYTES: Final = 16 * 1024
"""The most that is in one TLS record. OpenSSL takes one at a time from the socket, so that nothing
is left in it that the loop does not know of."""
COPY_CHUNK_BYTES: Final = 256 * 1024
"""The most that one turn of the event loop encrypts for one connection: a tenth of a millisecond."""
PART_S: Final = 1.0
PART_BYTES_MAX: Final = 64 * 1024
"""Of what the peer still sends, when it is told why it is not let in."""
_SOL_TLS: Final = 282
_TLS_TX: Final = 1


class TlsChannel(SocketChannel):
    """``open`` makes the handshake, and comes first."""

    path = "tls"
    fills = False
    is_encrypted = True
    copies = True
    """Slices of files are encrypted in this process, not by the kernel."""

    def __init__(
        self,
        sock: ssl.SSLSocket,
        loop: asyncio.AbstractEventLoop,
        idle_timeout_ms: int,
        send_timeout_ms: int | None = None,
    ) -> None:
        super().__init__(sock, loop, idle_timeout_ms, send_timeout_ms)
        self._tls = sock
        self._recv, self._peek, self._put = self._decrypt, self._look, self._encrypt
        self._is_open = False
        self._stash = b""  # arrived while it was only asked whether bytes had come
        self._held = bytearray()  # to go into one record with what follows
        self._is_at_end = False  # the peer's last word is taken: the socket tells of it only once

    @classmethod
    def over(
        cls,
        sock: socket.socket,
        context: ssl.SSLContext,
        loop: asyncio.AbstractEventLoop,
        idle_timeout_ms: int,
        send_timeout_ms: int | None = None,
    ) -> "TlsChannel":
        """Takes the socket over. Raises OSError where the peer is gone already."""
        sock.getpeername()  # of a peer that is gone, ssl would leave a half-made socket open
        sealed = context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        return cls(sealed, loop, idle_timeout_ms, send_timeout_ms)

    async def open(self) -> None:
        if not await self._first_byte():  # a probe of the port, for one
            raise ConnectionResetError(errno.ECONNRESET, "the peer left before the handshake")
        try:
            await self._shake_hands()
        except TlsFailed:
            await self._part()
            raise
        self._is_open = True
        shown = self._tls.getpeercert(binary_form=True)
        if shown is not None:
            self.peer_subject = read_certificate(shown).subject
        if _kernel_encrypts(self._tls):
            self.copies, self.path = False, "ktls"

    async def receive(
        self,
        unless: Callable[[], bool] = never,
        at_once: Callable[[bytes], bool] | None = None,
        frames: FrameSplitter | None = None,
    ) -> bytes | None:
        if unless():
            return None
        if self._stash:
            data, self._stash = self._stash, b""
            await asyncio.sleep(0)
            return data
        if self._is_at_end:
            return b""
        return await super().receive(unless, at_once, frames)

    def send_at_once(self, data: bytes) -> int:
        """Never: OpenSSL wants what it did not take again as it was, and before anything else."""
        return 0

    async def send(self, data: bytes | bytearray, *, more: bool = False) -> None:
        """A record costs 22 bytes, a system call and a packet: small pieces wait for others."""
        if self._held:
            held, self._held = self._held, bytearray()
            if len(data) > RECORD_BYTES:
                await super().send(held)
            else:
                data = held + data
        if more and self.copies and len(data) < RECORD_BYTES:
            self._held = bytearray(data)
            return
        await super().send(data)

    async def send_slice(self, part: FileSlice, readers: Executor) -> None:
        """By ``sendfile`` where the kernel encrypts; else read, encrypted and sent in chunks."""
        if not self.copies:
            await super().send_slice(part, readers)
            return
        if part.held is not None:
            await self._send_held(part.held, COPY_CHUNK_BYTES)
            return
        file, position = part.fileno(), part.position
        end = position + len(part)
        while position < end:
            length = min(COPY_CHUNK_BYTES, end - position)
            data: bytes | bytearray | None = read_now(file, position, length)
            if data is None:
                data = await read_ahead(file, position, length, readers)
            if not data:
                raise SliceTruncated(f"file ends at {position}, slice at {end}")
            position += len(data)
            await self.send(data, more=True)
            if position < end:
                await asyncio.sleep(0)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            with contextlib.suppress(OSError, ValueError):
                self._tls.unwrap()  # tells the peer that this is the end, and waits for nothing
        super().close()

    async def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                await self._readable()
            except ssl.SSLWantWriteError:
                await self.writable()
            except ssl.SSLError as error:
                raise TlsFailed(trouble(error)) from None

    async def _first_byte(self) -> bytes:
        """It stays where it is; b"" at the peer's end."""
        while True:
            try:
                return socket.socket.recv(self.sock, 1, socket.MSG_PEEK)
            except BlockingIOError:
                await self._readable()

    async def _readable(self) -> None:
        waiter = self._wait()
        self.heard = lambda: None if waiter.done() else waiter.set_result(b"")
        self.listen()
        try:
            await waiter
        finally:
            self._waiter = self.heard = None

    async def _part(self) -> None:
        """The peer hears why only if what it has sent is taken before the socket is closed."""
        taken = 0
        with contextlib.suppress(OSError, TimeoutError):
            self.sock.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(PART_S):
                while taken < PART_BYTES_MAX:
                    try:
                        data = socket.socket.recv(self.sock, PART_BYTES_MAX)
                    except BlockingIOError:
                        await self._readable()
                        continue
                    if not data:
                        return
                    taken += len(data)

    def _decrypt(self, size: int) -> bytes:
        """What has arrived, up to ``size`` bytes; as ``recv`` without waiting. Raises TlsFailed."""
        first = self._record(min(size, RECORD_BYTES))  # room for more would be made in vain
        if len(first) < RECORD_BYTES:
            return first
        whole = bytearray(first)
        with contextlib.suppress(BlockingIOError):
            while len(whole) < size and (
                record := self._record(min(size - len(whole), RECORD_BYTES))
            ):
                whole += record
        return bytes(whole)

    def _record(self, size: int) -> bytes:
        try:
            data = self._tls.recv(size)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, BrokenPipeError):
            # The last where the peer went without a word: OpenSSL 3.5 and later answers that by an
            # alert, and no peer is left to take it.
            data = b""
        except ssl.SSLError as error:
            raise TlsFailed(trouble(error)) from None
        if size and not data:
            self._is_at_end = True
        return data

    def _look(self, _size: int, _flags: int) -> bytes:
        """What is decrypted cannot be put back, so it is kept for who receives next."""
        if not self._stash:
            self._stash = self._record(RECORD_BYTES)
        return self._stash

    def _encrypt(self, data: Bytes, _flags: int) -> int:
        """How much of it has gone; after a 0 the same data must come again. Raises OSError."""
        try:
            return self._tls.send(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            raise ConnectionResetError(errno.ECONNRESET, "the peer is gone") from None
        except ssl.SSLError as error:
            raise TlsFailed(trouble(error)) from None


def _kernel_encrypts(sock: ssl.SSLSocket) -> bool:
    """Has OpenSSL handed the keys for what is sent to the kernel?

    Its answer begins with a version and a cipher, two bytes each; no cipher, no keys.
    """
    try:
        told = sock.getsockopt(_SOL_TLS, _TLS_TX, 4)
    except OSError:
        return False
    return len(told) == 4 and told[2:4] != b"\0\0"


TLS_HANDSHAKE: Final = b"\x16"
"""The first byte of a peer that speaks TLS (RFC 8446, section 5.1)."""
FRAME_BYTES_MAX: Final = TLS_HANDSHAKE[0] << 24
"""From here on a frame of the socket API begins as TLS does."""


class OptionalTlsChannel(TlsChannel):
    """``open`` finds out. What is said in the clear goes as through a plain channel."""

    async def open(self) -> None:
        if await self._first_byte() == TLS_HANDSHAKE:
            await super().open()
            return
        self.is_encrypted = self.copies = False
        self.path = "sendfile"
        # The socket is OpenSSL's, which has not begun yet: go past it.
        self._recv = functools.partial(socket.socket.recv, self.sock)
        self._peek = functools.partial(socket.socket.recv, self.sock)
        self._put = functools.partial(socket.socket.send, self.sock)
