"""The connection that requests come by and answers leave by; and its latency.

nats-py connects. Messages are parsed by our parser and handed on within the read that brings them, and
all answers of a turn of the event loop leave in one write: a task, a queue and a write for each
message took most of a request's time.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import nats.errors
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from streamlog.authn.session import Session
from streamlog.condition import FAULT, Condition
from streamlog.errors import BrokenInvariant
from streamlog.ingest.frames import FrameParser
from streamlog.ingest.nats.client import SUBJECTS_BYTES_MAX
from streamlog.ingest.nats.connection import (
    WRITE_BUFFER_BYTES_MAX,
    FrameClient,
    IngestTransport,
)
from streamlog.ingest.nats.options import NatsOptions
from streamlog.nats.router import Callback, Endpoint, Router
from streamlog.nats.router import Subscription as RoutedSubscription

logger = logging.getLogger(__name__)

REPLY_NOT_UTF8: Final = Condition(
    "SL-0502",
    "a request's reply subject is not UTF-8",
    "correct the client that asks so",
    meaning="The answer to a request of the management API has nowhere to go.",
)

READ_BUFFER_BYTES: Final = 64 * 1024
SPACES: Final = b" \t\n\v\f\r\x1c\x1d\x1e\x1f"
"""What ``str.isspace`` knows of ASCII: nats-py refuses a header's name that holds one of them."""


class Answering(Protocol):
    """Takes the answers to the requests that came by it."""

    @property
    def max_payload(self) -> int:
        """Of an answer, its headers included."""

    async def answer(self, reply: str, payload: bytes, block: bytes = b"") -> None:
        """Publish an answer, whose headers are ``block``, from ``NATS/1.0`` to the empty line.

        Waits where NATS takes nothing. Raises nats.errors.Error.
        """


class Request:
    """A message that wants an answer; its headers are parsed when they are first asked for."""

    __slots__ = ("_block", "_headers", "connection", "data", "reply", "session", "subject")

    def __init__(
        self,
        subject: str,
        reply: str,
        data: bytes,
        block: bytes = b"",
        *,
        connection: "Answering",
        session: Session | None = None,
    ) -> None:
        """``connection``: by which it came; ``session``: of the client, where that has logged in."""
        self.subject = subject
        self.reply = reply
        self.data = data
        self.connection = connection
        self.session = session
        self._block = block
        self._headers: dict[str, str] | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Of repeated ones the last; what is no header is left out."""
        if self._headers is None:
            self._headers = headers_of(self._block) if self._block else {}
        return self._headers


def headers_of(block: bytes) -> dict[str, str]:
    """Of a header block, whose first line is no header."""
    found: dict[str, str] = {}
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        key = name.strip()
        if colon and key.isascii() and not any(byte in SPACES for byte in key):
            found[key.decode()] = value.strip().decode(errors="replace")
    return found


Take = Callable[[Request], None]


class AdminConnection(FrameClient):
    """Neither a subject need be UTF-8 nor headers be any; nats-py would end its reading for good."""

    def __init__(self, access: NatsOptions) -> None:
        self._takers: dict[int, Take] = {}
        """By sid; nothing else is listened to."""
        self._answers: list[bytes] = []
        """They leave at the end of this turn of the event loop."""
        self._answers_bytes = 0
        super().__init__(access, read_buffer_bytes=READ_BUFFER_BYTES)

    async def listen(self, subject: str, take: Take, *, queue: str = "") -> Subscription:
        """Hand each message with a reply subject to ``take``, within the read that brings it."""
        sid = self._sid + 1  # nats-py takes it before it waits for anything
        self._takers[sid] = take
        try:
            subscription = await self.subscribe(subject, queue=queue, cb=_nothing)
        except BaseException:
            del self._takers[sid]
            raise
        if subscription._id != sid:
            raise BrokenInvariant("nats-py numbers subscriptions in turn")
        return subscription

    def stop_listening(self, subscription: Subscription) -> None:
        """At once; what still comes is dropped."""
        self._takers.pop(subscription._id, None)
        self._remove_sub(subscription._id)

    async def answer(self, reply: str, payload: bytes, block: bytes = b"") -> None:
        if not self.is_connected:
            if block:
                raise nats.errors.ConnectionReconnectingError
            await self.publish(reply, payload)  # nats-py keeps it until it is connected again
            return
        subject, size_bytes = reply.encode(), len(block) + len(payload)
        if size_bytes > self.max_payload:
            raise nats.errors.MaxPayloadError  # the server would end the connection
        if len(subject) > SUBJECTS_BYTES_MAX or len(subject.split()) != 1:
            raise nats.errors.BadSubjectError
        if block:
            head = b"HPUB %b %d %d\r\n" % (subject, len(block), size_bytes)
            self._post(b"%b%b%b\r\n" % (head, block, payload))
        else:
            self._post(b"PUB %b %d\r\n%b\r\n" % (subject, size_bytes, payload))
        if self._answers_bytes > WRITE_BUFFER_BYTES_MAX:
            self.flush_answers()
        transport = self._transport
        if isinstance(transport, IngestTransport) and transport.is_full:
            await transport.drain_if_full()

    def _post(self, data: bytes) -> None:
        if not self._answers:
            asyncio.get_running_loop().call_soon(self.flush_answers)
        self._answers.append(data)
        self._answers_bytes += len(data)

    def flush_answers(self) -> None:
        """Write those that wait for the end of this turn."""
        answers, self._answers, self._answers_bytes = self._answers, [], 0
        if answers:
            self.write(answers[0] if len(answers) == 1 else b"".join(answers))

    # As a ``FrameClient``

    def _new_parser(self, frame_bytes_max: int) -> FrameParser:
        return FrameParser(frame_bytes_max=frame_bytes_max, whole=True)

    def take(self, data: memoryview) -> None:
        self.parser.feed(data)
        for sid, subject, reply, block, payload in self.parser.take_messages():
            taker = self._takers.get(sid)
            if taker is not None and reply:
                self._hand_on(taker, subject, reply, block, payload)

    def _hand_on(
        self, taker: Take, subject: bytes, reply: bytes, block: bytes, payload: bytes
    ) -> None:
        """A name that is not UTF-8 is no stream's; no client can be answered at such a reply."""
        try:
            text = reply.decode()
        except UnicodeDecodeError:
            logger.warning(REPLY_NOT_UTF8, extra={"reply": repr(reply)})
            return
        name = subject.decode(errors="surrogateescape")
        taker(Request(name, text, payload, block, connection=self))

    @property
    def has_room(self) -> bool:
        """What there is no room for is refused, not left with NATS."""
        return True

    async def wait_room(self) -> None:
        pass


