"""A client's connection to a nats-server, compiled: the client's side of the client protocol.

::

    MSG <subject> <sid> [<reply>] <size>
    HMSG <subject> <sid> [<reply>] <header size> <size>
    INFO <JSON>     PING     PONG     +OK     -ERR '<words>'

``ServerLink`` of ``ingest.nats`` connects it. A message of a sid goes straight to the endpoint of the
subscription that the sid is bound to, and not to others of this node's router: who is connected to NATS and
who is connected to this node's port do not hear each other. Its answer goes back to NATS as a publication.

What a publisher can put into a message is never an error: odd subjects are passed on as they are. Only a line
that no nats-server writes is one.
"""

from typing import Final, Protocol

from streamlog.nats.connection import Connection
from streamlog.nats.router import Router, Subscription

SOURCES: int
LINE_BYTES_MAX: Final = 1024 * 1024

class ServerSession(Protocol):
    """What a connection reports."""

    def ponged(self) -> None: ...
    def informed(self, info: bytes) -> None:
        """An INFO, as JSON."""

    def refused(self, words: bytes) -> None:
        """An -ERR, with its quotes."""

    def violated(self, error: Exception) -> None:
        """The server said what no nats-server says."""

    def too_slow(self) -> None:
        """More than ``pending_bytes_max`` waits to be written."""

    def broken(self, error: OSError) -> None:
        """The socket takes nothing more."""

class ServerConnection(Connection):
    """A client's connection to a nats-server."""

    session: ServerSession

    def __init__(
        self,
        router: Router,
        *,
        fd: int = -1,
        line_bytes_max: int = LINE_BYTES_MAX,
        payload_bytes_max: int = 1_048_576,
        pending_bytes_max: int = 67_108_864,
    ) -> None: ...
    @property
    def dropped(self) -> int:
        """Messages of a sid that is not bound."""

    def bind(self, sid: int, subscription: Subscription) -> None:
        """Messages of ``sid`` go to the endpoint of ``subscription``, also after the router has removed it:
        what is under way still comes.
        """

    def unbind(self, sid: int) -> None:
        """Messages of ``sid`` are dropped, and counted."""
