"""Deadlines of a coordinator, most of which are put off again and again. Pure."""

import heapq
from collections.abc import Hashable, Iterator
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """One deadline for each key. To put one off costs nothing: its entry moves when it comes up.

    Invariant: each key in ``_at`` has an entry in the heap that is not later than its deadline.
    """

    def __init__(self) -> None:
        self._at: dict[K, int] = {}
        self._queued: dict[K, int] = {}
        """Of the one entry of a key that counts; others are left over."""
        self._heap: list[tuple[int, int, K]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: K, at_ms: int) -> None:
        """Instead of the one before."""
        self._at[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._queue(key, at_ms)

    def clear(self, key: K) -> None:
        self._at.pop(key, None)

    def get(self, key: K) -> int | None:
        return self._at.get(key)

    def put_off(self, delay_ms: int) -> None:
        """All of them, by so long."""
        for key in self._at:
            self._at[key] += delay_ms

    @property
    def next_ms(self) -> int | None:
        """When to look at ``due`` next: the first deadline, or earlier."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[K]:
        """Each key whose deadline has come, once, without its deadline."""
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != queued_ms:
                continue
            del self._queued[key]
            at_ms = self._at.get(key)
            if at_ms is None:
                continue
            if at_ms > now_ms:
                self._queue(key, at_ms)
                continue
            del self._at[key]
            yield key

    def _queue(self, key: K, at_ms: int) -> None:
        self._queued[key] = at_ms
        heapq.heappush(self._heap, (at_ms, next(self._numbers), key))
