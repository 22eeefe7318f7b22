"""One client of the port, from its first byte to its last: a state machine without I/O.

::

    greeting   TLS?   ──CONNECT──▶ login ──▶ open ──▶ closed
       │        (before the greeting, where the listener starts TLS first)

Rules, which are nats-server's:

- The server speaks first: INFO, with a nonce where a client may sign.
- A client that need not log in may publish before its CONNECT. Until CONNECT it is verbose and pedantic.
- While a login is checked, the frames of that client wait.
- The server reports an error with ``-ERR``. The connection goes on after an error that the client can correct,
  and ends after one that leaves the following bytes without meaning.
- The server answers the first PING after CONNECT with an INFO, too, if the client takes INFO at any time.
- Between its greeting and that PONG the server sends no other INFO: clients read one line for their PING, and
  nats-py sends nothing more, for good, if that line is another one. The INFO after the PONG says what has changed.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from streamlog.errors import InvalidRequest
from streamlog.nats.auth import err
from streamlog.nats.auth.port_authenticator import AdmittedClient
from streamlog.nats.auth.stream_access import StreamAccess
from streamlog.nats.client_connection import ClientConnection
from streamlog.nats.domain import bucket_subject
from streamlog.nats.message_trace import MessageTrace, trace_request
from streamlog.nats.router import DeliveryTrace
from streamlog.nats.sockets import CloseReason

PROTOCOL_INFO: Final = 1
"""The client takes INFO at any time."""
LINK_OPTION: Final = "streamlog_link"
"""The field of CONNECT by which another node asks for a link."""
NAME_CHARS_MAX: Final = 256
"""Length at which the name that a client gives itself is cut."""
PINGS_UNANSWERED_MAX: Final = 2


class PortServer(Protocol):
    """What a session asks of the port, which has the sockets."""

    def info(self, session: "PortSession") -> dict[str, Any]: ...
    def log_in(self, session: "PortSession", options: Mapping[str, Any]) -> None:
        """Ends in ``session.admit`` or ``session.refuse``, now or later."""

    def become_link(self, session: "PortSession", asked: object) -> bool:
        """Whether the connection is a link to another node from now on."""

    def close(self, session: "PortSession", reason: CloseReason) -> None:
        """Write what is to be written, and close."""

    def publish_denied(self, stream: str, reply: bytes) -> None:
        """Tell a publisher that it may not write to this stream."""

    def publish_trace(self, session: "PortSession", trace: MessageTrace) -> None:
        """Publish what became of a message, in the name of its publisher."""


class PortSession:
    """The decisions about one ``ClientConnection``."""

    def __init__(
        self,
        connection: ClientConnection,
        server: PortServer,
        *,
        client_id: int,
        host: str,
        nonce: str = "",
        login_required: bool = False,
        subscriptions_max: int,
    ) -> None:
        """``nonce``: what a client signs with its key; empty: none may."""
        self.connection = connection
        self.client_id = client_id
        self.host = host
        self.nonce = nonce
        self.login: AdmittedClient | None = None
        """None: it need not log in, or has not yet."""
        self._access: StreamAccess | None = None
        """None: it may do everything."""
        self.name = ""
        """What the client calls itself."""
        self.language = ""
        """The client's library and its version."""
        self.pings_unanswered = 0
        self.has_connected = False
        """It has sent CONNECT."""
        self._server = server
        self._login_required = login_required
        self._subscriptions_max = subscriptions_max
        self._protocol = 0
        self._has_ponged = False
        connection.session = self
        connection.is_open = not login_required

    @property
    def awaits_login(self) -> bool:
        return not self.connection.is_open

    @property
    def is_served(self) -> bool:
        """It has said CONNECT, and may do what it is allowed to."""
        return self.has_connected and self.connection.is_open

    def greet(self) -> None:
        self._send_info()

    def tell_info(self, **more: Any) -> None:
        """What the server is now, to a client that takes it at any time and has its first PONG."""
        if self._has_ponged and self._protocol >= PROTOCOL_INFO:
            self._send_info(**more)

    def _send_info(self, **more: Any) -> None:
        info = self._server.info(self) | more
        self.connection.send(b"INFO " + json.dumps(info, separators=(",", ":")).encode() + b" \r\n")

    # What the client says

    def connect(self, options: bytes) -> None:
        try:
            asked = json.loads(options.decode(errors="replace"))  # as Go reads it
            if not isinstance(asked, dict):
                raise ValueError("no object")
            choices = _choices(asked)
        except (ValueError, RecursionError):
            self._server.close(self, CloseReason.PROTOCOL)
            return
        connection = self.connection
        if self.has_connected:  # as another user it may not have been allowed what it subscribed to
            for sid in list(connection.subscriptions):
                connection.unsubscribe(sid)
        self.has_connected = True
        self.name, self.language = choices.name, choices.language
        self._protocol = choices.protocol
        connection.verbose, connection.pedantic = choices.verbose, choices.pedantic
        connection.echo, connection.headers = choices.echo, choices.headers
        connection.no_responders = choices.no_responders
        if LINK_OPTION in asked:
            connection.suspend()
            if not self._server.become_link(self, asked[LINK_OPTION]):
                self.refuse()
        elif not 0 <= choices.protocol <= PROTOCOL_INFO:
            self._end(err.INVALID_PROTOCOL, CloseReason.PROTOCOL)
        elif choices.no_responders and not choices.headers:
            self._end(err.NO_RESPONDERS_NEEDS_HEADERS, CloseReason.PROTOCOL)
        elif self._login_required:
            connection.is_open = False
            connection.suspend()
            self._server.log_in(self, asked)
        else:
            self._opened()

    def admit(self, login: AdmittedClient, access: StreamAccess) -> None:
        """The login is right; ``access``: what the client may do."""
        connection = self.connection
        if connection.is_closed:
            return
        self.login, self._access = login, access
        connection.is_open = connection.is_restricted = True
        connection.tracks_replies = not access.is_constant
        limits = login.limits
        if limits.payload_bytes_max is not None:
            connection.payload_bytes_max = min(
                connection.payload_bytes_max, limits.payload_bytes_max
            )
        if limits.subscriptions_max is not None:
            self._subscriptions_max = min(self._subscriptions_max, limits.subscriptions_max)
        self._opened()
        connection.resume()

    def refuse(self, words: str = err.AUTHORIZATION_VIOLATION) -> None:
        """The login is wrong."""
        if not self.connection.is_closed:
            self._end(words, CloseReason.LOGIN)

    def _opened(self) -> None:
        if self.connection.verbose:
            self.connection.send(b"+OK\r\n")

    def pinged(self) -> None:
        if self.has_connected and not self._has_ponged:
            self._has_ponged = True
            self.tell_info(connect_info=True)

    def ponged(self) -> None:
        self.pings_unanswered = 0

    def subscribe(self, subject: bytes, queue: bytes, sid: bytes) -> None:
        connection, access = self.connection, self._access
        denied = None
        if access is not None:
            if not access.may_subscribe(subject, queue or None):
                connection.put_error(err.subscription_violation(subject, queue or None))
                return
            denied = access.denied_deliveries(subject, queue or None)
        if len(connection.subscriptions) >= self._subscriptions_max:
            connection.put_error(err.SUBSCRIPTIONS_EXCEEDED)
            return
        try:
            connection.subscribe(subject, queue, sid, denied)
        except InvalidRequest:
            connection.put_error(err.INVALID_SUBJECT)
            return
        if connection.verbose:
            connection.send(b"+OK\r\n")

    def may_publish(self, subject: bytes, reply: bytes) -> bool:
        access = self._access
        if access is None or access.may_publish(subject):
            return True
        self.connection.put_error(err.publish_violation(subject))
        if reply and (stream := access.unwritable(subject)) is not None:
            self._server.publish_denied(stream, reply)
        return False

    @property
    def rights(self) -> object:
        return None if self._access is None else self._access.version

    @property
    def may_remember(self) -> bool:
        return self._access is None or self._access.is_constant

    def begin_trace(
        self, subject: bytes, block: bytes, size: int
    ) -> tuple[bool, MessageTrace | None]:
        request = trace_request(block)
        if request is None:
            return True, None
        if not request.is_valid:
            return not request.is_only, None
        if not self.may_publish(request.destination.encode(errors="replace"), b""):
            return False, None
        mapped = bucket_subject(subject, self.connection.domain_prefix) or subject
        deliveries = DeliveryTrace(is_only=request.is_only)
        return True, MessageTrace(request, mapped, subject, size, deliveries)

    def end_trace(self, trace: MessageTrace) -> None:
        self._server.publish_trace(self, trace)

    def replied(self, reply: bytes) -> None:
        if self._access is not None:
            self._access.delivered(reply)

    def violated(self, error: Exception) -> None:
        words = str(error)
        reason = CloseReason.LOGIN if words == err.AUTHORIZATION_VIOLATION else CloseReason.PROTOCOL
        self._end(words, reason)

    def too_slow(self) -> None:
        self._server.close(self, CloseReason.SLOW)

    def broken(self, _: OSError) -> None:
        self._server.close(self, CloseReason.SOCKET)

    # What time brings

    def ping(self) -> None:
        """The client has been silent for a while."""
        if self.pings_unanswered >= PINGS_UNANSWERED_MAX:
            self._end(err.STALE_CONNECTION, CloseReason.STALE)
            return
        self.pings_unanswered += 1
        self.connection.ping()

    def expire(self, words: str = err.AUTHENTICATION_EXPIRED) -> None:
        """Its login ends now, for the reason that ``words`` give."""
        self._end(words, CloseReason.EXPIRED)

    def give_up_login(self) -> None:
        """It has not logged in in time."""
        self._end(err.AUTHENTICATION_TIMEOUT, CloseReason.LOGIN)

    def _end(self, words: str, reason: CloseReason) -> None:
        if words:
            self.connection.put_error(words)
        self._server.close(self, reason)


class _Choices(NamedTuple):
    verbose: bool
    pedantic: bool
    echo: bool
    headers: bool
    no_responders: bool
    protocol: int
    name: str
    language: str


def _choices(asked: Mapping[str, Any]) -> _Choices:
    """Options of CONNECT. Raises ValueError for a value of a type that nats-server refuses."""

    def flag(name: str, default: bool) -> bool:
        value = asked.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ValueError(name)
        return value

    def text(name: str) -> str:
        value = asked.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise ValueError(name)
        return value[:NAME_CHARS_MAX]

    protocol = asked.get("protocol")
    if protocol is None:
        protocol = 0
    if not isinstance(protocol, int) or isinstance(protocol, bool):
        raise ValueError("protocol")
    for secret in ("user", "pass", "auth_token", "jwt", "nkey", "sig"):
        if not isinstance(asked.get(secret) or "", str):
            raise ValueError(secret)
    return _Choices(
        verbose=flag("verbose", True),
        pedantic=flag("pedantic", True),
        echo=flag("echo", True),
        headers=flag("headers", False),
        no_responders=flag("no_responders", False),
        protocol=protocol,
        name=text("name"),
        language=f"{text('lang')} {text('version')}".strip(),
    )
