"""nats-py's socket, which ends also where a TLS handshake has failed."""

import asyncio
import contextlib
import ssl
from typing import Any
from urllib.parse import ParseResult

from nats.aio.transport import TcpTransport


class NatsTransport(TcpTransport):
    """Leaves no socket behind, and waits for no end that will not be told."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._is_broken = False
        """In the middle of a handshake: the stream will never hear of the end."""

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        self.abort()
        await super().connect(uri, buffer_size, connect_timeout)
        self._is_broken = False

    async def connect_tls(self, *args: Any, **kwargs: Any) -> None:
        try:
            await super().connect_tls(*args, **kwargs)
        except BaseException:
            self._is_broken = True
            self.abort()
            raise
        assert self._io_writer is not None, "connected"
        stream = self._io_writer.transport.get_protocol()
        if isinstance(stream, asyncio.StreamReaderProtocol):  # else asyncio complains at the end
            stream._over_ssl = True  # type: ignore[attr-defined]

    async def wait_closed(self) -> None:
        """How it ended was told before."""
        if not self._is_broken:
            with contextlib.suppress(OSError):
                await super().wait_closed()  # type: ignore[no-untyped-call]

    def abort(self) -> None:
        """Let go of the socket; what is unsent is lost.

        Where TLS has ended before, asyncio of Python 3.11.2 asks None to abort.
        """
        for writer in (self._io_writer, self._bare_io_writer):
            if writer is not None:
                with contextlib.suppress(AttributeError):
                    writer.transport.abort()

    @property
    def tls_error(self) -> ssl.SSLError | None:
        """What TLS has ended it for, which a write is not told."""
        reader: asyncio.StreamReader | None = self._io_reader
        error = reader.exception() if reader is not None else None
        return error if isinstance(error, ssl.SSLError) else None

    @property
    def is_encrypted(self) -> bool:
        writer: asyncio.StreamWriter | None = self._io_writer
        return writer is not None and writer.get_extra_info("ssl_object") is not None
