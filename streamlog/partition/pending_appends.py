"""Appends and log starts that wait for the in-sync replicas, and who hears of it."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from streamlog.errors import StreamlogError


class Acknowledgement(Protocol):
    """Hears once what became of an append."""

    def committed(self, base_offset: int) -> None:
        """The records from ``base_offset`` on are below the high watermark."""

    def failed(self, error: StreamlogError) -> None:
        """The records may or may not be there after a restart, or under another leader."""


class PendingAppend(NamedTuple):
    """An append that waits for the high watermark to reach ``end_offset``."""

    end_offset: int
    base_offset: int
    size_bytes: int
    started: float
    """The caller's own clock, for timing."""
    ack: Acknowledgement


class PendingAppends:
    """In order of their offsets; each is told once, and then forgotten."""

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

    def commit(self, high_watermark: int) -> list[PendingAppend]:
        """Those that end below it, acknowledged."""
        waiting = self._waiting
        done = []
        while waiting and waiting[0].end_offset <= high_watermark:
            item = waiting.popleft()
            self.in_flight_bytes -= item.size_bytes
            item.ack.committed(item.base_offset)
            done.append(item)
        return done

    def fail(self, error: StreamlogError) -> None:
        """All of them."""
        waiting, self._waiting = self._waiting, deque()
        self.in_flight_bytes = 0
        for item in waiting:
            item.ack.failed(error)


class AwaitedStarts:
    """Log starts that wait for the in-sync replicas, and who hears of it."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, Acknowledgement]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int, ack: Acknowledgement) -> None:
        self._waiting.append((offset, ack))

    def settle(self, acknowledge: Callable[[int], bool]) -> None:
        """Answer those for which ``acknowledge`` is true."""
        waiting, self._waiting = self._waiting, []
        for offset, ack in waiting:
            if acknowledge(offset):
                ack.committed(offset)
            else:
                self._waiting.append((offset, ack))

    def fail(self, error: StreamlogError) -> None:
        """All of them."""
        waiting, self._waiting = self._waiting, []
        for _, ack in waiting:
            ack.failed(error)
