"""An application that publishes by an operation, at any node."""

import random
from collections.abc import Callable

from streamlog.errors import StreamlogError
from streamlog.metadata.image.metadata_image import StreamImage
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.events import Events

PAUSE_US_MAX = 200_000
PATIENCE_US = 8_000_000
"""An operation ends before: the node answers, or is gone."""


class ApiPublisher:
    """Publishes each message once, at any node, and waits for the answer. After an error it does not know
    whether the message is stored.
    """

    waits_for_each = False
    """What it does not know the outcome of may be stored after the next one."""

    def __init__(
        self,
        name: str,
        stream: StreamImage,
        number: int,
        *,
        events: Events,
        rng: random.Random,
        until_us: int,
        node: Callable[[], ClusterNode | None],
        acknowledged: Callable[[str, int], None],
    ) -> None:
        self.name = name
        self.acknowledged = 0
        self.problems: set[str] = set()
        """The errors that it was told, by class."""
        self._stream = stream.config.name
        self._partition = number
        self._events = events
        self._rng = rng
        self._until_us = until_us
        self._node = node
        self._told = acknowledged
        self._sent_us: list[int] = []
        self._waits = False

    @property
    def done(self) -> bool:
        return self._events.now_us >= self._until_us and not self._waits

    def sent_us(self, number: int) -> int:
        """When it was sent."""
        return self._sent_us[number]

    def end(self) -> None:
        """It sends nothing more."""
        self._until_us = 0
        self._waits = False

    def start(self) -> None:
        self._events.after(self._rng.randint(0, PAUSE_US_MAX), self._send_next)

    def _send_next(self) -> None:
        if self._events.now_us >= self._until_us:
            return
        node = self._node()
        if node is None:
            self.start()
            return
        message_id = f"{self.name}:{len(self._sent_us)}"
        self._sent_us.append(self._events.now_us)
        self._waits = True
        number = len(self._sent_us)

        async def publish() -> None:
            try:
                told = await node.control.messages.publish(
                    self._stream, message_id, partition=self._partition
                )
            except StreamlogError as error:
                self.problems.add(type(error).__name__)
            else:
                self.acknowledged += 1
                offset = told.offset  # outside of the node, for a violation is not the node's error
                self._events.after(0, lambda: self._told(message_id, offset))
            go_on()

        def go_on() -> None:
            if self._waits and number == len(self._sent_us):
                self._waits = False
                self.start()

        node.loop.call_soon(lambda: node.spawn(publish()))
        self._events.after(PATIENCE_US, go_on)  # the node may be gone
