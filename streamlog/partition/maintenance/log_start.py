"""A log begins later: because its limits say so, on request, and as its leader does.

A log start offset only rises once it is durable in the checkpoint, on leader and follower alike:
what a replica reports of it, and what it deletes, a crash cannot take back. A leader acknowledges
one when every in-sync replica has reported it (KIP-107), so no later leader begins below it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

from streamlog.condition import REPAIR_DISK, Condition
from streamlog.errors import StreamlogError
from streamlog.partition.partition import Partition

logger = logging.getLogger(__name__)

LOG_STARTS_NOT_WRITTEN: Final = Condition(
    "SL-0217",
    "log starts are not written",
    "purges wait, nothing is deleted meanwhile; " + REPAIR_DISK,
    meaning="The file with the first offset of each log could not be written.",
)

RETRY_S: Final = 1.0
"""After which a log start that could not be written is written again."""
WRITE_SHARE: Final = 0.05
"""Of the time, at most, goes to writes of those that limits move."""
NOTE_INTERVAL_MS: Final = 30_000
"""How long at most the checkpoint alone says where a limit has a led log begin. The log's manifest, by which a start
knows it where the checkpoint is lost, is a file of its own for each log."""

Persist = Callable[[Mapping[Partition, int]], Awaitable[None]]


async def free_front(partition: Partition) -> None:
    """Where a whole segment at the log's start is erased, it begins later; where consumers empty it, behind whatever
    is erased there.
    """
    log = partition.state.log
    if partition.config.is_consumed:
        start = partition.erased.first_absent(log.log_start_offset)
        await partition.shorten(min(start, partition.high_watermark))
        return
    if not log.segments.sealed():
        return
    start = min(log.erasures.erased.first_absent(log.log_start_offset), partition.high_watermark)
    if start >= log.segments.first.next_offset:
        await partition.shorten(start)


class LogStartAdvances:
    """Log starts for which no caller waits: a leader's by retention, a follower's by what its leader
    says. Those of many partitions become durable with one write. ``run`` as a task.
    """

    def __init__(
        self,
        persist: Persist,
        *,
        is_here: Callable[[Partition], bool],
        raised: Callable[[Partition], None],
    ) -> None:
        """``raised`` is called with each partition that begins later now."""
        self._persist = persist
        self._is_here = is_here
        self._raised = raised
        self._wanted: dict[Partition, int] = {}
        self._unnoted: dict[Partition, None] = {}
        """Their manifests do not have it yet."""
        self._is_written = True
        """The last time."""
        self._any = asyncio.Event()
        self._awaited = asyncio.Event()

    def want(self, partition: Partition, offset: int) -> None:
        """Have it begin there soon; at once on a follower, whose leader may be waiting for it."""
        if offset > max(partition.local_log_start_offset, self._wanted.get(partition, 0)):
            self._wanted[partition] = offset
            self._any.set()
            if not partition.is_leader:
                self._awaited.set()

    async def run(self) -> None:
        """For as long as the node runs."""
        while True:
            await self._any.wait()
            self._any.clear()
            self._awaited.clear()
            started = time.monotonic()
            await self.settle()
            if self._wanted:  # could not be written, or has come meanwhile
                self._any.set()
            spent_s = time.monotonic() - started
            if not self._is_written:
                await asyncio.sleep(RETRY_S)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(min(spent_s / WRITE_SHARE - spent_s, RETRY_S)):
                    await self._awaited.wait()

    async def settle(self) -> None:
        """Have all begin where they are wanted to. A disk that refuses is told of; see ``run``."""
        wanted, self._wanted = self._wanted, {}
        due = {it: offset for it, offset in wanted.items() if self._may_begin_at(it, offset)}
        if not due:
            return
        self._is_written = False
        try:
            await self._persist(due)
        except StreamlogError as error:
            logger.warning(LOG_STARTS_NOT_WRITTEN, extra={"error": str(error)})
            for partition, offset in due.items():
                self._wanted[partition] = max(offset, self._wanted.get(partition, 0))
            return
        self._is_written = True
        for partition, offset in due.items():
            if self._may_begin_at(partition, offset):
                # A leader's is by its limits. What a follower hears may be a purge that its leader acknowledges: its
                # manifest has it at once, so that the checkpoint's loss brings nothing back.
                partition.begin_at(offset, is_noted_soon=not partition.is_leader)
                if partition.is_leader:
                    self._unnoted[partition] = None
                self._raised(partition)

    async def note(self) -> None:
        """Have the manifests say it, too."""
        unnoted, self._unnoted = self._unnoted, {}
        for partition in unnoted:
            if self._is_here(partition) and not partition.closed:
                partition.note_log_start()

    def _may_begin_at(self, partition: Partition, offset: int) -> bool:
        """A log that was cut meanwhile hears from its leader again where it is to begin."""
        return (
            self._is_here(partition)
            and not partition.closed
            and not partition.state.cutting
            and partition.local_log_start_offset < offset <= partition.high_watermark
        )
