"""A partition's core: who leads, what is appended, synced, committed.

No asyncio, no clock, no callback: the time is passed in, what takes time is handed out to be run
elsewhere, and whatever may commit or fail what waits, or need a sync, returns a ``Step``, which
the shell carries out at once. What a follower does beside that is ``partition/replication/partition_follower``.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from streamlog.config import SyncPolicy
from streamlog.errors import (
    BrokenInvariant,
    NotEnoughReplicas,
    NotLeader,
    OffsetMovedToTieredStorage,
    OffsetOutOfRange,
    ReplicaInSync,
    StaleNode,
    StaleReplica,
    StorageFailed,
    StorageFull,
    StreamlogError,
    UnknownReplica,
)
from streamlog.log.leader_epochs import EpochStart
from streamlog.log.log import PartitionLog, SyncTicket
from streamlog.model import NO_EPOCH, NO_INCARNATION, NO_LEADER, EpochEnd, NodeId, TopicPartition
from streamlog.partition.compiled.at_once import StateEnd
from streamlog.partition.maintenance.cleaning_state import CleaningState
from streamlog.record.codec import RecordRun
from streamlog.replication.divergence import divergence
from streamlog.replication.isr import IsrProposal
from streamlog.replication.leader import LeaderProgress, Standings


class Acknowledgement(Protocol):
    """Hears once what became of an append."""

    def committed(self, base_offset: int) -> None:
        """The records from ``base_offset`` on are below the high watermark."""

    def failed(self, error: StreamlogError) -> None:
        """The records may or may not be there after a restart, or under another leader."""


class PendingAppend(NamedTuple):
    """An append that waits for the high watermark to reach ``end_offset``; or a log start there,
    that waits until every in-sync replica's log begins at it or above.
    """

    end_offset: int
    base_offset: int
    size_bytes: int
    started: float
    """By the caller's clock; 0.0 where the commit is not timed."""
    ack: Acknowledgement


class Step(NamedTuple):
    """What an operation of the core leaves to the shell, see ``Partition.carry_out``."""

    commits: Sequence[PendingAppend] = ()
    """To be acknowledged, in this order."""
    failed: Sequence[PendingAppend] = ()
    """To be told ``error``."""
    error: StreamlogError | None = None
    high_watermark_moved: bool = False
    wants_sync: bool = False
    """There is something to sync, which no sync that runs covers."""
    recovery_point_moved: bool = False
    is_offline: bool = False
    """The disk has failed with ``error``: from now on nothing is appended."""


NOTHING: Final = Step()


class Unawaited:
    """See ``UNAWAITED``."""

    def committed(self, base_offset: int) -> None:
        pass

    def failed(self, error: StreamlogError) -> None:
        pass


UNAWAITED: Final = Unawaited()
"""An ``Acknowledgement``: no publisher waits for the commit, which may be long in coming."""


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """A partition at one moment."""

    tp: TopicPartition
    leader: NodeId
    """NO_LEADER where there is none."""
    leader_epoch: int
    is_leader: bool
    log_start_offset: int
    high_watermark: int
    undecided: int
    """Offsets below the high watermark, from the first open transaction on (Kafka's LastStableOffsetLag)."""
    log_end_offset: int
    size_bytes: int
    segment_count: int
    replica_count: int
    isr_size: int
    min_isr: int
    follower_lag: int
    """Records that the follower furthest behind lacks; 0 where this node does not lead."""
    in_flight_bytes: int
    in_flight_batches: int
    is_auto_paused: bool
    """It has been idle for so long that its files are closed."""
    is_damaged: bool
    """Some records cannot be read here."""
    failure: str | None
    """Why nothing can be appended; None where all is well."""
    local_log_start_offset: int = 0
    tiered_end_offset: int = -1
    """Up to where the object store has all; -1: nothing is there."""
    tier_lag_bytes: int = 0
    """Of closed segments that the store does not have; 0 where this node does not lead."""
    tier_lag_segments: int = 0


