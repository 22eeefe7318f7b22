"""Appends and log starts that wait for the in-sync replicas, and what becomes of them."""

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from streamlog.errors import StreamlogError


class Acknowledgement(Protocol):
    """Hears once what became of an append."""

    def committed(self, base_offset: int) -> None:
        """The records from ``base_offset`` on are below the high watermark."""

    def failed(self, error: StreamlogError) -> None:
        """The records may or may not be there after a restart, or under another leader."""


class PendingAppend(NamedTuple):
    """An append that waits for the high watermark to reach ``end_offset``; or a log start there,
    that waits until every in-sync replica's log begins at it or above.
    """

    end_offset: int
    base_offset: int
    size_bytes: int
    started: float
    """By the caller's clock; 0.0 where the commit is not timed."""
    ack: Acknowledgement


class PendingAppends:
    """In order of their offsets; each is taken once."""

    __slots__ = ("_waiting", "in_flight_bytes")

    def __init__(self) -> None:
        self.in_flight_bytes = 0
        """Sum of their ``size_bytes``."""
        self._waiting: deque[PendingAppend] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, item: PendingAppend) -> None:
        """One after another that tell the same one become one: where nobody waits, and too few
        replicas are there to commit anything, they would pile up.
        """
        self.in_flight_bytes += item.size_bytes
        if self._waiting and self._waiting[-1].ack is item.ack:
            last = self._waiting.pop()
            size_bytes = last.size_bytes + item.size_bytes
            item = item._replace(base_offset=last.base_offset, size_bytes=size_bytes)
        self._waiting.append(item)

    def take_committed(self, high_watermark: int) -> list[PendingAppend]:
        """Those that end below it."""
        waiting = self._waiting
        committed = []
        while waiting and waiting[0].end_offset <= high_watermark:
            item = waiting.popleft()
            self.in_flight_bytes -= item.size_bytes
            committed.append(item)
        return committed

    def take_all(self) -> list[PendingAppend]:
        waiting, self._waiting = self._waiting, deque()
        self.in_flight_bytes = 0
        return list(waiting)


class Step(NamedTuple):
    """What an operation of the core leaves to the shell, see ``Partition.carry_out``."""

    commits: Sequence[PendingAppend] = ()
    """To be acknowledged, in this order."""
    failed: Sequence[PendingAppend] = ()
    """To be told ``error``."""
    error: StreamlogError | None = None
    is_offline: bool = False
    """The disk has failed with ``error``: from now on nothing is appended."""
    high_watermark_moved: bool = False
    recovery_point_moved: bool = False
    wants_sync: bool = False
    """There is something to sync, which no sync that runs covers."""


NOTHING: Final = Step()
