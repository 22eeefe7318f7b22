"""nats-py's client with another way of reading: one feed of our parser for each read of the socket.

Ours: the read loop, subscriptions, writing acks; nats-py's, by way of ``client``: all the rest.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol, cast
from urllib.parse import ParseResult

import nats.errors

from streamlog.errors import ProtocolViolation
from streamlog.ingest.nats.client import NatsClient
from streamlog.ingest.nats.options import NatsOptions
from streamlog.ingest.nats.socket_reader import Feed, SocketReader
from streamlog.ingest.nats.subscriptions import Subscription, Subscriptions, unsubscribe_commands
from streamlog.ingest.nats.transport import NatsTransport
from streamlog.ingest.parser.frames import FrameParser, RecordCollector

logger = logging.getLogger(__name__)

WRITE_BUFFER_BYTES_MAX = 4 * 1024 * 1024
"""Acks that NATS has not taken yet. Above it we read nothing more."""
LINE_BYTES_MAX = 64 * 1024
FRAME_OVERHEAD_BYTES = 64 * 1024
"""Of a frame beside the payload that the server allows: the control line, our own slack."""
DEFAULT_PAYLOAD_BYTES_MAX = 1024 * 1024


class Receiver(Protocol):
    """Who the messages are for."""

    def received(self, touched: list[RecordCollector]) -> None:
        """A read is parsed; take what these have gathered."""

    @property
    def has_room(self) -> bool:
        """The next read may be made at once."""

    async def wait_for_room(self) -> None:
        """Return when the next read may be made."""

    def connected(self) -> None:
        """The connection is there (again)."""


AroundRead = Callable[[], AbstractContextManager[None]]


class IngestTransport(NatsTransport):
    """Reads of ``read_buffer_bytes``; a close that does not wait for a peer which takes nothing."""

    def __init__(self, read_buffer_bytes: int) -> None:
        super().__init__()
        self._read_buffer_bytes = read_buffer_bytes

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        limit = max(self._read_buffer_bytes, LINE_BYTES_MAX)  # the greeting is read as a line
        await super().connect(uri, limit, connect_timeout)
        self._limit_writes()

    async def connect_tls(self, *args: Any, **kwargs: Any) -> None:
        await super().connect_tls(*args, **kwargs)
        self._limit_writes()

    def _limit_writes(self) -> None:
        assert self._io_writer is not None, "connected"
        self._io_writer.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)

    def take_in(self, feed: Feed) -> SocketReader:
        """Once it is started, every read goes to ``feed``. The handshake must be over."""
        assert self._io_writer is not None and self._io_reader is not None, "connected"
        transport = cast(asyncio.Transport, self._io_writer.transport)  # uvloop's is one in kind
        return SocketReader(transport, self._io_reader, feed, buffer_bytes=self._read_buffer_bytes)

    @property
    def is_full(self) -> bool:
        """More than the limit is unwritten."""
        writer = self._io_writer
        return (
            writer is not None and writer.transport.get_write_buffer_size() > WRITE_BUFFER_BYTES_MAX
        )

    async def drain_if_full(self) -> None:
        """Wait while more than the limit is unwritten."""
        if self.is_full:
            await self.drain()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        self.abort()


class _ParserSlot:
    """Stands where nats-py keeps its parser, which it resets when a connection is lost."""

    def __init__(self, client: "IngestClient") -> None:
        self._client = client

    def reset(self) -> None:
        self._client.renew_parser()


class IngestClient(NatsClient):
    """One connection for all streams; its subscriptions outlive it."""

    def __init__(
        self,
        access: NatsOptions,
        receiver: Receiver,
        subscriptions: Subscriptions,
        *,
        read_buffer_bytes: int,
        around_read: AroundRead | None = None,
    ) -> None:
        super().__init__(access)
        self._around_read = around_read
        self._receiver = receiver
        self._subscriptions = subscriptions
        self._read_buffer_bytes = read_buffer_bytes
        self._ps = _ParserSlot(self)  # type: ignore[assignment]
        self._controls: list[tuple[str, bytes]] = []
        """What the server said beside messages, not yet acted upon."""
        self.renew_parser()

    def subscribe_all(self, subscriptions: Iterable[Subscription]) -> list[int]:
        """Their sids; said to the server in one write, or when it is there."""
        sids = [self._subscriptions.add(subscription) for subscription in subscriptions]
        self._subscriptions.bind(self._parser, sids)
        self.write(self._subscriptions.commands(sids))
        return sids

    def unsubscribe_all(self, sids: Iterable[int]) -> None:
        """Say that no more is wanted, nor at a reconnect; what is under way still comes."""
        sids = list(sids)
        for sid in sids:
            self._subscriptions.remove(sid)
        self.write(unsubscribe_commands(sids))

    def forget(self, sids: Iterable[int]) -> None:
        """Drop what still comes for them, which ended before."""
        for sid in sids:
            self._parser.unbind(sid)

    def write(self, data: bytes) -> None:
        """Whole protocol lines; dropped without a connection, as NATS itself drops messages."""
        if data and self.is_connected and self._transport is not None:
            self._transport.write(data)

    async def round_trip(self, timeout_s: float) -> bool:
        """All that was written is at the server, and all that it had sent before is received."""
        if not self.is_connected or self._transport is None:
            return False
        pong: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._pongs.append(pong)
        self._transport.write(b"PING\r\n")
        try:
            async with asyncio.timeout(timeout_s):
                return await pong
        except TimeoutError:
            return False

    def renew_parser(self) -> None:
        """A new connection starts at the start of a frame."""
        self._controls.clear()
        payload_bytes_max = self._server_info.get("max_payload", DEFAULT_PAYLOAD_BYTES_MAX)
        self._parser = FrameParser(frame_bytes_max=payload_bytes_max + FRAME_OVERHEAD_BYTES)
        self._subscriptions.bind(self._parser, self._subscriptions.sids())

    def _new_transport(self) -> IngestTransport:
        return IngestTransport(self._read_buffer_bytes)

    async def _process_connect_init(self) -> None:
        for pong in self._pongs:
            if not pong.done():
                pong.set_result(False)
        await super()._process_connect_init()

    async def _connected(self) -> None:
        # The new read task has not run yet, so nothing comes before the parser is ready for it.
        self.renew_parser()
        self.write(self._subscriptions.commands(self._subscriptions.sids()))
        self._receiver.connected()

    async def _read_loop(self) -> None:
        transport = self._transport
        assert isinstance(transport, IngestTransport), "connected"
        intake = transport.take_in(self._feed if self._around_read is None else self._told_feed)
        try:
            intake.start()
            while transport is self._transport and not (self.is_closed or self.is_reconnecting):
                await intake.wait_paused()
                await self._process_controls()
                await self._receiver.wait_for_room()
                await transport.drain_if_full()
                intake.resume()
        except (OSError, ProtocolViolation, nats.errors.Error) as error:
            await self._process_controls()  # its last words may say why
            await self._process_op_err(error)
        except Exception as error:
            logger.exception("reading from NATS failed")
            await self._process_op_err(error)
        finally:
            intake.stop()

    def _told_feed(self, data: memoryview) -> bool:
        """For who wants to know when a read begins and has been handed on."""
        assert self._around_read is not None
        with self._around_read():
            return self._feed(data)

    def _feed(self, data: memoryview) -> bool:
        """Hand a read on; False if something is to be waited for before the next one."""
        self._receiver.received(self._parser.feed(data))
        self._controls += self._parser.take_controls()
        transport = self._transport
        assert isinstance(transport, IngestTransport), "connected"
        return not self._controls and self._receiver.has_room and not transport.is_full

    async def _process_controls(self) -> None:
        controls, self._controls = self._controls, []
        for name, argument in controls:
            if name == "PING":
                self.write(b"PONG\r\n")
            elif name == "PONG":
                self._process_pong_now()
            elif name == "INFO":
                await self._process_info(_json(argument))
            elif name == "ERR":
                await self._process_err(argument.decode(errors="replace"))

    def _process_pong_now(self) -> None:
        if self._pongs:
            pong = self._pongs.pop(0)
            if not pong.done():  # else whoever waited has given up
                pong.set_result(True)
        self._pings_outstanding = 0


def _json(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
