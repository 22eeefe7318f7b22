"""A channel over TLS or in the clear, as the peer wishes: while TLS is turned on node by node."""

import functools
import socket
from typing import Final

from streamlog.kafka.net.tls_channel import TlsChannel

HANDSHAKE: Final = b"\x16"
"""The first byte of whoever speaks TLS (RFC 8446, section 5.1)."""
FRAME_BYTES_MAX: Final = HANDSHAKE[0] << 24
"""From here on a frame of the socket API begins as TLS does."""


class OptionalTlsChannel(TlsChannel):
    """``open`` finds out. What is said in the clear goes as through a plain channel."""

    async def open(self) -> None:
        if await self._first_byte() == HANDSHAKE:
            await super().open()
            return
        self.is_encrypted = self.copies = False
        self.path = "sendfile"
        # The socket is OpenSSL's, which has not begun yet: go past it.
        self._recv = functools.partial(socket.socket.recv, self.sock)
        self._peek = functools.partial(socket.socket.recv, self.sock)
        self._put = functools.partial(socket.socket.send, self.sock)
