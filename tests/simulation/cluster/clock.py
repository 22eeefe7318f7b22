"""A machine's clocks: none of them right."""

import math
import random

from tests.simulation.events import Events

BEGAN_MS = 1_700_000_000_000
"""What a right clock shows when a story begins."""
DRIFT_MAX = 0.03
"""A lease leaves more room than that between itself and a session."""


class Clock:
    """The monotonic one runs a little fast or slow; the wall clock also jumps, either way."""

    def __init__(self, events: Events, rng: random.Random) -> None:
        self._events = events
        self._rate = 1 + rng.uniform(-DRIFT_MAX, DRIFT_MAX)
        self._booted_ns = rng.randint(0, 1_000_000_000_000)
        self._wall_offset_ns = (BEGAN_MS + rng.randint(-2_000, 2_000)) * 1_000_000

        self.set_back_ns = 0
        """The wall clock was once set back by so much."""

    @property
    def monotonic_ns(self) -> int:
        return self._booted_ns + int(self._events.now_us * 1_000 * self._rate)

    @property
    def monotonic_ms(self) -> int:
        return self.monotonic_ns // 1_000_000

    @property
    def wall_ns(self) -> int:
        return self._wall_offset_ns + self._events.now_us * 1_000

    @property
    def wall_ms(self) -> int:
        return self.wall_ns // 1_000_000

    def jump(self, by_ms: int) -> None:
        self._wall_offset_ns += by_ms * 1_000_000
        self.set_back_ns = max(self.set_back_ns, -by_ms * 1_000_000)

    def be_right(self) -> None:
        self.jump(BEGAN_MS - self._wall_offset_ns // 1_000_000)

    def delay_us(self, deadline_ms: float) -> int:
        """How long until ``monotonic_ms`` shows that, in true time."""
        left_ns = deadline_ms * 1_000_000 - self.monotonic_ns
        return max(0, math.ceil(left_ns / self._rate / 1_000) + 1)
