"""Known mistakes of replicated logs, each planted into streamlog's own code, one at a time."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamlog.config import ClusterSection
from streamlog.control.leaders import local_leader
from streamlog.control.leaders.leader_router import LeaderRouter
from streamlog.control.messages import publication
from streamlog.errors import Unavailable, UnknownTopicId
from streamlog.ingest.admission import deduplicator
from streamlog.ingest.admission.batches import fast_batching
from streamlog.ingest.admission.batches.batch_staging import BatchStaging, RunBatch
from streamlog.ingest.admission.batches.fast_batches import FastBatches, FastReply, read_reply
from streamlog.ingest.admission.batches.fast_batching import FastBatching
from streamlog.ingest.admission.refusal import REPEATED_IN_BATCH, PublishRefusal
from streamlog.ingest.admission.rollups import Rollups
from streamlog.ingest.dedup_recovery import scheduler
from streamlog.ingest.dedup_recovery.snapshots import KeptSnapshot
from streamlog.ingest.partition_ingest import ConflictAnswers, DelayedAcks
from streamlog.ingest.service import IngestService
from streamlog.kafka.context import Context
from streamlog.kafka.fetch import fetch_session
from streamlog.kafka.fetch.fetch_session import PartitionFetch
from streamlog.log import log
from streamlog.log.compiled import log_end
from streamlog.log.layout import segment_base_offsets
from streamlog.log.log import PartitionLog
from streamlog.log.manifest import LogManifest
from streamlog.log.recovery.recovery import Recovery
from streamlog.log.segment import append_validation
from streamlog.log.storage.disk import Disk
from streamlog.metadata.commands import IsrChange
from streamlog.metadata.controller import isr, node_lifecycle, placement, streams
from streamlog.metadata.controller.partition_changes import PartitionChanges
from streamlog.metadata.controller.placement import new_partition
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage
from streamlog.metadata.nodes.session_times import SessionTimes
from streamlog.metadata.nodes.stream_deletions import StreamDeletions
from streamlog.metadata.quorum import store
from streamlog.metadata.quorum.metadata_replica import MetadataReplica, Outcome
from streamlog.metadata.quorum.quorum_state_file import StoredVote, read_vote
from streamlog.metadata.service import Applier
from streamlog.model import NO_EPOCH, NO_INCARNATION, LogId, NodeId, TopicPartition
from streamlog.nats import links
from streamlog.nats.leaf_connection import LeafConnection
from streamlog.nats.router import Subscription
from streamlog.partition import state
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.partition.replication.partition_follower import PartitionFollower
from streamlog.partition.state import Acknowledgement
from streamlog.partition.storage.checkpoints import NOTHING, Checkpoints, Offsets
from streamlog.raft.election_state import ElectionState
from streamlog.raft.events import Effect, Event, SaveVote
from streamlog.raft.node import RaftNode
from streamlog.raft.replica_tracker import ReplicaTracker
from streamlog.raft.voters import VoterSet
from streamlog.record.batch import BatchHeader
from streamlog.record.offset_set import OffsetSet
from streamlog.replication.isr import InSync
from streamlog.replication.leader import LeaderProgress
from streamlog.replication.progress import FollowerProgress
from tests.simulation.cluster.ports import Clear

# Partitions


def cut_at_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """As Kafka did before KIP-101: who is to follow trusts nothing above its high watermark, and
    all below it.
    """

    def follow(self: state.PartitionState, *args: object, **more: object) -> state.Step:
        is_new = args[0] != self.leader_epoch
        step = inner(self, *args, **more)  # type: ignore[arg-type]
        if is_new and self.syncing is None and not self.cutting:
            self.log.truncate_to(self.high_watermark)
        return step

    inner = state.PartitionState.follow
    patch.setattr(state.PartitionState, "follow", follow)
    patch.setattr(state, "divergence", lambda *_, **__: None)


def who_lags_may_join(patch: pytest.MonkeyPatch) -> None:
    """Whoever fetches is in sync again, wherever it is."""

    def wanted(
        self: InSync,
        followers: Mapping[NodeId, FollowerProgress],
        *,
        log_end: int,
        now_ms: int,
        lag_time_ms: int,
        may_join: Callable[[NodeId], bool],
    ) -> frozenset[NodeId]:
        return inner(
            self,
            followers,
            log_end=log_end,
            now_ms=now_ms,
            lag_time_ms=lag_time_ms,
            may_join=may_join,
        ) | {
            node_id
            for node_id, follower in followers.items()
            if follower.is_heard(now_ms, lag_time_ms) and may_join(node_id)
        }

    inner = InSync.wanted
    patch.setattr(InSync, "wanted", wanted)
    patch.setattr(LeaderProgress, "_is_level", lambda *_: True)


def bring_back_by_what_was_there_before(patch: pytest.MonkeyPatch) -> None:
    """A follower that has left the ISR counts as far as it had come, though it may have cut that
    off since: it does so without the leader's word, which alone would prevent this.
    """
    patch.setattr(FollowerProgress, "left", lambda *_: None)
    repair_without_the_leaders_word(patch)


def repair_without_the_leaders_word(patch: pytest.MonkeyPatch) -> None:
    """A follower that is not in sync cuts damage at once, though its leader may have proposed it by
    what it had.
    """
    patch.setattr(PartitionFollower, "_is_released", lambda _: True)


def keep_one_message_less(patch: pytest.MonkeyPatch) -> None:
    """Than a limit says."""

    def start(self: PartitionLog, high_watermark: int, erased: OffsetSet) -> int:
        found = inner(self, high_watermark, erased)
        return min(found + 1, high_watermark) if found > self.log_start_offset else found

    inner = PartitionLog.start_by_messages
    patch.setattr(PartitionLog, "start_by_messages", start)


def count_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    """A limit lets committed messages go for others that may yet be cut off."""

    def start(self: PartitionLog, high_watermark: int, erased: OffsetSet) -> int:
        return min(inner(self, self.log_end_offset, erased), high_watermark)

    inner = PartitionLog.start_by_messages
    patch.setattr(PartitionLog, "start_by_messages", start)


def count_what_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    """The leader counts its log's end where it may count only what it has synced."""

    def settle(self: state.PartitionState) -> state.Step:
        known, self.sync = self.sync, "os"
        try:
            return inner(self)
        finally:
            self.sync = known

    inner = state.PartitionState.settle
    patch.setattr(state.PartitionState, "settle", settle)


