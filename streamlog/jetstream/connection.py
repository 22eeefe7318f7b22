"""The connections that requests come by and answers leave by; and the latency of NATS.

Requests are handed on within the turn of the event loop that brings them, and all answers of a turn leave in one
write: a task, a queue and a write for each message took most of a request's time.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import nats.errors

from streamlog.authn.session import Session
from streamlog.condition import FAULT, Condition
from streamlog.ingest.nats.options import NatsOptions
from streamlog.ingest.nats.server_link import SUBJECTS_BYTES_MAX, ServerLink
from streamlog.ingest.nats.subscription_list import Subscriptions
from streamlog.jetstream.direct_get.direct_get import no_responders
from streamlog.nats.domain import bucket_subject
from streamlog.nats.router import Callback, Endpoint, Router, Subscription
from streamlog.nats.sockets import Sockets

logger = logging.getLogger(__name__)

REPLY_NOT_UTF8: Final = Condition(
    "SL-0502",
    "a request's reply subject is not UTF-8",
    "correct the client that asks so",
    meaning="The answer to a request of the management API has nowhere to go.",
)

KEPT_BYTES_MAX: Final = 2 * 1024 * 1024
"""Of answers that wait for a connection."""
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

    async def send(
        self, subject: str, payload: bytes, *, reply: str = "", block: bytes = b""
    ) -> None:
        """Publish to the client. Raises nats.errors.Error."""

    def hear(self, subject: str, taken: "Taken") -> Callable[[], None]:
        """Hand each message to ``taken``, with or without a reply subject, until what this returns is called."""

    def interest(self, subject: str) -> int | None:
        """How many subscriptions match; None: that is not known."""

    def is_subscribed(self, subject: str) -> bool:
        """Whether a client of this node has a subscription to just this subject, without wildcards."""


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
Taken = Callable[[bytes, bytes, bytes, bytes], None]
"""Of a message: subject, reply, block of headers, payload."""


class AdminConnection:
    """The management API's connection to the nats-servers that the node is a client of: ``run`` until ``close``.

    Neither a subject need be UTF-8 nor headers be any. What there is no room for is refused, not left with NATS.
    """

    def __init__(
        self,
        options: NatsOptions,
        router: Router,
        sockets: Sockets,
        *,
        name: str,
        connected: Callable[[], None],
        disconnected: Callable[[Exception | None], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._told_connected = connected
        self._endpoint = Callback(router, failed=_failed)
        self._subscriptions = Subscriptions()
        self._kept: list[bytes] = []
        """Answers that wait for a connection."""
        self._kept_bytes = 0
        self._link = ServerLink(
            options,
            router,
            sockets,
            self._subscriptions,
            name=name,
            heeds_room=False,
            connected=self._connected,
            disconnected=disconnected,
            failed=failed,
        )

    @property
    def is_connected(self) -> bool:
        return self._link.is_connected

    @property
    def max_payload(self) -> int:
        return self._link.max_payload

    async def run(self) -> None:
        """Be connected until ``close``; wait for a NATS that is not there."""
        await self._link.run()

    def close(self) -> None:
        self._link.close()

    async def round_trip(self, timeout_s: float) -> bool:
        """All that was said is at the server, and all that it had sent before is received."""
        return await self._link.round_trip(timeout_s)

    def listen(self, subject: str, take: Take, *, queue: str = "") -> int:
        """Hand each message with a reply subject to ``take``, within the turn that brings it; whenever the
        server is there. Returns what ends it.
        """
        subscription = Subscription(
            self._endpoint,
            subject.encode(),
            queue=queue.encode(),
            target=_handed(take, self),
        )
        sid = self._subscriptions.add(subscription)
        self._link.subscribe([sid])
        return sid

    async def stop_listening(self, sid: int, timeout_s: float) -> None:
        """No more is wanted; what is here already is handed on, so that no client waits in vain."""
        self._subscriptions.remove(sid)
        self._link.unsubscribe([sid])
        await self._link.round_trip(timeout_s)
        self._link.forget([sid])

    async def answer(self, reply: str, payload: bytes, block: bytes = b"") -> None:
        lines = self._publication(reply, payload, block)
        if self.is_connected:
            await self._write(lines)
        elif block:
            raise nats.errors.ConnectionReconnectingError
        elif self._kept_bytes + len(lines) > KEPT_BYTES_MAX:
            raise nats.errors.OutboundBufferLimitError
        else:
            self._kept.append(lines)
            self._kept_bytes += len(lines)

    async def publish(self, subject: str, payload: bytes, block: bytes = b"") -> None:
        """Waits where NATS takes nothing. Raises nats.errors.Error."""
        if not self.is_connected:
            raise nats.errors.ConnectionReconnectingError
        await self._write(self._publication(subject, payload, block))

    async def send(
        self, subject: str, payload: bytes, *, reply: str = "", block: bytes = b""
    ) -> None:
        if not self.is_connected:
            raise nats.errors.ConnectionReconnectingError
        await self._write(self._publication(subject, payload, block, reply))

    def hear(self, subject: str, taken: Taken) -> Callable[[], None]:
        return self._link.hear(Subscription(self._endpoint, subject.encode(), target=taken))

    def interest(self, _: str) -> int | None:
        return None

    def is_subscribed(self, _: str) -> bool:
        return False

    async def _write(self, lines: bytes) -> None:
        self._link.write(lines)
        if self._link.is_full:
            await self._link.wait_written()

    def _publication(self, subject: str, payload: bytes, block: bytes, reply: str = "") -> bytes:
        """Raises nats.errors.Error for what the server would end the connection for."""
        name, size_bytes = subject.encode(), len(block) + len(payload)
        if size_bytes > self.max_payload:
            raise nats.errors.MaxPayloadError
        if len(name) > SUBJECTS_BYTES_MAX or len(name.split()) != 1:
            raise nats.errors.BadSubjectError
        if reply:
            name = b"%b %b" % (name, reply.encode())
        if block:
            head = b"HPUB %b %d %d\r\n" % (name, len(block), size_bytes)
            return b"%b%b%b\r\n" % (head, block, payload)
        return b"PUB %b %d\r\n%b\r\n" % (name, size_bytes, payload)

    def _connected(self) -> None:
        kept, self._kept, self._kept_bytes = self._kept, [], 0
        self._link.write(b"".join(kept))
        self._told_connected()


class RouterConnection:
    """The management API's place at the node's router: requests of the clients of its NATS port."""

    def __init__(self, router: Router, *, payload_bytes_max: int) -> None:
        self.max_payload = payload_bytes_max
        self._router = router
        self._endpoint = Callback(router, failed=_failed)

    def listen(
        self, subject: str, take: Take, *, queue: str, domain_prefix: bytes = b""
    ) -> Subscription:
        """Hand each message with a reply subject to ``take``, within the turn that brings it. With
        ``domain_prefix`` those to buckets are published here by the subject without it: a link has brought them,
        on whose other side this domain means nothing.
        """
        handed = _handed(take, self, lambda: session_of(self._router.source))

        def taken(subject: bytes, reply: bytes, block: bytes, payload: bytes) -> None:
            mapped = bucket_subject(subject, domain_prefix)
            if mapped is None:
                handed(subject, reply, block, payload)
            elif not self._router.publish(mapped, payload, reply=reply, block=block) and reply:
                self._router.reply(
                    reply, b"", block=no_responders(mapped.decode(errors="surrogateescape"))
                )

        subscription = Subscription(
            self._endpoint, subject.encode(), queue=queue.encode(), target=taken
        )
        self._router.add(subscription)
        return subscription

    def stop_listening(self, subscription: Subscription) -> None:
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

    async def send(
        self, subject: str, payload: bytes, *, reply: str = "", block: bytes = b""
    ) -> None:
        self._check(payload, block)
        self._router.publish(subject.encode(), payload, reply=reply.encode(), block=block)

    def hear(self, subject: str, taken: Taken) -> Callable[[], None]:
        subscription = Subscription(self._endpoint, subject.encode(), target=taken)
        self._router.add(subscription)
        return lambda: self._router.remove(subscription)

    def interest(self, subject: str) -> int | None:
        return self._router.interest(subject.encode())

    def is_subscribed(self, subject: str) -> bool:
        plain, _ = self._router.matches(subject.encode())
        return any(it.subject == subject.encode() for it in plain)

    def _check(self, payload: bytes, block: bytes) -> None:
        if len(block) + len(payload) > self.max_payload:
            raise nats.errors.MaxPayloadError


def _handed(
    take: Take, connection: Answering, session: Callable[[], Session | None] = lambda: None
) -> Callable[[bytes, bytes, bytes, bytes], None]:
    """The target of a subscription, which makes requests of messages. A name that is not UTF-8 is no stream's;
    no client can be answered at such a reply.
    """

    def taken(subject: bytes, reply: bytes, block: bytes, payload: bytes) -> None:
        if not reply:
            return
        try:
            text = reply.decode()
        except UnicodeDecodeError:
            logger.warning(REPLY_NOT_UTF8, extra={"reply": repr(reply)})
            return
        name = subject.decode(errors="surrogateescape")
        take(Request(name, text, payload, block, connection=connection, session=session()))

    return taken


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
