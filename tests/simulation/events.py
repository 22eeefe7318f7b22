"""Time that passes from one event to the next."""

import heapq
import itertools
from collections.abc import Callable


class Events:
    """A heap of calls. Equal times run in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now_us = 0
        self.count = 0
        """So many have been run."""
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    def after(self, delay_us: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now_us + delay_us, next(self._numbers), call))

    def step(self) -> bool:
        """Run the next one; False when there is none."""
        if not self._heap:
            return False
        self.now_us, _, call = heapq.heappop(self._heap)
        self.count += 1
        call()
        return True
