"""The connection to NATS that messages come by and acks leave by: nats-py's client with another way of
reading and writing.

Ours: one feed of our parser for each read of the socket; the subscriptions; one write for all acks of
a turn of the event loop. nats-py's, by way of ``client``: all the rest.

Backpressure (``InFlightBytes``): where more waits for a commit than ``in_flight_bytes_max``, NATS is read no
further; where that does not help in time, messages are refused.

``PubAcks`` gathers what publishers are told; ``pub_ack_format`` has its bytes.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol, cast
from urllib.parse import ParseResult

import nats.errors

from streamlog.clock import wall_ms
from streamlog.condition import FAULT, Condition
from streamlog.errors import BrokenInvariant, ProtocolViolation
from streamlog.ingest.admission.refusal import PublishRefusal, envelope_error
from streamlog.ingest.frames import FrameParser
from streamlog.ingest.liftbridge import envelope
from streamlog.ingest.liftbridge.addresses import is_address, parted, unpack
from streamlog.ingest.liftbridge.envelope_codec import build_enveloped_acks
from streamlog.ingest.nats.client import NatsClient
from streamlog.ingest.nats.options import NatsOptions
from streamlog.ingest.nats.subscription_list import Subscriptions
from streamlog.ingest.nats.transport import NatsTransport
from streamlog.ingest.pub_ack_format import ROUTED, Replies, error_json, publication
from streamlog.metrics import NodeMetrics
from streamlog.nats.router import Router

logger = logging.getLogger(__name__)

NO_ROOM: Final = Condition(
    "SL-0407",
    "no room, refusing",
    "see whether the disk and the followers keep up: streamlog_fsync_duration_seconds, ISR, lag",
    meaning="Too many bytes wait to be committed. Publishers get an error and may publish again.",
)

WRITE_BUFFER_BYTES_MAX = 4 * 1024 * 1024
"""Acks that NATS has not taken yet. Above it we read nothing more."""
LINE_BYTES_MAX = 64 * 1024
NS_PER_MS: Final = 1_000_000
FRAME_OVERHEAD_BYTES = 64 * 1024
"""Of a frame beside the payload that the server allows: the control line, our own slack."""
DEFAULT_PAYLOAD_BYTES_MAX = 1024 * 1024


AroundRead = Callable[[], AbstractContextManager[None]]


class InFlightBytes:
    """At the limit NATS is read no further, for at most ``backpressure_timeout_ms``; then messages are refused."""

    def __init__(
        self, *, in_flight_bytes_max: int, backpressure_timeout_ms: int, metrics: NodeMetrics
    ) -> None:
        self.taken_bytes = 0
        """Handed to ``take`` and not yet given back; may pass the limit by one read."""
        self.refusing = False
        """A stall was not enough; ends when there is room again."""
        self._in_flight_bytes_max = in_flight_bytes_max
        self._stall_s_max = backpressure_timeout_ms / 1000
        self._metrics = metrics
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._empty = asyncio.Event()
        self._empty.set()
        metrics.in_flight_bytes.set_function(lambda: self.taken_bytes)

    def take(self, size_bytes: int) -> None:
        if not self.taken_bytes:
            self._empty.clear()
        self.taken_bytes += size_bytes
        if self.taken_bytes > self._in_flight_bytes_max:
            self._has_room.clear()

    def give_back(self, size_bytes: int) -> None:
        self.taken_bytes -= size_bytes
        if self.taken_bytes < 0:
            raise BrokenInvariant("what was given back had been taken")
        if not self.taken_bytes:
            self._empty.set()
        if self.taken_bytes <= self._in_flight_bytes_max and not self._has_room.is_set():
            self._has_room.set()
            if self.refusing:
                self.refusing = False
                logger.info("room again", extra={"in_flight_bytes": self.taken_bytes})

    @property
    def has_room(self) -> bool:
        """The next read may be made: there is room, or what has none is refused."""
        return self._has_room.is_set() or self.refusing

    async def wait(self) -> None:
        """Return when the next read may be made."""
        if self.has_room:
            return
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._stall_s_max):
                await self._has_room.wait()
        except TimeoutError:
            self.refusing = True
            logger.warning(NO_ROOM, extra={"in_flight_bytes": self.taken_bytes})
        finally:
            self._metrics.ingest_paused_seconds.inc(time.monotonic() - started)

    async def wait_empty(self, timeout_s: float) -> bool:
        """Nothing waits for a commit; False if that does not come in time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._empty.wait()
        except TimeoutError:
            return False


