"""A partition's heart: what is appended, synced, committed, acknowledged. No asyncio, no clock."""

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple, Protocol

from streamlog.config import SyncPolicy
from streamlog.errors import NotLeader, StorageFailed, StreamlogError
from streamlog.log.log import PartitionLog
from streamlog.log.sync import SyncTicket
from streamlog.model import NodeId, TopicPartition
from streamlog.record.codec import RecordRun
from streamlog.replication.leader import LeaderProgress


class Acknowledgement(Protocol):
    """Hears once what became of an append."""

    def committed(self, base_offset: int) -> None:
        """The records from ``base_offset`` on are below the high watermark."""

    def failed(self, error: StreamlogError) -> None:
        """The records may or may not be there after a restart."""


class Pending(NamedTuple):
    """An append that waits for the high watermark to reach ``end_offset``."""

    end_offset: int
    base_offset: int
    size_bytes: int
    started: float
    """The caller's own clock, for timing."""
    ack: Acknowledgement


class PartitionState:
    """One partition on the node that leads it. Single owner; not thread-safe."""

    def __init__(
        self,
        tp: TopicPartition,
        log: PartitionLog,
        *,
        node_id: NodeId,
        high_watermark: int,
        sync: SyncPolicy = "commit",
        compression: int = 0,
    ) -> None:
        self.tp = tp
        self.log = log
        self.sync = sync
        self.compression = compression
        self.failure: StreamlogError | None = None
        """Set once, when the disk failed or the partition is gone: nothing more is appended."""
        self.leader_epoch = -1
        """Stamped into batches; below 0 while this node does not lead."""
        self.in_flight_bytes = 0
        """Sum of ``size_bytes`` over ``pending``."""
        self.pending: deque[Pending] = deque()
        """Ordered by offset."""
        self.syncing: SyncTicket | None = None
        """At most one sync runs."""
        self._node_id = node_id
        start = min(high_watermark, self._kept_end())
        self.progress = LeaderProgress(node_id, (node_id,), start_offset=start)

    @property
    def high_watermark(self) -> int:
        return self.progress.high_watermark

    def lead(self, leader_epoch: int, isr: Iterable[NodeId]) -> list[Pending]:
        """Lead in a newer epoch or with another ISR. What that commits, see ``settle``."""
        assert leader_epoch >= self.leader_epoch, "an epoch never falls"
        if leader_epoch > self.leader_epoch:
            start = self.progress.high_watermark
            self.progress = LeaderProgress(self._node_id, isr, start_offset=start)
            self.leader_epoch = leader_epoch
        else:
            self.progress.set_isr(isr)
        return self.settle()

    def append(
        self, run: RecordRun, now_ms: int, ack: Acknowledgement, started: float = 0.0
    ) -> int:
        """Seal ``run`` into one batch at the end of the log; the base offset.

        Whatever happens, the run is empty afterwards. Raises NotLeader, StorageFull (nothing
        was kept, the next one may succeed) or StorageFailed (the partition is offline now).
        """
        if self.failure is not None or self.leader_epoch < 0:
            run.clear()
            raise self.failure or NotLeader(f"{self.tp} is not led by this node")
        log = self.log
        base_offset = log.log_end_offset
        batch = run.seal(
            base_offset=base_offset,
            leader_epoch=self.leader_epoch,
            timestamp_ms=now_ms,
            compression=self.compression,
        )
        try:
            log.append(batch, now_ms)
        except StorageFailed as error:
            self.fail(error)
            raise
        size = len(batch)
        self.in_flight_bytes += size
        self.pending.append(Pending(log.log_end_offset, base_offset, size, started, ack))
        return base_offset

    def settle(self) -> list[Pending]:
        """Move the high watermark as far as it goes; acknowledge, and return, what that commits."""
        high_watermark = self.progress.local(self.log.log_end_offset, self._kept_end())
        pending = self.pending
        done = []
        while pending and pending[0].end_offset <= high_watermark:
            item = pending.popleft()
            self.in_flight_bytes -= item.size_bytes
            item.ack.committed(item.base_offset)
            done.append(item)
        return done

    def begin_sync(self) -> SyncTicket | None:
        """What a worker thread is to run; None when there is nothing to sync or a sync runs.

        Raises StorageFailed, after which the partition is offline, or Overloaded: try again later.
        """
        if self.failure is not None or self.syncing is not None:
            return None
        try:
            self.syncing = self.log.begin_sync()
        except StorageFailed as error:
            self.fail(error)
            raise
        return self.syncing

    def finish_sync(self) -> list[Pending]:
        """The sync has succeeded. What that commits, see ``settle``."""
        ticket, self.syncing = self.syncing, None
        assert ticket is not None, "no sync runs"
        self.log.finish_sync(ticket)
        return [] if self.failure is not None else self.settle()

    def sync_failed(self, error: StorageFailed) -> None:
        """The sync has failed: nobody knows what is on the disk, so all that waits is failed."""
        ticket, self.syncing = self.syncing, None
        assert ticket is not None, "no sync runs"
        with suppress(StorageFailed):
            self.log.finish_sync(ticket)
        self.fail(error)

    def fail(self, error: StreamlogError) -> None:
        """Go offline: refuse appends, fail what waits. The high watermark stays where it is."""
        if self.failure is not None:
            return
        self.failure = error
        pending, self.pending = self.pending, deque()
        self.in_flight_bytes = 0
        for item in pending:
            item.ack.failed(error)

    def _kept_end(self) -> int:
        return self.log.recovery_point if self.sync == "commit" else self.log.log_end_offset
