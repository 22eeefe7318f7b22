"""One partition's part of a Fetch: found, read for whoever asks, and watched while that one waits.

A consumer gets what is committed, from the leader or from a follower in sync (KIP-392). A replica
gets all that the leader has, and says by its request what it has itself.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.authn.principal import ANONYMOUS
from streamlog.authn.session import Session
from streamlog.errors import (
    CorruptData,
    FencedLeaderEpoch,
    InconsistentTopicId,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    StreamlogError,
    UnknownTopicId,
)
from streamlog.kafka.auth.resource_checks import led_partition, readable_partition
from streamlog.kafka.fetch.session_cache import Owner
from streamlog.kafka.interfaces import ClusterView, LocalPartition, Slice
from streamlog.kafka.topology import current_leader
from streamlog.model import NO_EPOCH, NO_LEADER, EpochEnd, NodeId, TopicPartition
from streamlog.wire import fetch as wire
from streamlog.wire.errors import code_of
from streamlog.wire.leaders import CurrentLeader

logger = logging.getLogger(__name__)

UNKNOWN: Final = -1

Key = TopicPartition | wire.TopicIdPartition
"""How the caller names a partition."""


class FetchCaller(NamedTuple):
    """Who fetches."""

    replica_id: NodeId
    """``wire.CONSUMER`` for who is no replica."""
    node_epoch: int
    rack: str
    owner: Owner = (ANONYMOUS, "")
    """Nobody else goes on with what it has asked for, or ends it."""

    @property
    def is_replica(self) -> bool:
        return self.replica_id >= 0

    @classmethod
    def of(cls, request: wire.FetchRequest, session: Session) -> "FetchCaller":
        owner = (session.principal, session.host)
        return cls(NodeId(request.replica_id), request.replica_epoch, request.rack_id, owner)


class PartitionFetch:
    """What is asked of one partition, and what there is to answer so far."""

    __slots__ = (
        "_caller", "_changed", "_committed", "_diverging", "_error_code", "_is_replica", "_leader",
        "_partition", "_preferred", "_rests", "_seen", "_telling", "_told_high_watermark", "_told_start",
        "_topic_id", "_watched", "final", "key", "records", "tp", "wanted",
    )  # fmt: skip

    def __init__(self, key: Key, wanted: wire.FetchPartition, caller: FetchCaller) -> None:
        self.key = key
        self._topic_id: bytes | None = None
        if isinstance(key, TopicPartition):
            self.tp = key
        else:
            self._topic_id, number = key
            self.tp = TopicPartition("", number)  # without a name until the id has been found
        self.wanted = wanted
        self.records: Slice | None = None  # open, and not empty; closed by whoever has sent it
        self.final = False  # waiting would not help: an error, or something to be told at once
        self._caller = caller
        self._is_replica = caller.is_replica
        self._partition: LocalPartition | None = None  # once found, and the caller may read it
        self._error_code = ErrorCode.none
        self._diverging: EpochEnd | None = None
        self._preferred = NO_LEADER  # where a consumer reads at less cost
        self._leader: CurrentLeader | None = None  # told to who asked the wrong node
        self._seen: tuple[bool, int, int] | None = None  # the partition's state at the last look
        self._told_high_watermark = self._told_start = UNKNOWN  # in the last answer
        self._telling = UNKNOWN, UNKNOWN  # likewise, in the one that is being made
        self._watched: LocalPartition | None = None
        self._rests = False  # a replica that is watched, and has all there is
        self._changed: Callable[[PartitionFetch], None] | None = None  # while it is watched
        self._committed: Callable[[PartitionFetch], None] | None = None  # likewise
        if self._is_replica:
            self._hear()

    def want(self, wanted: wire.FetchPartition) -> None:
        """Something else from now on."""
        self.wanted = wanted
        if self._is_replica:
            self._hear()

    def _hear(self) -> None:
        """A replica says what it knows."""
        if self.wanted.high_watermark != wire.NOT_TOLD:
            self._told_high_watermark = self.wanted.high_watermark
            self._told_start = self.wanted.log_start_offset

    @property
    def has_news(self) -> bool:
        """A replica that says what it knows to be committed does not know all of it (KIP-1166); or
        it may let go of what the leader has let go of.
        """
        partition = self._partition
        return (
            partition is not None
            and self._hears_of_commits
            and (
                partition.high_watermark > self._told_high_watermark
                or 0 <= self._told_start < partition.log_start_offset
            )
        )

    @property
    def has_changed(self) -> bool:
        """There is something to tell that the last answer did not."""
        partition = self._partition
        return (
            self.final
            or self.records is not None
            or partition is None
            or partition.high_watermark != self._told_high_watermark
            or partition.log_start_offset != self._told_start
        )

    @property
    def may_rest(self) -> bool:
        """There is nothing to tell until the partition tells of a change.

        A follower that serves consumers does not tell when it may no longer; a replica that is not
        in sync may be proposed with each fetch.
        """
        partition = self._partition
        if self.final or self.records is not None or partition is None:
            return False
        if self._state(partition) != self._seen:
            return False
        if self._is_replica:
            return self._has_all(partition) and self._caller.replica_id in partition.isr
        return partition.is_leader and self.wanted.fetch_offset >= partition.high_watermark

    @property
    def caller(self) -> FetchCaller:
        return self._caller

    @property
    def is_watched(self) -> bool:
        return self._watched is not None

    @property
    def size_bytes(self) -> int:
        return 0 if self.records is None else len(self.records)

    @property
    def _hears_of_commits(self) -> bool:
        return self._is_replica and self.wanted.high_watermark != wire.NOT_TOLD

    def _has_all(self, partition: LocalPartition) -> bool:
        return self.wanted.fetch_offset == partition.log_end_offset

    async def look(self, view: ClusterView, max_bytes: int, *, whole_first: bool) -> None:
        """Reads what there is now. ``whole_first``: one batch may go over ``max_bytes``."""
        if self.records is not None:
            self.close()
        self._partition = self._diverging = self._leader = None
        self._error_code, self._preferred, self.final = ErrorCode.none, NO_LEADER, False
        try:
            if self._topic_id is not None:
                self._find_name(self._topic_id, view)
            elif self._is_replica:
                raise UnknownTopicId(f"{self.tp}: replicas name partitions by topic id")
            find = led_partition if self._is_replica else readable_partition
            partition = find(self.tp, self.wanted.current_leader_epoch, view)
            if view.access is not None:  # each time: what was allowed may not be any more
                view.access.check_topic(Operation.READ, self.tp.stream)
            if self._topic_id is not None and partition.topic_id != self._topic_id:
                raise InconsistentTopicId(
                    f"{self.tp}: the log here is another stream's of that name"
                )
            self._partition = partition
            self._seen = self._state(partition)
            wanted_bytes = min(self.wanted.max_bytes, max_bytes)
            if wanted_bytes <= 0 and whole_first:
                wanted_bytes = 1
            if self._is_replica:
                records = await self._read_for_replica(partition, wanted_bytes)
            else:
                records = await self._read_for_consumer(partition, wanted_bytes, view)
        except StreamlogError as error:
            self._fail(error, view)
            return
        if records is None:
            self.final = self._diverging is not None or self._preferred != NO_LEADER
        elif 0 < len(records) <= max_bytes or (whole_first and len(records)):
            self.records = records
        else:
            records.close()

    def _find_name(self, topic_id: bytes, view: ClusterView) -> None:
        """Each time: a stream that was deleted does not have its id any more."""
        name = view.metadata.image.names.get(topic_id)
        if name is None:
            raise UnknownTopicId(f"no stream has the id {topic_id.hex()}")
        if name != self.tp.stream:
            self.tp = TopicPartition(name, self.tp.partition)

    async def _read_for_replica(self, partition: LocalPartition, wanted_bytes: int) -> Slice | None:
        replica_id, node_epoch = self._caller.replica_id, self._caller.node_epoch
        found = await partition.read_for_follower(
            replica_id,
            node_epoch,
            self.wanted.fetch_offset,
            self.wanted.last_fetched_epoch,
            max(wanted_bytes, 0),
            log_start=self.wanted.log_start_offset,
            incarnation=self.wanted.incarnation,
        )
        if isinstance(found, EpochEnd):
            self._diverging = found
            return None
        return found

    async def _read_for_consumer(
        self, partition: LocalPartition, wanted_bytes: int, view: ClusterView
    ) -> Slice | None:
        offset, end = self.wanted.fetch_offset, partition.log_end_offset
        if offset > end and not partition.is_leader:
            raise OffsetNotAvailable(f"{self.tp}: this follower ends at {end}, before {offset}")
        if self.wanted.last_fetched_epoch != NO_EPOCH:
            self._diverging = _divergence(partition, self.wanted)
            if self._diverging is not None:
                return None
        if partition.high_watermark <= offset <= end:
            return None  # most looks end here: all is read
        if self._caller.rack:
            self._preferred = _nearer_replica(self.tp, self._caller.rack, partition, view)
        if self._preferred != NO_LEADER or wanted_bytes <= 0:
            return None
        return await partition.read(offset, wanted_bytes)

    def _fail(self, error: StreamlogError, view: ClusterView) -> None:
        self.final = True
        self._error_code = code_of(error)
        if isinstance(error, NotLeader | FencedLeaderEpoch):
            self._leader = current_leader(self.tp, view.metadata.image)
        if isinstance(error, CorruptData):
            logger.error("damaged batch not served", extra=self._place(error))

    def watch(
        self,
        changed: "Callable[[PartitionFetch], None]",
        committed: "Callable[[PartitionFetch], None]",
    ) -> None:
        """``changed`` once, and at once if the last look is out of date; ``look`` again then.

        ``committed`` once when there is something to tell a replica, but nothing to be read.
        """
        partition = self._partition
        if partition is None:
            return
        if partition is not self._watched:
            self.unwatch(0)
            self._watched = partition
        if self._changed is None:
            self._changed = changed
            partition.add_watcher(self._tell_changed, end=self._is_replica)
        if self._committed is None and self._hears_of_commits:
            self._committed = committed
            partition.add_watcher(self._tell_committed)
            if self.has_news:
                self._tell_committed()
        if self._state(partition) != self._seen:
            self._tell_changed()
        else:
            self._rests = self._is_replica and self._has_all(partition)

    def _tell_changed(self) -> None:
        """The session has ``unwatch`` called in turn."""
        if self._changed is not None:
            self._changed(self)

    def _tell_committed(self) -> None:
        partition, committed = self._watched, self._committed
        if partition is not None and committed is not None:
            partition.remove_watcher(self._tell_committed)
            self._committed = None
            committed(self)

    def unwatch(self, rested_ms: int) -> None:
        """Until so long ago a replica that rested has asked again for what there might be."""
        partition = self._watched
        if partition is None:
            return
        if self._changed is not None:
            partition.remove_watcher(self._tell_changed)
        if self._committed is not None:
            partition.remove_watcher(self._tell_committed)
        if self._rests:
            partition.replica_had_all(self._caller.replica_id, self._caller.node_epoch, rested_ms)
        self._watched = self._changed = self._committed = None
        self._rests = False

    def remember(self) -> None:
        """What ``fetched`` said is on its way, and whoever sends it closes the records. What comes
        with an error is told again.
        """
        self.records = None
        self._told_high_watermark = self._told_start = UNKNOWN
        if self._partition is not None and self._error_code == ErrorCode.none:
            self._told_high_watermark, self._told_start = self._telling

    def close(self) -> None:
        if self.records is not None:
            self.records.close()
            self.records = None

    def fetched(self) -> wire.FetchedPartition:
        if self._is_replica and self._error_code == ErrorCode.none:
            self._check_leadership()
        partition, records = self._partition, self.records
        high_watermark = UNKNOWN if partition is None else partition.high_watermark
        log_start_offset = UNKNOWN if partition is None else partition.log_start_offset
        self._telling = high_watermark, log_start_offset
        return wire.FetchedPartition(
            self.wanted.partition,
            self._error_code,
            high_watermark,
            log_start_offset,
            0 if records is None else len(records),
            self._diverging,
            self._preferred,
            self._leader,
        )

    def _check_leadership(self) -> None:
        """A leader may be deposed after the look, while other partitions are read for the answer.
        Then its log may be cut, and its high watermark is of another leader's records.
        """
        if (
            self._partition is not None
            and self._seen is not None
            and self._state(self._partition)[:2] != self._seen[:2]
        ):
            self.close()
            self._partition = self._diverging = None
            self._error_code, self.final = ErrorCode.not_leader_or_follower, True

    def _state(self, partition: LocalPartition) -> tuple[bool, int, int]:
        """What a watcher would have been told the change of."""
        offset = partition.log_end_offset if self._is_replica else partition.high_watermark
        return partition.is_leader, partition.leader_epoch, offset

    def _place(self, error: StreamlogError) -> dict[str, object]:
        return {
            "stream": self.tp.stream,
            "partition": self.tp.partition,
            "offset": self.wanted.fetch_offset,
            "problem": str(error),
        }


def _divergence(partition: LocalPartition, wanted: wire.FetchPartition) -> EpochEnd | None:
    """Where our history parts from the caller's, if it does before the offset asked for."""
    end = partition.epoch_end(wanted.last_fetched_epoch)
    if end.epoch == NO_EPOCH:  # older than all that we know: nothing tells where it parted
        start, log_end = partition.log_start_offset, partition.log_end_offset
        raise OffsetOutOfRange(wanted.fetch_offset, start, log_end)
    if end.epoch < wanted.last_fetched_epoch or end.end_offset < wanted.fetch_offset:
        return end
    return None


def _nearer_replica(
    tp: TopicPartition, rack: str, partition: LocalPartition, view: ClusterView
) -> NodeId:
    """A live follower in sync in the caller's rack, where the leader is in another (KIP-392)."""
    if not partition.is_leader:
        return NO_LEADER
    image = view.metadata.image
    here, stream = image.nodes.get(view.node_id), image.streams.get(tp.stream)
    if stream is None or stream.stream_id.bytes != partition.topic_id:
        return NO_LEADER  # the image may be ahead of the partitions
    if here is not None and here.rack == rack:
        return NO_LEADER
    near = [
        node_id
        for node_id in stream.partition(tp.partition).isr
        if (node := image.nodes.get(node_id)) and node.rack == rack and not node.fenced
    ]
    return near[tp.partition % len(near)] if near else NO_LEADER
