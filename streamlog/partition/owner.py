"""One partition as the rest of the node sees it. Everything here is called on the event loop."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from streamlog.config import LogSection, SyncPolicy
from streamlog.errors import (
    StorageFailed,
    StreamlogError,
    Unavailable,
)
from streamlog.log.log import PartitionLog
from streamlog.log.slice import FileSlice
from streamlog.log.sync import SyncTicket
from streamlog.metadata.stream import StreamConfig
from streamlog.metrics import NodeMetrics
from streamlog.model import EpochEnd, NodeId, TopicPartition
from streamlog.partition.flusher import Flusher
from streamlog.partition.limits import log_settings, sync_policy
from streamlog.partition.reader import Reader
from streamlog.partition.state import Acknowledgement, PartitionState, Pending
from streamlog.partition.statistics import PartitionStatistics
from streamlog.record.codec import RecordRun
from streamlog.record.compression import Compression

logger = logging.getLogger(__name__)

Watcher = Callable[[], None]


class Upkeep(Protocol):
    """What a partition tells of itself, so that nobody has to look at all of them."""

    def offsets_changed(self, partition: "Partition") -> None:
        """The checkpoints are behind."""

    def unsynced(self, partition: "Partition") -> None:
        """Something waits for the next interval."""

    async def persist_log_start(self, partition: "Partition", offset: int) -> None:
        """Durable when it returns. Raises StorageFull, StorageFailed."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all partitions of a node share."""

    node_id: NodeId
    defaults: LogSection
    flusher: Flusher
    upkeep: Upkeep
    workers: Executor
    metrics: NodeMetrics


