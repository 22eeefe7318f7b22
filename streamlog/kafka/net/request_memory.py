"""Memory for requests that have come in part, or are being answered: limited over all connections,
and for each client.

A client that can connect can send the beginning of a request and leave it there. So it counts from its
first byte, and for its sender: a principal, or an address where no user has logged in. A whole
request counts with what it becomes when it is read, for as long as it is answered.
"""

from collections.abc import Callable
from typing import Final

SMALL_BYTES: Final = 4 * 1024
"""A whole request that takes no more is not counted while it is answered: the connection itself
takes more."""

ELEMENT_BYTES: Final = 1_024
"""For each element of a request's arrays, of which a few bytes were sent: what it takes once it is
read, with what is looked up and answered for it. A partition of a Fetch takes that much.
"""


class RequestMemoryFull(Exception):
    """Too much has come of requests that are not answered."""


class MemoryShare:
    """What one connection holds."""

    __slots__ = ("_end", "_room", "client", "held")

    def __init__(
        self, room: "RequestMemory", client: str, end: Callable[[Exception], None]
    ) -> None:
        self.client = client
        """Who is to answer for it."""
        self.held = 0
        self._room: RequestMemory | None = room  # None: it has had to leave
        self._end = end

    def hold(self, count: int) -> None:
        """So many bytes from now on. Raises ReceiveRoomFull."""
        if count != self.held and self._room is not None:
            self._room.change(self, count)

    def move(self, client: str) -> None:
        """The connection has turned out to be another client's. Raises ReceiveRoomFull."""
        if client != self.client:
            held = self.held
            self.hold(0)
            self.client = client
            self.hold(held)

    def leave(self) -> None:
        """The connection is over."""
        self.hold(0)
        self._room = None

    def evict(self, reason: RequestMemoryFull) -> None:
        self.leave()
        self._end(reason)


class RequestMemory:
    """Policy when a client's share is full: the connection whose bytes find no room is closed. To
    have it wait would let a few that never send the rest keep all others waiting.

    When the whole room is full: the client that holds the most loses its largest connection, so
    that no client can keep others out by holding much.
    """

    def __init__(self, bytes_max: int, client_bytes_max: int | None = None) -> None:
        self._bytes_max = bytes_max
        self._client_bytes_max = min(bytes_max, client_bytes_max or bytes_max)
        self._clients: dict[str, dict[MemoryShare, None]] = {}  # only seats that hold something
        self._totals: dict[str, int] = {}  # of the same clients
        self.taken_bytes = 0

    def seat(self, client: str, end: Callable[[Exception], None]) -> MemoryShare:
        """``end`` is called with the reason if the connection has to make room for others."""
        return MemoryShare(self, client, end)

    def held_by(self, client: str) -> int:
        return self._totals.get(client, 0)

    def change(self, seat: MemoryShare, count: int) -> None:
        """Raises ReceiveRoomFull."""
        client, more = seat.client, count - seat.held
        total = self.held_by(client) + more
        if more > 0:
            if total > self._client_bytes_max:
                text = f"requests of {client} that are not answered take {total - more} bytes"
                raise RequestMemoryFull(f"{text} already, allowed are {self._client_bytes_max}")
            self._make_room(more, total)
        seat.held = count
        self.taken_bytes += more
        if total:
            self._totals[client] = total
        else:
            self._totals.pop(client, None)
        if count:
            self._clients.setdefault(client, {})[seat] = None
        elif (seats := self._clients.get(client)) is not None:
            seats.pop(seat, None)
            if not seats:
                del self._clients[client]

    def _make_room(self, more: int, total: int) -> None:
        """``total``: what the client that asks would hold."""
        while self.taken_bytes + more > self._bytes_max:
            text = f"requests that are not answered take {self.taken_bytes} bytes already"
            reason = RequestMemoryFull(f"{text}, allowed are {self._bytes_max}")
            largest = max(self._totals, key=self._totals.__getitem__, default="")
            if self.held_by(largest) <= total:
                raise reason
            max(self._clients[largest], key=lambda it: it.held).evict(reason)
