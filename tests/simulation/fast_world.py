"""Fast batches, besides all that ``AskingWorld`` has: their messages come in order, but for those that are lost."""

from tests.simulation.asking_world import AskingWorld
from tests.simulation.fast_publisher import FastPublisher, GapsOkPublisher
from tests.simulation.publisher import Publisher


class FastWorld(AskingWorld):
    """Of a stream whose leadership comes and goes, which cuts off what is not committed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._due_us = 0
        for name, kind in {"f": FastPublisher, "g": GapsOkPublisher, "h": FastPublisher}.items():
            self._publishers[name] = self._publisher(
                name, window=1 + (name == "g"), kind=kind, send=self._send_in_order
            )

    def _send_in_order(self, frames: bytes) -> None:
        if self.rng.random() < self._network.loss / 2:
            return

        def deliver() -> None:
            if self.life is not None:
                self.life.receive(frames)

        now_us = self.events.now_us
        self._due_us = max(self._due_us, now_us + self.rng.randint(50, 3_000))
        self.events.after(self._due_us - now_us, deliver)

    def _said(self, publisher: Publisher, reply: str, payload: bytes) -> None:
        if isinstance(publisher, FastPublisher):
            publisher.said(reply, payload)
            publisher.judge(reply, payload)