class ReplyWriter(Protocol):
    """Takes whole protocol lines; NATS, as far as answers go."""

    @property
    def write(self) -> Callable[[bytes], None]: ...


class PubAcks:
    """Gives acks and refusals. What goes over the link to NATS leaves in one write for each turn of the
    event loop; what goes through the router leaves at the end of the router's turn.
    """

    def __init__(
        self,
        link: ReplyWriter,
        metrics: NodeMetrics,
        router: Router,
        *,
        is_linked: bool = True,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        """``is_linked``: what is written to ``link`` comes to all who subscribe at NATS, this node included."""
        self._link = link
        self._is_linked = is_linked
        self._metrics = metrics
        self._router = router
        self._now_ms = now_ms
        self._waiting: list[bytes] = []

    def acknowledge(self, head: bytes, replies: Replies, base_offset: int) -> None:
        """Positive acks, ``head`` being that of the stream's."""
        packed, reply_count, enveloped = replies
        if not reply_count:
            return
        self._metrics.publish_acked.count += reply_count
        if enveloped:
            committed_ns = self._now_ms() * NS_PER_MS
            acks, packed = build_enveloped_acks(
                packed, head, base_offset, committed_ns, self._router
            )
            if acks:
                self._write(acks)
        if packed and (lines := self._router.acknowledge(packed, head, base_offset)):
            self._write(lines)

    def acknowledge_one(self, reply: bytes, answer: bytes, offset: int) -> None:
        """A positive ack that is not like the others: of a duplicate, or a batch."""
        if reply:
            self._answer(reply, answer, self._stored(offset))
            self._metrics.publish_acked.inc()

    def tell(self, reply: bytes, payload: bytes) -> None:
        """Neither an ack nor a refusal: part of a batch has come. An envelope's inbox gets none."""
        if is_address(reply):
            reply = unpack(reply).reply
        if reply:
            self._send(reply, payload)

    def advise(self, subject: bytes, payload: bytes) -> None:
        """An advisory, for subscribers on either side."""
        if self._is_linked:
            self._router.tell_clients(subject, payload)
            self._write(publication(subject, payload))
        else:
            self._router.publish(subject, payload)

    def refuse(self, stream: str, replies: Replies, count: int, refusal: PublishRefusal) -> None:
        """One refusal for all ``replies``; ``count`` messages are refused, asking or not."""
        self._metrics.publish_rejected.labels(refusal.reason).inc(count)
        packed, reply_count, enveloped = replies
        json = _payload(stream, refusal)
        if reply_count and enveloped:
            packed, addresses = parted(packed)
            rest = envelope.refused(envelope_error(refusal))
            for _, address in addresses:
                for reply, payload in address.answers(json, rest):
                    self._send(reply, payload)
        if packed and (lines := self._router.respond(packed, json)):
            self._write(lines)

    def refuse_one(self, stream: str, reply: bytes, refusal: PublishRefusal) -> None:
        self._metrics.publish_rejected.labels(refusal.reason).inc()
        if reply:
            rest = envelope.refused(envelope_error(refusal))
            self._answer(reply, _payload(stream, refusal), rest)

    def _answer(self, reply: bytes, json: bytes, rest: bytes) -> None:
        """``rest``: the end of the Ack, where the message came in an envelope."""
        if is_address(reply):
            for subject, payload in unpack(reply).answers(json, rest):
                self._send(subject, payload)
        else:
            self._send(reply, json)

    def _stored(self, offset: int) -> bytes:
        return envelope.stored(offset, self._now_ms() * NS_PER_MS)

    def _send(self, reply: bytes, payload: bytes) -> None:
        if reply.startswith(ROUTED):
            self._router.reply(reply[len(ROUTED) :], payload)
        else:
            self._write(publication(reply, payload))

    def _write(self, lines: bytes) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(lines)

    def flush(self) -> None:
        """Write what waits for the link."""
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._link.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))


