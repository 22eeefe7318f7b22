"""How late the event loop is: the first sign of something that blocks it."""

import asyncio
import logging
from collections import deque
from typing import Final

from prometheus_client import Gauge

from streamlog.http.console.node_findings import LOOP_BLOCKED

logger = logging.getLogger(__name__)

PERIOD_S: Final = 0.25
WARNING_S: Final = 1.0
REMEMBERED: Final = 240
"""A minute of it."""


class LoopLag:
    """Sleeps for a known time and tells by how much it was woken too late."""

    def __init__(self, gauge: Gauge, worst: Gauge | None = None) -> None:
        """``worst``: shows the worst of the last ``REMEMBERED``, which scrapes do not miss."""
        self._gauge = gauge
        self._worst = worst
        self._last: deque[float] = deque(maxlen=REMEMBERED)
        self.seconds = 0.0
        """The last measurement."""

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + PERIOD_S
            await asyncio.sleep(PERIOD_S)
            self.seconds = max(0.0, loop.time() - due)
            self._gauge.set(self.seconds)
            self._last.append(self.seconds)
            if self._worst is not None:
                self._worst.set(max(self._last))
            if self.seconds > WARNING_S:
                logger.warning(LOOP_BLOCKED, extra={"seconds": round(self.seconds, 3)})
