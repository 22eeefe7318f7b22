import time
from collections import Counter
from collections.abc import Callable
from typing import Final

PERIOD_S: Final = 1.0
FLOODS: Final = frozenset({"limit", "address limit", "unauthenticated", "tls", "slow", "memory"})
"""Reasons that anybody can bring about as often as they like, and for next to nothing."""


class CloseLog:
    """What is to be logged of connections that were closed: not a line for each of a flood."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._told_s: dict[object, float] = {}  # when one with this reason was told of last
        self._untold: Counter[object] = Counter()  # since then, by reason

    def told(self, closed: dict[str, object]) -> dict[str, object] | None:
        """None: nothing now. With the next one that is told of comes how many were not."""
        reason, now_s = closed["reason"], self._now_s()
        if reason not in FLOODS:
            return closed
        if now_s - self._told_s.get(reason, -PERIOD_S) < PERIOD_S:
            self._untold[reason] += 1
            return None
        self._told_s[reason] = now_s
        if untold := self._untold.pop(reason, 0):
            return {**closed, "more_of_these": untold}
        return closed
