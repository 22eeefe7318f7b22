"""Consumer groups as the server sees them: a group's coordinator node, and requests to it."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary

from streamlog.condition import (
    ANOTHER_REPLICA,
    CHECK_NODES,
    CORRECT_THEN_RESTART,
    CRITICAL,
    Condition,
)
from streamlog.config import GroupsSection
from streamlog.coordination.effects import NONE, Now
from streamlog.coordination.led_shards import CoordinatorMetadata, CoordinatorTroubles, LedShards
from streamlog.coordination.loader import CoordinatorLoader
from streamlog.coordination.reply import DelayedReply
from streamlog.errors import CoordinatorLoading, NotLeader
from streamlog.fairness import cooperatively
from streamlog.groups.coordinator import Coordinator
from streamlog.groups.group import Group
from streamlog.groups.offsets_topic import GroupShard, config_of
from streamlog.groups.records import NOT_SET
from streamlog.groups.replay import GroupReplay
from streamlog.groups.requests import Effect, PartitionId
from streamlog.groups.shares.share_group import ShareGroup
from streamlog.groups.subscribed_topics import Topic
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.stream.internal_stream import InternalStream
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.internal_partition import InternalPartition, TransactionalPartitions
from streamlog.record.transaction_marker import TransactionMarker
from streamlog.wire.error_codes import ErrorCode


class GroupProgress(NamedTuple):
    """A group at one moment."""

    group_id: str
    state: str
    member_count: int
    committed: Mapping[TopicPartition, int]
    """Where it goes on; its own copy."""


NO_NAMES: Final[Mapping[bytes, str]] = MappingProxyType({})


class GroupProgressPage(NamedTuple):
    """Of the groups of a node, as many as are told."""

    groups: list[GroupProgress]
    omitted: int
    """Groups that are not told."""


async def progress_of(
    groups: Iterable[Group], partitions_max: int, names: Mapping[bytes, str] = NO_NAMES
) -> list[GroupProgress]:
    """Whole groups, as they are now, in the order of their names, while all that they have
    committed in is not more than ``partitions_max`` partitions; one that has committed nothing
    counts 1.

    By name, so that a group does not come and go with what others do. Of a share group it is told how many records
    it has yet to read, as if they were the last ones of the partition. ``names``: of streams, by the bytes of their
    ids.
    """
    found: list[tuple[Group, str, int, dict[PartitionId, int]]] = []
    left = partitions_max
    for group in sorted(groups, key=lambda it: it.name):
        offsets = {place: it.offset for place, it in group.offsets.items()}
        if isinstance(group.consumer, ShareGroup):
            offsets = _positions(group.consumer, names)
        left -= max(1, len(offsets))
        if left < 0:
            break
        found.append((group, group.shown_state, group.member_count, offsets))
    return [
        GroupProgress(
            group.name,
            state,
            members,
            {
                TopicPartition(*place): offset
                async for place, offset in cooperatively(offsets.items())
            },
        )
        for group, state, members, offsets in found
    ]


def _positions(share: ShareGroup, names: Mapping[bytes, str]) -> dict[PartitionId, int]:
    return {
        (name, number): it.end_offset - it.pending
        for (topic_id, number), it in share.states.items()
        if it.start_offset != NOT_SET and (name := names.get(topic_id.bytes)) is not None
    }


logger = logging.getLogger(__name__)

GROUPS_NOT_COORDINATED: Final = Condition(
    "SL-0508",
    "groups cannot be coordinated",
    CORRECT_THEN_RESTART,
    meaning="The node leads a partition of __consumer_offsets that it cannot open.",
    severity=CRITICAL,
)
GROUPS_NOT_READ: Final = Condition(
    "SL-0507",
    "groups cannot be read from the log",
    ANOTHER_REPLICA,
    meaning="The coordinator cannot read the committed offsets of its groups. These groups wait.",
    severity=CRITICAL,
)
NO_GROUPS_STREAM: Final = Condition(
    "SL-0509",
    "no stream for consumer groups",
    CHECK_NODES,
    meaning="The stream __consumer_offsets could not be created.",
)


class ImageTopics:
    """The streams of an image, as groups see them: ``subscribed_topics.Topics``."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.version = image.offset

    def find(self, name: str) -> Topic | None:
        stream = self._image.streams.get(name)
        return None if stream is None else Topic(stream.stream_id, len(stream.partitions))

    def name_of(self, topic_id: UUID) -> str | None:
        return self._image.names.get(topic_id.bytes)

    def names(self) -> Iterable[str]:
        """The internal ones too: ``exclude.internal.topics`` is for expressions of Kafka's clients alone."""
        return self._image.streams


