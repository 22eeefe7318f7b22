"""The log cleaner: compacts one log at a time, in its own thread.

Compaction first, the dirtiest log before others; then what is erased goes.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple, TypeVar

from streamlog.clock import wall_ms
from streamlog.condition import CORRECT_THEN_RESTART, CRITICAL, NO_ACTION, Condition
from streamlog.config import LogSection
from streamlog.errors import CorruptData, StorageFailed, StorageFull, StreamlogError
from streamlog.log.compaction.cleaner import Cleaning, Terms
from streamlog.log.compaction.cleaning_plan import CleaningNeed, first_dirty, is_due, standing
from streamlog.log.compaction.segment_swap import Swap
from streamlog.log.erasure.expunging import Expunging, due_segments, removable_end
from streamlog.log.segment.segment import Segment
from streamlog.log.segment.time_search import first_time, latest_time
from streamlog.log.settings import CompactionSettings
from streamlog.log.storage.disk import Disk
from streamlog.log.storage.file_pool import FilePool
from streamlog.metrics import NodeMetrics
from streamlog.partition.maintenance.cleaning_state import (
    FAILED_PAUSE_S,
    CalledOff,
    RunningCleaning,
)
from streamlog.partition.partition import Partition
from streamlog.record.offset_set import OffsetSet

logger = logging.getLogger(__name__)

COMPACTION_FAILED: Final = Condition(
    "SL-0225",
    "compaction failed",
    CORRECT_THEN_RESTART,
    meaning="A log could not be compacted. It grows until it can.",
    severity=CRITICAL,
)
SEGMENT_NOT_ENDED: Final = Condition(
    "SL-0226",
    "segment not ended",
    NO_ACTION,
    meaning="The active segment could not be ended, so it is not compacted yet. The node tries "
    "again.",
)

T = TypeVar("T")


class _Candidate(NamedTuple):
    """A compacted log as it was on the event loop, to be looked at elsewhere."""

    partition: Partition
    sealed: list[Segment]
    settings: CompactionSettings
    first_dirty_offset: int
    upper_offset: int
    horizon_ms: int | None
    overdue_offset: int
    """Of the first erased record there that must go, which it cannot before it is compacted; -1:
    there is none."""


class _Chosen(NamedTuple):
    """One that is worth a cleaning."""

    partition: Partition
    found: CleaningNeed[Segment]


class LogCleaner:
    """``run`` as a task."""

    def __init__(
        self,
        settings: LogSection,
        partitions: Callable[[], Iterable[Partition]],
        metrics: NodeMetrics,
        *,
        disk: Disk,
        files: FilePool,
    ) -> None:
        self._settings = settings
        self._partitions = partitions
        self._metrics = metrics
        self._disk = disk
        self._files = files
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="compaction")
        self._stopping = False

    async def run(self) -> None:
        """For as long as the node runs; a swap that has begun is brought to its end."""
        try:
            while True:
                await asyncio.sleep(self._settings.compaction_interval_ms / 1000)
                await self.clean_all()
        finally:
            self._worker.shutdown(wait=False)

    async def clean_all(self) -> None:
        """All that are worth it, each for as long as that helps."""
        done: set[Partition] = set()
        some = [it for it in self._partitions() if self._concerns(it)]
        await self._roll(some)
        while (chosen := await self._choose(done, some)) is not None:
            partition, before = chosen.partition, chosen.partition.first_dirty_offset
            await self._clean(partition, chosen.found.segments, Cleaning)
            if partition.first_dirty_offset == before:
                done.add(partition)
        await self._expunge_all(some)
        failing = sum(bool(it.state.cleaning.failure) for it in some if not it.closed)
        self._metrics.compaction_failing.set(failing)

    @staticmethod
    def _concerns(partition: Partition) -> bool:
        """Something in there may have to be cleaned; of very many logs, few."""
        log, cleaning = partition.state.log, partition.state.cleaning
        if log.settings.compaction is not None or log.erasures.unremoved:
            return True
        return bool(cleaning.failure) or not cleaning.waiting.is_empty

    async def _expunge_all(self, some: list[Partition]) -> None:
        """Take what is erased out of the files, where it is worth it or has waited long enough."""
        for partition in some:
            state, log = partition.state, partition.state.log
            unremoved = log.erasures.unremoved
            overdue = self._overdue(partition)
            waits = time.monotonic() < state.cleaning.failed_until or state.cutting
            if not unremoved or waits or not self._may_write(partition):
                continue
            self._seal(partition, overdue)
            look = partial(
                due_segments,
                log.segments.sealed(),
                unremoved.copy(),
                overdue.copy(),
                upper_offset=removable_end(
                    log,
                    upper_offset=min(state.high_watermark, log.recovery_point),
                    is_whole=state.is_whole,
                ),
                before_ms=wall_ms() - partition.config.duplicate_window_ms,
            )
            due: list[Segment] = []
            with contextlib.suppress(OSError):  # retention may have been quicker
                due = await self._in_worker(look)
            if due:
                await self._clean(partition, due, Expunging)

    def _overdue(self, partition: Partition) -> OffsetSet:
        unremoved = partition.state.log.erasures.unremoved
        return partition.state.cleaning.waiting.overdue(
            unremoved, time.monotonic(), self._settings.erasure_lag_ms / 1000
        )

    def _seal(self, partition: Partition, overdue: OffsetSet) -> None:
        """The active segment is never cleaned: what is overdue there ends it."""
        log = partition.state.log
        if not overdue.count(log.segments.last.base_offset, log.log_end_offset):
            return
        try:
            log.roll()
            partition.sync_soon()
        except StreamlogError as error:
            logger.warning(SEGMENT_NOT_ENDED, extra=partition.place(error))

    async def _roll(self, some: list[Partition]) -> None:
        """The active segment is never cleaned: where it is old it becomes another."""
        now_ms = wall_ms()
        for partition in some:
            log, state = partition.state.log, partition.state
            if log.settings.compaction is None or state.cutting or not self._may_write(partition):
                continue
            try:
                segments = log.segment_count
                log.roll_if_old(now_ms)
                if log.segment_count > segments:
                    partition.sync_soon()
                    await asyncio.sleep(0)
            except StreamlogError as error:
                logger.warning(SEGMENT_NOT_ENDED, extra=partition.place(error))

    async def _choose(self, done: set[Partition], some: list[Partition]) -> _Chosen | None:
        """The dirtiest of those that are worth it."""
        now = time.monotonic()
        candidates: list[_Candidate] = []
        for partition in some:
            state, log = partition.state, partition.state.log
            settings = log.settings.compaction
            if settings is None:
                if not log.erasures.unremoved:
                    state.cleaning.failure = ""
                continue
            waits = now < state.cleaning.failed_until or state.cutting
            if partition in done or waits or not self._may_write(partition):
                continue
            # Which of an open transaction's records stay is not known yet.
            upper_offset = min(partition.stable_offset, log.recovery_point)
            horizon_ms = state.cleaning.horizon_ms if state.is_whole else None
            sealed, dirty = log.segments.sealed(), log.first_dirty_offset
            overdue = self._overdue(partition).between(dirty, upper_offset)
            first = next(iter(overdue), -1)
            candidates.append(
                _Candidate(partition, sealed, settings, dirty, upper_offset, horizon_ms, first)
            )
        if not candidates:
            self._metrics.compaction_dirty_ratio.set(0)
            return None
        now_ms = wall_ms()
        found = await self._in_worker(lambda: [_judged(it, now_ms) for it in candidates])
        ratios = [standing.dirty_ratio for standing, _ in found]
        self._metrics.compaction_dirty_ratio.set(max(ratios))
        due = [
            _Chosen(candidate.partition, standing)
            for candidate, (standing, is_due) in zip(candidates, found, strict=True)
            if is_due
        ]
        return max(due, key=lambda it: it.found.dirty_ratio, default=None)

    def _may_write(self, partition: Partition) -> bool:
        return not partition.closed and partition.failure is None and partition.state.has_room

    async def _clean(
        self, partition: Partition, segments: list[Segment], kind: type[Cleaning | Expunging]
    ) -> None:
        state = partition.state
        if state.cutting or state.cleaning.running is not None or not self._may_write(partition):
            return
        running = state.cleaning.running = RunningCleaning(self._settings.compaction_bytes_per_s)
        terms = Terms(
            wall_ms(),
            memory_bytes=self._settings.compaction_memory_bytes,
            may_drop_tombstones=state.is_whole,
            producer_expiration_ms=self._settings.producer_id_expiration_ms,
            pause=running.pause,
        )
        cleaning = kind(state.log, segments, terms, disk=self._disk, pool=self._files)
        started = time.perf_counter()
        try:
            await self._run(partition, cleaning, running)
        except CalledOff:
            logger.info("compaction called off", extra=_place(partition))
        except StreamlogError as error:
            await self._failed(partition, cleaning, error)
        finally:
            state.cleaning.running = None
            partition.wake()
            self._tell(partition, cleaning, time.perf_counter() - started)
        if self._stopping:
            raise asyncio.CancelledError

    async def _run(
        self, partition: Partition, cleaning: Cleaning | Expunging, running: RunningCleaning
    ) -> None:
        """Raises CalledOff, CorruptBatch, Unavailable."""
        if isinstance(cleaning, Cleaning):
            await self._in_worker(cleaning.note_keys, running)
        while cleaning.left:
            swap = await self._in_worker(cleaning.clean, running)
            if running.is_off or partition.failure is not None:
                if swap is not None:
                    await self._in_worker(swap.abandon, running)
                raise CalledOff
            if swap is not None:
                await self._swap(swap, running)
                cleaning.swapped(swap)
                partition.subjects.was_compacted(*swap.offsets)
        cleaning.finish()
        if isinstance(cleaning, Cleaning):
            partition.state.cleaning.horizon_ms = cleaning.horizon_ms
        partition.state.cleaning.failure = ""
        partition.offsets_changed()

    async def _swap(self, swap: Swap, running: RunningCleaning) -> None:
        """Not called off once it has begun. Raises Unavailable; CalledOff where the segments are no
        more what they were.
        """
        if not swap.begin():
            await self._in_worker(swap.abandon, running)
            raise CalledOff
        await self._in_worker(swap.commit, running)
        swap.replace()
        await self._in_worker(swap.remove_old, running)
        swap.rename()
        await self._in_worker(swap.settle, running)
        swap.finish()

    async def _failed(
        self, partition: Partition, cleaning: Cleaning | Expunging, error: StreamlogError
    ) -> None:
        """It is told, and others go on; what is damaged is looked at, and repaired from others."""
        state = partition.state
        state.cleaning.failed_until = time.monotonic() + FAILED_PAUSE_S
        state.cleaning.failure = str(error)
        self._metrics.compaction_failures.inc()
        logger.error(COMPACTION_FAILED, extra=partition.place(error))
        if isinstance(error, StorageFull):
            partition.disk_refused(error)
        elif state.log.failed:
            partition.carry_out(state.disk_failed(StorageFailed(state.log.failure)))
        elif isinstance(error, CorruptData) and not self._stopping:
            await partition.reader.recheck(cleaning.reading_offset)

    def _tell(self, partition: Partition, cleaning: Cleaning | Expunging, seconds: float) -> None:
        metrics = self._metrics
        metrics.compaction_read_bytes.inc(cleaning.read_bytes)
        metrics.compaction_removed_bytes.inc(max(0, cleaning.removed_bytes))
        metrics.compaction_last_seconds.set(seconds)
        logger.info(
            "log compacted",
            extra={
                **_place(partition),
                "first_dirty_offset": partition.first_dirty_offset,
                "read_bytes": cleaning.read_bytes,
                "removed_bytes": cleaning.removed_bytes,
                "ms": round(seconds * 1000),
            },
        )

    async def _in_worker(self, call: Callable[[], T], running: RunningCleaning | None = None) -> T:
        """Its end is waited for, even where the node stops: the log may not be closed before."""
        future = asyncio.get_running_loop().run_in_executor(self._worker, call)
        while not future.done():
            try:
                await asyncio.wait((future,))
            except asyncio.CancelledError:
                if running is None:
                    raise
                self._stopping = True
                running.call_off()
        return future.result()


def _judged(candidate: _Candidate, now_ms: int) -> tuple[CleaningNeed[Segment], bool]:
    """How it stands, and whether it is worth a cleaning. Blocking."""
    settings = candidate.settings
    try:
        found = standing(
            candidate.sealed,
            settings,
            first_dirty_offset=candidate.first_dirty_offset,
            upper_offset=candidate.upper_offset,
            now_ms=now_ms,
            latest_time=latest_time,
        )
        start = first_dirty(found.segments, candidate.first_dirty_offset)
        oldest_ms = first_time(start) if start is not None else None
    except OSError:  # retention may have been quicker
        return CleaningNeed([], 0, 0), False
    due = is_due(
        found, settings, now_ms=now_ms, oldest_dirty_ms=oldest_ms, horizon_ms=candidate.horizon_ms
    )
    must = 0 <= candidate.overdue_offset < found.upper_offset
    return found, due or must


def _place(partition: Partition) -> dict[str, object]:
    return {"stream": partition.tp.stream, "partition": partition.tp.partition}
