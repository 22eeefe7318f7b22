"""A link in NATS's leafnode protocol, compiled: interest and messages, both ways.

After the handshake (``links``) ``open`` has it tell the other side what this node wants. What the other side
wants are its subscriptions at the router from then on.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from streamlog.nats.connection import Connection
from streamlog.nats.router import Router, Subscription

SOURCES: int

class LinkSession(Protocol):
    """What a link reports."""

    @property
    def info(self) -> Mapping[str, Any]:
        """Of the other side's INFO."""

    def ponged(self) -> None: ...
    def informed(self, info: bytes) -> None:
        """An INFO, as JSON."""

    def refused(self, words: bytes) -> None:
        """An -ERR."""

    def violated(self, error: Exception) -> None:
        """The other side said what none says, or wants more than ``interest_max``."""

    def too_slow(self) -> None:
        """More than ``pending_bytes_max`` waits to be written."""

    def broken(self, error: OSError) -> None:
        """The socket takes nothing more."""

class LeafConnection(Connection):
    """One link, of either side."""

    session: LinkSession
    headers: bool
    """The other side takes headers."""
    interest_max: int

    def __init__(
        self,
        router: Router,
        *,
        interest_max: int = 1_000_000,
        fd: int = -1,
        line_bytes_max: int = 65_536,
        payload_bytes_max: int = 1_048_576,
        pending_bytes_max: int = 67_108_864,
    ) -> None: ...
    def open(self) -> None:
        """Tell the other side what this node wants; only then have it get what it wants. Else its answer to a
        message could come before the subscription that the answer is for.
        """

    @property
    def interest(self) -> dict[tuple[bytes, bytes], Subscription]:
        """What the other side wants, by subject and queue group."""
