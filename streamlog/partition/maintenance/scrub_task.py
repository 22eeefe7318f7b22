"""Reads all logs again now and then: what is damaged is to be found while others still have it.

A log that was just opened is held against its manifest here, beside what else the node does: a
start compares names and sizes alone, so that it takes no longer for a longer log. Until a segment
is compared its first reader does it. A replica whose segment is another log's is thus in sync no
longer than it takes to look at the logs that were opened before it.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from streamlog.condition import CORRECT_THEN_RESTART, CRITICAL, Condition
from streamlog.config import LogSection
from streamlog.errors import StreamlogError
from streamlog.partition.partition import Partition

logger = logging.getLogger(__name__)

SCRUB_FAILED: Final = Condition(
    "SL-0224",
    "scrub failed",
    CORRECT_THEN_RESTART,
    meaning="The check of stored batches could not read a log.",
    severity=CRITICAL,
)

FILES_MS: Final = 300_000
"""Between two looks at which files are there."""
FILES_PAUSE_S: Final = 0.005
"""Between two partitions then, so that many cost little."""
FIRST_MS: Final = 600_000
"""A node that has just started has other things to do."""


class ScrubTask:
    """One segment of one partition at a time. ``run`` as a task."""

    def __init__(self, settings: LogSection, partitions: Callable[[], Iterable[Partition]]) -> None:
        self._settings = settings
        self._partitions = partitions
        self._opened: deque[Partition] = deque()
        self._any_opened = asyncio.Event()

    def opened(self, partition: Partition) -> None:
        """Its log was opened, and has segments that were not checked."""
        self._opened.append(partition)
        self._any_opened.set()

    async def run(self) -> None:
        """For as long as the node runs. What was opened is looked at in any case."""
        interval_ms = self._settings.scrub_interval_ms
        async with asyncio.TaskGroup() as group:
            group.create_task(self._check_opened())
            if interval_ms:
                group.create_task(self._every(min(interval_ms, FILES_MS), self._check_files))
                group.create_task(self._every(interval_ms, self._scrub_all))

    async def _check_opened(self) -> None:
        while True:
            await self._any_opened.wait()
            self._any_opened.clear()
            while self._opened:
                partition = self._opened.popleft()
                if partition.is_swapping:  # its files are not to be judged now
                    self._opened.append(partition)
                    await asyncio.sleep(FILES_PAUSE_S)
                else:
                    await self._check(partition)

    async def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(min(interval_ms, FIRST_MS) / 1000)
        while True:
            started = time.monotonic()
            await work()
            await asyncio.sleep(max(0.0, started + interval_ms / 1000 - time.monotonic()))

    async def _check_files(self) -> None:
        """Without what is between the ends: what is missing need not wait until all was read."""
        for partition in tuple(self._partitions()):
            await self._check(partition)

    async def _check(self, partition: Partition) -> None:
        await partition.reader.check_files()
        await asyncio.sleep(FILES_PAUSE_S)

    async def _scrub_all(self) -> None:
        for partition in tuple(self._partitions()):
            try:
                await partition.reader.scrub(self._settings.scrub_bytes_per_s)
            except StreamlogError as error:
                logger.error(SCRUB_FAILED, extra=partition.place(error))
            await asyncio.sleep(0)
