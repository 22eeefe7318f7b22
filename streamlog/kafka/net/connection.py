import asyncio
import errno
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from streamlog.condition import FAULT, Condition
from streamlog.errors import (
    AuthenticationFailed,
    LoginRequired,
    MalformedFrame,
    ProtocolViolation,
    TlsFailed,
)
from streamlog.kafka import dispatch
from streamlog.kafka.auth.peer import Peer
from streamlog.kafka.context import Context
from streamlog.kafka.handlers.produce import (
    DelayedProduce,
    DelayedSingleProduce,
    ProduceTargets,
    until_due,
)
from streamlog.kafka.net.channel import (
    FILLED,
    ChannelEnded,
    ChannelIdle,
    ChannelStuck,
    RequestWait,
    SliceTruncated,
    SocketChannel,
)
from streamlog.kafka.net.request_memory import (
    ELEMENT_BYTES,
    SMALL_BYTES,
    RequestMemory,
    RequestMemoryFull,
)
from streamlog.kafka.net.response import Response
from streamlog.kafka.net.unauthenticated_limit import HandshakeTimedOut
from streamlog.partition.page_cache import read_warm
from streamlog.tls.errors import OUR_CERTIFICATE_REFUSED, is_of_our_certificate
from streamlog.wire.cursor import WEIGHED_AT_ONCE
from streamlog.wire.framing import LENGTH_BYTES, FrameSplitter

logger = logging.getLogger(__name__)

CONNECTION_CLOSED: Final = Condition(
    "SL-0611",
    "connection closed",
    "see what that client sends: it, its version or settings, is at fault",
    meaning="The node closed a connection: what the client sent is wrong or too large, TLS "
    "failed, or a limit was reached. The line has the reason.",
)

_PEER_IS_GONE: Final = {
    errno.ECONNRESET,
    errno.EPIPE,
    errno.ECONNABORTED,
    errno.ENOTCONN,
    errno.ESHUTDOWN,
    errno.ETIMEDOUT,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ENETDOWN,
    errno.ENETRESET,
}
"""Other errors of the system may come from the disk, on the other side of sendfile."""
_CLOSED_FOR: Final[dict[type[Exception], str]] = {
    LoginRequired: "login",
    AuthenticationFailed: "login",
    TlsFailed: "tls",
    ProtocolViolation: "protocol",
    RequestMemoryFull: "memory",
    ChannelStuck: "slow",
    HandshakeTimedOut: "unauthenticated",
    ChannelIdle: "idle",
    SliceTruncated: "truncated",
}
"""What ends a connection, and how that is called; the first that fits counts."""
COPY_BYTES_MAX: Final = 4 * 1024
WRITE_BYTES: Final = 64 * 1024
PART_S: Final = 2.0
"""How long a client whose login has failed may take to close the connection itself."""
SINGLE_BYTES_MAX: Final = 1024 * 1024
"""Of a Produce for one partition that is looked at at once: a few tenths of a millisecond."""
_KEY_END: Final = LENGTH_BYTES + len(dispatch.PRODUCE_KEY)
LATE_MAX: Final = 256
"""Answers that may be late at once; then the oldest is waited for before anything else is read."""


