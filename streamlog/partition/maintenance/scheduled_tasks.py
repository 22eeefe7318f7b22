"""What is done now and then for all partitions: checkpoints, retention, syncs at the interval."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Executor
from typing import Final

from streamlog.condition import CORRECT_THEN_RESTART, NO_ACTION, Condition
from streamlog.config import LogSection
from streamlog.errors import NotLeader, StorageFull, Unavailable
from streamlog.log.storage.disk import storage_error
from streamlog.model import LogId, TopicPartition
from streamlog.partition.maintenance.log_start import NOTE_INTERVAL_MS, LogStartAdvances
from streamlog.partition.maintenance.retention_task import RetentionTask
from streamlog.partition.partition import Partition, nothing
from streamlog.partition.storage.checkpoints import NOTHING, Checkpoints, Offsets
from streamlog.partition.storage.disk_space import DiskReserve

logger = logging.getLogger(__name__)

CHECKPOINTS_NOT_WRITTEN: Final = Condition(
    "SL-0220",
    "checkpoints not written",
    CORRECT_THEN_RESTART,
    meaning="The positions of the logs were not noted. The next start reads more of the logs.",
)
RECOVERY_LIMIT_STAYS: Final = Condition(
    "SL-0221",
    "limit of a recovery point stays",
    NO_ACTION,
    meaning="A note that a log was cut could not be removed. The next start reads more of that "
    "log.",
)
CHECKPOINTS_SHARE: Final = 0.05
"""Of the time, at most: where thousands of partitions change, all of their lines are written."""
_AT_ONCE: Final = 200
"""Partitions that are looked at before others have their turn."""


class ScheduledTasks:
    """Looks only at those partitions that have said that something is to be done."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        checkpoints: Checkpoints,
        workers: Executor,
        settings: LogSection,
        reserve: DiskReserve | None = None,
    ) -> None:
        """``reserve`` is given up where a log start finds no room: files go by it alone."""
        self.begins_later: Callable[[Partition], None] = nothing
        """Hears of each log that does now, though no caller has waited for it."""
        self._partitions = partitions
        self._checkpoints = checkpoints
        self._workers = workers
        self._settings = settings
        self._changed: set[Partition] = set()
        """Their checkpoints are behind."""
        self._moved: set[Partition] | None = None
        """Their offsets have changed since ``moved`` was called last; None: it has not been called."""
        self._dropped: set[LogId] = set()
        """Deleted, and still in the checkpoints."""
        self._unsynced: set[Partition] = set()
        """To be synced at the next interval."""
        self._reserve = reserve
        self._starts: dict[Partition, int] = {}
        """Log starts to be written next."""
        self._later = LogStartAdvances(
            self._persist_starts, is_here=self._is_here, raised=self._begins_later
        )
        self._retention = RetentionTask(partitions, settings)
        self._writing = asyncio.Lock()

    def opened(self, partition: Partition) -> None:
        """A process that was killed may have synced more than the checkpoints say, and their files
        may have been lost. If the log stays idle nothing else would bring them up to date, and each
        start would read it again. Where the log has less they stay: they are how a start knows.
        """
        known = self._checkpoints.get(partition.log_id)
        if not partition.following.is_short and _offsets(partition) != known:
            self.offsets_changed(partition)
        if partition.state.log.manifest_is_behind:
            partition.sync_soon()

    def offsets_changed(self, partition: Partition) -> None:
        self._changed.add(partition)
        self._retention.changed(partition)
        if self._moved is not None:
            self._moved.add(partition)

    def limits_changed(self, partition: Partition) -> None:
        self._retention.limits_changed(partition)

    def moved(self, *, go_on: bool) -> set[Partition]:
        """Those whose offsets have changed since the last call, which asked to go on."""
        moved, self._moved = self._moved, set() if go_on else None
        return moved or set()

    def dropped(self, log_ids: Iterable[LogId]) -> None:
        """Their logs are deleted; their lines go with the next write."""
        self._dropped.update(log_ids)

    def unsynced(self, partition: Partition) -> None:
        self._unsynced.add(partition)

    async def run(self) -> None:
        settings = self._settings
        async with asyncio.TaskGroup() as group:
            interval_ms = settings.checkpoint_interval_ms
            group.create_task(self._every(interval_ms, self._checkpoint, share=CHECKPOINTS_SHARE))
            group.create_task(self._every(settings.sync_interval_ms, self._sync))
            group.create_task(self._retention.run())
            group.create_task(self._later.run())
            group.create_task(self._every(NOTE_INTERVAL_MS, self._later.note))

    async def write_checkpoints(self) -> None:
        """Write what has changed. A disk that refuses is told of, and tried again."""
        async with self._writing:
            await self._keep_erasures()
            changed, self._changed = self._changed, set()
            dropped, self._dropped = self._dropped, set()
            written = self._checkpoints.written()
            offsets = {it: known for it, known in written.items() if it not in dropped}
            limits: dict[Partition, int] = {}
            for done, partition in enumerate(changed):
                if self._partitions.get(partition.tp) is partition:
                    if not partition.state.cutting:
                        limits[partition] = partition.state.log.recovery_limit.cuts
                    known = _offsets(partition)
                    start = max(known.log_start, self._written_start(partition))
                    offsets[partition.log_id] = known._replace(log_start=start)
                if done % _AT_ONCE == _AT_ONCE - 1:
                    await asyncio.sleep(0)
            try:
                await self._in_worker(lambda: self._checkpoints.write(offsets))
            except OSError as error:
                self._changed |= changed
                self._dropped |= dropped
                logger.warning(CHECKPOINTS_NOT_WRITTEN, extra={"error": str(error)})
            else:
                self._lift(limits)

    def _lift(self, limits: Mapping[Partition, int]) -> None:
        """The checkpoint is younger than so many cuts of each log."""
        for partition, cuts in limits.items():
            limit = partition.state.log.recovery_limit
            is_here = self._partitions.get(partition.tp) is partition
            if limit.offset is None or not is_here or partition.state.cutting or limit.cuts != cuts:
                continue
            try:
                limit.lift()
            except Unavailable as error:
                logger.warning(RECOVERY_LIMIT_STAYS, extra={"error": str(error)})

    async def _keep_erasures(self) -> None:
        """Before a checkpoint says that they need not be looked for in the log."""
        for partition in [it for it in self._changed if it.erasing.is_unkept]:
            if self._partitions.get(partition.tp) is partition and not partition.state.cutting:
                await partition.erasing.keep(self._in_worker)

    async def begin_again(self, log_ids: Iterable[LogId]) -> None:
        """Before folders are made again for logs whose folders are gone: their checkpoints keep only
        how much was committed, and how much was synced, for others may count that.

        That tells each start, until it is there again, that their logs lack it: a node that is
        killed before the controller has heard of it must not lead with an empty log. Raises
        StorageFull, StorageFailed.
        """
        async with self._writing:
            offsets = self._checkpoints.written()
            for log_id in log_ids:
                known = offsets.get(log_id)
                if known is not None:
                    offsets[log_id] = NOTHING._replace(
                        high_watermark=known.high_watermark, recovery_point=known.recovery_point
                    )
            if offsets != self._checkpoints.written():
                await self._store(lambda: self._checkpoints.write(offsets))

    async def persist_log_start(self, partition: Partition, offset: int) -> None:
        """Those that come while another is written are written together."""
        self._starts[partition] = max(offset, self._starts.get(partition, 0))
        async with self._writing:
            if self._written_start(partition) < offset:
                starts, self._starts = self._starts, {}
                starts[partition] = max(offset, starts.get(partition, 0))
                await self._write_starts(starts)
        if not self._is_here(partition):
            raise NotLeader(f"{partition.tp} is not here any more")

    async def lower_log_start(self, partition: Partition) -> None:
        async with self._writing:
            start = partition.local_log_start_offset
            self._starts.pop(partition, None)
            if self._is_here(partition) and start < self._written_start(partition):
                offsets = self._checkpoints.written()
                offsets[partition.log_id] = offsets[partition.log_id]._replace(log_start=start)
                await self._store_with_reserve(offsets)

    def begin_later(self, partition: Partition, offset: int) -> None:
        self._later.want(partition, offset)

    def _begins_later(self, partition: Partition) -> None:
        self.begins_later(partition)

    async def _persist_starts(self, starts: Mapping[Partition, int]) -> None:
        async with self._writing:
            await self._write_starts(starts)

    async def _write_starts(self, starts: Mapping[Partition, int]) -> None:
        """A partition that is here no more is passed over: its line would come back."""
        offsets = self._checkpoints.written()
        for partition, offset in starts.items():
            if self._is_here(partition):
                known = offsets.get(partition.log_id, NOTHING)
                start = max(offset, partition.local_log_start_offset, known.log_start)
                offsets[partition.log_id] = known._replace(log_start=start)
        if offsets == self._checkpoints.written():
            return
        await self._store_with_reserve(offsets)

    async def _store_with_reserve(self, offsets: Mapping[LogId, Offsets]) -> None:
        """It makes room, or lets a cut come to its end. Raises StorageFull, StorageFailed."""
        try:
            await self._store(lambda: self._checkpoints.write(offsets))
        except StorageFull:
            if self._reserve is None or not await asyncio.to_thread(self._reserve.give_up):
                raise
            await self._store(lambda: self._checkpoints.write(offsets))

    def _is_here(self, partition: Partition) -> bool:
        return self._partitions.get(partition.tp) is partition

    def _written_start(self, partition: Partition) -> int:
        return self._checkpoints.get(partition.log_id).log_start

    async def _checkpoint(self) -> None:
        if self._changed or self._dropped or not self._checkpoints.are_stored:
            await self.write_checkpoints()

    async def _sync(self) -> None:
        unsynced, self._unsynced = self._unsynced, set()
        for partition in unsynced:
            partition.sync_soon()

    async def _store(self, call: Callable[[], None]) -> None:
        try:
            await self._in_worker(call)
        except OSError as error:
            raise storage_error(error, "checkpoints") from error

    async def _in_worker(self, call: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._workers, call)

    @staticmethod
    async def _every(
        interval_ms: int, work: Callable[[], Awaitable[None]], *, share: float = 1.0
    ) -> None:
        """At most ``share`` of the time goes to it."""
        pause_s = interval_s = interval_ms / 1000
        while True:
            await asyncio.sleep(pause_s)
            started = time.monotonic()
            await work()
            spent_s = time.monotonic() - started
            pause_s = max(interval_s, spent_s / share - spent_s)


def _offsets(partition: Partition) -> Offsets:
    """A start looks for erasures and transactions from the recovery point on. Who reads the files beside the node finds
    in them all transactions below the high watermark.
    """
    log = partition.state.log
    unkept = log.erasures.unkept_offset, log.transactions.unkept_offset
    high_watermark = partition.high_watermark
    if unkept[1] is not None:
        high_watermark = min(high_watermark, max(unkept[1], partition.local_log_start_offset))
    return Offsets(
        high_watermark,
        partition.local_log_start_offset,
        min([partition.recovery_point, *(it for it in unkept if it is not None)]),
        partition.first_dirty_offset,
        log.erasures.kept_end,
        log.transactions.kept_end,
    )
