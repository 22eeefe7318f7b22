"""For how long silence is no sign of a failure, learned from the signs of life that came. Pure.

The phi accrual failure detector (Hayashibara et al. 2004, as in Akka and Cassandra): intervals between signs
of life are taken for normally distributed, and a peer counts as failed when the chance that a live one is still
silent is below 10^-phi. As in Akka, a pause is allowed on top. With a fixed phi that is a timeout::

    pause + max(FLOOR_INTERVALS x interval, mean + SIGMAS x standard deviation)

The first term under ``max`` is for calm times, when the deviation is next to nothing. The second grows by itself
where machines are busy or links are bad.
"""

from collections import deque
from math import isqrt
from typing import Final

WINDOW: Final = 600
"""DurationWindow that are remembered: with the default heartbeats, those of the last 18 seconds."""
SIGMAS: Final = 6
"""A normal deviation beyond it has a chance of 10^-9: phi is 9."""
FLOOR_INTERVALS: Final = 3
"""One for the interval itself, two for a scheduler that is late, in calm times."""


class DurationWindow:
    """The last ``WINDOW`` of how long something took."""

    def __init__(self) -> None:
        self._last: deque[int] = deque()
        self._sum = 0
        self._sum_of_squares = 0

    def add(self, duration_ms: int) -> None:
        self._last.append(duration_ms)
        self._sum += duration_ms
        self._sum_of_squares += duration_ms**2
        if len(self._last) > WINDOW:
            oldest = self._last.popleft()
            self._sum -= oldest
            self._sum_of_squares -= oldest**2

    @property
    def longest_ms(self) -> int:
        """It hardly ever takes longer: the mean and ``SIGMAS`` standard deviations; 0 before anything is known."""
        count = len(self._last)
        if not count:
            return 0
        deviation = isqrt(count * self._sum_of_squares - self._sum**2)  # times the count; exact
        return (self._sum + SIGMAS * deviation) // count


class FailureDetector:
    """Of one peer. Times are of a clock of the caller's that may stand still, but never goes back."""

    def __init__(self, *, pause_ms: int, interval_ms: int, limit_ms: int) -> None:
        """``interval_ms``: how often signs of life are due; ``limit_ms``: no timeout is longer."""
        self._pause_ms = pause_ms
        self._floor_ms = FLOOR_INTERVALS * interval_ms
        self._limit_ms = limit_ms
        self._intervals = DurationWindow()
        self._heard_ms: int | None = None

    def heard(self, now_ms: int) -> None:
        """A sign of life. A peer that had failed is back: that is no interval to be learned."""
        if self._heard_ms is not None and now_ms - self._heard_ms < self.timeout_ms:
            self._intervals.add(now_ms - self._heard_ms)
        self._heard_ms = now_ms

    def interrupted(self) -> None:
        """No sign of life is due until the next one: that interval tells nothing."""
        self._heard_ms = None

    @property
    def timeout_ms(self) -> int:
        """A peer that is silent for so long has failed."""
        learned_ms = max(self._floor_ms, self._intervals.longest_ms)
        return min(self._pause_ms + learned_ms, self._limit_ms)
