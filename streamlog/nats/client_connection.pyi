"""One client of the port, compiled: carries out its frames, and gathers what it is sent.

``feed`` takes the client's bytes, in any pieces; messages go to the router. The connection's ``session`` decides
about everything that is rarer, in Python (``port_session.PortSession``).
"""

from collections.abc import Callable
from typing import Protocol

from streamlog.nats.connection import Connection
from streamlog.nats.message_trace import MessageTrace
from streamlog.nats.router import Subscription

SOURCES: int

class Session(Protocol):
    """What a connection asks and reports, in the order in which the client says it."""

    @property
    def client_id(self) -> int: ...
    @property
    def name(self) -> str:
        """What the client calls itself."""

    def connect(self, options: bytes) -> None: ...
    def pinged(self) -> None: ...
    def ponged(self) -> None: ...
    def subscribe(self, subject: bytes, queue: bytes, sid: bytes) -> None: ...
    @property
    def rights(self) -> object:
        """Another value where what this login may publish has changed. Asked at each read of a restricted
        connection.
        """

    @property
    def may_remember(self) -> bool:
        """What may be published depends on ``rights`` alone."""

    def may_publish(self, subject: bytes, reply: bytes) -> bool:
        """Asked of a restricted connection only."""

    def begin_trace(
        self, subject: bytes, block: bytes, size: int
    ) -> tuple[bool, MessageTrace | None]:
        """Whether a message with ``Nats-Trace-Dest`` may be published, and its trace if it asks for one. ``subject``:
        as the client wrote it.
        """

    def end_trace(self, trace: MessageTrace) -> None:
        """It has been published, as far as it may be."""

    def replied(self, reply: bytes) -> None:
        """A message that names this reply is delivered. Asked where ``tracks_replies``."""

    def violated(self, error: Exception) -> None:
        """The client said what no client says; its text is nats-server's word for it, or empty."""

    def too_slow(self) -> None:
        """More than ``pending_bytes_max`` waits to be written."""

    def broken(self, error: OSError) -> None:
        """The socket takes nothing more."""

class ClientConnection(Connection):
    """One client of the port."""

    session: Session
    verbose: bool
    pedantic: bool
    echo: bool
    headers: bool
    no_responders: bool
    is_open: bool
    """Anything but CONNECT may come."""
    is_restricted: bool
    """The session is asked before each publication."""
    tracks_replies: bool
    """The session is told of each reply subject that is delivered."""

    @property
    def subscriptions(self) -> dict[bytes, Subscription]:
        """By sid."""

    def subscribe(
        self,
        subject: bytes,
        queue: bytes,
        sid: bytes,
        target: Callable[[bytes], bool] | None = None,
    ) -> Subscription | None:
        """None: the sid is in use, and keeps its subject. ``target``: whether a subject is denied.

        Raises InvalidRequest.
        """

    def unsubscribe(self, sid: bytes, delivered_max: int = -1) -> None:
        """At once, or once it has had ``delivered_max`` messages in all."""