def _payload(stream: str, refusal: PublishRefusal) -> bytes:
    return error_json(refusal.code, refusal.err_code, refusal.description, stream)


class SocketReader(asyncio.BufferedProtocol):
    """Reads from NATS straight into one buffer: no stream, and no copy, between socket and parser.

    It takes a connection over from the stream that its handshake was read with. Writing stays with
    the stream's protocol, which is told of everything that concerns it.

    A subclass takes a read in ``buffer_updated``: the first bytes of ``_buffer``, which are the next
    read's once it returns, but none any more where ``_error`` is set. It may ``_pause``, or ``_end``
    the connection by an error.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        reader: asyncio.StreamReader,
        *,
        buffer_bytes: int,
    ) -> None:
        self._transport = transport
        self._reader = reader
        self._buffer = memoryview(bytearray(buffer_bytes))
        self._writing = transport.get_protocol()
        self._error: Exception | None = None
        """Why nothing more will come."""
        self._paused = asyncio.Event()
        """Nothing is read: ``buffer_updated`` asked for it, or there is nothing more to read."""

    def start(self) -> None:
        """Take what the stream has read too far, and everything after it. Raises OSError."""
        read_ahead: bytearray = self._reader._buffer  # type: ignore[attr-defined]
        ended = self._transport.is_closing() or self._reader._eof  # type: ignore[attr-defined]
        if not ended:
            self._transport.pause_reading()  # uvloop changes its way of reading only at a resume
            self._transport.set_protocol(self)
        while read_ahead:
            count = min(len(read_ahead), len(self._buffer))
            self._buffer[:count] = read_ahead[:count]
            del read_ahead[:count]
            self.buffer_updated(count)
        if ended:
            raise ConnectionResetError("NATS closed the connection")
        if not self._paused.is_set():
            self._read_on()

    async def wait_paused(self) -> None:
        """Return after a read has asked for a pause; raises what has ended the connection."""
        await self._paused.wait()
        if self._error is not None:
            raise self._error

    def resume(self) -> None:
        if self._error is None:
            self._paused.clear()
            self._read_on()

    def stop(self) -> None:
        """Take nothing more, whatever still comes."""
        self._end(ConnectionAbortedError("stopped"))

    # As a protocol

    def get_buffer(self, _size_hint: int) -> memoryview:
        return self._buffer

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

    def reader(self, client: "FrameClient", around_read: AroundRead | None) -> "IngestReader":
        """Once it is started, it takes every read. The handshake must be over."""
        assert self._io_writer is not None and self._io_reader is not None, "connected"
        transport = cast(asyncio.Transport, self._io_writer.transport)  # uvloop's is one in kind
        return (IngestReader if around_read is None else TracedReader)(
            transport, self._io_reader, client, buffer_bytes=self._read_buffer_bytes
        )

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

    def __init__(self, client: "FrameClient") -> None:
        self._client = client

    def reset(self) -> None:
        self._client.renew_parser()


class FrameClient(NatsClient):
    """nats-py's client with our parser and our reader; a subclass takes what they bring."""

    around_read: AroundRead | None = None

    def __init__(self, access: NatsOptions, *, read_buffer_bytes: int) -> None:
        super().__init__(access)
        self._read_buffer_bytes = read_buffer_bytes
        self._ps = _ParserSlot(self)  # type: ignore[assignment]
        self.controls: list[tuple[str, bytes]] = []
        """What the server said beside messages, not yet acted on."""
        self.renew_parser()

    # For a subclass

    def _new_parser(self, frame_bytes_max: int) -> FrameParser:
        raise NotImplementedError

    def take(self, data: memoryview) -> None:
        """Parse one read, and take what it brought."""
        raise NotImplementedError

    @property
    def has_room(self) -> bool:
        """The next read may be made without ``wait_room``."""
        raise NotImplementedError

    async def wait_room(self) -> None:
        """Return when the next read may be made."""
        raise NotImplementedError

    # For all

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
        self.controls.clear()
        payload_bytes_max = self._server_info.get("max_payload", DEFAULT_PAYLOAD_BYTES_MAX)
        self.parser = self._new_parser(payload_bytes_max + FRAME_OVERHEAD_BYTES)

    def _new_transport(self) -> IngestTransport:
        return IngestTransport(self._read_buffer_bytes)

    async def _process_connect_init(self) -> None:
        self._give_up_pongs()
        await super()._process_connect_init()

    async def _process_op_err(self, e: Exception) -> None:
        self._give_up_pongs()
        await super()._process_op_err(e)

    def _give_up_pongs(self) -> None:
        """They were to come by a connection that has ended."""
        for pong in self._pongs:
            if not pong.done():
                pong.set_result(False)

    async def _connected(self) -> None:
        # The new read task has not run yet, so nothing comes before the parser is ready for it.
        self.renew_parser()

    async def _read_loop(self) -> None:
        transport = self._transport
        assert isinstance(transport, IngestTransport), "connected"
        intake = transport.reader(self, self.around_read)
        try:
            intake.start()
            while transport is self._transport and not (self.is_closed or self.is_reconnecting):
                await intake.wait_paused()
                await self._process_controls()
                await self.wait_room()
                await transport.drain_if_full()
                intake.resume()
        except (OSError, ProtocolViolation, nats.errors.Error) as error:
            await self._process_controls()  # its last words may say why
            await self._process_op_err(error)
        except Exception as error:
            logger.exception(FAULT.logged_as("reading from NATS failed"))
            await self._process_op_err(error)
        finally:
            intake.stop()

    async def _process_controls(self) -> None:
        controls, self.controls = self.controls, []
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
            if not pong.done():  # else the waiter has given up
                pong.set_result(True)
        self._pings_outstanding = 0


