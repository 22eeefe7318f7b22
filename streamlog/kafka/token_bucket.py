"""How much a client has saved up, and how long it must wait when it has used more. Pure.

As Kafka's token bucket: what is allowed for a whole window may be used at once, and whoever has not
used it has saved it up. What is used is never cut off in the middle: the bucket goes below zero,
and the client waits until that is paid.
"""

from typing import Final

DEBT_S_MAX: Final = 30.0
"""No wait is longer, and what lies beyond is forgiven: a client's next request, sent before it was
told, must be answered before the client gives it up.
"""


class TokenBucket:
    """Times are monotonic, in seconds.

    Invariant: ``-DEBT_S_MAX * rate <= tokens <= window_s * rate``.
    """

    __slots__ = ("_now_s", "_tokens", "_window_s", "rate")

    def __init__(self, rate: float, window_s: float, now_s: float) -> None:
        """``rate``: tokens a second, above 0; full at first."""
        self.rate = rate
        self._window_s = window_s
        self._tokens = rate * window_s
        self._now_s = now_s

    @property
    def capacity(self) -> float:
        return self.rate * self._window_s

    def take(self, amount: float, now_s: float) -> float:
        """Whatever ``amount`` is; how many seconds nothing more should be taken."""
        self._fill(now_s)
        self._tokens = max(self._tokens - amount, -DEBT_S_MAX * self.rate)
        return self._debt_s()

    def debt_s(self, now_s: float) -> float:
        """How many seconds are still to be waited."""
        self._fill(now_s)
        return self._debt_s()

    def set_rate(self, rate: float, now_s: float) -> None:
        """From now on; the time that is to be waited, or was saved up, stays."""
        self._fill(now_s)
        self._tokens *= rate / self.rate
        self.rate = rate

    def _fill(self, now_s: float) -> None:
        passed_s = max(0.0, now_s - self._now_s)
        self._now_s += passed_s
        self._tokens = min(self._tokens + passed_s * self.rate, self.capacity)

    def _debt_s(self) -> float:
        return max(0.0, -self._tokens / self.rate)