class Partition:
    """A local partition: ``ingest`` appends, ``server`` reads, ``registry`` tells it of changes."""

    def __init__(
        self,
        tp: TopicPartition,
        log: PartitionLog,
        config: StreamConfig,
        surroundings: Surroundings,
        *,
        high_watermark: int = 0,
    ) -> None:
        self.tp = tp
        self.config = config
        self.to_sync = False
        self.to_settle = False
        self._log = log
        self._defaults = surroundings.defaults
        self._flusher = surroundings.flusher
        self._upkeep = surroundings.upkeep
        self._reader = Reader(tp, log, surroundings.workers, surroundings.metrics)
        self._metrics = surroundings.metrics
        self._segments_synced = log.segment_count
        """Under ``sync=os``: when there are more, a segment has been sealed."""
        self._watchers: dict[Watcher, None] = {}
        self._waiting: list[asyncio.Future[None]] = []
        """For the end of the sync that runs or is about to."""
        self._state = PartitionState(
            tp,
            log,
            node_id=surroundings.node_id,
            high_watermark=high_watermark,
            sync=sync_policy(config, surroundings.defaults),
            compression=Compression.named(config.compression),
        )

    @property
    def closed(self) -> bool:
        """The log is closed, or about to be: nothing is led, appended or read."""
        return self._reader.closed

    @property
    def is_leader(self) -> bool:
        return self._state.leader_epoch >= 0 and not self.closed

    @property
    def leader_epoch(self) -> int:
        return self._state.leader_epoch

    @property
    def sync_policy(self) -> SyncPolicy:
        return self._state.sync

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self._state.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def recovery_point(self) -> int:
        """All below is synced."""
        return self._log.recovery_point

    @property
    def in_flight_bytes(self) -> int:
        return self._state.in_flight_bytes

    @property
    def failure(self) -> StreamlogError | None:
        """Why nothing can be appended, if so; reads go on up to the high watermark."""
        return self._state.failure

    # Appending

    def append(self, run: RecordRun, ack: Acknowledgement) -> int:
        """Append ``run`` as one batch; its base offset. ``ack`` hears later, never during this
        call.

        The run is empty afterwards, whatever happens. Raises NotLeader, StorageFull, StorageFailed,
        Overloaded; ``ack`` is not called then.
        """
        started = time.perf_counter()
        count, state, metrics = run.count, self._state, self._metrics
        try:
            base_offset = state.append(run, time.time_ns() // 1_000_000, ack, started)
        except StreamlogError as error:
            metrics.append_failures.labels(type(error).__name__).inc()
            if isinstance(error, StorageFailed) and state.failure is error:
                self._went_offline(error)
            raise
        metrics.append_batches.inc()
        metrics.append_records.inc(count)
        metrics.append_bytes.inc(state.pending[-1].size_bytes)
        if state.sync == "commit":
            self._flusher.sync(self)
        else:
            self._flusher.settle(self)
        return base_offset

    async def wait_synced(self) -> None:
        """All that is appended by now is synced; or the partition is offline or closed."""
        target = self._log.log_end_offset
        while self._log.recovery_point < target and self.failure is None and not self.closed:
            self._flusher.sync(self)
            await self._wait_for_sync()

    # For the flusher

    def begin_sync(self) -> SyncTicket | None:
        """Raises Overloaded: try again later."""
        ticket = None
        try:
            if not self.closed:
                ticket = self._state.begin_sync()
        except StorageFailed as error:
            self._went_offline(error)
        if ticket is None and self._state.syncing is None:
            self._sync_ended()
        return ticket

    def finish_sync(self) -> bool:
        before = self._state.high_watermark
        self._committed(self._state.finish_sync(), before)
        self._upkeep.offsets_changed(self)
        self._sync_ended()
        behind = self._log.recovery_point < self._log.log_end_offset
        return behind and self._state.sync == "commit" and self.failure is None

    def sync_failed(self, error: StorageFailed) -> None:
        self._state.sync_failed(error)
        self._went_offline(error)
        self._sync_ended()

    def settle(self) -> None:
        if self.failure is not None or self.closed:
            return
        before = self._state.high_watermark
        self._committed(self._state.settle(), before)
        if self._state.sync == "interval":
            self._upkeep.unsynced(self)
        elif self._log.segment_count > self._segments_synced:
            # Sealed segments are synced under every policy, so that a start has one to check.
            self._segments_synced = self._log.segment_count
            self._flusher.sync(self)

    def _committed(self, done: list[Pending], before: int) -> None:
        if done:
            now = time.perf_counter()
            observe = self._metrics.ack_seconds.observe
            for item in done:
                observe(now - item.started)
        if self._state.high_watermark != before:
            self._upkeep.offsets_changed(self)
            self._tell_watchers()

    def _went_offline(self, error: StreamlogError) -> None:
        logger.error("partition offline", extra=self._place(error))
        self._tell_watchers()

    def _place(self, error: StreamlogError) -> dict[str, object]:
        return {
            "stream": self.tp.stream,
            "partition": self.tp.partition,
            "epoch": self.leader_epoch,
            "offset": self.high_watermark,
            "error": str(error),
        }

    async def _wait_for_sync(self) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def _sync_ended(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    # Reading

    async def read(self, offset: int, max_bytes: int) -> FileSlice:
        """Whole batches below the high watermark, first the one with ``offset``; to be closed.

        Raises OffsetOutOfRange, CorruptBatch where the log is damaged, StorageFailed, NotLeader
        once closed.
        """
        return await self._reader.read(offset, max_bytes, self._upper)

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """The first committed offset of that time or later, with its time."""
        return await self._reader.offset_for_timestamp(timestamp_ms, self._upper)

    async def latest_timestamp(self) -> tuple[int, int] | None:
        """The committed offset of the latest time, with that time."""
        return await self._reader.latest_timestamp(self._upper)

    def _upper(self) -> int:
        return self._state.high_watermark

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Where ``epoch``, or the last one before it, ends. ``EpochEnd(-1, -1)``: not known."""
        end = self._log.log_end_offset
        if epoch == self.leader_epoch:
            return EpochEnd(epoch, end)
        epochs = self._log.epochs
        if epochs.latest < epoch < self.leader_epoch:
            epoch = epochs.latest  # those in between have no records
        return epochs.end_offset_for(epoch, end)

    # Watching

    def add_watcher(self, watcher: Watcher) -> None:
        """``watcher`` is called when the high watermark, leadership or existence changes."""
        self._watchers[watcher] = None

    def remove_watcher(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def _tell_watchers(self) -> None:
        for watcher in tuple(self._watchers):
            watcher()

    def statistics(self) -> PartitionStatistics:
        state, log = self._state, self._log
        return PartitionStatistics(
            tp=self.tp,
            leader_epoch=state.leader_epoch,
            log_start_offset=log.log_start_offset,
            high_watermark=state.high_watermark,
            log_end_offset=log.log_end_offset,
            size_bytes=log.size_bytes,
            segment_count=log.segment_count,
            isr_size=len(state.progress.isr),
            in_flight_bytes=state.in_flight_bytes,
            in_flight_batches=len(state.pending),
            failure=None if state.failure is None else str(state.failure),
        )

    # For the registry

    def lead(self, leader_epoch: int, isr: Iterable[NodeId]) -> None:
        """Lead in this epoch, which is not older than before."""
        before = self._state.high_watermark
        self._committed(self._state.lead(leader_epoch, isr), before)
        self._tell_watchers()

    def configure(self, config: StreamConfig) -> None:
        """Another configuration holds from now on."""
        self.config = config
        self._state.sync = sync_policy(config, self._defaults)
        self._state.compression = Compression.named(config.compression)
        self._log.settings = log_settings(config, self._defaults)
        if self._state.sync == "commit":
            self._flusher.sync(self)
        else:
            self._flusher.settle(self)

    async def purge(self, up_to_offset: int) -> int:
        """Forget the committed records below ``up_to_offset``; how many they were."""
        self._reader.check_open()
        before = self.log_start_offset
        target = min(up_to_offset, self.high_watermark)
        if target <= before:
            return 0
        await self._upkeep.persist_log_start(self, target)
        self._reader.check_open()
        try:
            self._log.advance_log_start(target)
        except Unavailable as error:  # the records are gone; their files go with the next retention
            logger.warning("purged files remain", extra=self._place(error))
        self._tell_watchers()
        return self.log_start_offset - before

    def retain(self, now_ms: int) -> None:
        """Let go of whole segments that the limits no longer keep."""
        if not self.closed and self.failure is None:
            deleted = self._log.apply_retention(now_ms, self.high_watermark)
            self._segments_synced = min(self._segments_synced, self._log.segment_count)
            if deleted:
                self._upkeep.offsets_changed(self)

    async def close(self, error: StreamlogError) -> PartitionLog:
        """Fail what waits with ``error``, tell the watchers; the log, which nobody uses now."""
        self._reader.closed = True
        self._state.fail(error)
        self._tell_watchers()
        while self._state.syncing is not None:
            await self._wait_for_sync()
        self._sync_ended()
        return self._log
