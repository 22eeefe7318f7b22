"""Reads all logs again now and then: what is damaged is to be found while others still have it."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

from streamlog.config import LogSection
from streamlog.errors import StreamlogError
from streamlog.partition.owner import Partition

logger = logging.getLogger(__name__)

FIRST_MS: Final = 600_000
"""A node that has just started has other things to do."""


class Scrubbing:
    """One segment of one partition at a time. ``run`` as a task."""

    def __init__(self, settings: LogSection, partitions: Callable[[], Iterable[Partition]]) -> None:
        self._settings = settings
        self._partitions = partitions

    async def run(self) -> None:
        """For as long as the node runs, unless it is not wanted."""
        interval_ms = self._settings.scrub_interval_ms
        if not interval_ms:
            return
        await asyncio.sleep(min(interval_ms, FIRST_MS) / 1000)
        while True:
            started = time.monotonic()
            await self._scrub_all()
            await asyncio.sleep(max(0.0, started + interval_ms / 1000 - time.monotonic()))

    async def _scrub_all(self) -> None:
        for partition in tuple(self._partitions()):
            try:
                await partition.reader.scrub(self._settings.scrub_bytes_per_s)
            except StreamlogError as error:
                logger.error("scrub failed", extra=partition.place(error))
            await asyncio.sleep(0)
