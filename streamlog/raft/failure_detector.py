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
"""Intervals that are remembered: with the default heartbeats, those of the last 18 seconds."""
SIGMAS: Final = 6
"""A normal deviation beyond it has a chance of 10^-9: phi is 9."""
FLOOR_INTERVALS: Final = 4
"""One for the interval itself, three for a scheduler that is late, in calm times."""


class FailureDetector:
    """Of one peer. Times are of a clock of the caller's that may stand still, but never goes back."""

    def __init__(self, *, pause_ms: int, interval_ms: int, limit_ms: int) -> None:
        """``interval_ms``: how often signs of life are due; ``limit_ms``: no timeout is longer."""
        self._pause_ms = pause_ms
        self._floor_ms = FLOOR_INTERVALS * interval_ms
        self._limit_ms = limit_ms
        self._intervals: deque[int] = deque()
        self._sum = 0
        self._sum_of_squares = 0
        self._heard_ms: int | None = None

    def heard(self, now_ms: int) -> None:
        """A sign of life. A peer that had failed is back: that is no interval to be learned."""
        if self._heard_ms is not None and now_ms - self._heard_ms < self.timeout_ms:
            self._add(now_ms - self._heard_ms)
        self._heard_ms = now_ms

    def interrupted(self) -> None:
        """No sign of life is due until the next one: that interval tells nothing."""
        self._heard_ms = None

    @property
    def timeout_ms(self) -> int:
        """A peer that is silent for so long has failed."""
        return min(self._pause_ms + max(self._floor_ms, self._expected_ms()), self._limit_ms)

    def _expected_ms(self) -> int:
        """When a peer without a pause has been heard of, almost surely; 0 before anything is known."""
        count = len(self._intervals)
        if not count:
            return 0
        deviation = isqrt(count * self._sum_of_squares - self._sum**2)  # times the count; exact
        return (self._sum + SIGMAS * deviation) // count

    def _add(self, interval_ms: int) -> None:
        self._intervals.append(interval_ms)
        self._sum += interval_ms
        self._sum_of_squares += interval_ms**2
        if len(self._intervals) > WINDOW:
            oldest = self._intervals.popleft()
            self._sum -= oldest
            self._sum_of_squares -= oldest**2
