"""Advisories on their way to NATS."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from streamlog.jetstream.advisories import Advisories, Advisory
from streamlog.metadata.image.metadata_image import MetadataImage

logger = logging.getLogger(__name__)

WAITING_MAX: Final = 1_000
"""The oldest are dropped: they are for those who watch, and nothing depends on them."""


class AdvisoryPublisher:
    """The controller's node tells of what is decided: ``apply`` at each change, ``run`` as a
    task. At most once: what changes while there is no NATS, or between two controllers, is not
    told, and changes that a node takes together are told as one.
    """

    def __init__(
        self,
        advisories: Advisories,
        publish: Callable[[str, bytes], Awaitable[object]],
        *,
        is_controller: Callable[[], bool],
    ) -> None:
        self._advisories = advisories
        self._publish = publish
        self._is_controller = is_controller
        self._waiting: deque[Advisory] = deque(maxlen=WAITING_MAX)
        self._added = asyncio.Event()
        self.dropped = 0

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        if not self._is_controller():
            return
        for change in new.changes(old):
            for advisory in self._advisories.of_change(change, new):
                self.tell(advisory)

    def tell(self, advisory: Advisory) -> None:
        """Soon."""
        if len(self._waiting) == WAITING_MAX:
            self.dropped += 1
        self._waiting.append(advisory)
        self._added.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._added.wait()
            self._added.clear()
            while self._waiting:
                await self._publish(*self._waiting.popleft())
            if self.dropped:
                logger.warning("advisories were dropped", extra={"count": self.dropped})
                self.dropped = 0