class ClientConnection:
    """One client: its frames in, their answers out, in order and one at a time.

    What producers send is taken in while earlier answers to them still wait for a commit; any other
    request waits for its turn.
    """

    def __init__(
        self,
        channel: SocketChannel,
        peer: str,
        context: Context,
        readers: Executor,
        *,
        room: RequestMemory | None = None,
        settled: Callable[[], None] = lambda: None,
        tell: Callable[[dict[str, object]], None] | None = None,
    ) -> None:
        """``settled`` is called when the peer has said who it is, and what it wants first.

        ``room``: for requests that are not answered yet, shared with other connections. ``tell``
        logs why this node has closed it.
        """
        self._channel = channel
        self._settled = settled
        self._tell = tell or _tell
        self._peer = peer
        self._context = context
        self._asking = Peer(context, peer.rpartition(":")[0])
        room = room or RequestMemory(context.settings.queued_request_bytes_max)
        self._seat = room.seat(self._asking.answerable, self._make_room)
        self._readers = readers
        self._sent = context.metrics.fetch_bytes[channel.path]
        self._copied = context.metrics.fetch_bytes["copy"]
        self._frames = FrameSplitter(context.settings.request_bytes_max)
        self._poll: RequestWait | None = None  # of the request being answered
        # In the order of their requests.
        self._late: deque[DelayedProduce | DelayedSingleProduce] = deque()
        self._unsent = b""
        """Of an answer that the socket did not take whole; it goes before all others."""
        self._targets = ProduceTargets()
        self._sending_late = False
        self._stopping = False
        self._muted_until_s: float | None = None  # loop time; the client has used too much

    def stop(self) -> None:
        """Ends after the answers being given, which wait no longer; at once if there is none."""
        self._stopping = True
        for late in tuple(self._late):
            late.end()
        if self._poll is not None:
            self._poll.end()
        elif self._late or self._unsent or self._sending_late:
            self._channel.wake()
        else:
            self._channel.end()

    async def run(self) -> None:
        """Until the peer or ``stop`` ends it. Whatever goes wrong ends only this connection."""
        try:
            await self._open()
            await self._serve()
        except tuple(_CLOSED_FOR) as error:
            if isinstance(error, ProtocolViolation):
                self._context.metrics.protocol_errors.inc()
            why = next(why for kind, why in _CLOSED_FOR.items() if isinstance(error, kind))
            self._log_closed(why, error)
        except ChannelEnded:
            logger.debug("connection ended", extra={"peer": self._peer})
        except Exception as error:
            if isinstance(error, ConnectionError) or (
                isinstance(error, OSError) and error.errno in _PEER_IS_GONE
            ):
                logger.debug("connection ended", extra={"peer": self._peer})
            else:
                logger.exception(FAULT.logged_as("request failed"), extra={"peer": self._peer})
                self._log_closed("failure", error)
        finally:
            for late in self._late:
                late.end()
            self._seat.leave()
            self._asking.leave()
            self._channel.close()

    async def _open(self) -> None:
        """Until the peer has said who they are, where that is asked, and what they want first.

        Raises TlsFailed, AuthenticationFailed.
        """
        await self._channel.open()
        self._asking.is_encrypted = self._channel.is_encrypted
        self._sent = self._context.metrics.fetch_bytes[self._channel.path]
        if self._channel.peer_subject is not None:
            self._asking.show(self._channel.peer_subject)
            self._seat.move(self._asking.answerable)
        settings, may_ask = self._context.settings, self._asking.is_let_in
        if not may_ask:
            most = min(settings.request_bytes_max, settings.unauthenticated_request_bytes_max)
            self._frames.request_bytes_max = most
        while not self._stopping:
            request = self._frames.next_frame()
            if request is None:
                if self._seat.held != self._frames.buffered:
                    self._seat.hold(self._frames.buffered)
                data = await self._channel.receive()
                if not data:
                    return
                self._frames.feed(data)
                continue
            if may_ask:
                self._settled()
            await self._answer(request)
            if self._asking.is_let_in:
                self._settled()
                self._seat.move(self._asking.answerable)
                self._frames.request_bytes_max = settings.request_bytes_max
                return

    async def _serve(self) -> None:
        while not self._stopping:
            if self._late or self._unsent:
                await self._send_due()
                if len(self._late) >= LATE_MAX:
                    await until_due(self._late[0])
                    continue
            if self._muted_until_s is not None:
                await self._rest(self._muted_until_s)
                continue
            request = self._frames.next_frame()
            if request is None:
                held = self._frames.buffered
                if self._frames.partial is not None:
                    held += self._frames.awaited_bytes
                if self._seat.held != held:
                    self._seat.hold(held)
                data = await self._channel.receive(
                    self._something_is_due, self._taken_at_once, self._frames
                )
                if data is None or data is FILLED:
                    continue
                if not data:
                    break
                self._frames.feed(data)
                continue
            if request[:2] != dispatch.PRODUCE_KEY or not self._produced(request):
                await self._answer(request)
            if self._frames.buffered:
                await asyncio.sleep(0)  # a client with many requests on the way is not alone
        if self._stopping:
            await self._drain_late()
        if self._frames.buffered and not self._stopping:
            raise MalformedFrame(f"the peer left after {self._frames.buffered} bytes of a frame")

    def _taken_at_once(self, data: bytes) -> bool:
        """It is one Produce request, and is dealt with outside a turn of this connection: most of what a record takes
        that is sent alone would be to give it one. Raises LoginRequired.
        """
        if data[LENGTH_BYTES:_KEY_END] != dispatch.PRODUCE_KEY or self._frames.buffered:
            return False
        if self._stopping or len(self._late) >= LATE_MAX:
            return False
        request = self._frames.whole(data)
        if request is None or not self._produced(request):
            return False
        if self._late[0].is_due:
            self._answer_due()
        return True

    def _produced(self, request: bytes) -> bool:
        """The request is a Produce for one partition, and is dealt with but for its answer."""
        if len(request) > SINGLE_BYTES_MAX:
            return False
        answer = dispatch.produce_single(request, self._asking, self._targets)
        if answer is None:
            return False
        answer.wake = self._answer_due
        self._late.append(answer)
        return True

    def _answer_due(self) -> None:
        """An answer that came late, outside a turn of this connection. One that is alone is sent at once: a turn later
        would be a fifth of what a synced record takes. Others go together.
        """
        late = self._late
        if len(late) == 1 and late[0].is_due and not self._unsent and self._channel.is_receiving:
            frame = late.popleft().frame()
            self._unsent = frame[self._channel.send_at_once(frame) :]
            if not self._unsent:
                return
        self._channel.wake()

    async def _answer(self, request: bytes) -> None:
        buffered = self._frames.buffered
        if self._seat.held or buffered or len(request) > SMALL_BYTES:
            self._seat.hold(buffered + len(request))
        self._poll = poll = RequestWait(self._channel, is_followed=buffered > 0)
        try:
            if (self._late or self._unsent) and not dispatch.is_produce(request):
                await self._drain_late()
            answer = await dispatch.answer(
                request, self._asking, poll, self._readers, weigh=self._weigher(len(request))
            )
            if isinstance(answer, Response):
                try:
                    await self._send(answer)
                finally:
                    answer.close()
            elif answer is not None:
                answer.wake = self._channel.wake
                self._late.append(answer)
            if isinstance(answer, Response) and answer.is_last:
                await self._part()
                raise AuthenticationFailed("the login has failed")
            if answer is not None and answer.throttle_ms:
                now_s = asyncio.get_running_loop().time()
                self._muted_until_s = now_s + answer.throttle_ms / 1000
        finally:
            self._poll = None
        if self._seat.held:
            self._seat.hold(buffered)

    def _weigher(self, size_bytes: int) -> Callable[[int], None] | None:
        """Counts what a request becomes when it is read; None for one that cannot become much, and
        for nodes: all of them are one principal, and what they fetch is what there is.
        """
        if size_bytes < WEIGHED_AT_ONCE or self._asking.context.session.is_node:
            return None

        def weigh(elements: int) -> None:
            self._seat.hold(self._frames.buffered + size_bytes + elements * ELEMENT_BYTES)

        return weigh

    async def _part(self) -> None:
        """The client may close first: some do not look at an answer that the end comes with."""
        if self._stopping:
            return
        # A wait of its own: the request's ended when the delayed answer was due.
        self._poll = poll = RequestWait(self._channel)
        timer = asyncio.get_running_loop().call_later(PART_S, poll.end)
        try:
            while not poll.ended:
                await poll.wait()
        finally:
            timer.cancel()

    async def _rest(self, until_s: float) -> None:
        """What has been answered late is still sent; nothing is read (KIP-219)."""
        await self._channel.rest_unless(self._something_is_due, until_s)
        if asyncio.get_running_loop().time() >= until_s:
            self._muted_until_s = None

    def _something_is_due(self) -> bool:
        return self._stopping or bool(self._unsent) or (bool(self._late) and self._late[0].is_due)

    async def _send_due(self) -> None:
        """The late answers that have come, as far as none before them is missing; in one write."""
        out, self._unsent = bytearray(self._unsent), b""
        while self._late and self._late[0].is_due:
            out += self._late.popleft().frame()
        if out:
            self._sending_late = True
            try:
                await self._channel.send(out)
            finally:
                self._sending_late = False

    async def _drain_late(self) -> None:
        """All of them."""
        if self._unsent:
            await self._send_due()
        while self._late:
            if self._stopping:
                self._late[0].end()
            await until_due(self._late[0])
            await self._send_due()

    async def _send(self, answer: Response) -> None:
        """By sendfile, except small slices, which cost less in a write with what is around them."""
        out = bytearray()
        for piece, records in zip(answer.pieces, answer.slices, strict=False):
            out += piece
            length = len(records)
            if length <= COPY_BYTES_MAX and (copy := read_warm(records)) is not None:
                out += copy
                self._copied.inc(length)
            else:
                await self._channel.send(out, more=True)
                out = bytearray()
                await self._channel.send_slice(records, self._readers)
                self._sent.inc(length)
            if len(out) > WRITE_BYTES:
                await self._channel.send(out, more=True)
                out = bytearray()
        await self._channel.send(out + answer.pieces[-1])

    def _make_room(self, reason: Exception) -> None:
        """For others; what is being answered need not wait any longer."""
        self._channel.end(reason)
        if self._poll is not None:
            self._poll.end()

    def _log_closed(self, reason: str, error: Exception) -> None:
        self._context.metrics.connections_closed.labels(reason).inc()
        closed: dict[str, object] = {"peer": self._peer, "reason": reason, "problem": str(error)}
        if isinstance(error, TlsFailed) and is_of_our_certificate(str(error)):
            closed["code"] = OUR_CERTIFICATE_REFUSED.code
            closed["remedy"] = OUR_CERTIFICATE_REFUSED.remedy
        self._tell(closed)


def _tell(closed: dict[str, object]) -> None:
    logger.warning(CONNECTION_CLOSED, extra=closed)
