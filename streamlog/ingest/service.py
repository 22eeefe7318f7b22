"""The service that takes messages from NATS for every partition that this node leads."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

import nats.errors

from streamlog.clock import wall_ms
from streamlog.condition import CORRECT_THEN_RESTART, CRITICAL, Condition
from streamlog.config import IngestSection, NatsSection
from streamlog.errors import EncryptionKeyMissing, PartitionNotFound, StreamlogError
from streamlog.ingest.admission.batches.batch_staging import BatchStagingLimit
from streamlog.ingest.admission.batches.fast_batches import FastBatchLimit
from streamlog.ingest.admission.deduplicator import Deduplicator
from streamlog.ingest.admission.message_ttl import Lifetimes
from streamlog.ingest.admission.publish_headers import AckPolicy
from streamlog.ingest.admission.refusal import STANDS_STILL
from streamlog.ingest.backpressure import InFlightBytes
from streamlog.ingest.dedup_recovery.scheduler import (
    DedupRecoveryScheduler,
    knows_all_ids,
)
from streamlog.ingest.dedup_recovery.snapshots import DedupSnapshots, KeptSnapshot
from streamlog.ingest.dedup_recovery.standby import Prepared, Standby
from streamlog.ingest.ingest_settings import IngestSettings
from streamlog.ingest.nats.connection_state import ConnectionState
from streamlog.ingest.nats.errors import NatsError, understood
from streamlog.ingest.nats.leaf import LeafLink
from streamlog.ingest.nats.options import NatsOptions
from streamlog.ingest.nats.subscriber import Subscriber
from streamlog.ingest.nats.subscription_list import SubjectFilter
from streamlog.ingest.partition_ingest import ConflictAnswers, PartitionIngest
from streamlog.ingest.partitioned_stream import (
    PartitionedStream,
    is_spread_here,
    moves_keys,
)
from streamlog.ingest.pub_ack_format import PREFIX, advisory
from streamlog.ingest.pub_acks import PubAcks
from streamlog.ingest.schedules.firing import ScheduleFiring
from streamlog.ingest.schedules.scheduling_rules import SchedulingRules
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.nodes.node_condition import LEASE_LOST
from streamlog.metadata.read_barrier import ReadBarrier
from streamlog.metadata.stream.setting_type import NO_LIMIT
from streamlog.metadata.stream.stream_config import StreamConfig, is_internal
from streamlog.metadata.stream.subject_transform import SubjectTransform
from streamlog.metadata.stream.write_state import standstill
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition
from streamlog.nats.domain import domain_prefix
from streamlog.nats.router import Router
from streamlog.nats.sockets import Sockets
from streamlog.partition.deletes.message_ttl import ExpiryRules
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager

logger = logging.getLogger(__name__)

STOPPED_UNCOMMITTED: Final = Condition(
    "SL-0409",
    "stopping with appends uncommitted",
    "publishers hear of no ack, and publish again",
    meaning="The node stopped before all that it had appended was committed.",
)
PARTITION_NOT_LISTENED_FOR: Final = Condition(
    "SL-0410",
    "partition cannot be listened for",
    CORRECT_THEN_RESTART,
    meaning="The node leads a partition that it cannot open, so it takes nothing in for it.",
    severity=CRITICAL,
)
SPREAD_CHANGED: Final = Condition(
    "SL-0414",
    "messages go to other partitions now: for the duplicate window a retry of a message "
    "that was stored before may be stored again",
    "nothing, if publishers may repeat themselves; docs/publishing.md says how to avoid it",
    meaning="The number of partitions or partition_by of a stream changed.",
)

CHANGED_SUBJECTS_MAX: Final = 10_000
"""Of a partition, that are remembered; more are made again each time."""

COMMIT_TIMEOUT_S: Final = 10.0
"""How long a stop waits for what is appended to be committed and acknowledged."""

BATCHES_LOOK_S: Final = 1.0
"""How often batches are looked through for those that are idle."""

TURN_S: Final = 0.002
"""After looking at changed streams for so long, others get their turn of the event loop."""

IDS_LOOK_S: Final = 10.0
"""How often ids are let go that are older than their window; those of idle streams, too."""

_ACKS: Final = {"all": AckPolicy.COMMITTED, "leader": AckPolicy.APPENDED, "none": AckPolicy.NEVER}


class IngestService:
    """``apply`` says what to listen to, ``run`` stays connected, ``stop`` ends without loss.

    Without the lease nothing is listened to, since nothing may be stored; what was appended before
    waits for its commit. Publishers then hear at once that no responder is there, as they do while one
    leader has gone and the next one still reads its duplicate window. A stream that is spread over
    partitions is listened to all the same, and refused: no other node would say so.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        nats: NatsSection,
        ingest: IngestSection,
        message_bytes_max: int,
        partitions: ReplicaManager,
        metrics: NodeMetrics,
        router: Router,
        sockets: Sockets,
        lease: Lease | None = None,
        now_ms: Callable[[], int] = wall_ms,
        leaf: LeafLink | None = None,
        barrier: ReadBarrier | None = None,
    ) -> None:
        """``leaf``: the link to NATS, where the node is a leafnode of it. ``barrier`` None: the node is alone."""
        self._node_id = node_id
        self._message_bytes_max = message_bytes_max
        self._partitions = partitions
        self._metrics = metrics
        self._now_ms = now_ms
        self._ingests: dict[TopicPartition, PartitionIngest] = {}
        self._by_stream: dict[str, list[TopicPartition]] = {}
        """The keys of ``_ingests``, by stream."""
        access = NatsOptions(nats) if nats.servers and not nats.is_leaf else None
        self._outage = ConnectionState(metrics, login=access.login if access is not None else "")
        self._is_linked = access is not None
        self._leaf = leaf
        self._linked: frozenset[NodeId] | None = None
        """None: the node has no port."""
        self._spreadings: dict[str, PartitionedStream] = {}
        """By stream; the partition ingests of these listen to nothing by themselves."""
        self._room = InFlightBytes(
            in_flight_bytes_max=ingest.in_flight_bytes_max,
            backpressure_timeout_ms=ingest.backpressure_timeout_ms,
            metrics=metrics,
        )
        self._staging = BatchStagingLimit(
            self._room,
            in_flight_bytes_max=ingest.in_flight_bytes_max,
            given_up=self._batch_given_up,
        )
        self._fast_batches = FastBatchLimit()
        self._domain = nats.domain
        self._listening = Subscriber(
            access=access,
            router=router,
            sockets=sockets,
            name=f"streamlog node {node_id} ingest",
            outage=self._outage,
            domain_prefix=domain_prefix(nats.domain),
            left_out=metrics.publish_late_copies.inc,
        )
        self._router = router
        self._marked: int | None = None
        """The router's mark of this turn of ``_follow_changed``, if there is one."""
        self._answers = PubAcks(self._listening, metrics, router, is_linked=self._is_linked)
        self._conflicts = ConflictAnswers(self._answers, self._room, barrier, lease)
        self._grown: dict[PartitionIngest, None] = {}
        self._snapshots = DedupSnapshots(self._take_grown)
        self._openings = DedupRecoveryScheduler(
            self._open, snapshots=self._snapshots, now_ms=now_ms
        )
        self._standby = Standby(now_ms=now_ms)
        self._firing = ScheduleFiring(now_ms=now_ms)
        self._image: MetadataImage | None = None
        """The newest."""
        self._changed: dict[str, None] = {}
        """Streams that are yet to be listened for as it says."""
        self._any_changed = asyncio.Event()
        self._followed = asyncio.Event()
        """Some of them are; another one for the next time."""
        self._unopened: dict[str, None] = {}
        """Streams of which something is led here whose log is not open yet."""
        self._may_listen = lease is None or lease.held
        if lease is not None:
            lease.add_listener(self._lease_changed)
        self._running = False
        self._stopping = False
        self._stopped = asyncio.Event()

    @property
    def is_connected(self) -> bool:
        """NATS is there, and knows by now what is listened to; or the node has no link to NATS."""
        if self._leaf is not None:
            return self._leaf.is_open
        return not self._is_linked or (self._outage.is_connected and self._listening.is_known)

    @property
    def room(self) -> InFlightBytes:
        """Where it is full, nothing more is to be read that is stored."""
        return self._room

    @property
    def complaint(self) -> NatsError | None:
        """Why it is not, as far as that is known."""
        if self._leaf is not None and self._leaf.complaint:
            return understood(nats.errors.Error(self._leaf.complaint))
        return self._outage.complaint

    def has_settled(self, image: MetadataImage) -> bool:
        """All that ``image`` has led here is listened to, as far as there is a NATS, and it knows.

        Not while a duplicate window is being read, for one.
        """
        seen = self._image is not None and self._image.offset >= image.offset
        behind = self._changed or self._unopened or self._openings.count
        return seen and not behind and self._listening.is_heard

    async def run(self) -> None:
        """Be connected until ``stop``; wait for a NATS that is not there."""
        self._running = True
        services = (
            self._follow_changed, self._listening.run, self._openings.run, self._standby.run,
            self._snapshots.run, self._give_up_batches, self._forget_ids, self._firing.run,
            self._conflicts.run,
        )  # fmt: skip
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(service()) for service in services]
            await self._stopped.wait()
            for task in tasks:
                task.cancel()

    async def stop(self) -> None:
        """Listen to nothing more, append what has come, wait for its commit, acknowledge, close."""
        self._stopping = True
        self._firing.stop()
        for ingest in self._ingests.values():
            ingest.sids = ()
        for spreading in self._spreadings.values():
            spreading.sids = ()
        await self._listening.end_all()
        for ingest in self._ingests.values():
            ingest.batching.clear()  # nothing comes any more that could commit one
        if not await self._room.wait_empty(COMMIT_TIMEOUT_S):
            extra = {"in_flight_bytes": self._room.taken_bytes}
            logger.warning(STOPPED_UNCOMMITTED, extra=extra)
        for ingest in self._ingests.values():
            ingest.give_up()
        await self._listening.round_trip()
        await self._snapshots.save(self._known(self._ingests.values()))
        self._ingests.clear()
        self._by_stream.clear()
        self._spreadings.clear()
        self._stopped.set()
        await self._listening.close()

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        """Be ready for what ``new`` says. Nothing is taken any more for what is not led here; what
        is led is listened to soon, see ``settled``. Partitions must have heard of it by now.
        """
        self._image = new
        for change in new.changes(old):
            if change.new is None:
                if change.old is None:
                    raise AssertionError("a change has one side at least")
                self._changed.pop(change.old.name, None)
                self._unopened.pop(change.old.name, None)
                self._drop(self._by_stream.get(change.old.name, ()))
                self._stop_spreading(change.old.name)
                self._standby.leave_stream(change.old.name)
            else:
                self._drop_strangers(change.new)
                self._changed[change.new.name] = None
                self._any_changed.set()
                if change.old is not None and moves_keys(change.old, change.new):
                    self._tell_of_moved_keys(change.new)

    def look(self, tp: TopicPartition) -> None:
        """It may be led here by now, or cannot be."""
        self._changed[tp.stream] = None
        self._any_changed.set()

    async def settled(self, stream: str | None) -> None:
        """NATS knows that this stream, or all, is listened to as the newest image says; or it is
        not there, or does not answer in time.

        Windows of duplicates are read in the background, but for those of a node that starts.
        """
        if not self._running:
            changed, self._changed = self._changed, {}
            self._marked = None
            for name in changed:
                self._follow(name)
            await self._openings.drain()
            return
        while self._changed if stream is None else stream in self._changed:
            await self._followed.wait()
        await self._listening.wait_heard()

    async def _follow_changed(self) -> None:
        """Follow the streams that have changed, with a turn for others after each ``TURN_S``."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._any_changed.wait()
                self._any_changed.clear()
                while self._changed:
                    until, self._marked = loop.time() + TURN_S, None
                    while self._changed and loop.time() < until:
                        name = next(iter(self._changed))
                        del self._changed[name]
                        self._follow(name)
                    self._wake_settled()
                    await asyncio.sleep(0)
        finally:
            self._changed.clear()
            self._wake_settled()

    def _wake_settled(self) -> None:
        followed, self._followed = self._followed, asyncio.Event()
        followed.set()

    def _tell_of_moved_keys(self, stream: StreamImage) -> None:
        """By one node: the leader of the first partition."""
        if stream.partitions[0].leader == self._node_id:
            extra = {
                "stream": stream.name,
                "partitions": len(stream.partitions),
                "partition_by": stream.config.partition_by,
                "duplicate_window_ms": stream.config.duplicate_window_ms,
            }
            logger.warning(
                SPREAD_CHANGED,
                extra=extra,
            )

    async def _give_up_batches(self) -> None:
        """Those for which nothing comes any more."""
        while True:
            await asyncio.sleep(BATCHES_LOOK_S)
            if self._staging.count or self._fast_batches.count:
                for ingest in self._ingests.values():
                    ingest.expire_batches()

    async def _forget_ids(self) -> None:
        """And have erasures that are owed tried again."""
        while True:
            await asyncio.sleep(IDS_LOOK_S)
            for ingest in tuple(self._ingests.values()):
                ingest.deduplicator.expire(self._now_ms())
                ingest.erase_owed()
            self._standby.expire()

    def _batch_given_up(self, stream: str, batch_id: bytes, reason: str) -> None:
        """As JetStream says it."""
        text = batch_id.decode(errors="replace")
        fields = {"account": "", "stream": stream, "batch": text, "reason": reason}
        said = advisory(
            "stream_batch_abandoned",
            fields,
            event_id=uuid.uuid4().hex,
            now_ms=self._now_ms(),
            domain=self._domain,
        )
        self._answers.advise(f"{PREFIX}.STREAM.BATCH_ABANDONED.{stream}".encode(), said)

    def _follow(self, name: str) -> None:
        """Take messages for the partitions of this stream that are led here, each in one leader
        epoch; prepare to lead those that are followed here.
        """
        stream = None if self._image is None else self._image.streams.get(name)
        if stream is None or self._stopping or is_internal(name):
            return
        config = stream.config
        led = {
            TopicPartition(name, number): partition.leader_epoch
            for number, partition in enumerate(stream.partitions)
            if partition.leader == self._node_id
        }
        self._drop_strangers(stream)
        self._unopened.pop(name, None)
        for tp, leader_epoch in led.items():
            ingest = self._ingests.get(tp)
            if ingest is not None:
                self._reconfigure(ingest, config)
            elif (partition := self._kept(tp)) is not None:
                if partition.leads(leader_epoch):
                    prepared = self._prepared(partition, config)
                    ingest = self._new_ingest(
                        partition, leader_epoch, config, prepared.deduplicator
                    )
                    ingest.inflow.from_mark = self._mark()
                    self._ingests[tp] = partition.expiry.admission = ingest
                    self._firing.heard(ingest)
                    self._by_stream.setdefault(name, []).append(tp)
                    # It listens when its deduplicator knows the ids in the log.
                    ingest.opened = knows_all_ids(ingest, partition, prepared.known_offset)
                    if not ingest.opened:
                        self._openings.add(ingest, partition, known_offset=prepared.known_offset)
                else:
                    self._unopened[name] = None  # its log is being cut
        self._spread(stream)
        for ingest in [self._ingests[tp] for tp in self._by_stream.get(name, ())]:
            if ingest.opened and self._may_listen:
                ingest.sids = self._listening.replace(ingest.sids, ingest.sources, ingest.target)
        followed = (
            TopicPartition(name, number)
            for number, partition in enumerate(stream.partitions)
            if partition.leader != self._node_id and self._node_id in partition.replicas
        )
        kept = (partition for tp in followed if (partition := self._kept(tp)) is not None)
        self._standby.follow(name, kept, duplicate_window_ms=config.duplicate_window_ms)

    def _mark(self) -> int:
        """What comes after this mark was sent when the partitions were led here: their former leaders have
        committed nothing of it. One mark is enough for all that is looked at in a row.
        """
        if self._marked is None:
            self._marked = self._router.mark()
        return self._marked

    def _drop_strangers(self, stream: StreamImage) -> None:
        """Those for what is not led here any more, or in another epoch, or in another log."""
        self._drop(
            tp for tp in self._by_stream.get(stream.name, ()) if self._is_strange(tp, stream)
        )

    def _is_strange(self, tp: TopicPartition, stream: StreamImage) -> bool:
        partition, ingest = stream.partitions[tp.partition], self._ingests[tp]
        is_led = partition.leader == self._node_id and partition.leader_epoch == ingest.leader_epoch
        return not is_led or self._kept(tp) is not ingest.partition

    def _take_grown(self) -> list[KeptSnapshot]:
        """Those to which something was appended since this was asked for last."""
        grown = tuple(self._grown)
        self._grown.clear()
        return self._known(grown)

    def _known(self, ingests: Iterable[PartitionIngest]) -> list[KeptSnapshot]:
        """Of these, those whose ids are all known: no one else has appended since."""
        return [
            KeptSnapshot(partition, ingest.deduplicator, ingest.leader_epoch)
            for ingest in ingests
            if ingest.opened
            and (partition := self._kept(ingest.partition.tp)) is ingest.partition
            and partition is not None
        ]

    def _kept(self, tp: TopicPartition) -> Partition | None:
        try:
            return self._partitions.partition(tp)
        except PartitionNotFound:  # it is being opened
            self._unopened[tp.stream] = None
            return None
        except StreamlogError as error:
            extra = {"stream": tp.stream, "partition": tp.partition, "error": str(error)}
            if isinstance(error, EncryptionKeyMissing):
                extra["remedy"] = error.remedy
            logger.error(PARTITION_NOT_LISTENED_FOR, extra=extra)
            return None

    def _prepared(self, partition: Partition, config: StreamConfig) -> Prepared:
        """A deduplicator, with the ids that it has from following the partition, if it has any."""
        window_ms = config.duplicate_window_ms
        prepared = self._standby.take(partition)
        if prepared is None:
            prepared = Prepared(Deduplicator(partition.tp.stream, duplicate_window_ms=window_ms))
        prepared.deduplicator.configure(duplicate_window_ms=window_ms)
        return prepared

    def _new_ingest(
        self,
        partition: Partition,
        leader_epoch: int,
        config: StreamConfig,
        deduplicator: Deduplicator,
    ) -> PartitionIngest:
        tp = partition.tp
        return PartitionIngest(
            partition,
            leader_epoch=leader_epoch,
            deduplicator=deduplicator,
            subjects=config.subjects_of(tp.partition),
            sources=_sources(config, tp),
            settings=self._ingest_settings(config),
            answers=self._answers,
            conflicts=self._conflicts,
            room=self._room,
            staging=self._staging,
            fast_batches=self._fast_batches,
            metrics=self._metrics,
            now_ms=self._now_ms,
            grown=self._grown,
        )

    def _ingest_settings(self, config: StreamConfig) -> IngestSettings:
        limit, halt = config.message_bytes_max, standstill(config)
        return IngestSettings(
            message_bytes_max=self._message_bytes_max if limit == NO_LIMIT else limit,
            default_ack=_ACKS[config.acks],
            answering=not config.no_ack,
            keyed=config.is_compacted,
            bounded=config.discard == "new",
            batches=config.allow_atomic,
            fast_batches=config.allow_batched,
            lifetimes=_lifetimes(config),
            lifetime_min_s=ExpiryRules.of(config).lifetime_min_s,
            counters=config.allow_counter,
            schedules=_scheduling(config),
            rollups=config.allow_rollup and not config.mirror,
            transform=_subject_change(config),
            shut=None if halt is None else STANDS_STILL[halt],
        )

    def _spread(self, stream: StreamImage) -> None:
        """Hear all messages of a stream that is spread over partitions, some of them led here."""
        name = stream.name
        leaders = [partition.leader for partition in stream.partitions]
        if not is_spread_here(stream.config, leaders, self._node_id):
            self._stop_spreading(name)
            return
        spreading = self._spreadings.get(name)
        if spreading is None:
            spreading = PartitionedStream(name, node_id=self._node_id, answers=self._answers)
            self._spreadings[name] = spreading
        spreading.follow(stream, self._mark)
        self._share(spreading)
        sids = self._listening.replace(spreading.sids, spreading.sources, spreading.target)
        spreading.sids = sids

    def _share(self, spreading: PartitionedStream) -> None:
        spreading.share(self._ingests, may_store=self._may_listen, linked=self._linked)

    def reach(self, linked: frozenset[NodeId]) -> None:
        """The nodes that clients of this node's port reach, over links to these."""
        self._linked = linked
        for spreading in self._spreadings.values():
            self._share(spreading)

    def _stop_spreading(self, name: str) -> None:
        spreading = self._spreadings.pop(name, None)
        if spreading is not None:
            self._listening.end(spreading.sids)

    def _reconfigure(self, ingest: PartitionIngest, config: StreamConfig) -> None:
        """Another configuration for a partition ingest; it is subscribed to its sources afterwards."""
        ingest.deduplicator.configure(duplicate_window_ms=config.duplicate_window_ms)
        ingest.configure(self._ingest_settings(config))
        self._firing.heard(ingest)
        ingest.subjects = config.subjects_of(ingest.partition.tp.partition)
        ingest.sources = _sources(config, ingest.partition.tp)

    def _drop(self, tps: Iterable[TopicPartition]) -> None:
        """These are led here no longer, or in another epoch.

        They end before a new ingest listens to the same subject, else both would get one message.
        """
        ended: list[int] = []
        for tp in list(tps):
            ingest = self._ingests.pop(tp)
            ingest.close()
            ended += ingest.sids
            self._by_stream[tp.stream].remove(tp)
            if not self._by_stream[tp.stream]:
                del self._by_stream[tp.stream]
        self._listening.end(ended)

    def _open(self, ingest: PartitionIngest) -> None:
        """Its deduplicator knows the ids in the log: it takes messages from now on."""
        ingest.erase_owed()
        ingest.opened = True
        spreading = self._spreadings.get(ingest.partition.tp.stream)
        if spreading is not None:
            self._share(spreading)
        if self._may_listen and not self._stopping:
            ingest.sids = self._listening.replace(ingest.sids, ingest.sources, ingest.target)

    def _lease_changed(self, held: bool) -> None:
        changed, self._may_listen = held != self._may_listen, held
        if self._stopping or not changed:
            return
        ingests = self._ingests.values()
        for spreading in self._spreadings.values():  # which hear on, and refuse
            self._share(spreading)
        if held:
            for ingest in ingests:
                if ingest.opened:
                    sids = self._listening.replace(ingest.sids, ingest.sources, ingest.target)
                    ingest.sids = sids
        else:
            ended = [sid for ingest in ingests for sid in ingest.sids]
            for ingest in ingests:
                ingest.sids = ()
            self._listening.end(ended)
        extra = {"partitions": len(ingests)}
        if held:
            logger.info("listening again", extra=extra)
        else:
            not_listening = LEASE_LOST.logged_as("not listening: the controller is not heard")
            logger.warning(not_listening, extra=extra)


