"""Reads all logs again now and then: what is damaged is to be found while others still have it."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from streamlog.config import LogSection
from streamlog.errors import StreamlogError
from streamlog.partition.owner import Partition

logger = logging.getLogger(__name__)

FILES_MS: Final = 300_000
"""Between two looks at which files are there."""
FILES_PAUSE_S: Final = 0.005
"""Between two partitions then, so that many cost little."""
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
        async with asyncio.TaskGroup() as group:
            group.create_task(self._every(min(interval_ms, FILES_MS), self._check_files))
            group.create_task(self._every(interval_ms, self._scrub_all))

    async def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(min(interval_ms, FIRST_MS) / 1000)
        while True:
            started = time.monotonic()
            await work()
            await asyncio.sleep(max(0.0, started + interval_ms / 1000 - time.monotonic()))

    async def _check_files(self) -> None:
        """Names and sizes only: what is missing need not wait until all has been read."""
        for partition in tuple(self._partitions()):
            await partition.reader.check_files()
            await asyncio.sleep(FILES_PAUSE_S)

    async def _scrub_all(self) -> None:
        for partition in tuple(self._partitions()):
            try:
                await partition.reader.scrub(self._settings.scrub_bytes_per_s)
            except StreamlogError as error:
                logger.error("scrub failed", extra=partition.place(error))
            await asyncio.sleep(0)
