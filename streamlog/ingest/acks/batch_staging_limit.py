"""What batches that are being published may hold in memory, over all partitions of a node."""

from collections.abc import Callable

from streamlog.errors import BrokenInvariant
from streamlog.ingest.acks.in_flight_limit import InFlightBytes

BATCHES_MAX = 1_000
"""Of a node. JetStream's limit, as are the others of batches."""
ROOM_SHARE = 4
"""Batches get one part in so many of the room for what is in flight: they may lie for a while, and
must leave room to those that do not."""


class BatchStagingLimit:
    """At either limit the batch that asks for more is refused, and given up.

    What is staged is in flight, too: it takes from the node's room.
    """

    def __init__(
        self,
        room: InFlightBytes,
        *,
        in_flight_bytes_max: int,
        batches_max: int = BATCHES_MAX,
        given_up: Callable[[str, bytes, str], None] = lambda *_: None,
    ) -> None:
        self._room = room
        self.given_up = given_up
        """Told of each batch that was: its stream, its id, why."""
        self.bytes_max = in_flight_bytes_max // ROOM_SHARE
        self._batches_max = batches_max
        self.count = 0
        """Batches."""
        self.taken_bytes = 0

    def begin(self) -> bool:
        """One batch more; False if there may be none."""
        if self.count >= self._batches_max:
            return False
        self.count += 1
        return True

    def take(self, size_bytes: int) -> None:
        self.taken_bytes += size_bytes
        self._room.take(size_bytes)

    def has_room(self, size_bytes: int) -> bool:
        return self.taken_bytes + size_bytes <= self.bytes_max

    def end(self, size_bytes: int) -> None:
        """A batch is stored, or given up; ``size_bytes``: all that was taken for it."""
        self.count -= 1
        self.taken_bytes -= size_bytes
        if self.count < 0 or self.taken_bytes < 0:
            raise BrokenInvariant("what ended had begun")
        self._room.give_back(size_bytes)