def _lifetimes(config: StreamConfig) -> Lifetimes:
    if not config.allow_ttl:
        return Lifetimes.NONE
    return Lifetimes.ANY if config.retention_ms == NO_LIMIT else Lifetimes.LIMITED


def _scheduling(config: StreamConfig) -> SchedulingRules | None:
    if not config.allow_schedules:
        return None
    subjects = tuple(subject.encode() for subject in config.subjects)
    return SchedulingRules(subjects, _lifetimes(config))


def _sources(config: StreamConfig, tp: TopicPartition) -> tuple[SubjectFilter, ...]:
    """What a partition's ingest listens to by itself."""
    if config.is_spread:
        return ()
    group = config.group or None
    return tuple(SubjectFilter(subject, group) for subject in config.subjects_of(tp.partition))


def _subject_change(config: StreamConfig) -> Callable[[bytes], bytes] | None:
    """What an inflow calls for each message; None for nearly all streams."""
    if not config.subject_transform:
        return None
    transform = SubjectTransform.parse(config.subject_transform)

    @lru_cache(CHANGED_SUBJECTS_MAX)
    def changed(subject: bytes) -> bytes:
        made = transform(subject.decode(errors="surrogateescape"))
        return made.encode(errors="surrogateescape") if made else subject

    return changed
