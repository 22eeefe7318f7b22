"""nats-py's client, for the tools and the ledger, which are ordinary clients of NATS; changed where one that
never gives up needs another one.

It gets in by ``NatsOptions``, never says a secret in the clear, waits longer for a server that refuses
it, outlives whatever error line, and notices when it was cut off as a slow consumer.
"""

import asyncio
import contextlib
import json
import logging
import ssl
import time
from typing import Any, Final
from urllib.parse import ParseResult

import nats.errors
from nats.aio.client import Client, Srv
from nats.aio.transport import TcpTransport

from streamlog.condition import FAULT
from streamlog.errors import ConfigError
from streamlog.ingest.nats.errors import EndedEarly, InTheClear, SlowConsumerCut, Unusable
from streamlog.ingest.nats.options import NatsOptions
from streamlog.ingest.nats.server_link import SUBJECTS_BYTES_MAX, is_survivable

logger = logging.getLogger(__name__)

CONNECT: Final = b"CONNECT "
READ_BYTES: Final = 32 * 1024
"""Of nats-py's own reader, and the longest line that it takes."""


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


class NatsClient(Client):
    """Of an ``NatsOptions``, and to be connected with its options."""

    def __init__(self, access: NatsOptions) -> None:
        super().__init__()
        self._access = access
        self._cut_off_by: str | None = None
        """The id of the server that has ended the last connection without a word."""
        self._returning = False
        """It is to be tried first."""

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """With the files as they are now."""
        try:
            return self._access.tls.context()
        except ConfigError as error:
            raise Unusable(str(error)) from None

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: dict[str, Any] | None = None,
    ) -> None:
        """As nats-py's, which looks at the payload alone: the server ends a connection on which
        headers and payload together, or the line with the subjects, are longer than it takes.

        Raises nats.errors.MaxPayloadError and BadSubjectError for these.
        """
        if headers and headers_bytes(headers) + len(payload) > self.max_payload:
            raise nats.errors.MaxPayloadError
        if len(subject.encode()) + len(reply.encode()) > SUBJECTS_BYTES_MAX:
            raise nats.errors.BadSubjectError
        await super().publish(subject, payload, reply, headers)

    async def _select_next_server(self) -> None:
        """In turn. One that cannot be reached is tried again soon, one that refuses us later.

        After a wordless end the same one comes first: if it is still there, it has cut us off.
        """
        if not self.options["allow_reconnect"]:
            await super()._select_next_server()
            return
        while True:
            server = self._next_server()
            if server.last_attempt is not None:
                due = server.last_attempt + self._access.pause_s(server.reconnects)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            try:
                await self._connect_to_server(server)
            except Exception as error:
                server.last_attempt = time.monotonic()
                server.reconnects = 0  # in a row; nats-py counts the refusals
                self._err = error
                await self._error_cb(error)
            else:
                self._current_server = server
                return

    def abandon(self) -> None:
        """Let go of the socket, which nats-py does not do where connecting has failed."""
        if isinstance(self._transport, NatsTransport):
            self._transport.abort()

    async def close(self) -> None:
        await super().close()
        self._status = Client.CLOSED  # an attempt that was under way may have said otherwise
        self.abandon()

    async def _connect_to_server(self, s: Srv) -> None:
        self.abandon()
        self._transport = transport = NatsTransport()
        s.last_attempt = time.monotonic()
        await transport.connect(s.uri, READ_BYTES, self.options["connect_timeout"])
        _heed_cancellation()

    def _next_server(self) -> Srv:
        """Which goes to the end of the row."""
        returning, self._returning = self._returning, False
        last, first = self._current_server, 0
        if returning and last is not None and last in self._server_pool:
            first = self._server_pool.index(last)
        server = self._server_pool.pop(first)
        self._server_pool.append(server)
        return server

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """What the servers tell of each other is used, for as long as they tell it."""
        _heed_cancellation()
        if self._access.tls.required and info.get("tls_available"):
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)
        told = info.get("connect_urls")
        if told:
            self._server_pool = [
                server
                for server in self._server_pool
                if not server.discovered
                or server is self._current_server
                or server.uri.netloc in told
            ]

    def _connect_command(self) -> bytes:
        """The last moment before something is said."""
        assert isinstance(self._transport, NatsTransport), "connected"
        if self._access.tls.required and not self._transport.is_encrypted:
            raise InTheClear
        try:
            login = self._access.login.fields(self._server_info.get("nonce", ""))
        except ConfigError as error:
            raise Unusable(str(error)) from None
        options = json.loads(super()._connect_command().removeprefix(CONNECT))
        return CONNECT + json.dumps(options | login, sort_keys=True).encode() + b"\r\n"

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
            _heed_cancellation()
            if not self.is_connected:  # nats-py takes an end for an answer here
                self._cancel_tasks()
                raise EndedEarly(False)
        except asyncio.CancelledError:
            self._cancel_tasks()
            raise
        except (ConnectionError, EndedEarly):
            assert isinstance(self._transport, NatsTransport), "connected"
            raise self._transport.tls_error or EndedEarly(self._transport.is_encrypted) from None
        cut_off_by, self._cut_off_by = self._cut_off_by, None
        if cut_off_by is not None and cut_off_by == self._server_info.get("server_id"):
            await self._error_cb(SlowConsumerCut())

    def _cancel_tasks(self) -> None:
        for task in (self._reading_task, self._ping_interval_task, self._flusher_task):
            if task is not None:
                task.cancel()

    async def _process_err(self, err_msg: str) -> None:
        error = nats.errors.Error(f"nats: {self._as_said(err_msg)}")
        self._err = error
        await self._error_cb(error)
        if not is_survivable(err_msg):
            await self._process_op_err(error)

    def _as_said(self, text: str) -> str:
        """nats-py's parser hands errors on in small letters, and still holds what was said."""
        line = bytes(getattr(self._ps, "buf", b"")).partition(b"\r\n")[0]
        said = line.removeprefix(b"-ERR ").decode(errors="replace")
        return said if said.lower() == text else text

    async def _process_op_err(self, e: Exception) -> None:
        if self.is_connected and isinstance(e, OSError | nats.errors.UnexpectedEOF):
            self._cut_off_by = self._server_info.get("server_id")
            self._returning = True
        await super()._process_op_err(e)

    async def _attempt_reconnect(self) -> None:
        """What nats-py does not foresee must not leave us half connected for ever."""
        try:
            await super()._attempt_reconnect()
        except asyncio.InvalidStateError:
            pass  # another attempt has taken over, and nats-py's two share a future
        except Exception:
            logger.exception(FAULT.logged_as("reconnecting to NATS failed"))
            self._reconnection_task = None  # this one; closing must not cancel it
            await self._close(Client.CLOSED, True)


def headers_bytes(headers: dict[str, Any]) -> int:
    """What nats-py makes of them, or a little more."""
    lines = sum(len(name.encode()) + len(str(it).encode()) + 4 for name, it in headers.items())
    return len(b"NATS/1.0\r\n") + lines + len(b"\r\n")


def _heed_cancellation() -> None:
    """To be called after nats-py has waited for something.

    It does so by ``asyncio.wait_for``, which in Python 3.11 forgets a cancellation that comes at
    the very moment at which the awaited is there: a client closed then would connect and stay.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
