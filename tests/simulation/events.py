"""Time that passes from one event to the next."""

import heapq
import itertools
from collections.abc import Callable


class OutOfTime(Exception):
    """The next event comes later than the story may go on."""


class Events:
    """A heap of calls. Equal times run in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now_us = 0
        self.count = 0
        """So many have been run."""
        self.until_us: int | None = None
        """No event after that is run; ``None``: there is no end to it."""
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    @property
    def now_ms(self) -> int:
        return self.now_us // 1000

    def after(self, delay_us: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now_us + delay_us, next(self._numbers), call))

    def step(self) -> bool:
        """Run the next one; False when there is none. Raises OutOfTime."""
        if not self._heap:
            return False
        self.now_us, _, call = heapq.heappop(self._heap)
        if self.until_us is not None and self.now_us > self.until_us:
            raise OutOfTime(f"at {self.until_us} us")
        self.count += 1
        call()
        return True