class RouterConnection:
    """The management API's place at the node's router: requests of the clients of its NATS port."""

    def __init__(self, router: Router, *, payload_bytes_max: int) -> None:
        self.max_payload = payload_bytes_max
        self._router = router
        self._endpoint = Callback(router, failed=_failed)

    def listen(self, subject: str, take: Take, *, queue: str) -> RoutedSubscription:
        """Hand each message with a reply subject to ``take``, within the turn that brings it."""

        def taken(subject: bytes, reply: bytes, block: bytes, payload: bytes) -> None:
            if not reply:
                return
            try:
                text = reply.decode()
            except UnicodeDecodeError:
                logger.warning(REPLY_NOT_UTF8, extra={"reply": repr(reply)})
                return
            name = subject.decode(errors="surrogateescape")
            session = session_of(self._router.source)
            take(Request(name, text, payload, block, connection=self, session=session))

        subscription = RoutedSubscription(
            self._endpoint, subject.encode(), queue=queue.encode(), target=taken
        )
        self._router.add(subscription)
        return subscription

    def stop_listening(self, subscription: RoutedSubscription) -> None:
        self._router.remove(subscription)

    async def answer(self, reply: str, payload: bytes, block: bytes = b"") -> None:
        self._check(payload, block)
        self._router.reply(reply.encode(), payload, block=block)

    def publish(
        self, subject: str, payload: bytes, block: bytes = b"", *, clients_only: bool = False
    ) -> None:
        """To subscribers; ``clients_only``: to those of this node's port. Raises nats.errors.MaxPayloadError."""
        self._check(payload, block)
        publish = self._router.tell_clients if clients_only else self._router.publish
        publish(subject.encode(), payload, block=block)

    def _check(self, payload: bytes, block: bytes) -> None:
        if len(block) + len(payload) > self.max_payload:
            raise nats.errors.MaxPayloadError


def session_of(source: Endpoint | None) -> Session | None:
    """Of the client that has published; None: it need not log in, or it is none."""
    login = getattr(getattr(source, "session", None), "login", None)
    session: Session | None = getattr(login, "session", None)
    return session


def block_of(headers: Mapping[str, str]) -> bytes:
    """A header block. Raises nats.errors.BadHeaderError for what no line can hold."""
    lines = ["NATS/1.0"]
    for name, value in headers.items():
        if not name or any(char in name for char in ": \r\n") or any(c in value for c in "\r\n"):
            raise nats.errors.BadHeaderError
        lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _failed(error: Exception) -> None:
    logger.error(FAULT.logged_as("a management request was not taken"), exc_info=error)


async def _nothing(_: Msg) -> None:
    """Messages of ``listen`` do not come to nats-py."""


HANGS_S: Final = 5.0
"""One answer that is missing for so long counts by itself."""


class NatsLatency:
    """``asked`` and ``answered`` in turn; ``lost`` with the connection."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._asked_s: float | None = None
        self._last_s = self._before_s = 0.0

    def asked(self) -> None:
        self._asked_s = self._now_s()

    def answered(self) -> None:
        if self._asked_s is not None:
            self._before_s, self._last_s = self._last_s, self._now_s() - self._asked_s
            self._asked_s = None

    def lost(self) -> None:
        """Nothing is known of the next connection."""
        self._asked_s = None
        self._last_s = self._before_s = 0.0

    @property
    def seconds(self) -> float:
        """Of the last two answers the sooner, so that one that was late does not count. An answer
        that is awaited counts for as long as it has been missing.
        """
        pending_s = 0.0 if self._asked_s is None else self._now_s() - self._asked_s
        of_two_s = min(max(pending_s, self._before_s), self._last_s)
        return max(of_two_s, pending_s) if pending_s >= HANGS_S else of_two_s
