"""What lies between the machines: each direction by itself is slow, lossy or cut."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.simulation.events import Events

Place = int
"""A node's id; 0 is the NATS server."""

NATS: Place = 0


@dataclass
class Weather:
    """How all links are that are not cut."""

    loss: float = 0.0
    duplication: float = 0.0
    slow: float = 0.05
    """How much takes up to ``delay_us_max``, so that what is sent later overtakes it."""
    delay_us_max: int = 100_000


class Links:
    """Carries calls instead of bytes."""

    def __init__(self, events: Events, rng: random.Random) -> None:
        self.weather = Weather()
        self._events = events
        self._rng = rng
        self._cuts: set[tuple[Place, Place]] = set()
        self._delays_us: dict[tuple[Place, Place], int] = {}

    def carry(
        self, source: Place, target: Place, deliver: Callable[[], None], *, once: bool = False
    ) -> None:
        """Whether the link is cut is seen when it is sent, and again when it would arrive."""
        if source == target:
            self._events.after(0, deliver)
            return
        copies = 1 if once else 1 + (self._rng.random() < self.weather.duplication)
        for _ in range(copies):
            if not self.is_cut(source, target) and not self.loses():
                delay_us = self.delay_us(source, target)
                self._events.after(delay_us, self._arrival(source, target, deliver))

    def loses(self) -> bool:
        return self._rng.random() < self.weather.loss

    def delay_us(self, source: Place, target: Place) -> int:
        is_slow = self._rng.random() < self.weather.slow
        delay_us = self._rng.randint(50, self.weather.delay_us_max if is_slow else 1_000)
        return delay_us + self._delays_us.get((source, target), 0)

    def _arrival(
        self, source: Place, target: Place, deliver: Callable[[], None]
    ) -> Callable[[], None]:
        return lambda: None if self.is_cut(source, target) else deliver()

    def is_cut(self, source: Place, target: Place) -> bool:
        return (source, target) in self._cuts

    def cut(self, source: Place, target: Place) -> None:
        """One way."""
        self._cuts.add((source, target))

    def isolate(self, place: Place, others: Iterable[Place]) -> None:
        """Both ways, from all of ``others``."""
        for other in others:
            self._cuts |= {(place, other), (other, place)}

    def split(self, one: Iterable[Place], other: Iterable[Place]) -> None:
        """Nothing passes between the two halves."""
        others = list(other)
        for place in one:
            self.isolate(place, others)

    def slow_down(self, source: Place, target: Place, delay_us: int) -> None:
        """One way; 0: as all are."""
        self._delays_us[source, target] = delay_us

    def heal(self) -> None:
        self._cuts.clear()
        self._delays_us.clear()
