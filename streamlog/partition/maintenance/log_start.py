"""A log loses its beginning: whole segments by retention, any part of it on request.

A log start offset only rises once it is durable in the checkpoint, on leader and follower alike:
what a replica reports of it, and what it deletes, a crash cannot take back. A leader acknowledges
one when every in-sync replica has reported it (KIP-107), so no later leader begins below it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
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


def retain(partition: Partition, now_ms: int) -> None:
    """Let go soon of whole segments that the limits no longer keep; followers follow in that, but
    where the disk is full: they cannot fetch what would tell them. Raises StreamlogError.
    """
    state, log = partition.state, partition.state.log
    may_delete = partition.is_leader or not (state.has_room or state.cutting or partition.closed)
    if not may_delete or partition.failure is not None:
        return
    start = log.retained_start(now_ms, partition.high_watermark)
    if partition.is_leader and partition.config.sources:
        places = partition.places
        start = log.log_start_offset if places is None else places.start_for(start)
    if start > log.log_start_offset:
        partition.begin_later(start)
    elif log.advance_log_start(start, is_kept=True):  # files that could not be removed before
        partition.offsets_changed()


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
        self._any = asyncio.Event()

    def want(self, partition: Partition, offset: int) -> None:
        """Have it begin there soon."""
        if offset > max(partition.log_start_offset, self._wanted.get(partition, 0)):
            self._wanted[partition] = offset
            self._any.set()

    async def run(self) -> None:
        """For as long as the node runs."""
        while True:
            await self._any.wait()
            self._any.clear()
            await self.settle()
            if self._wanted:  # could not be written
                await asyncio.sleep(RETRY_S)
                self._any.set()

    async def settle(self) -> None:
        """Have all begin where they are wanted to. A disk that refuses is told of; see ``run``."""
        wanted, self._wanted = self._wanted, {}
        due = {it: offset for it, offset in wanted.items() if self._may_begin_at(it, offset)}
        if not due:
            return
        try:
            await self._persist(due)
        except StreamlogError as error:
            logger.warning(LOG_STARTS_NOT_WRITTEN, extra={"error": str(error)})
            for partition, offset in due.items():
                self._wanted[partition] = max(offset, self._wanted.get(partition, 0))
            return
        for partition, offset in due.items():
            if self._may_begin_at(partition, offset):
                partition.begin_at(offset)
                self._raised(partition)

    def _may_begin_at(self, partition: Partition, offset: int) -> bool:
        """A log that was cut meanwhile hears from its leader again where it is to begin."""
        return (
            self._is_here(partition)
            and not partition.closed
            and not partition.state.cutting
            and partition.log_start_offset < offset <= partition.high_watermark
        )
