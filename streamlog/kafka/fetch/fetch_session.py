"""Fetch sessions (KIP-227): what one caller fetches, from one request to the next. No asyncio.

A request names only what has changed since the one before it, and so does its answer. A request
without a session has one that lives until it is answered. Each partition of a session is in one of
three states:

    state     where it is            what it costs   what ends it
    due       ``due``                one look        a request looks at it: looked at
    looked    ``looked_at``          nothing more    it changes (``become_due``): due
    at                                               the answer (``end``): watched if nothing is left
                                                     to tell, else due
    watched   the watchers of its    nothing         it changes (``become_due``): due
              partition                              a request names it (``begin``): due

What is watched is at rest: a request does not look at it, so an idle session costs the same
whatever the number of its partitions. What a request has looked at is watched, too, while it waits.
A fetch of the session counts as a fetch of all partitions at rest: the caller has all there is of
them. ``handlers.fetch.DelayedFetch`` is one request; ``session_cache`` keeps the sessions.
"""

import logging
from collections.abc import Callable, Generator
from typing import Final, NamedTuple

from streamlog.acl.rules import Operation
from streamlog.authn.principal import ANONYMOUS, Principal
from streamlog.authn.session import Session
from streamlog.condition import RECORDS_DAMAGED
from streamlog.errors import (
    CorruptData,
    FencedLeaderEpoch,
    InconsistentTopicId,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    PartitionNotFound,
    StreamlogError,
    UnknownLeaderEpoch,
    UnknownTopicId,
)
from streamlog.kafka.advertised_listeners import current_leader
from streamlog.kafka.auth.resource_checks import check_epoch, not_here
from streamlog.kafka.cluster_view import ClusterView
from streamlog.log.segment.file_slice import FileSlice
from streamlog.model import NO_EPOCH, NO_LEADER, EpochEnd, NodeId, TopicPartition
from streamlog.partition.partition import Partition
from streamlog.replication.divergence import divergence
from streamlog.wire import fetch as wire
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import code_of
from streamlog.wire.leaders import CurrentLeader

logger = logging.getLogger(__name__)

FIRST_EPOCH: Final = wire.next_session_epoch(wire.NEW_SESSION)
STEP: Final = 100
"""Partitions between two steps."""
UNKNOWN: Final = -1

Steps = Generator[None, None, None]
"""What is done of a request with many partitions: others may have their turn between two steps."""

Owner = tuple[Principal, str]
"""Principal and address. Not the connection: a client that has lost its connection ends the session
of it over the next one."""
Key = TopicPartition | wire.TopicIdPartition
"""How the caller names a partition."""


class FetchCaller(NamedTuple):
    """A consumer or a replica that fetches."""

    replica_id: NodeId
    """``wire.fetch.CONSUMER`` for a consumer."""
    node_epoch: int
    rack: str
    owner: Owner = (ANONYMOUS, "")
    """No other goes on with its session, or ends it."""

    @property
    def is_replica(self) -> bool:
        return self.replica_id >= 0

    @classmethod
    def of(cls, request: wire.FetchRequest, session: Session) -> "FetchCaller":
        owner = (session.principal, session.host)
        return cls(NodeId(request.replica_id), request.replica_epoch, request.rack_id, owner)


