"""A partition's heart: who leads, what is appended, synced, committed, acknowledged.

No asyncio, no clock: the time is passed in, and what takes time is handed out to be run elsewhere.
What a follower does beside that is ``following``.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from streamlog.config import SyncPolicy
from streamlog.errors import (
    BrokenInvariant,
    NotEnoughReplicas,
    NotLeader,
    OffsetOutOfRange,
    StaleNode,
    StaleReplica,
    StorageFailed,
    StorageFull,
    StreamlogError,
    UnknownReplica,
)
from streamlog.log.log import PartitionLog
from streamlog.log.sync import SyncTicket
from streamlog.model import NO_EPOCH, NO_INCARNATION, NO_LEADER, EpochEnd, NodeId, TopicPartition
from streamlog.partition.maintenance.cleaning_state import CleaningState
from streamlog.partition.pending_appends import (
    Acknowledgement,
    AwaitedStarts,
    PendingAppend,
    PendingAppends,
)
from streamlog.record.codec import RecordRun
from streamlog.replication.follower import divergence
from streamlog.replication.isr import IsrProposal
from streamlog.replication.leader import LeaderProgress, Standings

__all__ = ["Acknowledgement", "PartitionState", "PendingAppend"]


class PartitionState:
    """One partition on one node, as leader or follower. Single owner; not thread-safe.

    Invariants: the high watermark falls only where a leader was elected that lacks what was
    committed; nothing is acknowledged but by the leader of the epoch it was appended in.
    """

    __slots__ = (
        "_has_room", "_may_act", "appended_bytes", "cleaning", "compression", "cutting", "failure",
        "high_watermark", "incarnations", "is_short", "isr", "leader", "leader_epoch", "log",
        "min_isr", "node_id", "pending", "progress", "replicas", "starts", "sync", "syncing", "tp",
    )  # fmt: skip

    def __init__(
        self,
        tp: TopicPartition,
        log: PartitionLog,
        *,
        node_id: NodeId,
        high_watermark: int,
        sync: SyncPolicy = "commit",
        compression: int = 0,
        may_act: Callable[[], bool] | None = None,
        has_room: Callable[[], bool] | None = None,
    ) -> None:
        """``may_act``: whether the node's lease lasts; None for a node that needs none.
        ``has_room``: whether the disk has any, as far as others have found.
        """
        self.tp = tp
        self.log = log
        self.sync = sync
        self.compression = compression
        self.failure: StreamlogError | None = None
        """Set once, when the disk failed or the partition is gone: nothing more is appended."""
        self.leader = NO_LEADER
        """As last heard; this node itself while it leads."""
        self.leader_epoch = NO_EPOCH
        """As last heard. The leader stamps it into batches."""
        self.replicas: frozenset[NodeId] = frozenset((node_id,))
        self.isr: frozenset[NodeId] = frozenset()
        """As last heard."""
        self.incarnations: Mapping[NodeId, int] = {}
        """Of the replicas, as last heard."""
        self.min_isr = 1
        self.is_short = True
        """Fewer replicas are in sync than must be: nothing is committed meanwhile."""
        self.pending = PendingAppends()
        """The leader's."""
        self.starts = AwaitedStarts()
        """The leader's."""
        self.appended_bytes = 0
        """By the last ``append``."""
        self.syncing: SyncTicket | None = None
        """At most one sync runs."""
        self.cutting = False
        """The log is being cut elsewhere: it is not to be touched."""
        self.cleaning = CleaningState()
        """Of compaction."""
        self.progress: LeaderProgress | None = None
        """While this node leads."""
        self.node_id = node_id
        self._may_act = may_act
        self._has_room = has_room
        self.high_watermark = max(min(high_watermark, self.kept_end), log.log_start_offset)

    @property
    def is_leader(self) -> bool:
        return self.progress is not None

    @property
    def is_whole(self) -> bool:
        """Every replica has all that is committed, as far as is known here."""
        return bool(self.isr) and self.isr >= self.replicas

    @property
    def has_room(self) -> bool:
        """Something may be written to the log."""
        return self._has_room is None or self._has_room()

    @property
    def in_flight_bytes(self) -> int:
        return self.pending.in_flight_bytes

    @property
    def knows_high_watermark(self) -> bool:
        """A new leader does once its followers have all that was there before it (KIP-207)."""
        progress = self.progress
        return progress is None or self.high_watermark >= progress.epoch_start

    # Who leads

    def lead(
        self,
        leader_epoch: int,
        isr: Iterable[NodeId],
        *,
        replicas: Iterable[NodeId] = (),
        incarnations: Mapping[NodeId, int] | None = None,
        partition_epoch: int | None = None,
        min_isr: int = 1,
        now_ms: int = 0,
    ) -> list[PendingAppend]:
        """Lead in a newer epoch, or with another ISR in the same. What that commits, see
        ``settle``.
        """
        before = self.incarnations
        self._heard(leader_epoch, self.node_id, isr, replicas, min_isr)
        self.incarnations = incarnations or {}
        if self.progress is None or leader_epoch > self.progress.leader_epoch:
            self._fail_pending(f"{self.tp} is led in epoch {leader_epoch} now")
            self.progress = LeaderProgress(
                self.node_id,
                self.isr,
                start_offset=self.high_watermark,
                log_end=self.log.log_end_offset,
                log_start=self.log.log_start_offset,
                leader_epoch=leader_epoch,
                partition_epoch=partition_epoch or 0,
                min_isr=min_isr,
                now_ms=now_ms,
            )
        else:
            now = self.incarnations
            self.progress.forget(it for it in {*before, *now} if before.get(it) != now.get(it))
            self.progress.set_isr(
                self.isr, partition_epoch=partition_epoch, min_isr=min_isr, now_ms=now_ms
            )
            self.progress.keep_only(self.replicas)
        return self.settle()

    def follow(
        self,
        leader_epoch: int,
        isr: Iterable[NodeId] = (),
        *,
        leader: NodeId = NO_LEADER,
        replicas: Iterable[NodeId] = (),
        incarnations: Mapping[NodeId, int] | None = None,
        min_isr: int = 1,
    ) -> None:
        """Follow ``leader`` in this epoch. What waits for a commit fails: another answers now."""
        self._heard(leader_epoch, leader, isr, replicas, min_isr)
        self.incarnations = incarnations or {}
        self.resign(f"{self.tp} is led by another node now")

    def resign(self, reason: str) -> None:
        """Lead no more, and acknowledge nothing more."""
        self.progress = None
        self._fail_pending(reason)

    def _heard(
        self,
        leader_epoch: int,
        leader: NodeId,
        isr: Iterable[NodeId],
        replicas: Iterable[NodeId],
        min_isr: int,
    ) -> None:
        if leader_epoch < self.leader_epoch:
            raise BrokenInvariant("an epoch never falls")
        if self.cutting:
            raise BrokenInvariant("the log is being cut")
        self.leader_epoch = leader_epoch
        self.leader = leader
        self.isr = frozenset(isr)
        self.replicas = frozenset(replicas) | self.isr | {self.node_id}
        self.min_isr = min_isr
        self.is_short = len(self.isr) < min_isr

    def _fail_pending(self, reason: str) -> None:
        if self.pending or self.starts:
            error = NotLeader(reason)
            self.pending.fail(error)
            self.starts.fail(error)

    # The leader

    def append(
        self,
        run: RecordRun,
        now_ms: int,
        ack: Acknowledgement,
        started: float = 0.0,
        *,
        leader_epoch: int | None = None,
    ) -> int:
        """Seal ``run`` into one batch at the end of the log; the base offset.

        Whatever happens, the run is empty afterwards. Raises NotLeader, also where the caller means
        another ``leader_epoch`` or the node's lease is over; StorageFull (nothing was kept, the
        next one may succeed) or StorageFailed (the partition is offline now).
        """
        if (
            self.failure is not None
            or self.progress is None
            or (leader_epoch is not None and leader_epoch != self.leader_epoch)
            or (self._may_act is not None and not self._may_act())
        ):
            run.clear()
            raise self.failure or NotLeader(f"{self.tp} is not led by this node")
        if self._has_room is not None and not self._has_room():
            run.clear()
            raise StorageFull("the disk is full")
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
        self.appended_bytes = size = len(batch)
        self.pending.add(PendingAppend(log.log_end_offset, base_offset, size, started, ack))
        return base_offset

    def check_writable(self) -> None:
        """Raises NotLeader, also while the node's lease is over; StorageFull, StorageFailed."""
        led = self.progress is not None and (self._may_act is None or self._may_act())
        if self.failure is not None or not led:
            raise self.failure or NotLeader(f"{self.tp} is not led by this node")
        if not self.has_room:
            raise StorageFull("the disk is full")

    def settle(self) -> list[PendingAppend]:
        """Move the high watermark as far as it goes; acknowledge, and return, what that commits.

        Nothing moves on a follower, nor while the lease is over: to be called again when it holds.
        """
        progress = self.progress
        if progress is None or self.failure is not None:
            return []
        if self.starts:
            self._settle_starts(progress)
        end = self.log.log_end_offset
        kept_end = self.log.recovery_point if self.sync == "commit" else end
        high_watermark = progress.local(end, kept_end)
        if high_watermark > self.high_watermark:
            if self._may_act is not None and not self._may_act():
                return []
            self.high_watermark = high_watermark
        return self.pending.commit(self.high_watermark)

    def _settle_starts(self, progress: LeaderProgress) -> None:
        """Also while the lease is over: whoever leads then was in sync, and begins there, too."""
        if progress.is_short:
            self.starts.fail(NotEnoughReplicas(f"{self.tp}: fewer replicas in sync than min_isr"))
        else:
            self.starts.settle(progress.acknowledge_start)

    def await_start(self, offset: int, ack: Acknowledgement) -> None:
        """The log begins at ``offset``, or above; ``ack`` hears when every in-sync replica's does,
        never during this call. Raises NotLeader, NotEnoughReplicas, StorageFailed.
        """
        if self.failure is not None or self.progress is None:
            raise self.failure or NotLeader(f"{self.tp} is not led by this node")
        if self.progress.is_short:
            raise NotEnoughReplicas(f"{self.tp}: fewer replicas in sync than min_isr")
        self.starts.add(offset, ack)

    def follower_fetch(
        self,
        node_id: NodeId,
        node_epoch: int,
        offset: int,
        last_epoch: int,
        now_ms: int,
        *,
        log_start: int = 0,
        incarnation: int = NO_INCARNATION,
    ) -> EpochEnd | None:
        """A replica says that it has all below ``offset``, the last of ``last_epoch``, from
        ``log_start`` on; counted once for each request, and ``settle`` is to follow.

        Where its history parts from ours it is told, and does not count. Raises NotLeader (it is no
        replica, too), StaleNode, StaleReplica, UnknownReplica, OffsetOutOfRange: it has to begin
        anew at our log start.
        """
        progress = self.progress
        if self.failure is not None or progress is None:
            raise self.failure or NotLeader(f"{self.tp} is not led by this node")
        if node_id not in self.replicas or node_id == self.node_id:
            raise NotLeader(f"node {node_id} is not known as a replica of {self.tp}")
        assigned = self.incarnations.get(node_id, NO_INCARNATION)
        if incarnation > assigned:
            raise UnknownReplica(f"{self.tp}: node {node_id} was assigned at {incarnation}")
        if incarnation < assigned:
            raise StaleReplica(f"{self.tp}: node {node_id} was assigned anew at {assigned}")
        known = progress.followers.get(node_id)
        if known is not None and node_epoch < known.node_epoch:
            raise StaleNode(f"node {node_id} has restarted since its epoch {node_epoch}")
        log = self.log
        start, end = log.log_start_offset, log.log_end_offset
        if last_epoch != NO_EPOCH:
            epoch_end = self.epoch_end(last_epoch)
            if epoch_end.epoch != NO_EPOCH:
                parts = divergence(epoch_end, fetch_offset=offset, last_epoch=last_epoch)
                if parts is not None:
                    return parts
            elif not start == offset == end:  # with nothing here there is nothing to compare
                raise OffsetOutOfRange(offset, start, end)
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        progress.local(end, self.kept_end)
        progress.follower(
            node_id, offset, node_epoch=node_epoch, now_ms=now_ms, log_start=log_start
        )
        return None

    def follower_had_all(self, node_id: NodeId, node_epoch: int, then_ms: int) -> None:
        """It had asked then for what comes after its last fetch, and there was nothing."""
        progress = self.progress
        follower = progress.followers.get(node_id) if progress is not None else None
        if follower is not None and follower.node_epoch == node_epoch:
            follower.had_all(then_ms)

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Where ``epoch``, or the last one before it, ends. ``EpochEnd(-1, -1)``: not known."""
        epochs, end = self.log.epochs, self.log.log_end_offset
        if epoch == self.leader_epoch:
            return EpochEnd(epoch, end)
        if epochs.latest < epoch < self.leader_epoch:
            epoch = epochs.latest  # those in between have no records
        return epochs.end_offset_for(epoch, end)

    def replica_lags(self) -> dict[NodeId, int]:
        """How many records each follower lacks, all of them if it has not fetched."""
        if self.progress is None:
            return {}
        start, end = self.log.log_start_offset, self.log.log_end_offset
        ends = {it: follower.end_offset for it, follower in self.progress.followers.items()}
        return {
            it: end - min(max(ends.get(it, start), start), end)
            for it in self.replicas
            if it != self.node_id
        }

    def isr_proposal(
        self, now_ms: int, *, lag_time_ms: int, standings: Standings
    ) -> IsrProposal | None:
        """What to ask the controller for: the proposal that is out, or a new one, if there is one.

        To be asked for again until ``isr_refused`` or a newer partition epoch ends it.
        """
        if self.progress is None or self.failure is not None:
            return None
        return self.progress.isr_proposal(now_ms, lag_time_ms=lag_time_ms, standings=standings)

    def proposes(self, proposal: IsrProposal) -> bool:
        """It is still to be answered."""
        return self.progress is not None and self.progress.in_sync.proposal == proposal

    def isr_refused(self, proposal: IsrProposal, now_ms: int) -> list[PendingAppend]:
        """The controller will not have it. What that commits, see ``settle``."""
        if self.progress is not None and proposal.leader_epoch == self.leader_epoch:
            self.progress.refused(proposal, now_ms)
        return self.settle()

    def isr_unanswered(self, proposal: IsrProposal, now_ms: int) -> None:
        """Nobody knows what became of it."""
        if self.progress is not None and proposal.leader_epoch == self.leader_epoch:
            self.progress.in_sync.unanswered(proposal, now_ms)

    # Either

    def begin_sync(self) -> SyncTicket | None:
        """What a worker thread is to run; None when there is nothing to sync or a sync runs.

        Raises StorageFailed, after which the partition is offline, or Overloaded: try again later.
        """
        if self.failure is not None or self.syncing is not None or self.cutting:
            return None
        try:
            self.syncing = self.log.begin_sync()
        except StorageFailed as error:
            self.fail(error)
            raise
        return self.syncing

    def finish_sync(self) -> list[PendingAppend]:
        """The sync has succeeded. What that commits, see ``settle``."""
        ticket, self.syncing = self.syncing, None
        assert ticket is not None, "no sync runs"
        self.log.finish_sync(ticket)
        return self.settle()

    def sync_failed(self, error: StorageFailed) -> None:
        """The sync has failed: nobody knows what is on the disk, so all that waits is failed."""
        ticket, self.syncing = self.syncing, None
        assert ticket is not None, "no sync runs"
        with suppress(StorageFailed):
            self.log.finish_sync(ticket)
        self.fail(error)

    def fail(self, error: StreamlogError) -> None:
        """Go offline: refuse appends, fail what waits. The high watermark stays where it is."""
        if self.failure is None:
            self.failure = error
            self.pending.fail(error)
            self.starts.fail(error)

    @property
    def kept_end(self) -> int:
        """All below may be acknowledged: under ``sync=commit`` what is synced."""
        return self.log.recovery_point if self.sync == "commit" else self.log.log_end_offset