def count_with_the_logged_in_sync_replicas(patch: pytest.MonkeyPatch) -> None:
    """And not with whom the leader has proposed, whom the controller may have accepted."""

    def count(self: InSync) -> None:
        self.maximal = self.logged

    patch.setattr(InSync, "_count", count)


def acknowledge_purges_alone(patch: pytest.MonkeyPatch) -> None:
    """The leader does so once it has let go of the records itself."""

    async def purge(self: Partition, up_to_offset: int) -> int:
        before = self.log_start_offset
        await self.shorten(up_to_offset)
        return self.log_start_offset - before

    patch.setattr(Partition, "purge", purge)


def take_high_watermarks_by_name(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint of a deleted stream counts for the next one of its name, whose records it would
    commit.
    """

    def get(self: Checkpoints, log_id: LogId) -> Offsets:
        written = self.written()
        named = [known.high_watermark for it, known in written.items() if it.tp == log_id.tp]
        return written.get(log_id, NOTHING)._replace(high_watermark=max(named, default=0))

    patch.setattr(Checkpoints, "get", get)
    patch.setattr(ReplicaManager, "_gone_logs", lambda *_: [])


def send_again_what_may_be_done(patch: pytest.MonkeyPatch) -> None:
    """A node that does not know whether a leader has stored a message asks it, or the next one, again."""

    async def at_leader(self: LeaderRouter, *args: Any, **more: Any) -> Any:
        return await inner(self, *args, **{**more, "repeatable": True})

    inner = LeaderRouter.at_leader
    patch.setattr(LeaderRouter, "at_leader", at_leader)


def answer_operations_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """A message that is published by an operation is acknowledged when the leader has it."""

    async def publish(partition: Partition, records: bytes, **more: Any) -> int:
        offset = partition.log_end_offset
        asyncio.ensure_future(inner(partition, records, **more))  # noqa: RUF006
        await asyncio.sleep(0)
        return offset

    inner = publication.publish
    patch.setattr(local_leader, "publish", publish)


def create_streams_at_once(patch: pytest.MonkeyPatch) -> None:
    """The controller does not wait for nodes that do not know yet of a deletion."""
    patch.setattr(StreamDeletions, "unaware", lambda *_, **__: frozenset())


def lend_to_unaware_nodes(patch: pytest.MonkeyPatch) -> None:
    """A heartbeat extends the lease of a node that has yet to hear of a deletion."""
    patch.setattr(StreamDeletions, "offset_wanted", lambda *_: 0)


def forget_deletions_with_the_controller(patch: pytest.MonkeyPatch) -> None:
    """A new controller waits for its own deletions alone."""

    def started(self: StreamDeletions, _newest_offset: int) -> None:
        inner(self, 0)

    inner = StreamDeletions.started
    patch.setattr(StreamDeletions, "started", started)


def forget_what_was_made_and_deleted_at_once(patch: pytest.MonkeyPatch) -> None:
    """A node that hears of a creation and a deletion together, after a restart, does not take the
    folders that it has of the stream for those of a deleted one.
    """
    commit = MetadataReplica._commit

    def forgetting(self: MetadataReplica, high_watermark: int) -> list[Outcome]:
        known = frozenset(self.deleted)
        before = {it.stream_id for it in self.image.streams.values()}
        outcomes = commit(self, high_watermark)
        self.deleted &= known | before
        return outcomes

    patch.setattr(MetadataReplica, "_commit", forgetting)


def ignore_incarnations(patch: pytest.MonkeyPatch) -> None:
    """A replica that was moved away and back counts by the log that it had before."""

    def follower_fetch(self: state.PartitionState, node_id: NodeId, *args: Any, **more: Any) -> Any:
        more["incarnation"] = self.incarnations.get(node_id, NO_INCARNATION)
        return inner(self, node_id, *args, **more)

    inner = state.PartitionState.follower_fetch
    patch.setattr(state.PartitionState, "follower_fetch", follower_fetch)


def trust_older_copies(patch: pytest.MonkeyPatch) -> None:
    """A data folder in which the last known stamp is missing is taken for the one that had it."""
    patch.setattr(node_lifecycle, "_is_older", lambda *_: False)


def take_what_deposed_leaders_send(patch: pytest.MonkeyPatch) -> None:
    """Whatever stands in the leader's file when it is sent, and whoever leads by then. The leader's
    own check is made before it sends; the follower's is enough without it.
    """

    def append_fetched(self: log.PartitionLog, records: memoryview, **_: object) -> int:
        return inner(self, records)

    inner = log.PartitionLog.append_fetched
    patch.setattr(log.PartitionLog, "append_fetched", append_fetched)
    patch.setattr(PartitionFetch, "_check_leadership", lambda _: None)


def follow_by_name(patch: pytest.MonkeyPatch) -> None:
    """A fetch counts for whichever stream has the name now, the leader epochs of which begin at 0
    once more. Each of what prevents it (ids, epochs, incarnations) is enough without the others.
    """
    names: dict[bytes, str] = {}

    def find_name(self: PartitionFetch, context: Context) -> None:
        names.update(context.metadata.image.names)
        name = names.get(self._topic_id or b"")
        if name is None:
            raise UnknownTopicId("never heard of")
        self.tp = TopicPartition(name, self.tp.partition)
        self._topic_id = context.partitions.partition(self.tp).topic_id

    ignore_incarnations(patch)
    patch.setattr(PartitionFetch, "_find_name", find_name)
    for module in (placement, streams):
        patch.setattr(module, "new_partition", lambda nodes, _: new_partition(nodes, 0))


def take_a_missing_segment_for_a_log_start(patch: pytest.MonkeyPatch) -> None:
    """A log begins with the first segment that is there, whatever its manifest names before it."""

    def replace_missing(
        self: Recovery, manifest: LogManifest, sizes: dict[str, int]
    ) -> dict[str, int]:
        first = min(segment_base_offsets(sizes), default=0)
        self._log_start_offset = max(self._log_start_offset, first)
        return inner(self, manifest, sizes)

    inner = Recovery._replace_missing
    patch.setattr(Recovery, "_replace_missing", replace_missing)


def take_appends_of_older_ingests(patch: pytest.MonkeyPatch) -> None:
    """Whatever was heard for an earlier leader epoch is appended in this one."""

    def append(self: state.PartitionState, *args: Any, **more: Any) -> int:
        return inner(self, *args, **{**more, "leader_epoch": None})

    inner = state.PartitionState.append_run
    patch.setattr(state.PartitionState, "append_run", append)


def accept_members_that_have_restarted(patch: pytest.MonkeyPatch) -> None:
    """As Kafka did before KIP-903: a proposed in-sync replica may have restarted since the leader
    saw it.
    """

    def may_be_in_sync(changes: PartitionChanges, known: PartitionImage, change: IsrChange) -> bool:
        members = tuple(
            (node_id, changes.image.nodes[node_id].epoch, incarnation)
            for node_id, _, incarnation in change.isr
        )
        return inner(changes, known, change.model_copy(update={"isr": members}))

    inner = isr._may_be_in_sync
    patch.setattr(isr, "_may_be_in_sync", may_be_in_sync)


def count_fetches_of_other_epochs(patch: pytest.MonkeyPatch) -> None:
    """As Kafka did before KIP-320: it counts though the follower knows another leader epoch."""
    patch.setattr(fetch_session, "check_epoch", lambda *_: None)


def append_in_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """A follower takes batches of later epochs than its leader's, and a leader writes into a log
    that has batches of later epochs than its own.
    """

    def append_fetched(self: log.PartitionLog, records: memoryview, **_: object) -> int:
        return inner_fetched(self, records)

    def append(
        self: log.PartitionLog,
        batch: bytes,
        now_ms: int,
        sealed: tuple[int, int, int] | None = None,
    ) -> None:
        if sealed is not None and sealed[2] < self.epochs.latest:
            sealed = sealed[0], sealed[1], self.epochs.latest
        inner(self, batch, now_ms, sealed)

    def next_batch(batch: bytes, **more: Any) -> tuple[int, int, int]:
        return inner_next(batch, **{**more, "epoch": NO_EPOCH})

    inner, inner_fetched = log.PartitionLog.append, log.PartitionLog.append_fetched
    inner_next = append_validation.next_batch
    patch.setattr(log.PartitionLog, "append", append)
    patch.setattr(log.PartitionLog, "append_fetched", append_fetched)
    patch.setattr(log_end, "next_batch", next_batch)


def trust_that_leader_epochs_match(patch: pytest.MonkeyPatch) -> None:
    """Fetches of other leader epochs count, and nobody looks at the epochs of what is appended.
    Each of these checks makes up for the others.
    """
    count_fetches_of_other_epochs(patch)
    append_in_any_epoch(patch)


def apply_when_nats_has_answered(patch: pytest.MonkeyPatch) -> None:
    """The next image takes effect when all is done that the one before it asks for."""

    class SettlingLock(asyncio.Lock):
        """Held until all listeners have settled."""

        def __init__(self, applier: Applier) -> None:
            super().__init__()
            self._applier, self._settled_image = applier, applier.image

        async def __aexit__(self, *error: object) -> None:
            if self._applier.image is not self._settled_image:
                self._settled_image = self._applier.image
                for settled in self._applier._settled:
                    await settled(None)
            self.release()

    def init(self: Applier, image: MetadataImage, *more: Any) -> None:
        inner(self, image, *more)
        self._attaching = SettlingLock(self)

    inner = Applier.__init__
    patch.setattr(Applier, "__init__", init)


def await_the_high_watermark_alone(patch: pytest.MonkeyPatch) -> None:
    """What waits for a commit is acknowledged whoever leads by then."""
    patch.setattr(DelayedAcks, "_is_led", True)


# The quorum


def commit_older_epochs_by_counting(patch: pytest.MonkeyPatch) -> None:
    """Figure 8 of the Raft paper."""

    def eager(self: ReplicaTracker, voters: VoterSet, synced_end: int) -> int:
        ends = [self._end_of(it, synced_end) for it in voters.by_id.values()]
        return sorted(ends, reverse=True)[voters.majority - 1]

    patch.setattr(ReplicaTracker, "committed_offset", eager)


def forget_the_vote_at_restart(patch: pytest.MonkeyPatch) -> None:
    """The epoch is remembered."""

    def forgetful(disk: Disk, directory: Path) -> StoredVote | None:
        vote = read_vote(disk, directory)
        return vote and replace(vote, voted_for=None)

    patch.setattr(store, "read_vote", forgetful)


def answer_before_saving_the_epoch(patch: pytest.MonkeyPatch) -> None:
    """Epoch and vote are saved when the others have heard of them."""

    def hasty(self: RaftNode, event: Event, now_ms: int) -> list[Effect]:
        return sorted(step(self, event, now_ms), key=lambda it: isinstance(it, SaveVote))

    step = RaftNode.step
    patch.setattr(RaftNode, "step", hasty)


# What headers ask for


def believe_whoever_has_the_time_of_append(patch: pytest.MonkeyPatch) -> None:
    """Batches with LogAppendTime came over NATS."""
    patch.setattr(BatchHeader, "is_published", BatchHeader.is_log_append_time)


def write_ids_of_another_leader(patch: pytest.MonkeyPatch) -> None:
    """A snapshot of ids is taken though others have led since it was to be."""
    patch.setattr(KeptSnapshot, "is_known", True)


def forget_the_ids_of_batches(patch: pytest.MonkeyPatch) -> None:
    """A batch whose read is refused in part goes on without being judged again."""

    def move(self: BatchStaging, batch: RunBatch, now_ms: int) -> None:
        self._note(batch)

    patch.setattr(BatchStaging, "move", move)


def owe_no_erasure(patch: pytest.MonkeyPatch) -> None:
    """What could not be erased is forgotten, but for a refusal."""

    def erase_owed(self: Rollups, ack: Acknowledgement) -> None:
        try:
            inner(self, ack)
        finally:
            self.owed.clear()

    inner = Rollups.erase_owed
    patch.setattr(Rollups, "erase_owed", erase_owed)


def open_without_ids_that_cannot_be_read(patch: pytest.MonkeyPatch) -> None:
    """As where the log is damaged."""

    async def rebuild(*arguments: Any, **more: Any) -> int:
        try:
            return await inner(*arguments, **more)
        except Unavailable:
            return 0

    inner = scheduler.rebuild_window  # type: ignore[attr-defined]
    patch.setattr(scheduler, "rebuild_window", rebuild)


def count_what_is_not_committed_as_stored(patch: pytest.MonkeyPatch) -> None:
    """Whoever repeats a batch is told so at once."""
    patch.setattr(deduplicator, "REPEATED_SOON", REPEATED_IN_BATCH)


# Fast batches


def acknowledge_fast_batches_when_appended(patch: pytest.MonkeyPatch) -> None:
    """And not when they are committed."""

    def configure(self: FastBatching, **more: Any) -> None:
        inner(self, **{**more, "awaits_commit": False})

    inner = FastBatching.configure
    patch.setattr(FastBatching, "configure", configure)


def go_on_over_gaps(patch: pytest.MonkeyPatch) -> None:
    """Of a batch whose publisher does not want that."""

    def read(reply: bytes) -> FastReply | None:
        asked = read_reply(reply)
        return asked and asked._replace(gap_ok=True)

    patch.setattr(fast_batching, "read_reply", read)


def store_what_follows_a_refused_one(patch: pytest.MonkeyPatch) -> None:
    """Where a read is refused in part, and no gap is ok."""
    patch.setattr(FastBatches, "goes_on", lambda *_: True)


def await_the_high_watermark_alone_in_batches(patch: pytest.MonkeyPatch) -> None:
    """What a fast batch waits for is acknowledged whoever leads by then."""

    def moved(self: FastBatching) -> None:
        self._batches.committed(self._partition.high_watermark, self._now_ms())
        self._heed()

    patch.setattr(FastBatching, "_moved", moved)


# Links between nodes


def pass_on_what_came_over_a_link(patch: pytest.MonkeyPatch) -> None:
    """To the other nodes: one of them passes it back."""

    def take(self: Clear, data: bytes) -> bytes:
        if isinstance(self.connection, LeafConnection):
            for peer in self.sockets.links():
                if peer.connection is not self.connection:
                    peer.connection.send(b"".join(_messages_of(data)))
        return data

    patch.setattr(Clear, "take", take)


def _messages_of(data: bytes) -> Iterator[bytes]:
    """Of whole lines of the leafnode protocol."""
    while data:
        line, end, data = data.partition(b"\r\n")
        if line.startswith((b"LMSG", b"HMSG")):
            size = int(line.split(b" ")[-1]) + 2
            yield line + end + data[:size]
            data = data[size:]


def keep_what_an_ended_link_wanted(patch: pytest.MonkeyPatch) -> None:
    """Messages go to a connection that is no more, and nobody is told."""

    class Forgetful(LeafConnection):
        def close(self) -> None:
            wanted = [] if self.is_closed else list(self.interest)
            super().close()
            for subject, queue in wanted:
                self.router.add(Subscription(self, subject, queue=queue))

    patch.setattr(links, "LeafConnection", Forgetful)


def take_what_was_sent_to_others(patch: pytest.MonkeyPatch) -> None:
    """A new leader takes every copy that still comes, be it from before it was elected."""
    patch.setattr(IngestService, "_mark", lambda _: 0)


def take_links_by_any_token(patch: pytest.MonkeyPatch) -> None:
    """Whoever asks for a link is a node."""
    digests = SimpleNamespace(compare_digest=lambda _shown, _own: True)
    patch.setattr(links, "hmac", digests)


def call_each_other(patch: pytest.MonkeyPatch) -> None:
    """Not only the node with the greater id calls: there are two links between two nodes."""
    inner = links.NodeLinks._keep

    async def keep(self: links.NodeLinks, node_id: int) -> None:
        await inner(CallsAll(self), node_id)  # type: ignore[arg-type]

    class CallsAll:
        """Links that are those of the greatest node."""

        def __init__(self, own: links.NodeLinks) -> None:
            self._own = own

        def __getattr__(self, name: str) -> Any:
            return 1 << 30 if name == "_node_id" else getattr(self._own, name)

    patch.setattr(links.NodeLinks, "_keep", keep)


def refuse_by_a_log_that_may_be_old(patch: pytest.MonkeyPatch) -> None:
    """A leader that has been replaced, and has not heard of it, judges by what it has."""

    def add(
        self: ConflictAnswers, stream: str, reply: bytes, conflict: PublishRefusal, _: object
    ) -> None:
        self._answers.refuse_one(stream, reply, conflict)

    patch.setattr(ConflictAnswers, "add", add)


def lend_leases_longer_than_a_session(patch: pytest.MonkeyPatch) -> None:
    """As long as is set, whatever a silent node is granted."""

    def of(settings: ClusterSection) -> SessionTimes:
        return inner(settings)._replace(lease_ms=settings.leader_lease_ms)

    inner = SessionTimes.of
    patch.setattr(SessionTimes, "of", of)


def forget_who_was_heard(patch: pytest.MonkeyPatch) -> None:
    """Voters tell candidates that they have heard from no leader for long."""
    patch.setattr(ElectionState, "silence_ms", lambda *_: 60_000)