class FetchSession:
    """Used by one request at a time: ``begin``, looks at what is ``due``, then ``end`` or ``fail``."""

    def __init__(self, caller: FetchCaller, *, by_id: bool = False) -> None:
        self.caller = caller
        self.by_id = by_id
        """Topics have ids, not names."""
        self.epoch = FIRST_EPOCH
        """Of the request that is to come."""
        self.due: dict[PartitionFetch, None] = {}
        """In the order in which they are looked at."""
        self.looked_at: dict[PartitionFetch, None] = {}
        """By the request that is being answered."""
        self.news: dict[PartitionFetch, None] = {}
        """At rest, but a replica has to learn what was committed there."""
        self.wake: Callable[[], None] | None = None
        """Wakes the request that is being answered: something is due, or there are news."""
        self.closed = False
        self.reads_committed = False
        """No record of a transaction that is aborted, or open; a replica reads all."""
        self._fetches: dict[Key, PartitionFetch] = {}
        self._again: dict[PartitionFetch, None] = {}
        """Due with the next request, behind what changes until then."""
        self._asked_s = 0.0
        """When the last request came: all that was at rest had nothing to tell by then."""
        self._now: Callable[[], float] | None = None

    @property
    def size(self) -> int:
        return len(self._fetches)

    @property
    def busy(self) -> bool:
        """A request is being answered."""
        return self.wake is not None

    @property
    def replica_id(self) -> NodeId:
        return self.caller.replica_id

    @property
    def owner(self) -> Owner:
        return self.caller.owner

    @property
    def rested_ms(self) -> int:
        """How long ago the last request came."""
        assert self._now is not None
        return int((self._now() - self._asked_s) * 1000)

    def begin(
        self, request: wire.FetchRequest, now: Callable[[], float], wake: Callable[[], None]
    ) -> Steps:
        """What the request names is due, behind all that was due before. ``now``: a clock that
        never goes back, in seconds. The session is busy from the first step on.
        """
        self.wake, self._now, self.looked_at = wake, now, {}
        self.reads_committed = request.isolation_level == wire.READ_COMMITTED
        done = 0
        for gone in request.forgotten:
            done += 1
            if done % STEP == 0:
                yield
            self._forget(gone)
        self.due.update(self._again)
        self._again = {}
        for topic in request.topics:
            for wanted in topic.partitions:
                done += 1
                if done % STEP == 0:
                    yield
                key: Key
                if self.by_id:
                    key = wire.TopicIdPartition(topic.topic_id, wanted.partition)
                else:
                    key = TopicPartition(topic.name, wanted.partition)
                fetch = self._fetches.get(key)
                if fetch is None:
                    fetch = self._fetches[key] = PartitionFetch(key, wanted, self)
                else:
                    fetch.wanted = wanted
                    self.due.pop(fetch, None)
                if self.caller.is_replica:
                    fetch.note_position()
                self.due[fetch] = None
        self._asked_s = now()

    def to_answer(self, *, everything: bool) -> list["PartitionFetch"]:
        """The partitions with something to tell; ``everything``: all of them."""
        if everything:
            return list(self._fetches.values())
        return [fetch for fetch in self.looked_at if fetch.has_changed]

    def end(self) -> Steps:
        """The answer has been made: it will arrive, or the session is over. What has nothing left
        to tell is watched; all else is due with the next request, what has been sent behind others.
        """
        unsent: dict[PartitionFetch, None] = {}
        sent: dict[PartitionFetch, None] = {}
        for done, fetch in enumerate(self.looked_at):
            if done % STEP == STEP - 1:
                yield
            if fetch.may_rest:
                fetch.watch()
            else:
                (unsent if fetch.records is None else sent)[fetch] = None
        for fetch in sent:
            fetch.records = None  # closed when they have been sent
        if not self.closed:
            self._again = unsent | sent
        self.looked_at, self.wake = {}, None

    def fail(self) -> None:
        """Instead of ``end``: the request is not answered."""
        for fetch in self.looked_at:
            fetch.close()
        self.close()

    def close(self) -> None:
        """A request that is being answered goes on with what it has looked at."""
        self.closed = True
        for fetch in self._fetches.values():
            fetch.unwatch()
        self._fetches, self.due, self._again, self.news = {}, {}, {}, {}

    def _forget(self, key: Key) -> None:
        fetch = self._fetches.pop(key, None)
        if fetch is not None:
            fetch.unwatch()
            for some in (self.due, self._again, self.news):
                some.pop(fetch, None)


