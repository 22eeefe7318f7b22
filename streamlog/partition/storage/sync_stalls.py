"""How long the disk has owed an answer: syncs that are not done in the time that they usually take. Pure."""

from typing import Final

from streamlog.raft.failure_detector import DurationWindow

STEP_MS: Final = 100
"""What is known grows by no more with each sync: a disk that hung once is not slow, one that is slow is known soon."""


class SyncStalls:
    """Of one disk. Times are of a clock that stands still while the node does."""

    def __init__(self) -> None:
        self._durations = DurationWindow()
        self._begun: dict[int, int] = {}
        """Syncs that are not done, the oldest first, with when they began."""
        self._last_number = 0

    def began(self, now_ms: int) -> int:
        """A number for the sync."""
        self._last_number += 1
        self._begun[self._last_number] = now_ms
        return self._last_number

    def ended(self, number: int, now_ms: int) -> None:
        took_ms = now_ms - self._begun.pop(number)
        self._durations.add(min(took_ms, self._durations.longest_ms + STEP_MS))

    def oldest_ms(self, now_ms: int) -> int:
        """How old the oldest one is that is not done; 0: all are done."""
        return now_ms - next(iter(self._begun.values()), now_ms)

    def stall_ms(self, now_ms: int) -> int:
        """How old the oldest one is, where it should long be done; 0: the disk works."""
        oldest_ms = self.oldest_ms(now_ms)
        return oldest_ms if oldest_ms > self._durations.longest_ms else 0
