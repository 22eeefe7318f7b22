"""What watchers have looked at lately, so that only that is asked of other nodes. Pure."""

from collections.abc import Iterable
from typing import Final

from streamlog.model import TopicPartition

FRESH_MS: Final = 10_000
PARTITIONS_MAX: Final = 1_000
"""Remembered; what was looked at longest ago goes."""


class WatchedPartitions:
    """``note`` at each look; ``partitions`` are those of the last ``FRESH_MS``."""

    def __init__(self) -> None:
        self._seen: dict[TopicPartition, int] = {}
        self._last_ms: int | None = None

    def note(self, now_ms: int, partitions: Iterable[TopicPartition] = ()) -> None:
        self._last_ms = now_ms
        for tp in partitions:
            self._seen.pop(tp, None)
            self._seen[tp] = now_ms
        while len(self._seen) > PARTITIONS_MAX:
            del self._seen[next(iter(self._seen))]

    def is_fresh(self, now_ms: int) -> bool:
        """Somebody has looked lately."""
        return self._last_ms is not None and now_ms - self._last_ms < FRESH_MS

    def partitions(self, now_ms: int) -> set[TopicPartition]:
        for tp in [tp for tp, at_ms in self._seen.items() if now_ms - at_ms >= FRESH_MS]:
            del self._seen[tp]
        return set(self._seen)