class GroupStatistics(NamedTuple):
    """Of the groups that this node coordinates."""

    states: Counter[str]
    """Groups by their state."""
    types: Counter[str]
    """Groups by the protocol of their members."""
    offsets: int
    rebalances: int
    commits: int
    expired: int
    loading: int
    """Partitions of which the groups are not known yet."""


class GroupService(LedShards[GroupShard]):
    """``run`` as a task, ``apply`` at each change of the image, after the partitions have; ``look``
    when a partition follows later.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        settings: GroupsSection,
        metadata: CoordinatorMetadata,
        partitions: TransactionalPartitions,
    ) -> None:
        super().__init__(
            node_id=node_id,
            metadata=metadata,
            partitions=partitions,
            stream=InternalStream(metadata, node_id, OFFSETS_STREAM, partial(config_of, settings)),
            no_key=ErrorCode.invalid_group_id,
            troubles=CoordinatorTroubles(GROUPS_NOT_COORDINATED, NO_GROUPS_STREAM),
        )
        self.settings = settings
        self._offsets = partitions
        self._loader = CoordinatorLoader(GroupReplay, "groups", GROUPS_NOT_READ)
        self._unopened: WeakKeyDictionary[DelayedReply, str] = WeakKeyDictionary()
        """Questions for the groups of shards that are not open yet; as long as a client waits."""
        self._closed = Counter[str]()
        """What shards that are closed had counted."""

    # What the server asks

    def coordinator(self, group: str, *, may_be_empty: bool = False) -> Coordinator | ErrorCode:
        """Of ``group``, if that is this node's to answer for; else what to say instead."""
        shard = self.shard(group, may_be_empty=may_be_empty)
        if isinstance(shard, ErrorCode):
            return shard
        assert shard.coordinator is not None
        return shard.coordinator

    def call(
        self,
        group: str,
        ask: Callable[[Coordinator, DelayedReply, Now], list[Effect]],
        *,
        may_be_empty: bool = False,
    ) -> DelayedReply | ErrorCode:
        """The reply to come of the group's coordinator; an error where it is not this node."""
        shard = self.shard(group, may_be_empty=may_be_empty)
        return shard if isinstance(shard, ErrorCode) else shard.call(ask)

    def heartbeat(self, group: str, beat: Callable[[Coordinator, Now], ErrorCode]) -> ErrorCode:
        """What the group's coordinator says, at once."""
        shard = self.shard(group)
        if isinstance(shard, ErrorCode):
            # While nothing is known of the group no member is to leave it.
            return NONE if shard is ErrorCode.coordinator_load_in_progress else shard
        return shard.beat(beat)

    def confirm(self, group: str, *, when_opened: bool = False) -> DelayedReply | ErrorCode:
        """See ``Shard.confirm``. ``when_opened``: where this node is about to coordinate the group, the
        question waits until it does, or until another node is to; without limit, the caller has one.

        A client comes as soon as any node has named this one. At that time the metadata may not have
        come here, nor the log have been opened and read. Kafka refuses such a request at once, and
        clients ask again, but for one: librdkafka does not repeat an OffsetFetch that was refused so
        (``rd_kafka_handle_OffsetFetch_err_action``), and its consumer never begins to read (its issue
        5586).
        """
        shard = self.shard(group, may_be_empty=True)
        if isinstance(shard, GroupShard):
            return shard.confirm()
        if not (when_opened and self.is_about_to_open(group, shard)):
            return shard
        reply = DelayedReply()
        self._unopened[reply] = group
        return reply

    async def end_transaction(self, tp: TopicPartition, marker: TransactionMarker) -> None:
        """End a producer's transaction in a partition of ``__consumer_offsets``: its offsets count then, or are
        forgotten. Raises NotLeader, CoordinatorLoading, and as ``Partition.end_transaction``.
        """
        shard = self._shards.get(tp.partition)
        error = ErrorCode.not_coordinator if shard is None else shard.why_not
        if error is ErrorCode.coordinator_load_in_progress:
            raise CoordinatorLoading(f"{tp} is being read")  # it would not be seen any more
        if shard is None or error is not NONE:
            raise NotLeader(f"{tp} is led by another node")
        await shard.end_transaction(marker)

    @property
    def topic_names(self) -> Mapping[bytes, str]:
        """Of the streams there are, by the bytes of their ids."""
        return self._metadata.image.names

    def coordinators(self) -> Iterator[Coordinator | ErrorCode]:
        """Of all groups of this node; an error where they are not known yet."""
        for shard in tuple(self._shards.values()):
            error = shard.why_not
            if error is NONE and shard.coordinator is not None:
                yield shard.coordinator
            else:
                yield error

    def statistics(self) -> GroupStatistics:
        states, types = Counter[str](), Counter[str]()
        counted, offsets = Counter(self._closed), 0
        for shard in self._shards.values():
            if shard.coordinator is not None:
                states += shard.coordinator.states()
                types += Counter(it.group_type for it in shard.coordinator.groups())
                offsets += shard.coordinator.offsets_count
                counted += _counted(shard.coordinator)
        return GroupStatistics(
            states, types, offsets, counted["rebalances"], counted["commits"], counted["expired"],
            sum(shard.coordinator is None for shard in self._shards.values()),
        )  # fmt: skip

    async def progress(self, partitions_max: int) -> GroupProgressPage:
        """Of the groups of this node, as far as ``progress_of`` goes."""
        known = (it for it in self.coordinators() if isinstance(it, Coordinator))
        groups = (group for it in known for group in it.groups())
        told = await progress_of(groups, partitions_max, self.topic_names)
        return GroupProgressPage(told, max(0, self.statistics().states.total() - len(told)))

    def _moved(self) -> None:
        """Those whose coordinator is open by now, or is not to be at this node."""
        for reply, group in tuple(self._unopened.items()):
            shard = self.shard(group, may_be_empty=True)
            if isinstance(shard, GroupShard):
                self._unopened.pop(reply)
                shard.confirm().forward(reply)
            elif not self.is_about_to_open(group, shard):
                self._unopened.pop(reply)
                reply.give(shard)

    # Its life

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        """Coordinate as ``new`` says; what is not open yet comes with ``look``."""
        super().apply(old, new)
        changed: list[str] = []
        for change in new.changes(old):
            name = (change.new or change.old or _no_change()).name
            if _has_other_partitions(change.old, change.new):
                changed.append(name)
            if name != OFFSETS_STREAM and change.old is not None and change.new is None:
                self._stream_gone(name, new)
        self._topics_changed(new, changed)

    def _new_shard(self, partition: InternalPartition, leader_epoch: int) -> GroupShard:
        return GroupShard(
            self._offsets.partition(partition.tp),
            leader_epoch,
            self.settings,
            self._metadata.lease,
            start=self._tasks.put_nowait,
        )

    def _closing(self, shard: GroupShard) -> None:
        if shard.coordinator is not None:
            self._closed += _counted(shard.coordinator)

    async def _load(self, shard: GroupShard) -> None:
        loaded = await self._loader.load(shard)
        if loaded is not None and not shard.closed:
            image = self._metadata.image
            ids = {name: stream.stream_id for name, stream in image.streams.items()}
            since_ms = image.log.begun_ms if image.log is not None else 0
            shard.begin(
                loaded,
                ids,
                since_ms=since_ms,
                topics=ImageTopics(image),
                share_configs=loaded.share_configs,
            )
            self._moved()

    def _topics_changed(self, new: MetadataImage, names: list[str]) -> None:
        """Their partitions are others than before."""
        if names:
            topics = ImageTopics(new)
            for shard in self._shards.values():
                shard.topics_changed(topics, names)

    def _stream_gone(self, name: str, new: MetadataImage) -> None:
        stream = new.streams.get(name)
        ids = {name: None if stream is None else stream.stream_id}
        for shard in self._shards.values():
            if shard.coordinator is not None:
                shard.do(shard.coordinator.streams_changed(ids))


def _has_other_partitions(old: StreamImage | None, new: StreamImage | None) -> bool:
    if old is None or new is None:
        return True
    is_same = old.stream_id == new.stream_id and len(old.partitions) == len(new.partitions)
    return not is_same


def _counted(coordinator: Coordinator) -> Counter[str]:
    return Counter(
        rebalances=coordinator.rebalances, commits=coordinator.commits, expired=coordinator.expired
    )


def _no_change() -> StreamImage:
    raise AssertionError("a change has one side at least")
