"""TLS over a non-blocking socket of an event loop, for one task that reads and one that writes."""

import asyncio
import contextlib
import socket
import ssl
from typing import Final, cast

from streamlog.errors import NodeUnreachable
from streamlog.tls.errors import trouble

READ_BYTES: Final = 256 * 1024
"""Of what is encrypted, at once."""
WRITE_BYTES: Final = 256 * 1024


class TlsStream:
    """``shake_hands`` comes first. Raises NodeUnreachable where TLS fails, OSError else."""

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, host: str, address: str
    ) -> None:
        self._sock = sock
        self._address = address
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self.has_heard = False
        """The other side has said something; a server without TLS says nothing."""
        self._flushing = asyncio.Lock()  # one after the other onto the socket

    async def shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._take_in()
            except ssl.SSLError as error:
                with contextlib.suppress(OSError):
                    await self._flush()  # the node is told why
                raise self._failed(error) from None
            else:
                await self._flush()
                return

    async def send_all(self, data: bytes) -> None:
        with memoryview(data) as whole:
            for start in range(0, len(whole), WRITE_BYTES):
                self._tls.write(whole[start : start + WRITE_BYTES])
                await self._flush()

    async def receive_into(self, view: memoryview) -> int:
        """How many bytes; 0 at the end."""
        while True:
            try:
                filled = self._read(view)
                with contextlib.suppress(ssl.SSLError):  # it is met again by the next call
                    while filled < len(view) and (count := self._read(view[filled:])):
                        filled += count
                return filled
            except ssl.SSLWantReadError:
                await self._flush()  # an answer to a change of keys, if anything
                await self._take_in()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return 0
            except ssl.SSLError as error:
                raise self._failed(error) from None

    def _read(self, view: memoryview) -> int:
        """A record, or what there is room for of it."""
        return cast("int", self._tls.read(len(view), view))

    async def _take_in(self) -> None:
        data = await asyncio.get_running_loop().sock_recv(self._sock, READ_BYTES)
        if data:
            self.has_heard = True
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        if not self._outgoing.pending:
            return
        async with self._flushing:
            if data := self._outgoing.read():
                await asyncio.get_running_loop().sock_sendall(self._sock, data)

    def _failed(self, error: ssl.SSLError) -> NodeUnreachable:
        return NodeUnreachable(f"{self._address}: TLS: {trouble(error)}")
