"""Records a second, from the ends of logs at successive looks. Pure."""

from collections import deque
from collections.abc import Mapping
from typing import Final

from streamlog.model import TopicPartition

LOOKS: Final = 6
"""Kept; a rate is taken over all of them, so that it does not flicker."""


class Rates:
    """``look`` once a second, while the page is watched; a pause of more than ``GAP_MS`` begins
    again.
    """

    GAP_MS: Final = 5_000

    def __init__(self) -> None:
        self._looks: deque[tuple[int, Mapping[TopicPartition, int]]] = deque(maxlen=LOOKS)
        self._total: float | None = None

    def look(self, now_ms: int, ends: Mapping[TopicPartition, int]) -> None:
        if self._looks and now_ms - self._looks[-1][0] > self.GAP_MS:
            self._looks.clear()
        self._looks.append((now_ms, ends))
        self._total = self._summed()

    def of(self, tp: TopicPartition) -> float | None:
        """None before there are two looks. A log that was cut, or is another's, counts from 0."""
        if len(self._looks) < 2:
            return None
        (then_ms, before), (now_ms, now) = self._looks[0], self._looks[-1]
        if tp not in before or tp not in now or now_ms <= then_ms:
            return None
        return max(0, now[tp] - before[tp]) * 1000 / (now_ms - then_ms)

    def total(self) -> float | None:
        """Of all partitions that were there at both ends."""
        return self._total

    def _summed(self) -> float | None:
        if len(self._looks) < 2:
            return None
        (then_ms, before), (now_ms, now) = self._looks[0], self._looks[-1]
        if now_ms <= then_ms:
            return None
        grown = sum(max(0, end - before[tp]) for tp, end in now.items() if tp in before)
        return grown * 1000 / (now_ms - then_ms)
