"""A clock that counts only the time in which this node's event loop runs.

A node that stood still finds all others silent when it goes on: what they sent meanwhile is unread. So silence is
measured by this clock. It is never faster than ``clock_ms``: what has lasted so long by it has lasted at least so
long by that.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from streamlog.clock import clock_ms

TICK_MS: Final = 20
STEP_MS_MAX: Final = 3 * TICK_MS
"""Between two looks at the clock no more than this is counted."""


class LoopClock:
    """``run`` as a task."""

    def __init__(self, clock: Callable[[], int] = clock_ms) -> None:
        self._clock = clock
        self._looked_ms = clock()
        self._counted_ms = 0
        self._lost_ms = 0

    def now_ms(self) -> int:
        """Since it was made."""
        now_ms = self._clock()
        passed_ms = max(0, now_ms - self._looked_ms)
        counted_ms = min(passed_ms, STEP_MS_MAX)
        self._counted_ms += counted_ms
        self._lost_ms += passed_ms - counted_ms
        self._looked_ms = now_ms
        return self._counted_ms

    @property
    def lost_ms(self) -> int:
        """What was not counted."""
        self.now_ms()
        return self._lost_ms

    async def run(self) -> None:
        while True:
            self.now_ms()
            await asyncio.sleep(TICK_MS / 1000)
