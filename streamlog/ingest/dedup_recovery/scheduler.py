"""Partition ingests on their way to being open: first their deduplicator has to know the ids in the log."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from streamlog.condition import FAULT, REPAIR_DISK, Condition
from streamlog.errors import CorruptData, Unavailable
from streamlog.ingest.dedup_recovery.hops import CALLS_MAX, InThread, SharedHops, alone
from streamlog.ingest.dedup_recovery.snapshots import (
    DedupSnapshots,
    KeptSnapshot,
)
from streamlog.ingest.dedup_recovery.window_scan import (
    NEVER_MS,
    Scanned,
    look_at_recent,
    rebuild_window,
    recent_of,
)
from streamlog.ingest.partition_ingest import PartitionIngest
from streamlog.partition.partition import Partition
from streamlog.partition.subjects.index_cache import SUBJECTS_NOT_KNOWN

logger = logging.getLogger(__name__)

IDS_NOT_READ: Final = Condition(
    "SL-0411",
    "message ids are not known",
    "publishers may repeat themselves unseen; another replica in sync repairs the log by "
    "itself; without one restore from a backup",
    meaning="The log could not be read for the message ids of its duplicate window. A message "
    "that was stored before may be stored again.",
)
LAST_MESSAGES_UNKNOWN: Final = Condition(
    "SL-0413",
    "the last messages are not known",
    "another replica repairs the log; " + REPAIR_DISK,
    meaning="The end of the log is damaged, so that expected sequences of the last messages are "
    "not known.",
)

HOPS_AT_ONCE: Final = 4
"""To worker threads that read logs."""
AT_ONCE: Final = HOPS_AT_ONCE * CALLS_MAX
"""Windows that are rebuilt side by side."""
KNOWING_AT_ONCE: Final = 4
"""Logs that are read for their subjects, which may be all of each."""
RETRY_S: Final = 0.5
"""Until a log is read again that could not be."""


class DedupRecovery(NamedTuple):
    """A partition ingest on its way. It stays shut while its log cannot be read, since it would store again
    what it does not know of; but no longer than the duplicate window lasts: then no id counts that
    was there when it began.
    """

    ingest: PartitionIngest
    partition: Partition
    known_offset: int
    """The deduplicator has the ids below it."""
    deadline_ms: int


def knows_all_ids(ingest: PartitionIngest, partition: Partition, known_offset: int = 0) -> bool:
    """Nothing of the log has to be read, as of an empty one: it may open at once. The
    deduplicator has the ids below ``known_offset``.
    """
    start, end = partition.local_log_start_offset, partition.log_end_offset
    known = max(known_offset, start) >= end and (start == end or not ingest.deduplicator.rolls_up)
    return known and partition.subjects.is_ready


class DedupRecoveryScheduler:
    """``add``; ``run`` has them opened in the background, ``drain`` at once."""

    def __init__(
        self,
        open_: Callable[[PartitionIngest], None],
        *,
        snapshots: DedupSnapshots,
        now_ms: Callable[[], int],
    ) -> None:
        """``open_``: called with each whose ids are known; it has what is owed erased before
        anything else is appended.
        """
        self._open = open_
        self._snapshots = snapshots
        self._now_ms = now_ms
        self._waiting: deque[DedupRecovery] = deque()
        self._unread: list[DedupRecovery] = []
        """Their logs could not be read; they wait again after a while."""
        self._knowing = asyncio.Semaphore(KNOWING_AT_ONCE)
        self._added = asyncio.Event()
        self.count = 0
        """Those that are not open yet."""

    def add(self, ingest: PartitionIngest, partition: Partition, *, known_offset: int = 0) -> None:
        """The deduplicator has the ids below ``known_offset``, a batch's first one, already."""
        deadline_ms = self._now_ms() + ingest.deduplicator.duplicate_window_ms
        self._waiting.append(DedupRecovery(ingest, partition, known_offset, deadline_ms))
        self.count += 1
        self._added.set()

    async def run(self) -> None:
        """For as long as some are added."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if self._unread else None):
                    await self._added.wait()
            self._added.clear()
            self.try_again()
            await self.drain()

    def try_again(self) -> None:
        """Have those wait again whose log could not be read."""
        self._waiting += self._unread
        self._unread.clear()

    async def drain(self) -> None:
        """Return when none waits."""
        hops, workers = SharedHops(HOPS_AT_ONCE), 0
        async with asyncio.TaskGroup() as group:

            async def work() -> None:
                nonlocal workers
                await self._work(hops.run, one_more)
                workers -= 1

            def one_more() -> None:
                nonlocal workers
                if self._waiting and workers < AT_ONCE:
                    workers += 1
                    group.create_task(work())

            for _ in range(min(AT_ONCE, len(self._waiting))):
                one_more()

    async def _work(
        self, in_thread: InThread = alone, one_more: Callable[[], None] = lambda: None
    ) -> None:
        """``one_more`` has another task do so, if one is of use."""
        while self._waiting:
            opening = self._waiting.popleft()
            one_more()
            ingest, is_over = opening.ingest, True
            try:
                if not ingest.closed:
                    recent = await self._rebuild(opening, in_thread)
                    is_over = recent is not None
                    if recent is not None:
                        async with self._knowing:
                            await self._know_subjects(ingest, opening.partition, recent)
                        if not ingest.closed:
                            self._open(ingest)
            finally:
                if is_over:
                    self.count -= 1
                else:
                    self._unread.append(opening)

    async def _rebuild(self, opening: DedupRecovery, in_thread: InThread) -> list[Scanned] | None:
        """What the last messages are, when all ids are known that can be; None: try again. A bug
        here must not keep the stream shut.
        """
        ingest, partition, known_offset, deadline_ms = opening
        deduplicator, tp = ingest.deduplicator, partition.tp
        extra = {"stream": tp.stream, "partition": tp.partition, "epoch": ingest.leader_epoch}
        since_ms = self._now_ms() - deduplicator.duplicate_window_ms
        whole: list[Scanned] = []
        try:
            if not known_offset:
                kept = KeptSnapshot(partition, deduplicator, ingest.leader_epoch)
                known_offset = await self._snapshots.recall(kept, since_ms, in_thread)
            count = await rebuild_window(
                partition,
                deduplicator,
                since_ms=since_ms,
                from_offset=known_offset,
                in_thread=in_thread,
                whole=whole,
            )
            recent = recent_of(partition, whole)
            if recent is None:
                recent = await self._look_at_recent(partition, in_thread)
        except Unavailable as error:
            deduplicator.abort(opening.known_offset)  # which is read again
            is_over = self._now_ms() >= deadline_ms
            if is_over:
                deduplicator.leave_out(NEVER_MS)
            what = (
                IDS_NOT_READ
                if is_over
                else IDS_NOT_READ.logged_as("message ids cannot be read yet")
            )
            logger.warning(what, extra={**extra, "error": str(error)})
            return [] if is_over else None
        except Exception:
            deduplicator.leave_out(NEVER_MS)
            logger.exception(FAULT.logged_as("duplicate window could not be rebuilt"), extra=extra)
        else:
            if count:
                logger.info("duplicate window rebuilt", extra={**extra, "ids": count})
            return recent
        return []

    async def _look_at_recent(self, partition: Partition, in_thread: InThread) -> list[Scanned]:
        """Nothing where it is damaged. Raises Unavailable."""
        try:
            return await look_at_recent(partition, in_thread)
        except CorruptData as error:
            tp = partition.tp
            extra = {"stream": tp.stream, "partition": tp.partition, "error": str(error)}
            logger.warning(LAST_MESSAGES_UNKNOWN, extra=extra)
            return []

    async def _know_subjects(
        self, ingest: PartitionIngest, partition: Partition, recent: list[Scanned]
    ) -> None:
        """Where messages expect the sequence of a subject, or have others go, before the first of
        them is judged. A leader may have ended between such a message and the erasure of what was
        before it: then it is owed, and appended before anything else is.
        """
        tp, rolls_up = partition.tp, ingest.deduplicator.rolls_up
        extra = {"stream": tp.stream, "partition": tp.partition}
        rollups = [it for scanned in recent for it in scanned.rollups if rolls_up]
        ingest.owe(rollups)
        try:
            expects = any(scanned.expects for scanned in recent) or any(
                subject is not None for _, subject in rollups
            )
            if not partition.subjects.is_ready or expects:
                partition.subjects.want()
                await partition.subjects.know()
        except Exception as error:  # it must not keep the stream shut
            logger.warning(SUBJECTS_NOT_KNOWN, extra={**extra, "error": str(error)})
