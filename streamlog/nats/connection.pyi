"""One connection of the NATS protocol, compiled: what its two kinds, of a client and of a leafnode, share.

A connection needs no I/O: ``feed`` takes what the peer says, in any pieces, and ``take_output`` gives what it
is to be sent. Where it has the descriptor of a socket, ``receive`` and ``flush`` do both without a copy.
"""

from collections.abc import Callable
from typing import Any

from streamlog.nats.router import Endpoint, Router

SOURCES: int

class Connection(Endpoint):
    """Not thread-safe; all is on one event loop."""

    session: Any
    """Decides, in Python, about all that is not once a message."""
    blocked: Callable[[], None]
    """Called when the socket takes no more for now: ``flush`` is to be called when it does."""
    flushed: Callable[[], None] | None
    """Called at the end of a turn in place of ``flush``, where something else writes the output."""
    pending_bytes_max: int
    payload_bytes_max: int
    domain_prefix: bytes
    """``$JS.<domain>.API.``: a message to ``$KV.>`` or ``$OBJ.>`` with it is as one without it, which the
    permissions for the latter are for. nats-server has these mappings for a domain. Empty: there are none.
    """
    sealed_bytes: int
    """Of TLS, which something else has taken and not yet written."""

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
    def is_suspended(self) -> bool:
        """What the peer says waits for ``resume``."""

    @property
    def pending_bytes(self) -> int: ...
    def receive(self, buffer: memoryview) -> int:
        """Read the socket once; how many bytes there were: 0 at its end, -1 where nothing is there yet.

        Raises OSError.
        """

    def feed(self, data: bytes | memoryview) -> None:
        """Carry out what the peer says."""

    def suspend(self) -> None:
        """Carry out nothing more before ``resume``."""

    def resume(self) -> None:
        """Carry out what came since."""

    def take_rest(self) -> bytes:
        """What came and was not carried out; for another connection over the same socket."""

    @property
    def pings_outstanding(self) -> int:
        """Without an answer yet, marks among them."""

    def ping(self) -> None:
        """Send a PING; the session's ``ponged`` is called with the answer. All PINGs are sent by this, or by
        the router as marks: answers are told apart by their order.
        """

    def expect_pongs(self, count: int) -> None:
        """The answers to PINGs of another connection over the same socket are still to come."""

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
