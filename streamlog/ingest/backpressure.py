"""Backpressure: where more waits for a commit than ``in_flight_bytes_max``, NATS is read no further; where that
does not help in time, messages are refused.
"""

import asyncio
import logging
import time
from typing import Final

from streamlog.condition import Condition
from streamlog.errors import BrokenInvariant
from streamlog.metrics import NodeMetrics

logger = logging.getLogger(__name__)

NO_ROOM: Final = Condition(
    "SL-0407",
    "no room, refusing",
    "see whether the disk and the followers keep up: streamlog_fsync_duration_seconds, ISR, lag",
    meaning="Too many bytes wait to be committed. Publishers get an error and may publish again.",
)


class InFlightBytes:
    """At the limit NATS is read no further, for at most ``backpressure_timeout_ms``; then messages are refused."""

    def __init__(
        self, *, in_flight_bytes_max: int, backpressure_timeout_ms: int, metrics: NodeMetrics
    ) -> None:
        self.taken_bytes = 0
        """Handed to ``take`` and not yet given back; may pass the limit by one read."""
        self.refusing = False
        """A stall was not enough; ends when there is room again."""
        self._in_flight_bytes_max = in_flight_bytes_max
        self._stall_s_max = backpressure_timeout_ms / 1000
        self._metrics = metrics
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._empty = asyncio.Event()
        self._empty.set()
        metrics.in_flight_bytes.set_function(lambda: self.taken_bytes)

    def take(self, size_bytes: int) -> None:
        if not self.taken_bytes:
            self._empty.clear()
        self.taken_bytes += size_bytes
        if self.taken_bytes > self._in_flight_bytes_max:
            self._has_room.clear()

    def give_back(self, size_bytes: int) -> None:
        self.taken_bytes -= size_bytes
        if self.taken_bytes < 0:
            raise BrokenInvariant("what was given back had been taken")
        if not self.taken_bytes:
            self._empty.set()
        if self.taken_bytes <= self._in_flight_bytes_max and not self._has_room.is_set():
            self._has_room.set()
            if self.refusing:
                self.refusing = False
                logger.info("room again", extra={"in_flight_bytes": self.taken_bytes})

    @property
    def has_room(self) -> bool:
        """The next read may be made: there is room, or what has none is refused."""
        return self._has_room.is_set() or self.refusing

    async def wait(self) -> None:
        """Return when the next read may be made."""
        if self.has_room:
            return
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._stall_s_max):
                await self._has_room.wait()
        except TimeoutError:
            self.refusing = True
            logger.warning(NO_ROOM, extra={"in_flight_bytes": self.taken_bytes})
        finally:
            self._metrics.ingest_paused_seconds.inc(time.monotonic() - started)

    async def wait_empty(self, timeout_s: float) -> bool:
        """Nothing waits for a commit; False if that does not come in time."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._empty.wait()
        except TimeoutError:
            return False