class PartitionState(StateEnd):
    """One partition on one node, as leader or follower. Single owner; not thread-safe.

    Invariants: the high watermark falls only where a leader was elected that lacks what was
    committed; nothing is acknowledged but by the leader of the epoch it was appended in.
    """

    __slots__ = (
        "_barriers",
        "_sync_is_due",
        "cleaning",
        "cutting",
        "in_flight_bytes",
        "incarnations",
        "is_offline",
        "isr",
        "leader",
        "min_isr",
        "node_id",
        "partition_epoch",
        "replicas",
        "tp",
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
        self.failure = None
        """Set once, when the disk failed or the partition is gone: nothing more is appended."""
        self.is_offline = False
        """The disk has failed, and ``disk_failed`` has said so."""
        self.leader = NO_LEADER
        """As last heard; this node itself while it leads."""
        self.leader_epoch = NO_EPOCH
        """As last heard. The leader stamps it into batches."""
        self.partition_epoch = NO_EPOCH
        """Of the state of the metadata that was heard last, where that is told."""
        self.replicas: frozenset[NodeId] = frozenset((node_id,))
        self.isr: frozenset[NodeId] = frozenset()
        """As last heard."""
        self.incarnations: Mapping[NodeId, int] = {}
        """Of the replicas, as last heard."""
        self.min_isr = 1
        self.is_short = True
        """Fewer replicas are in sync than must be: nothing is committed meanwhile."""
        self.is_behind_store = False
        self.pending = deque()
        """In order of their offsets; the leader's."""
        self.in_flight_bytes = 0
        """Sum of their ``size_bytes``."""
        self.starts = []
        """Log starts that wait for the in-sync replicas; the leader's."""
        self._barriers: list[tuple[int, int]] = []
        """See ``hold_removals``: an offset, and the log start that in-sync replicas are to have first; the leader's."""
        self.appended_bytes = 0
        """By the last ``append``."""
        self.syncing = None
        """At most one sync runs."""
        self._sync_is_due = False
        """One was asked for while another one, which may not cover all, or a cut ran."""
        self.cutting = False
        """The log is being cut elsewhere: it is not to be touched."""
        self.cleaning = CleaningState()
        """Of compaction."""
        self.progress = None
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
    def stable_offset(self) -> int:
        """Readers of committed records read up to there (Kafka's last stable offset): below the high watermark, and
        below each record of a transaction whose end is not committed.
        """
        log = self.log
        return log.transactions.stable_offset(self.high_watermark, log.log_start_offset)

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
    ) -> Step:
        """Lead in a newer epoch, or with another ISR in the same."""
        before, failed = self.incarnations, NOTHING
        self._heard(leader_epoch, self.node_id, isr, replicas, min_isr)
        self.partition_epoch = NO_EPOCH if partition_epoch is None else partition_epoch
        self.incarnations = incarnations or {}
        if self.progress is None or leader_epoch > self.progress.leader_epoch:
            failed = self._fail_pending(NotLeader(f"{self.tp} is led in epoch {leader_epoch} now"))
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
        step = self.settle()
        return step._replace(failed=failed.failed, error=failed.error) if failed.failed else step

    def follow(
        self,
        leader_epoch: int,
        isr: Iterable[NodeId] = (),
        *,
        leader: NodeId = NO_LEADER,
        replicas: Iterable[NodeId] = (),
        incarnations: Mapping[NodeId, int] | None = None,
        partition_epoch: int | None = None,
        min_isr: int = 1,
    ) -> Step:
        """Follow ``leader`` in this epoch. What waits for a commit fails: another answers now."""
        self._heard(leader_epoch, leader, isr, replicas, min_isr)
        self.partition_epoch = NO_EPOCH if partition_epoch is None else partition_epoch
        self.incarnations = incarnations or {}
        return self.resign(f"{self.tp} is led by another node now")

    def resign(self, reason: str) -> Step:
        """Lead no more, and acknowledge nothing more."""
        self.progress = None
        return self._fail_pending(NotLeader(reason))

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

    def _fail_pending(self, error: StreamlogError) -> Step:
        self._barriers.clear()
        if not self.pending and not self.starts:
            return NOTHING
        failed = [*self.pending, *self.starts]
        self.pending.clear()
        self.starts.clear()
        self.in_flight_bytes = 0
        return Step(failed=failed, error=error)

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
        """As ``append_run``; ``ack`` hears of the commit."""
        base_offset = self.append_run(run, now_ms, leader_epoch=leader_epoch)
        self.await_commit(base_offset, self.appended_bytes, started, ack)
        return base_offset

    def write(self, batch: bytes, timestamp_ms: int) -> None:
        """Append to the log a batch that is not made of a run. Raises StorageFull, StorageFailed,
        Overloaded as ``append``: nothing is appended, committed or synced from a failure on.
        """
        try:
            self.log.append(batch, timestamp_ms)
        except StorageFailed as error:
            self.failure = self.failure or error
            raise

    def write_fetched(self, records: memoryview, *, epoch_max: int | None = None) -> int:
        """As ``write``, for ``PartitionLog.append_fetched``."""
        try:
            return self.log.append_fetched(records, epoch_max=epoch_max)
        except StorageFailed as error:
            self.failure = self.failure or error
            raise

    def await_commit(
        self, base_offset: int, size_bytes: int, started: float, ack: Acknowledgement
    ) -> None:
        """``ack`` waits for the commit of all that the log has now, in its turn.

        One after another that tell the same one become one: where no publisher waits, and too few
        replicas are there to commit anything, they would pile up.
        """
        end_offset, pending = self.log.log_end_offset, self.pending
        self.in_flight_bytes += size_bytes
        if pending and pending[-1].ack is ack:
            last = pending.pop()
            base_offset, size_bytes = last.base_offset, last.size_bytes + size_bytes
        pending.append(PendingAppend(end_offset, base_offset, size_bytes, started, ack))

    def check_min_isr(self) -> None:
        """Fewer replicas may be in sync than the stream's ``min_isr`` (Kafka's min.insync.replicas): a write
        that is to be acknowledged by all of them is refused. Raises NotEnoughReplicas.
        """
        if self.is_short:
            raise self._not_enough_replicas()

    def _not_enough_replicas(self) -> NotEnoughReplicas:
        return NotEnoughReplicas(f"{self.tp} has fewer replicas in sync than min_isr")

    def check_writable(self) -> None:
        """Raises NotLeader, also while the node's lease is over; StorageFull, StorageFailed; ObjectStoreUnavailable,
        see ``check_not_behind_store``.
        """
        led = self.progress is not None and (self._may_act is None or self._may_act())
        if self.failure is not None or not led:
            raise self.failure or NotLeader(f"{self.tp} is not led by this node")
        if not self.has_room:
            raise StorageFull("the disk is full")
        self.check_not_behind_store()

    def settle(self) -> Step:
        """Move the high watermark as far as it goes.

        Nothing moves on a follower, nor while the lease is over: to be called again when it holds.
        Sealed segments are synced under every policy, so that a start has one to check.
        """
        if self.failure is not None:
            return NOTHING
        progress, log = self.progress, self.log
        wants_sync = (
            self.sync != "interval" and self.syncing is None and log.recovery_point < log.sealed_end
        )
        if progress is None:
            return Step(wants_sync=True) if wants_sync else NOTHING
        commits, failed, error = self._settle_starts(progress) if self.starts else ([], (), None)
        before = self.high_watermark
        high_watermark = progress.local(log.log_end_offset, self.kept_end)
        if high_watermark > before:
            if self._may_act is not None and not self._may_act():
                return Step(commits, failed, error, wants_sync=wants_sync)
            self.high_watermark = high_watermark
        pending = self.pending
        while pending and pending[0].end_offset <= self.high_watermark:
            commit = pending.popleft()
            self.in_flight_bytes -= commit.size_bytes
            commits.append(commit)
        moved = self.high_watermark != before
        if self._barriers:
            held = [it for it in self._barriers if not progress.acknowledge_start(it[1])]
            moved |= len(held) < len(self._barriers)
            self._barriers = held
        return Step(commits, failed, error, moved, wants_sync)

    def _settle_starts(
        self, progress: LeaderProgress
    ) -> tuple[list[PendingAppend], Sequence[PendingAppend], StreamlogError | None]:
        """Those that every in-sync replica has, or all as failed, and why. Also while the lease is
        over: the next leader was in sync, and begins there, too.
        """
        starts, self.starts = self.starts, []
        if progress.is_short:
            return [], starts, self._not_enough_replicas()
        commits: list[PendingAppend] = []
        for start in starts:
            has_it = progress.acknowledge_start(start.end_offset)
            (commits if has_it else self.starts).append(start)
        return commits, (), None

    @property
    def removals_end(self) -> int:
        """What has messages go is acknowledged below it: that is committed, and no replica in sync has others that this
        leader did not know any more.
        """
        if not self._barriers:
            return self.high_watermark
        return min(self.high_watermark, self._barriers[0][0])

    def hold_removals(self, offset: int) -> None:
        """What follows from ``offset`` on names the messages that go, but none below this log's start. Where that is so
        by a purge or a limit of which the other replicas have not heard, one of them may lead next, and would have
        such messages: ``removals_end`` waits until their logs begin there, too.
        """
        start, barriers = self.log.log_start_offset, self._barriers
        if self.progress is None or (barriers and barriers[-1][1] >= start):
            return
        if not self.progress.acknowledge_start(start):
            barriers.append((offset, start))

    def await_start(self, offset: int, ack: Acknowledgement) -> Step:
        """The log begins at ``offset``, or above; ``ack`` hears when every in-sync replica's does.
        Raises NotLeader, NotEnoughReplicas, StorageFailed.
        """
        if self.failure is not None or self.progress is None:
            raise self.failure or NotLeader(f"{self.tp} is not led by this node")
        if self.progress.is_short:
            raise self._not_enough_replicas()
        self.starts.append(PendingAppend(offset, offset, 0, 0.0, ack))
        return self.settle()

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
        partition_epoch: int = NO_EPOCH,
    ) -> EpochEnd | Step:
        """A replica says that it has all below ``offset``, the last of ``last_epoch``, from
        ``log_start`` on, and which ``partition_epoch`` it knows; counted once for each request.

        Where its history parts from ours it is told, and does not count. Raises NotLeader (it is no
        replica, too), StaleNode, StaleReplica, UnknownReplica; ReplicaInSync: see
        ``LeaderProgress.went_back``; OffsetOutOfRange: it has to begin again at our log start.
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
            raise StaleReplica(f"{self.tp}: node {node_id} was assigned again at {assigned}")
        known = progress.followers.get(node_id)
        if known is not None and node_epoch < known.node_epoch:
            raise StaleNode(f"node {node_id} has restarted since its epoch {node_epoch}")
        if progress.went_back(
            node_id, offset, node_epoch=node_epoch, partition_epoch=partition_epoch
        ):
            raise ReplicaInSync(f"{self.tp}: node {node_id} is, or may be, in sync beyond {offset}")
        log = self.log
        start, end = log.log_start_offset, log.log_end_offset
        if last_epoch != NO_EPOCH:
            epoch_end = self.epoch_end(last_epoch)
            if epoch_end.epoch != NO_EPOCH:
                parts = divergence(epoch_end, fetch_offset=offset, last_epoch=last_epoch)
                if parts is not None:
                    return parts
            elif not start == offset == end:  # with nothing here there is nothing to compare
                raise self._out_of_range(offset)
        if not start <= offset <= end:
            raise self._out_of_range(offset)
        progress.local(end, self.kept_end)
        progress.follower(
            node_id,
            offset,
            node_epoch=node_epoch,
            now_ms=now_ms,
            log_start=log_start,
            partition_epoch=partition_epoch,
        )
        return self.settle()

    def _out_of_range(self, offset: int) -> OffsetOutOfRange:
        """Of a tiered partition the store has what is below the log start."""
        log = self.log
        start, end = log.log_start_offset, log.log_end_offset
        if log.tier_start <= offset < start:
            return OffsetMovedToTieredStorage(offset, start, end)
        return OffsetOutOfRange(offset, start, end)

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

    def shared_end(self, read: Sequence[EpochStart], end: int) -> int:
        """See ``LeaderEpochs.shared_end``. Raises NotLeader where this leader is older than what was read."""
        if read and read[-1].epoch > self.leader_epoch:
            raise NotLeader(f"epoch {read[-1].epoch} has begun, and this is {self.leader_epoch}")
        return self.log.epochs.shared_end(read, end, self.log.log_end_offset)

    def replica_lags(self) -> dict[NodeId, int]:
        """How many records each follower lacks, all of them if it has not fetched."""
        if self.progress is None or len(self.replicas) == 1:
            return {}
        start, end = self.log.log_start_offset, self.log.log_end_offset
        ends = {it: follower.end_offset for it, follower in self.progress.followers.items()}
        return {
            it: end - min(max(ends.get(it, start), start), end)
            for it in self.replicas
            if it != self.node_id
        }

    def statistics(self) -> PartitionStatistics:
        """What the partition says about itself now."""
        log = self.log
        return PartitionStatistics(
            tp=self.tp,
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            is_leader=self.is_leader,
            log_start_offset=log.log_start_offset,
            high_watermark=self.high_watermark,
            undecided=self.high_watermark - self.stable_offset,
            log_end_offset=log.log_end_offset,
            size_bytes=log.size_bytes,
            segment_count=log.segment_count,
            replica_count=len(self.replicas),
            isr_size=len(self.isr),
            min_isr=self.min_isr,
            follower_lag=max(self.replica_lags().values(), default=0),
            in_flight_bytes=self.in_flight_bytes,
            in_flight_batches=len(self.pending),
            is_auto_paused=log.is_resting,
            is_damaged=log.damaged_from is not None,
            failure=None if self.failure is None else str(self.failure),
            local_log_start_offset=log.log_start_offset,
        )

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

    def isr_refused(self, proposal: IsrProposal, now_ms: int) -> Step:
        """The controller will not have it."""
        if self.progress is not None and proposal.leader_epoch == self.leader_epoch:
            self.progress.refused(proposal, now_ms)
        return self.settle()

    def isr_unanswered(self, proposal: IsrProposal, now_ms: int) -> None:
        """Its outcome is unknown."""
        if self.progress is not None and proposal.leader_epoch == self.leader_epoch:
            self.progress.in_sync.unanswered(proposal, now_ms)

    # Either

    def begin_sync(self) -> SyncTicket | Step:
        """What a worker thread is to run, and ``finish_sync`` or ``sync_failed`` to follow; a step
        where there is nothing to sync, or a sync or a cut runs, whose end wants another one then.

        Raises Unavailable, but no StorageFailed: try again later.
        """
        self._sync_is_due = self.syncing is not None or self.cutting
        if self.failure is not None or self._sync_is_due:
            return NOTHING
        try:
            self.syncing = self.log.begin_sync()
        except StorageFailed as error:
            return self.disk_failed(error)
        return NOTHING if self.syncing is None else self.syncing

    def finish_sync(self) -> Step:
        """The sync has succeeded."""
        ticket, self.syncing = self.syncing, None
        if ticket is None:
            raise BrokenInvariant("no sync runs")
        log = self.log
        log.finish_sync(ticket)
        step = self.settle()
        upper_offset = log.log_end_offset if self.sync == "commit" else log.sealed_end
        is_behind = log.recovery_point < upper_offset and self.failure is None
        wants_sync = is_behind or self._sync_is_due
        return Step(
            step.commits, step.failed, step.error, step.high_watermark_moved, wants_sync, True
        )

    def sync_failed(self, error: StorageFailed) -> Step:
        """The sync has failed: it is not known what is on the disk, so all that waits is failed."""
        ticket, self.syncing = self.syncing, None
        if ticket is None:
            raise BrokenInvariant("no sync runs")
        with suppress(StorageFailed):
            self.log.finish_sync(ticket)
        return self.disk_failed(error)

    def finish_cut(self, error: StorageFailed | None) -> Step:
        """The log may be touched again, or the cut has failed; see ``PartitionFollower``."""
        self.cutting = False
        return self.disk_failed(error) if error else Step(wants_sync=self._sync_is_due)

    def disk_failed(self, error: StorageFailed) -> Step:
        """Go offline. Appends that are refused later tell the same failure again: it is new once."""
        is_new, self.is_offline = not self.is_offline, True
        return self.fail(error)._replace(error=error, is_offline=is_new)

    def fail(self, error: StreamlogError) -> Step:
        """Refuse appends, fail what waits. The high watermark stays where it is."""
        self.failure = self.failure or error
        return self._fail_pending(self.failure)

    @property
    def kept_end(self) -> int:
        """All below may be acknowledged: under ``sync=commit`` what is synced."""
        return self.log.recovery_point if self.sync == "commit" else self.log.log_end_offset
