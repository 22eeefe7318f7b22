"""One partition as the rest of the node sees it (Kafka's Partition). Called on the event loop alone."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from streamlog.clock import monotonic_ms, wall_ms
from streamlog.condition import NO_ACTION, Condition
from streamlog.config import LogSection, SyncPolicy
from streamlog.errors import (
    BrokenInvariant,
    CorruptBatch,
    NotLeader,
    ObjectStoreUnavailable,
    OffsetOutOfRange,
    StorageFailed,
    StorageFull,
    StreamlogError,
    Unavailable,
)
from streamlog.log.leader_epochs import EpochStart
from streamlog.log.log import PartitionLog
from streamlog.log.recovery.lost_end import Gone
from streamlog.log.retention import Trim
from streamlog.log.segment.file_slice import FileSlice
from streamlog.log.segment.record_places import MarkedBatch, RecordPlaces
from streamlog.log.segment.segment import Segment
from streamlog.log.transactions.transactions import AbortedTransaction
from streamlog.metadata.image.metadata_image import PartitionImage
from streamlog.metadata.nodes.node_condition import PARTITION_OFFLINE
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metrics import NodeMetrics
from streamlog.model import NO_EPOCH, NO_INCARNATION, EpochEnd, LogId, NodeId, TopicPartition
from streamlog.partition.compiled.at_once import PartitionEnd
from streamlog.partition.deletes.discard_new import check_room
from streamlog.partition.deletes.max_per_subject import MaxPerSubject
from streamlog.partition.deletes.message_deletes import MessageDeletes
from streamlog.partition.deletes.message_ttl import MessageTtl
from streamlog.partition.deletes.replicated import COMMIT_S, replicated
from streamlog.partition.producer_state_manager import (
    AHEAD_MS_MAX,
    ActiveProducer,
    ProducerAppend,
    ProducerStateManager,
    VerifiedTransaction,
)
from streamlog.partition.reader import Reader
from streamlog.partition.replication.partition_follower import PartitionFollower
from streamlog.partition.replication.repeated_fetch import RepeatedFetchDetector
from streamlog.partition.state import (
    UNAWAITED,
    Acknowledgement,
    PartitionState,
    PartitionStatistics,
    Step,
)
from streamlog.partition.storage.flusher import Flusher
from streamlog.partition.storage.restore import restamped
from streamlog.partition.stream_limits import log_settings, sync_policy
from streamlog.partition.subjects.index_build import erase_offsets
from streamlog.partition.subjects.index_cache import SubjectIndexCache
from streamlog.partition.subjects.subject_index import Subjects
from streamlog.partition.tiering.tiered_log import NO_LAG, TierContext, TieredLog
from streamlog.record.batch import LOG_APPEND_TIME, BatchHeader
from streamlog.record.codec import RecordRun
from streamlog.record.compiled.subjects import SubjectIndex
from streamlog.record.compression import Buffer, Compression
from streamlog.record.offset_set import OffsetSet
from streamlog.record.produced import ProducedBatch
from streamlog.record.transaction_marker import TransactionMarker
from streamlog.tier.object_layout import PartitionPrefix, StreamPrefix
from streamlog.wire.fetch import TopicIdPartition

logger = logging.getLogger(__name__)

PURGED_FILES_REMAIN: Final = Condition(
    "SL-0218",
    "purged files remain",
    NO_ACTION,
    meaning="A purge is done, and files of it could not be removed yet. The node tries again.",
)
LOST_END_STAYS: Final = Condition(
    "SL-0233",
    "lost end stays noted",
    "nothing: the next start leaves the in-sync replicas once more",
    meaning="A log is complete again, and the note that its end was lost could not be removed.",
)

Watcher = Callable[[], None]
"""Called on the event loop when something has changed in a partition."""


class OffsetObserver(Protocol):
    """What a partition tells of itself, so that no reader has to look at all of them."""

    def offsets_changed(self, partition: "Partition") -> None:
        """The checkpoints are behind."""

    def limits_changed(self, partition: "Partition") -> None:
        """Other limits hold for its log, or it is led here from now on."""

    def unsynced(self, partition: "Partition") -> None:
        """Something waits for the next interval."""

    async def persist_log_start(self, partition: "Partition", offset: int) -> None:
        """Durable when it returns. Raises NotLeader once it is gone, StorageFull, StorageFailed."""

    async def lower_log_start(self, partition: "Partition") -> None:
        """Durable when it returns: the checkpoint says no more than the log does. Raises
        StorageFull, StorageFailed.
        """

    def begin_later(self, partition: "Partition", offset: int) -> None:
        """Its log is to begin there, soon."""


class DiskSpaceWatch(Protocol):
    """``disk_space.DiskSpace``."""

    @property
    def is_full(self) -> bool: ...
    def ran_out(self, error: StorageFull) -> None: ...


class OriginProgress(NamedTuple):
    """How far a mirror, or a stream with sources, has come with one of its origins."""

    name: str
    lag: int
    """Messages of the origin that are not here yet, as it said last."""
    active_ms: int | None
    """Since something was heard of it; None: nothing was."""
    error: str | None
    """Why it is not read, or what comes is not stored."""


class SourcePlaces(Protocol):
    """How far a stream has come with its sources, as its log says it. That must outlive purges and retention."""

    @property
    def kept_offset(self) -> int | None:
        """Of the newest committed record that says it: the log may not begin behind it. None: there is none yet."""

    def start_for(self, start: int) -> int:
        """Where the log may begin now, if retention would have it begin at ``start``. Where it may not begin there
        yet, the places are appended again soon, behind ``start``.
        """

    async def renew(self) -> None:
        """Say it once more, at the end of the log. Raises StreamlogError."""


def nothing(_partition: "Partition") -> None:
    """For who is not asked."""


class TierStarts(Protocol):
    """``tiering.tier_manager.TierManager``: where partitions of tiered streams begin."""

    async def begin_at(self, partition: "Partition", offset: int) -> None:
        """Have the metadata quorum know that it begins there; returns when this node knows it, too. Raises NotLeader,
        NoController, ObjectStoreUnavailable.
        """

    def begin_later(self, partition: "Partition", offset: int) -> None:
        """The same soon, and its log here begins there then, too."""


@dataclass(frozen=True, slots=True)
class PartitionContext:
    """What all partitions of a node share."""

    node_id: NodeId
    defaults: LogSection
    flusher: Flusher
    upkeep: OffsetObserver
    workers: Executor
    metrics: NodeMetrics
    space: DiskSpaceWatch
    may_act: Callable[[], bool] | None = None
    """Whether the lease lasts; None for a node that needs none."""
    isr_may_change: Callable[["Partition"], None] = nothing
    """A follower has caught up."""
    health_changed: Callable[["Partition"], None] = nothing
    """It cannot be written or read in full, or can again."""
    first_producer_id: Callable[[], int] = lambda: 0
    """The lowest that is given in this metadata log."""
    indexes: SubjectIndexCache = field(default_factory=SubjectIndexCache)
    """Of subjects."""
    places: RecordPlaces = field(default_factory=RecordPlaces)
    """Of single records."""
    tier: TierContext | None = None
    """None on a node without an object store."""
    tier_starts: TierStarts | None = None
    """As above."""

    def has_room(self) -> bool:
        """Of the disk."""
        return not self.space.is_full


class Partition(PartitionEnd):
    """A local partition: ``ingest`` appends, ``server`` reads, ``registry`` tells it of changes."""

    __slots__ = (
        "_doubts", "config", "erasing", "expiry", "following", "incarnation", "log_id", "origins", "places",
        "producing", "reader", "subjects", "surplus", "tiered", "to_settle", "to_sync", "topic_id", "tp",
    )  # fmt: skip

    def __init__(
        self,
        tp: TopicPartition,
        log: PartitionLog,
        config: StreamConfig,
        surroundings: PartitionContext,
        *,
        topic_id: bytes,
        incarnation: int = NO_INCARNATION,
        high_watermark: int = 0,
    ) -> None:
        """``incarnation``: of the replica whose log this is, see ``PartitionImage``."""
        self.tp = tp
        self.topic_id = topic_id
        self.incarnation = incarnation
        self.log_id = LogId(tp, UUID(bytes=topic_id), incarnation)
        self.config = config
        self.state = PartitionState(
            tp,
            log,
            node_id=surroundings.node_id,
            high_watermark=high_watermark,
            sync=sync_policy(config, surroundings.defaults),
            compression=Compression.named(config.compression),
            may_act=surroundings.may_act,
            has_room=surroundings.has_room,
        )
        """For the rest of this package; others ask the partition."""
        self.following = PartitionFollower(self.state)
        self.places: SourcePlaces | None = None
        """Of a stream with sources, while it is fed here."""
        self.origins: Callable[[], Sequence[OriginProgress]] = tuple
        """How far it has come with each of its origins; of none while it is not fed here."""
        self.to_sync = self.to_settle = False  # the flusher's own
        self._waiting = []
        """For the end of the sync or cut that runs or is about to, or of a cleaning."""
        self._log = log
        self._surroundings = surroundings
        self._metrics = surroundings.metrics
        self.reader = Reader(
            tp, log, surroundings.workers, surroundings.metrics, damaged=self._damaged
        )
        """For the rest of this package, to have the log checked."""
        self.tiered = TieredLog(
            tp,
            log,
            self.reader,
            surroundings.workers,
            place=self._place(surroundings.tier),
            context=surroundings.tier,
        )
        """What of it is in the object store, if its stream is tiered."""
        self.subjects = Subjects(
            tp, log, self.tiered, surroundings.indexes, erasing=self._erase_from_index
        )
        self._commit_watchers = {}
        """The purgatory of consumers' fetches: delayed until the high watermark moves ..."""
        self._end_watchers = {}
        """... and that of followers' fetches: until the log end does."""
        self._is_carrying_out = False
        self._doubts = RepeatedFetchDetector()
        self.producing = ProducerStateManager(
            self.state,
            self.read_appended,
            expiration_ms=surroundings.defaults.producer_id_expiration_ms,
            first_id=surroundings.first_producer_id,
            tiered=self.tiered,
        )
        self.erasing = MessageDeletes(
            self.state,
            appended=self._control_appended,
            failed=self.append_failed,
            foreseen=self.subjects.drop,
            lost=self.subjects.forget,
        )
        self.expiry = MessageTtl(
            self.state,
            self.reader,
            self.erasing,
            subjects=self.subjects,
            config=lambda: self.config,
            append=lambda run: self.append(run, UNAWAITED),
        )
        self.surplus = MaxPerSubject(self.state, self.subjects, self.erasing, lambda: self.config)

    def _place(self, tier: TierContext | None) -> PartitionPrefix | None:
        if tier is None:
            return None
        return StreamPrefix(tier.cluster_id, self.log_id.stream_id).partition(self.tp.partition)

    @property
    def key(self) -> TopicIdPartition:
        """Its name among nodes. ``tp`` may be that of another stream by the time it is read."""
        return TopicIdPartition(self.topic_id, self.tp.partition)

    @property
    def closed(self) -> bool:
        """The log is closed, or about to be: nothing is led, appended or read."""
        return self.reader.closed

    def __hash__(self) -> int:
        """By its name, not by where it lies in memory: a set of partitions is walked in the same order in each run of
        a simulated story. Two are equal only if they are one.
        """
        return hash(self.tp)

    @property
    def is_leader(self) -> bool:
        return self.state.is_leader and not self.closed

    @property
    def leader(self) -> NodeId:
        """As last heard; NO_LEADER where there is none."""
        return self.state.leader

    @property
    def leader_epoch(self) -> int:
        """Of the leader, as last heard; -1 before anything is."""
        return self.state.leader_epoch

    def leads(self, leader_epoch: int) -> bool:
        """It is led here, and was without a break since that epoch began."""
        state = self.state  # not by the properties: each request of a consumer's asks
        is_led = state.progress is not None and not self.reader.closed
        return is_led and state.leader_epoch == leader_epoch

    @property
    def may_serve_reads(self) -> bool:
        """Consumers may read here: the leader, or a follower in sync while the lease is held."""
        state, may_act = self.state, self._surroundings.may_act
        if self.closed or state.is_leader:
            return not self.closed
        in_sync = self._surroundings.node_id in state.isr and not state.cutting
        return in_sync and (may_act is None or may_act())

    @property
    def high_watermark_known(self) -> bool:
        """What is committed is known: not so on a new leader until its followers have fetched."""
        return self.state.knows_high_watermark

    @property
    def sync_policy(self) -> SyncPolicy:
        return self.state.sync

    @property
    def log_start_offset(self) -> int:
        """Of the partition. A tiered one may begin earlier than its log on this node."""
        tiered = self.tiered
        return self._log.log_start_offset if tiered.image is None else tiered.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """Of its log on this node."""
        return self._log.log_start_offset

    @property
    def files_start(self) -> int:
        """Its files still have all from there on."""
        return self._log.files_start

    @property
    def high_watermark(self) -> int:
        return self.state.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def messages_end(self) -> int:
        """From there to the log's end no message has come, but erasures have."""
        return self._log.erasures.messages_end(self._log.log_end_offset)

    @property
    def committed_messages_end(self) -> int:
        """From there to the high watermark no message has come, but erasures have; not below the log's start."""
        end = self._log.erasures.committed_messages_end(self.high_watermark)
        return max(end, min(self.log_start_offset, self.high_watermark))

    @property
    def last_epoch(self) -> int:
        """Of the last batch; -1 where there is none."""
        return self._log.epochs.latest

    @property
    def size_bytes(self) -> int:
        """Of what can be read, also out of the object store, as far as its manifest was read. Files may have more, see
        ``PartitionLog.kept_bytes``.
        """
        return self._log.kept_bytes + self.tiered.remote_bytes

    @property
    def local_bytes(self) -> int:
        """Of what can be read on this node."""
        return self._log.kept_bytes

    @property
    def recovery_point(self) -> int:
        """All below is synced."""
        return self._log.recovery_point

    @property
    def first_dirty_offset(self) -> int:
        """All below has been compacted."""
        return self._log.first_dirty_offset

    @property
    def erased(self) -> OffsetSet:
        """See ``MessageDeletes.erased``; erasures themselves, which are no messages, count, too."""
        return self.erasing.erased

    @property
    def isr(self) -> frozenset[NodeId]:
        return self.state.isr

    @property
    def below_min_isr(self) -> bool:
        """Fewer replicas are in sync than the stream wants: nothing is committed meanwhile."""
        return self.state.is_short

    def check_min_isr(self) -> None:
        """Raises NotEnoughReplicas."""
        self.state.check_min_isr()

    @property
    def is_damaged(self) -> bool:
        """Some of its records cannot be read; a follower fetches them again."""
        return self.following.is_damaged

    @property
    def is_swapping(self) -> bool:
        """Segments are being replaced by cleaned ones."""
        return self._log.is_swapping and not self.closed

    @property
    def is_ailing(self) -> bool:
        """Others are to lead it, and to count without it, if there are any in sync."""
        return self.failure is not None or self.is_damaged or self.following.is_short

    @property
    def is_auto_paused(self) -> bool:
        """Its files are closed until it is written to."""
        return self._log.is_resting

    @property
    def in_flight_bytes(self) -> int:
        return self.state.in_flight_bytes

    @property
    def failure(self) -> StreamlogError | None:
        """Why nothing can be appended, if so; reads go on up to the high watermark."""
        return self.state.failure

    def replica_lags(self) -> dict[NodeId, int]:
        """How many records each follower lacks, as its leader; empty elsewhere."""
        return self.state.replica_lags()

    # Appending

    def append(
        self, run: RecordRun, ack: Acknowledgement, *, leader_epoch: int | None = None
    ) -> int:
        """Append ``run`` as one batch; its base offset. ``ack`` hears later, never during this
        call.

        The run is empty afterwards, whatever happens. Raises NotLeader, also where the caller means
        another ``leader_epoch``, StorageFull, StorageFailed, Overloaded; ``ack`` is not called
        then.
        """
        started = time.perf_counter()
        count, state, metrics = run.count, self.state, self._metrics
        try:
            base_offset = state.append(run, wall_ms(), ack, started, leader_epoch=leader_epoch)
        except StreamlogError as error:
            self.append_failed(error)
            raise
        metrics.append_batches.count += 1
        metrics.append_records.count += count
        metrics.append_bytes.count += state.appended_bytes
        self.keep()
        self.grown()
        return base_offset

    def append_failed(self, error: StreamlogError) -> None:
        self._metrics.append_failures.labels(type(error).__name__).inc()
        self.disk_refused(error)

    def disk_refused(self, error: StreamlogError) -> None:
        """What was to be written was not: the partition goes offline, or the disk is full."""
        if isinstance(error, StorageFailed) and self.state.failure is error:
            self.carry_out(self.state.disk_failed(error))
        elif isinstance(error, StorageFull):
            self._surroundings.space.ran_out(error)

    def _control_appended(self) -> None:
        self.keep()
        self.grown()

    def keep(self) -> None:
        """Have what is new synced soon, or let it count unsynced, as the policy says."""
        surroundings, policy = self._surroundings, self.state.sync
        if policy == "commit":
            surroundings.flusher.sync(self)
            return
        if policy == "interval":
            surroundings.upkeep.unsynced(self)
        surroundings.flusher.settle(self)

    def _keep_at_once(self) -> None:
        """As ``keep``, for what a client waits for by itself: its sync begins now, and where no other replica and no
        sync is waited for, it counts now. A turn of the loop later would be a third of the latency.
        """
        state = self.state
        if state.sync == "commit" and not self._is_carrying_out:
            self._surroundings.flusher.sync_at_once(self)
            return
        if state.sync == "commit" or len(state.isr) > 1 or self._is_carrying_out:
            self.keep()
            return
        if state.sync == "interval":
            self._surroundings.upkeep.unsynced(self)
        self.carry_out(state.settle())

    def sync_soon(self) -> None:
        """Whatever the policy says."""
        self._surroundings.flusher.sync(self)

    def _erase_from_index(
        self, index: SubjectIndex, header: BatchHeader, batch: memoryview
    ) -> None:
        """From any thread. Raises CorruptBatch."""
        if header.is_transactional:
            for offset in self._aborted_at(header.base_offset):
                index.erase(offset)
        else:
            erase_offsets(index, header, batch)

    def _aborted_at(self, marker_offset: int) -> OffsetSet:
        """As ``PartitionLog.aborted_at``."""
        first = self.tiered.first_aborted_at(marker_offset)
        if first is None:
            return self._log.aborted_at(marker_offset)
        return self._log.erasures.erased.between(first, marker_offset)

    def settle_soon(self) -> None:
        """What is kept may count now."""
        self._surroundings.flusher.settle(self)

    @property
    def knows_producers(self) -> bool:
        """``know_producers`` has nothing to wait for."""
        return self.producing.complete

    async def know_producers(self) -> None:
        """What its log says of producers is read. Raises NotLeader, StorageFailed."""
        await self.producing.know()

    def produce_plain(self, batch: ProducedBatch, ack: Acknowledgement) -> int:
        """As ``produce``, for a batch that takes nothing but an append; its base offset. ``ack`` hears of the commit,
        perhaps before this returns. -1, and nothing was done: there is more to it.
        """
        header, timestamp_ms, config = batch.header, batch.max_timestamp_ms, self.config
        if (
            header.producer_id >= 0
            or header.max_timestamp_ms != timestamp_ms
            or header.attributes & LOG_APPEND_TIME
            or config.timestamp_type == "LogAppendTime"
            or config.discard == "new"
            or not 0 <= timestamp_ms <= wall_ms() + AHEAD_MS_MAX
        ):
            return -1
        return self.append_produced(batch.data, header.record_count, timestamp_ms, ack)

    def produce(
        self,
        batch: ProducedBatch,
        ack: Acknowledgement,
        *,
        verified: VerifiedTransaction | None = None,
    ) -> ProducerAppend:
        """Append what a producer sent, as it is; if it is there already, where that is. ``verified``: of a
        transaction's first batch here.

        ``ack`` hears of the commit of either, of a repetition's perhaps at once. For a numbered
        batch ``know_producers`` comes before. Raises as ``append``, and InvalidTimestamp,
        InvalidProducerEpoch, OutOfOrderSequence, InvalidTransactionState, StreamFull.
        """
        started, metrics, config = time.perf_counter(), self._metrics, self.config
        try:
            appended = self.producing.append(
                batch,
                ack,
                now_ms=wall_ms(),
                append_time=config.timestamp_type == "LogAppendTime",
                started=started,
                check_room=partial(check_room, self) if config.discard == "new" else None,
                verified=verified,
            )
        except StreamlogError as error:
            self.append_failed(error)
            raise
        if not appended.is_repetition:
            metrics.append_batches.count += 1
            metrics.append_records.count += batch.record_count
            metrics.append_bytes.count += self.state.appended_bytes
            self.grown()
        else:
            metrics.produce_duplicates.inc()
        self._keep_at_once()
        return appended

    # Transactions

    async def end_transaction(self, marker: TransactionMarker) -> None:
        """Return once the marker is committed, here or by an earlier call. May be asked again.

        Raises NotLeader, NotEnoughReplicas, InvalidProducerEpoch, CoordinatorFenced, StorageFull, StorageFailed,
        Overloaded, and RequestTimedOut where it may yet be committed.
        """
        await self.producing.know()
        await replicated(self.tp, lambda ack: self._end_transaction(marker, ack))

    def _end_transaction(self, marker: TransactionMarker, ack: Acknowledgement) -> None:
        try:
            self.producing.end(marker, ack)
        except StreamlogError as error:
            self.append_failed(error)
            raise
        self.keep()
        self.settle_soon()  # where it is there already, all may be synced
        self.grown()

    def verify_transaction(self, header: BatchHeader) -> VerifiedTransaction | None:
        """See ``ProducerStateManager.verify``; ``know_producers`` comes before."""
        return self.producing.verify(header)

    def verify_producer(self, producer_id: int, producer_epoch: int) -> VerifiedTransaction | None:
        """As ``verify_transaction``, for records that the node itself writes."""
        return self.producing.verify_producer(producer_id, producer_epoch)

    def append_to_transaction(
        self,
        run: RecordRun,
        producer_id: int,
        producer_epoch: int,
        ack: Acknowledgement,
        *,
        verified: object,
    ) -> int:
        """Append ``run`` as one batch of a producer's transaction; its base offset. ``verified``: of
        ``verify_producer``, once the coordinator has said that the transaction has this partition. As ``append``, and
        ``know_producers`` comes before. Raises InvalidProducerEpoch, InvalidTransactionState, too.
        """
        count, metrics = run.count, self._metrics
        try:
            base_offset = self.producing.append_unnumbered(
                run, producer_id, producer_epoch, ack, verified=verified
            )
        except StreamlogError as error:
            self.append_failed(error)
            raise
        metrics.append_batches.count += 1
        metrics.append_records.count += count
        metrics.append_bytes.count += self.state.appended_bytes
        self.keep()
        self.grown()
        return base_offset

    @property
    def stable_offset(self) -> int:
        """See ``PartitionState.stable_offset``."""
        state = self.state
        is_decided = self._log.transactions.first_unstable_offset is None
        return state.high_watermark if is_decided else state.stable_offset

    def aborted_between(self, start: int, end: int) -> list[AbortedTransaction]:
        """See ``Transactions.aborted_between``; ``end`` is no more than ``stable_offset``."""
        return self._log.transactions.aborted_between(start, end)

    def active_producers(self) -> list[ActiveProducer]:
        """``know_producers`` comes before."""
        return self.producing.active()

    def restore(self, records: memoryview, ack: Acknowledgement) -> None:
        """Append what a backup has, checked, in this leader's epoch, at the offsets that it had;
        what is there is passed over, so that the same again is a success. ``ack`` hears of the
        commit.

        Raises NotLeader, StorageFull, StorageFailed, Overloaded; CorruptBatch where the batches are
        damaged or do not follow what is there.
        """
        state, started = self.state, time.perf_counter()
        state.check_writable()
        base_offset = self._log.log_end_offset
        new = memoryview(restamped(records, base_offset, state.leader_epoch))
        size, position = len(new), 0
        try:
            while position < size:
                written = state.write_fetched(new[position:])
                if not written:
                    raise CorruptBatch(f"{self.tp}: a batch is cut")
                self.producing.fetched(new[position : position + written])
                self.erasing.fetched(new[position : position + written])
                position += written
        except StreamlogError as error:
            self.append_failed(error)
            raise
        if size:
            self.grown()
        state.await_commit(base_offset, size, started, ack)
        self.carry_out(state.settle())  # at once, where all of it was there
        self.keep()

    def carry_out(self, step: Step) -> None:
        """Do what the core leaves to be done: the one place where publishers are answered, delayed
        fetches are woken, and syncs and checkpoints are asked for.

        Steps never nest, so acknowledgements keep the order of the appends: an acknowledgement or a
        watcher that changes this partition while it is told raises BrokenInvariant.
        """
        if self._is_carrying_out:
            raise BrokenInvariant(f"{self.tp}: a step within a step")
        self._is_carrying_out = True
        try:
            if step.commits:
                for item in step.commits:
                    item.ack.committed(item.base_offset)
                now = time.perf_counter()
                observe = self._metrics.commit_latency_seconds.observe
                for item in step.commits:
                    if item.started:  # 0: its latency is not measured
                        observe(now - item.started)
            if step.error is not None:
                self._tell_failed(step, step.error)
            if step.high_watermark_moved:
                self.erasing.committed()
                self.offsets_changed()
                for watcher, once in tuple(self._commit_watchers.items()):
                    if once:  # before it is called: no other is lost if it raises
                        self._commit_watchers.pop(watcher, None)
                    watcher()
            elif step.recovery_point_moved:
                self.offsets_changed()
            if step.wants_sync:
                self._surroundings.flusher.sync(self)
            if self._waiting and self.is_quiet:
                self.wake()
        finally:
            self._is_carrying_out = False

    def _tell_failed(self, step: Step, error: StreamlogError) -> None:
        for item in step.failed:
            item.ack.failed(error)
        if step.is_offline:
            logger.error(PARTITION_OFFLINE, extra=self.place(error))
            self._surroundings.health_changed(self)
            self._tell_changed()

    def _damaged(self) -> None:
        self.following.is_damaged = True
        self.health_changed()

    def repaired(self) -> None:
        """What was damaged is cut off, and will be fetched again."""
        self._metrics.log_repairs.inc()
        self.health_changed()

    def health_changed(self) -> None:
        """Damage was found, or was repaired."""
        self._surroundings.health_changed(self)

    def place(self, error: StreamlogError) -> dict[str, object]:
        """For a line in the log."""
        return {
            "stream": self.tp.stream,
            "partition": self.tp.partition,
            "epoch": self.leader_epoch,
            "offset": self.high_watermark,
            "error": str(error),
        }

    def grown(self) -> None:
        """The log end has moved."""
        if self._end_watchers:
            _tell(self._end_watchers)

    def offsets_changed(self) -> None:
        """The checkpoints are behind."""
        self._surroundings.upkeep.offsets_changed(self)

    def begin_later(self, offset: int) -> None:
        """Its log here, soon, once that is durable: retention says so, or a follower's leader."""
        self._surroundings.upkeep.begin_later(self, offset)

    def expire_below(self, offset: int) -> None:
        """The partition, soon: retention says so."""
        starts = self._surroundings.tier_starts
        if self.config.tiered and starts is not None:
            starts.begin_later(self, offset)
        elif not self.config.tiered:
            self.begin_later(offset)

    async def keep_log_start(self, offset: int | None = None) -> None:
        """While the log is cut: have the checkpoint say that it begins there, or where it does.
        Durable when it returns. Raises NotLeader once it is gone, StorageFull, StorageFailed.
        """
        upkeep = self._surroundings.upkeep
        if offset is None:
            await upkeep.lower_log_start(self)
        else:
            await upkeep.persist_log_start(self, offset)

    def was_cut(self) -> None:
        self.settle_store_end()
        self.producing.was_cut()
        self.erasing.was_cut()
        self.subjects.was_cut()
        self.offsets_changed()
        self._tell_changed()

    # Waiting for syncs, cuts and cleanings

    @property
    def is_quiet(self) -> bool:
        """Neither a sync nor a cut runs."""
        return self.state.syncing is None and not self.state.cutting

    async def wait_quiet(self) -> None:
        """Nor does a cleaning, which is called off."""
        cleaning = self.state.cleaning
        while not self.is_quiet or cleaning.running is not None:
            if cleaning.running is not None:
                cleaning.running.call_off()
            await self._wait()

    async def wait_uncut(self) -> None:
        """No cut runs."""
        while self.state.cutting:
            await self._wait()

    async def wait_synced(self) -> None:
        """All that is appended by now is synced, unless it is cut off; or the partition is offline
        or closed.
        """
        log, target = self._log, self._log.log_end_offset
        while log.recovery_point < min(target, log.log_end_offset) and self.state.failure is None:
            self.sync_soon()
            await self._wait()

    async def wait_kept(self) -> None:
        """What a follower has may be acknowledged, and no cut runs; or it is offline or closed."""
        await self.wait_uncut()
        if self.state.sync == "commit":
            await self.wait_synced()

    async def _wait(self) -> None:
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    def wake(self) -> None:
        """Something has ended that may be waited for."""
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
        return await self.tiered.read(offset, max_bytes, self._upper)

    def is_at_hand(
        self, offset: int, max_bytes: int, epoch: int, ready: Callable[[], None]
    ) -> bool:
        """``read``, and ``find_epoch_end`` of an epoch, need not wait for the object store; see
        ``TieredLog.is_at_hand``.
        """
        return self.tiered.is_at_hand(offset, max_bytes, epoch, ready)

    async def read_committed(
        self, offset: int, max_bytes: int
    ) -> tuple[FileSlice, list[AbortedTransaction]]:
        """As ``read``, but below ``stable_offset``; and which transactions among those records are aborted: theirs are
        to be passed over.
        """
        while True:
            part = await self.tiered.read(offset, max_bytes, self._stable)
            if not part:
                return part, []
            if not self.tiered.has(offset):
                break
            aborted = self.tiered.aborted_between(offset, part.end_offset)
            if aborted is not None:
                return part, aborted
            part.close()  # It has gone here meanwhile, or what its object says was forgotten.
        if offset < self.log_start_offset:  # deleted meanwhile, and with it what was known of it
            part.close()
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        return part, self.aborted_between(offset, part.end_offset)

    async def read_files(
        self, offset: int, max_bytes: int, *, is_appended: bool = False
    ) -> FileSlice:
        """As ``read``, or ``read_appended``, also from before the log start: of what is no message any more some things
        still count, as its id.
        """
        upper = self._end if is_appended else self._upper
        return await self.tiered.read(offset, max_bytes, upper, from_files_start=True)

    def segment_of(self, offset: int) -> Segment | None:
        """The segment with that offset; None: there is none."""
        return self._log.segment_for_read(offset)

    def known_batch(self, segment: Segment, offset: int) -> MarkedBatch | None:
        """Where that record lies, if that is known; to be read by ``record_places.slice_of``."""
        self.reader.check_open()
        self.reader.was_read = True
        return self._surroundings.places.find(segment, offset)

    def know_batch(
        self, segment: Segment, position: int, header: BatchHeader, batch: Buffer
    ) -> None:
        """It was read at that position of the segment, which has not changed since."""
        self._surroundings.places.note(segment, position, header, batch)

    async def read_appended(self, offset: int, max_bytes: int) -> FileSlice:
        """As ``read``, but up to the log end: what is not committed may still be cut off."""
        return await self.tiered.read(offset, max_bytes, self._end)

    async def read_for_follower(
        self,
        node_id: NodeId,
        node_epoch: int,
        offset: int,
        last_epoch: int,
        max_bytes: int,
        *,
        log_start: int = 0,
        incarnation: int = NO_INCARNATION,
        partition_epoch: int = NO_EPOCH,
    ) -> FileSlice | EpochEnd:
        """A replica has all below ``offset``, the last of it of ``last_epoch``, from ``log_start``
        on; that counts.

        What follows, up to the log end, or nothing where ``max_bytes`` is 0; or where histories
        part, and then nothing has counted. Raises NotLeader, StaleNode, StaleReplica,
        UnknownReplica, ReplicaInSync, OffsetOutOfRange, and as ``read``.
        """
        self.reader.check_open()
        state, now_ms = self.state, monotonic_ms()
        step = state.follower_fetch(
            node_id,
            node_epoch,
            offset,
            last_epoch,
            now_ms,
            log_start=log_start,
            incarnation=incarnation,
            partition_epoch=partition_epoch,
        )
        if isinstance(step, EpochEnd):
            return step
        self.carry_out(step)
        if state.progress is not None and state.progress.may_join(node_id):
            self._surroundings.isr_may_change(self)
        if max_bytes <= 0 or offset == self._log.log_end_offset:
            return self.reader.nothing()
        if self._doubts.arise(node_id, offset, now_ms):
            await self.reader.recheck(offset)
        return await self.read_appended(offset, max_bytes)

    def replica_had_all(self, node_id: NodeId, node_epoch: int, ago_ms: int) -> None:
        """``ago_ms`` ago the follower's idle session fetch found nothing new: it was caught up then."""
        self.state.follower_had_all(node_id, node_epoch, monotonic_ms() - ago_ms)

    async def offset_for_timestamp(
        self, timestamp_ms: int, *, from_files_start: bool = False, stable: bool = False
    ) -> tuple[int, int] | None:
        """The first committed offset of that time or later, with its time. ``from_files_start``: as ``read_files``;
        ``stable``: as ``read_committed``.
        """
        if not from_files_start:
            found = await self.tiered.offset_for_timestamp(timestamp_ms)
            if found is not None:
                return found
        upper = self._stable if stable else self._upper
        return await self.reader.offset_for_timestamp(
            timestamp_ms, upper, from_files_start=from_files_start
        )

    async def trimmed_start(self, now_ms: int) -> Trim:
        """Where the log begins once all is gone that its limits no longer keep. Raises NotLeader once it is closed,
        StorageFailed, Unavailable.
        """
        return await self.reader.trimmed_start(now_ms, self._upper, lambda: self.erased)

    async def settle_messages_max(self) -> None:
        """Where there are more messages than the limit says: the log begins later, durably. Raises NotLeader,
        StorageFull, StorageFailed.
        """
        start = self._log.start_by_messages(self.high_watermark, self.erased)
        if start > self.log_start_offset:
            await self.shorten(start)

    async def latest_timestamp(self, *, stable: bool = False) -> tuple[int, int] | None:
        """The committed offset of the latest time, with that time. ``stable``: as ``read_committed``."""
        found = await self.reader.latest_timestamp(self._stable if stable else self._upper)
        before = await self.tiered.latest_timestamp(-1 if found is None else found[1] - 1)
        return found if before is None else before

    def _upper(self) -> int:
        return self.state.high_watermark

    def _stable(self) -> int:
        return self.stable_offset

    def _end(self) -> int:
        return self._log.log_end_offset

    def epoch_end(self, epoch: int) -> EpochEnd:
        """Where ``epoch``, or the last one before it, ends. ``EpochEnd(-1, -1)``: not known."""
        return self.state.epoch_end(epoch)

    async def find_epoch_end(self, epoch: int) -> EpochEnd:
        """The same, also where only the object store has records of it. Raises ObjectStoreUnavailable, CorruptData,
        too.
        """
        return await self.tiered.epoch_end(epoch, self.state.epoch_end(epoch))

    def epochs_between(self, start: int, stop: int) -> list[EpochStart]:
        """See ``LeaderEpochs.between``."""
        return self._log.epochs.between(start, stop)

    def shared_end(self, read: Sequence[EpochStart], end: int) -> int:
        """See ``LeaderEpochs.shared_end``. Raises NotLeader where this leader is older than what was read."""
        return self.state.shared_end(read, end)

    # What others keep beside the log

    def read_beside(self, name: str) -> bytes:
        """A small file; b"" where there is none. From any thread. Raises StreamlogError."""
        return self._log.beside.read(name)

    def write_beside(self, name: str, data: bytes, *, durable: bool = True) -> None:
        """Replace it as a whole, durably if that is asked for. From any thread. Raises
        StreamlogError.
        """
        self.reader.check_open()
        encrypts = self._log.settings.encrypts
        self._log.beside.write(name, data, encrypts=encrypts, durable=durable)

    # Watching

    def add_watcher(self, watcher: Watcher, *, end: bool = False, once: bool = False) -> None:
        """``watcher`` is called when the high watermark, leadership or existence changes.

        ``end``: when the log end changes instead of the high watermark; for followers. ``once``: it
        is let go of at the first call, as a delayed fetch that leaves the purgatory.
        """
        (self._end_watchers if end else self._commit_watchers)[watcher] = once

    def remove_watcher(self, watcher: Watcher) -> None:
        self._commit_watchers.pop(watcher, None)
        self._end_watchers.pop(watcher, None)

    def _tell_changed(self) -> None:
        """Another node leads, or none does; the log was cut, or is closed."""
        _tell(self._commit_watchers)
        _tell(self._end_watchers)

    def statistics(self) -> PartitionStatistics:
        told = self.state.statistics()
        if not self.config.tiered:
            return told
        lag = self.tiered.lag() if self.is_leader else NO_LAG
        end = self.tiered.tiered_end_offset
        return replace(
            told,
            log_start_offset=self.log_start_offset,
            tiered_end_offset=-1 if end is None else end,
            tier_lag_bytes=lag.size_bytes,
            tier_lag_segments=lag.segments,
        )

    # For the registry

    def hear(self, image: PartitionImage, min_isr: int) -> bool:
        """Lead, follow or do neither, as ``image`` says; whether another leads now, or again.

        Not while the log is being cut, which only a follower's is.
        """
        state = self.state
        known = state.leader, state.leader_epoch
        start_moved = self.tiered.heard(image.tier)
        replicas = state.incarnations, state.replicas, state.isr
        incarnations = dict(zip(image.replicas, image.incarnations, strict=False))
        if image.leader == self._surroundings.node_id:
            step = state.lead(
                image.leader_epoch,
                image.isr,
                replicas=image.replicas,
                incarnations=incarnations,
                partition_epoch=image.partition_epoch,
                min_isr=min_isr,
                now_ms=monotonic_ms(),
            )
            self.carry_out(step)
            self.keep()  # what came while it followed counts once it is kept
        else:
            step = state.follow(
                image.leader_epoch,
                image.isr,
                leader=image.leader,
                replicas=image.replicas,
                incarnations=incarnations,
                partition_epoch=image.partition_epoch,
                min_isr=min_isr,
            )
            self.carry_out(step)
        self.settle_store_end()
        if self.following.heard():
            self._settle_lost_end(is_alone=state.isr == {self._surroundings.node_id})
            self.health_changed()
        is_new = known != (state.leader, state.leader_epoch)
        if is_new:
            self.producing.was_deposed()
            self.reader.make_way()
            self._surroundings.upkeep.limits_changed(self)
            self._tell_changed()
        elif start_moved:
            self._tell_changed()
        elif replicas != (state.incarnations, state.replicas, state.isr):
            _tell(self._commit_watchers)
        return is_new

    def settle_store_end(self) -> None:
        """Nothing is appended while the object store has more than this leader; see ``TierManager``."""
        image = self.tiered.image
        is_behind = image is not None and image.end_offset > self._log.log_end_offset
        self.state.is_behind_store = self.is_leader and is_behind

    def _settle_lost_end(self, *, is_alone: bool) -> None:
        """``is_alone``: no other replica in sync has what this one has lost."""
        lost_end, end = self._log.lost_end, self._log.log_end_offset
        try:
            if is_alone:
                self.offsets_changed()  # the checkpoint knows more offsets than there are
                lost_end.settle(end)
            else:
                lost_end.forget()
        except Unavailable as error:  # the next start is as careful
            logger.warning(LOST_END_STAYS, extra={"error": str(error)})

    @property
    def gone(self) -> Gone | None:
        """Records that were acknowledged and that no replica has any more, until an operator has said
        that he knows.
        """
        return self._log.lost_end.gone

    def configure(self, config: StreamConfig) -> None:
        """Another configuration holds from now on."""
        self.config = config
        defaults = self._surroundings.defaults
        self.state.sync = sync_policy(config, defaults)
        self.state.compression = Compression.named(config.compression)
        settings = log_settings(config, defaults)
        always = config.encrypted and self._log.settings.encrypts_all
        self._log.settings = replace(settings, encrypts_all=always)
        self._surroundings.upkeep.limits_changed(self)
        self.keep()

    async def purge(self, up_to_offset: int, *, timeout_s: float = COMMIT_S) -> int:
        """Forget the committed records below ``up_to_offset``; how many they were. Returns when
        every in-sync replica has forgotten them, durably. May be asked again.

        Raises NotLeader, NotEnoughReplicas, StorageFull, StorageFailed, and RequestTimedOut where
        the replicas may yet follow.
        """
        before = self.log_start_offset
        target = min(up_to_offset, max(before, self.latest_start))
        await self._shorten_tier(target)
        await self.shorten(target)
        await replicated(
            self.tp,
            lambda ack: self.carry_out(self.state.await_start(target, ack)),
            timeout_s=timeout_s,
        )
        return target - min(before, target)

    @property
    def removals_end(self) -> int:
        """See ``PartitionState.removals_end``. A watcher is called when it moves."""
        return self.state.removals_end

    def hold_removals(self, offset: int) -> None:
        """See ``PartitionState.hold_removals``."""
        self.state.hold_removals(offset)

    @property
    def latest_start(self) -> int:
        """The log may begin there at the latest. A leader that does not know yet how far the sources of its stream have
        come lets nothing go.
        """
        if not self.config.sources:
            return self.high_watermark
        kept = None if self.places is None else self.places.kept_offset
        return self.log_start_offset if kept is None else kept

    async def shorten(self, up_to_offset: int) -> None:
        """As ``purge``, for this replica alone: who does not find these records otherwise, either,
        need not wait. The other replicas follow in time. Raises NotLeader, StorageFull,
        StorageFailed.
        """
        self.reader.check_open()
        target = min(up_to_offset, self.latest_start)
        if target <= self.local_log_start_offset:
            return
        await self._shorten_tier(target)
        await self._surroundings.upkeep.persist_log_start(self, target)
        self.reader.check_open()
        if not self.state.is_leader:
            raise NotLeader(f"{self.tp} is led by another node now")
        self.begin_at(target)

    async def _shorten_tier(self, target: int) -> None:
        """The metadata say first where a tiered partition begins: what is in the store must not come back."""
        if self.config.tiered and target > self.log_start_offset:
            starts = self._surroundings.tier_starts
            if starts is None:
                raise ObjectStoreUnavailable(
                    f"{self.tp}: this node has no object store: set tier.url"
                )
            await starts.begin_at(self, target)

    def begin_at(self, offset: int, *, is_noted_soon: bool = True) -> None:
        """``offset`` is durable in the checkpoint: the log begins there, and older files go.

        The log's manifest has it soon, too, though nothing may ever be appended again: without it
        the checkpoint's loss would bring purged records back, or have removed files count as
        damage. Not ``is_noted_soon``: it has it after ``note_log_start``, for many moves at once.
        """
        try:
            self._log.advance_log_start(offset, is_kept=True, is_noted_soon=is_noted_soon)
        except Unavailable as error:  # the records are gone; their files go with the next retention
            logger.warning(PURGED_FILES_REMAIN, extra=self.place(error))
        self.erasing.start_moved(self._log.known_start)
        if is_noted_soon or self._log.has_unsynced_manifest:
            self.sync_soon()
        self.offsets_changed()
        if self.following.is_damaged and self._log.damaged_from is None:
            self.following.is_damaged = False
            self.health_changed()
        self._tell_changed()

    def note_log_start(self) -> None:
        """The log's manifest has it soon."""
        self._log.note_log_start()
        if self._log.has_unsynced_manifest:
            self.sync_soon()

    def fence(self, error: StreamlogError) -> None:
        """Nothing is led, appended, acknowledged or read from now on. ``close`` follows."""
        if not self.closed:
            self.reader.close()
            self.subjects.close()
            self.carry_out(self.state.fail(error))
            self._tell_changed()

    async def close(self, error: StreamlogError) -> PartitionLog:
        """Fail what waits with ``error``, tell the watchers; the log, which is not used now."""
        self.fence(error)
        await self.wait_quiet()
        self.wake()
        return self._log


def _tell(watchers: dict[Watcher, bool]) -> None:
    for watcher, once in tuple(watchers.items()):  # one may leave while it is told
        if once:
            watchers.pop(watcher, None)
        watcher()
