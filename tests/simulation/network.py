"""Between publishers and the node: late, out of order, twice, or never."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.simulation.events import Events


@dataclass
class Network:
    """Carries calls instead of bytes; who calls has them made up."""

    events: Events
    rng: random.Random
    loss: float = 0.1
    duplication: float = 0.1
    delay_us_max: int = 20_000

    def carry(self, deliver: Callable[[], None]) -> None:
        copies = 1 + (self.rng.random() < self.duplication)
        for _ in range(copies):
            if self.rng.random() >= self.loss:
                # Mostly quick, so that those that are not are overtaken.
                slow = self.rng.random() < 0.2
                delay_us = self.rng.randint(50, self.delay_us_max if slow else 500)
                self.events.after(delay_us, deliver)