class IngestClient(FrameClient):
    """One connection for all streams; its subscriptions outlive it."""

    def __init__(
        self,
        access: NatsOptions,
        subscriptions: Subscriptions,
        *,
        in_flight: InFlightBytes,
        connected: Callable[[], None],
        read_buffer_bytes: int,
        around_read: AroundRead | None = None,
    ) -> None:
        """``connected`` is called when the connection is there, or there again."""
        self.around_read = around_read
        self.in_flight = in_flight
        self._told_connected = connected
        self._subscriptions = subscriptions
        super().__init__(access, read_buffer_bytes=read_buffer_bytes)

    def forget(self, sids: Iterable[int]) -> None:
        """Drop what still comes for them, which ended before."""
        for sid in sids:
            self.parser.unbind(sid)

    def take(self, data: memoryview) -> None:
        """Append what a read brings: one batch for each partition in it."""
        for collector in self.parser.feed(data):
            collector.owner.take()

    @property
    def has_room(self) -> bool:
        return self.in_flight.has_room

    async def wait_room(self) -> None:
        await self.in_flight.wait()

    def _new_parser(self, frame_bytes_max: int) -> FrameParser:
        parser = FrameParser(frame_bytes_max=frame_bytes_max)
        self._subscriptions.bind(parser, self._subscriptions.sids())
        return parser

    async def _connected(self) -> None:
        await super()._connected()
        self.write(self._subscriptions.commands(self._subscriptions.sids()))
        self._told_connected()


class IngestReader(SocketReader):
    """The reads of a ``FrameClient``'s connection."""

    def __init__(
        self,
        transport: asyncio.Transport,
        reader: asyncio.StreamReader,
        client: FrameClient,
        *,
        buffer_bytes: int,
    ) -> None:
        super().__init__(transport, reader, buffer_bytes=buffer_bytes)
        self._client = client

    def buffer_updated(self, count: int) -> None:
        """Parse a read, and have the client take what it brought. Pause if something is to be waited
        for before the next read: backpressure.
        """
        if self._error is not None:
            return
        client = self._client
        try:
            client.take(self._buffer[:count])
            client.controls += client.parser.take_controls()
        except Exception as error:  # for ``wait_paused``, not for the event loop
            self._end(error)
            return
        unwritten = self._transport.get_write_buffer_size() > WRITE_BUFFER_BYTES_MAX
        if client.controls or unwritten or not client.has_room:
            self._pause()


class TracedReader(IngestReader):
    """On a node that traces batches from their read on."""

    def buffer_updated(self, count: int) -> None:
        assert self._client.around_read is not None
        with self._client.around_read():
            super().buffer_updated(count)


def _json(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
