"""One client of the port: what it says is carried out, what it is to be sent is gathered. Compiled.

``feed`` takes what the client says, in any pieces; messages go to the router. All that is rarer is decided by
the connection's ``session``, in Python (``port_session.PortSession``).
"""

from collections.abc import Callable
from typing import Final, Protocol

from streamlog.nats.reader import FrameReader
from streamlog.nats.router import Router, Subscription

SOURCES: int
UNKNOWN_OPERATION: Final[str]
LINE_TOO_LONG: Final[str]
PAYLOAD_TOO_LARGE: Final[str]
NOT_AUTHORIZED: Final[str]
INVALID_PUBLISH_SUBJECT: Final[str]

class Session(Protocol):
    """What a connection asks and reports, in the order in which the client says it."""

    def connect(self, options: bytes) -> None: ...
    def pinged(self) -> None: ...
    def ponged(self) -> None: ...
    def subscribe(self, subject: bytes, queue: bytes, sid: bytes) -> None: ...
    def unsubscribed(self, subscription: Subscription) -> None: ...
    def may_publish(self, subject: bytes, reply: bytes) -> bool:
        """Asked of a restricted connection only."""

    def violated(self, error: Exception) -> None:
        """The client said what no client says; its text is nats-server's word for it, or empty."""

    def too_slow(self) -> None:
        """More than ``pending_bytes_max`` waits to be written."""

    def broken(self, error: OSError) -> None:
        """The socket takes nothing more."""

class ClientConnection(FrameReader):
    """Not thread-safe; all is on one event loop."""

    session: Session
    blocked: Callable[[], None]
    """Called when the socket takes no more for now: ``flush`` is to be called when it does."""
    flushed: Callable[[], None] | None
    """Called at the end of a turn in place of ``flush``, where something else writes the output."""
    verbose: bool
    pedantic: bool
    echo: bool
    headers: bool
    no_responders: bool
    is_open: bool
    """Anything but CONNECT may come."""
    is_restricted: bool
    """The session is asked before each publication."""
    payload_bytes_max: int
    pending_bytes_max: int

    def __init__(
        self,
        router: Router,
        *,
        fd: int = -1,
        line_bytes_max: int = 4096,
        payload_bytes_max: int = 1_048_576,
        pending_bytes_max: int = 67_108_864,
    ) -> None:
        """``fd``: of a socket that does not block; -1: something else reads and writes."""

    @property
    def fd(self) -> int: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def is_blocked(self) -> bool: ...
    @property
    def messages_in(self) -> int: ...
    @property
    def bytes_in(self) -> int: ...
    @property
    def messages_out(self) -> int: ...
    @property
    def bytes_out(self) -> int: ...
    @property
    def pending_bytes(self) -> int: ...
    @property
    def subscriptions(self) -> dict[bytes, Subscription]:
        """By sid."""

    def receive(self, buffer: memoryview) -> int:
        """Read the socket once; how many bytes there were: 0 at its end, -1 where nothing is there yet.

        Raises OSError.
        """

    def feed(self, data: bytes | memoryview) -> None:
        """Carry out what the client says."""

    def suspend(self) -> None:
        """Carry out nothing more before ``resume``."""

    def resume(self) -> None:
        """Carry out what came since."""

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

    def put_error(self, text: str) -> None:
        """One of nats-server's words."""

    def send(self, data: bytes) -> None:
        """Whole lines of the protocol."""

    def flush(self) -> bool:
        """Write to the socket what it takes; whether that was all."""

    def take_output(self) -> bytes:
        """What is to be written, where something else writes it."""

    def close(self) -> None:
        """Take and send nothing more; all its subscriptions end."""