class PartitionFetch:
    """One partition of a session: what is asked of it, and what there is to answer so far.

    A consumer gets what is committed, from the leader or from a follower in sync (KIP-392). A
    replica gets all that the leader has, and its request says what it has itself.
    """

    __slots__ = (
        "_aborted", "_awaits_commit", "_diverging", "_error_code", "_has_come", "_is_replica", "_leader", "_partition",
        "_preferred", "_rests", "_seen", "_session", "_told_high_watermark", "_told_start", "_topic_id", "_watched",
        "final", "key", "records", "tp", "wanted",
    )  # fmt: skip

    def __init__(self, key: Key, wanted: wire.FetchPartition, session: FetchSession) -> None:
        self.key = key
        self._topic_id: bytes | None = None
        if isinstance(key, TopicPartition):
            self.tp = key
        else:
            self._topic_id, number = key
            self.tp = TopicPartition("", number)  # without a name until the id has been found
        self.wanted = wanted
        self.records: FileSlice | None = None  # open, and not empty; closed when it has been sent
        self.final = False  # waiting would not help: an error, or something to be told at once
        self._session = session
        self._is_replica = session.caller.is_replica
        self._partition: Partition | None = None  # once found, and the caller may read it
        self._error_code = ErrorCode.none
        self._diverging: EpochEnd | None = None
        self._preferred = NO_LEADER  # where a consumer reads at less cost
        self._leader: CurrentLeader | None = None  # answered to a caller that asked the wrong node
        self._seen: tuple[bool, int, int] | None = None  # the partition's state at the last look
        self._told_high_watermark = self._told_start = UNKNOWN  # in the last answer
        self._watched: Partition | None = None  # in the purgatory of it
        self._awaits_commit = False  # in the one for the high watermark, too
        self._aborted: list[wire.AbortedRange] = []  # among the records, where that is asked for
        self._has_come = False  # what the last look had to wait for
        self._rests = False  # a replica that is watched, and has all there is

    def note_position(self) -> None:
        """A replica's request names it: until the last one it had all, and it says what it knows."""
        self._end_rest()
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
                or 0 <= self._told_start < partition.local_log_start_offset
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
            or self._start_of(partition) != self._told_start
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
            return self._has_all(partition) and self._session.caller.replica_id in partition.isr
        return partition.is_leader and self.wanted.fetch_offset >= self._end_of(partition)

    @property
    def size_bytes(self) -> int:
        return 0 if self.records is None else len(self.records)

    @property
    def _hears_of_commits(self) -> bool:
        return self._is_replica and self.wanted.high_watermark != wire.NOT_TOLD

    def _start_of(self, partition: Partition) -> int:
        """A replica's log begins where the leader's does, though the partition may begin earlier."""
        return partition.local_log_start_offset if self._is_replica else partition.log_start_offset

    def _end_of(self, partition: Partition) -> int:
        """Where what a consumer reads ends."""
        is_stable = self._session.reads_committed
        return partition.stable_offset if is_stable else partition.high_watermark

    def _has_all(self, partition: Partition) -> bool:
        return self.wanted.fetch_offset == partition.log_end_offset

    async def look(self, view: ClusterView, max_bytes: int, *, whole_first: bool) -> None:
        """Reads what there is now. ``whole_first``: one batch may go over ``max_bytes``."""
        if self.records is not None:
            self.close()
        self._partition = self._diverging = self._leader = None
        self._error_code, self._preferred, self.final = ErrorCode.none, NO_LEADER, False
        self._aborted = []
        self._has_come = False
        records: FileSlice | None = None
        wanted = self.wanted
        try:
            self._partition = partition = self._readable_partition(view)
            self._seen = self._state(partition)
            wanted_bytes = max(min(wanted.max_bytes, max_bytes), int(whole_first))
            if self._is_replica:
                records = await self._read_for_replica(partition, wanted_bytes)
            else:
                offset, end = wanted.fetch_offset, partition.log_end_offset
                if offset > end:
                    self._check_end(partition, view)
                at_hand = not partition.config.tiered or partition.is_at_hand(
                    offset, max(wanted_bytes, 1), wanted.last_fetched_epoch, self._came
                )
                if at_hand and wanted.last_fetched_epoch != NO_EPOCH:
                    self._diverging = await _divergence(partition, wanted)
                committed = self._session.reads_committed
                upper = partition.stable_offset if committed else partition.high_watermark
                is_all_read = upper <= offset <= end  # as at most looks
                if self._diverging is None and not is_all_read:
                    rack = self._session.caller.rack
                    if rack:
                        self._preferred = _nearer_replica(self.tp, rack, partition, view)
                    reads = self._preferred == NO_LEADER and wanted_bytes > 0
                    if reads and at_hand:
                        if committed:
                            records = await self._read_committed(partition, wanted_bytes)
                        else:
                            records = await partition.read(offset, wanted_bytes)
        except StreamlogError as error:
            self._fail(error, view)
            return
        if records is None:
            self.final = self._diverging is not None or self._preferred != NO_LEADER
        elif 0 < len(records) <= max_bytes or (whole_first and len(records)):
            self.records = records
        else:
            records.close()

    def _check_end(self, partition: Partition, view: ClusterView) -> None:
        """What ends before the consumer's offset here may go on elsewhere. "Out of range" would
        reset the consumer. Raises OffsetNotAvailable, NotLeader.
        """
        if not partition.is_leader:
            end, offset = partition.log_end_offset, self.wanted.fetch_offset
            raise OffsetNotAvailable(f"{self.tp}: this follower ends at {end}, before {offset}")
        if not view.metadata.lease.held:  # another leader may have written more
            raise NotLeader(f"{self.tp}: this node may lead no longer, and ends before the offset")

    def _readable_partition(self, view: ClusterView) -> Partition:
        """Raises what forbids the caller to read it here and now."""
        self._find_name(view)
        partition = view.partitions.partition(self.tp)
        if not (partition.is_leader if self._is_replica else partition.may_serve_reads):
            raise NotLeader(f"{self.tp} may not be read here: another node leads it")
        if self.wanted.current_leader_epoch != NO_EPOCH:
            check_epoch(self.tp, self.wanted.current_leader_epoch, partition)
        if view.access is not None:  # each time: what was allowed may not be any more
            view.access.check_topic(Operation.READ, self.tp.stream)
        if self._topic_id not in (None, partition.topic_id):
            raise InconsistentTopicId(f"{self.tp}: the log here is another stream's")
        return partition

    def _find_name(self, view: ClusterView) -> None:
        """Each time: a stream that was deleted does not have its id any more."""
        if self._topic_id is None:
            if self._is_replica:
                raise UnknownTopicId(f"{self.tp}: replicas name partitions by topic id")
            return
        name = view.metadata.image.names.get(self._topic_id)
        if name is None:
            raise UnknownTopicId(f"no stream has the id {self._topic_id.hex()}")
        if name != self.tp.stream:
            self.tp = TopicPartition(name, self.tp.partition)

    async def _read_committed(self, partition: Partition, max_bytes: int) -> FileSlice:
        part, aborted = await partition.read_committed(self.wanted.fetch_offset, max_bytes)
        ranges = [wire.AbortedRange(it.producer_id, it.first_offset) for it in aborted]
        self._aborted = sorted(ranges, key=lambda it: it.first_offset)
        return part

    async def _read_for_replica(self, partition: Partition, wanted_bytes: int) -> FileSlice | None:
        caller = self._session.caller
        found = await partition.read_for_follower(
            caller.replica_id,
            caller.node_epoch,
            self.wanted.fetch_offset,
            self.wanted.last_fetched_epoch,
            wanted_bytes,
            log_start=self.wanted.log_start_offset,
            incarnation=self.wanted.incarnation,
            partition_epoch=self.wanted.partition_epoch,
        )
        if isinstance(found, EpochEnd):
            self._diverging = found
            return None
        return found

    def _fail(self, error: StreamlogError, view: ClusterView) -> None:
        if isinstance(error, PartitionNotFound):
            error = not_here(error, self.tp, view)
        self.final = True
        self._error_code = code_of(error)
        if isinstance(error, NotLeader | FencedLeaderEpoch):
            self._leader = current_leader(self.tp, view.metadata.image)
        if isinstance(error, CorruptData):
            logger.error(
                RECORDS_DAMAGED.logged_as("damaged batch not served"), extra=self._place(error)
            )

    def watch(self) -> None:
        """Enter the purgatory of the partition that was looked at: ``become_due`` at its next
        change, or at once if the look is out of date.

        A replica is woken by the log end, a consumer by the high watermark. That one concerns a
        replica only if it has to learn of it, and there is nothing to be read: ``session.news``.
        """
        partition = self._partition
        if partition is None or self._session.closed:
            return
        if self._has_come:
            self.become_due()
            return
        if partition is not self._watched:
            self.unwatch()  # another log, under the same name
            self._watched = partition
            partition.add_watcher(self.become_due, end=self._is_replica, once=True)
        if self._hears_of_commits:
            if self.has_news:
                self._note_commit()
            elif not self._awaits_commit:
                self._awaits_commit = True
                partition.add_watcher(self._note_commit, once=True)
        if self._state(partition) != self._seen:
            self.unwatch()
        else:
            self._rests = self._is_replica and self._has_all(partition)

    def unwatch(self) -> None:
        """Leave the purgatory before the partition changes: due."""
        if self._watched is not None:
            self._watched.remove_watcher(self.become_due)
            self.become_due()

    def _came(self) -> None:
        """What the last look has asked the object store for is there, or cannot come."""
        self._has_come = True
        self.unwatch()

    def become_due(self) -> None:
        """The partition has changed, and has let go of the watcher."""
        if self._is_replica:
            self._end_rest()
            self._leave_commits()
        self._watched = None
        session = self._session
        session.due[self] = None
        if session.wake is not None:
            session.wake()

    def _note_commit(self) -> None:
        self._leave_commits()
        session = self._session
        session.news[self] = None
        if session.wake is not None:
            session.wake()

    def _leave_commits(self) -> None:
        if self._awaits_commit and self._watched is not None:
            self._watched.remove_watcher(self._note_commit)
        self._awaits_commit = False

    def _end_rest(self) -> None:
        """A replica that was at rest had all there was until the last request came."""
        if self._rests and self._watched is not None:
            caller = self._session.caller
            rested_ms = self._session.rested_ms
            self._watched.replica_had_all(caller.replica_id, caller.node_epoch, rested_ms)
        self._rests = False

    def close(self) -> None:
        if self.records is not None:
            self.records.close()
            self.records = None

    def fetched(self) -> wire.FetchedPartition:
        """Its part of the answer, which is noted as told. After an error it is told again."""
        if self._is_replica and self._error_code == ErrorCode.none:
            self._check_leadership()
        partition, records = self._partition, self.records
        high_watermark = UNKNOWN if partition is None else partition.high_watermark
        log_start_offset = UNKNOWN
        if partition is not None:  # see ``_start_of``: a call less for each answer
            is_replica = self._is_replica
            log_start_offset = (
                partition.local_log_start_offset if is_replica else partition.log_start_offset
            )
        stable_offset = None
        if partition is not None and not self._is_replica:
            stable_offset = partition.stable_offset
        is_known = self._error_code == ErrorCode.none
        self._told_high_watermark = high_watermark if is_known else UNKNOWN
        self._told_start = log_start_offset if is_known else UNKNOWN
        return wire.FetchedPartition(
            self.wanted.partition,
            self._error_code,
            high_watermark,
            log_start_offset,
            0 if records is None else len(records),
            self._diverging,
            self._preferred,
            self._leader,
            stable_offset=stable_offset,
            aborted=() if records is None else self._aborted,
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

    def _state(self, partition: Partition) -> tuple[bool, int, int]:
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


async def _divergence(partition: Partition, wanted: wire.FetchPartition) -> EpochEnd | None:
    """Where our history parts from the caller's, if it does before the offset asked for.

    Raises UnknownLeaderEpoch where the caller has read batches of a later epoch than this node has
    heard of: then this node is behind, not the caller.
    """
    if wanted.last_fetched_epoch > partition.leader_epoch:
        raise UnknownLeaderEpoch(f"{partition.tp} is in epoch {partition.leader_epoch} here")
    end = await partition.find_epoch_end(wanted.last_fetched_epoch)
    if end.epoch == NO_EPOCH:  # older than all that we know: nothing tells where it parted
        start, log_end = partition.log_start_offset, partition.log_end_offset
        raise OffsetOutOfRange(wanted.fetch_offset, start, log_end)
    return divergence(end, fetch_offset=wanted.fetch_offset, last_epoch=wanted.last_fetched_epoch)


def _nearer_replica(
    tp: TopicPartition, rack: str, partition: Partition, view: ClusterView
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
