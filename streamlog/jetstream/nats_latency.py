"""How long NATS takes to answer, for who has to tell that it is slow. Pure but for its clock."""

import time
from collections.abc import Callable
from typing import Final

HANGS_S: Final = 5.0
"""One answer that is missing for so long counts by itself."""


class NatsLatency:
    """``asked`` and ``answered`` in turn; ``lost`` with the connection."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._asked_s: float | None = None
        self._last_s = self._before_s = 0.0

    def asked(self) -> None:
        self._asked_s = self._now_s()

    def answered(self) -> None:
        if self._asked_s is not None:
            self._before_s, self._last_s = self._last_s, self._now_s() - self._asked_s
            self._asked_s = None

    def lost(self) -> None:
        """Nothing is known of the next connection."""
        self._asked_s = None
        self._last_s = self._before_s = 0.0

    @property
    def seconds(self) -> float:
        """Of the last two answers the sooner, so that one that was late does not count. An answer
        that is awaited counts for as long as it has been missing.
        """
        pending_s = 0.0 if self._asked_s is None else self._now_s() - self._asked_s
        of_two_s = min(max(pending_s, self._before_s), self._last_s)
        return max(of_two_s, pending_s) if pending_s >= HANGS_S else of_two_s
