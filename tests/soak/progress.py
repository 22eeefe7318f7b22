"""What the clients of a soak have done and seen, and whether it is right."""

import threading
import time
from collections import Counter
from typing import Final

VIOLATIONS_MAX: Final = 20
"""That are told of; more are only counted."""


class Progress:
    """Shared by all clients, in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._took: list[tuple[float, float]] = []
        self.violations: list[str] = []

    def count(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._counts[name] += number

    @property
    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(sorted(self._counts.items()))

    def acknowledged(self, began: float) -> None:
        """``began``: by ``time.monotonic``, before the first attempt."""
        with self._lock:
            self._took.append((began, time.monotonic() - began))

    def take_latencies(self) -> list[tuple[float, float]]:
        """When each began, and how long it took; each once."""
        with self._lock:
            taken, self._took = self._took, []
        return taken

    def violated(self, text: str) -> None:
        with self._lock:
            self._counts["violations"] += 1
            if len(self.violations) < VIOLATIONS_MAX:
                self.violations.append(text)


class SeenNumbers:
    """Readers see each publisher's numbers in their order, without a gap.

    A reader may begin again below where another one was (a group at a change of its members). Then a number comes again
    at the same offset; at a higher one it is in the log twice.
    """

    def __init__(self, progress: Progress, what: str) -> None:
        self._progress = progress
        self._what = what
        self._lock = threading.Lock()
        self._next: dict[str, int] = {}
        self._end: dict[str, int] = {}
        """Of each publisher: the offset after its newest number. A publisher's numbers are in one partition."""

    def saw(self, publisher: str, number: int, offset: int) -> None:
        with self._lock:
            wanted, end = self._next.get(publisher, 0), self._end.get(publisher, 0)
            if number > wanted:
                self._progress.violated(
                    f"{self._what}: of {publisher} number {number} comes after {wanted - 1}, at offset {offset}"
                )
            elif number < wanted and offset >= end:
                self._progress.violated(
                    f"{self._what}: of {publisher} number {number} is there twice, at offset {offset} as well"
                )
            if number >= wanted:
                self._next[publisher] = number + 1
                self._end[publisher] = max(end, offset + 1)

    def next_of(self, publisher: str) -> int:
        with self._lock:
            return self._next.get(publisher, 0)
