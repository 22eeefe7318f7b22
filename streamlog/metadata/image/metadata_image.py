"""The cluster's metadata as an immutable value at one metadata offset. Pure.

``MetadataImage.apply_all`` is the only writer: the same records give the same image, on every node.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from immutables import Map

from streamlog.acl.rules import NO_RULES, RuleBook
from streamlog.errors import CorruptData, StreamNotFound
from streamlog.metadata.image.credential import Credentials
from streamlog.metadata.image.feature_level import FIRST
from streamlog.metadata.image.image_types import (
    MetadataLog,
    NodeImage,
    NodeLoad,
    PartitionImage,
    StreamImage,
    TierImage,
    partition_changed,
    tier_changed,
)
from streamlog.metadata.image.metadata_delta import MetadataDelta
from streamlog.metadata.image.quota import Quota
from streamlog.metadata.image.records import (
    AccessRuleAdded,
    DecoySecretChosen,
    FeatureLevelChanged,
    LeaderEpochsReserved,
    MetadataLogBegun,
    MetadataRecord,
    NodeDraining,
    NodeFenced,
    NodeFull,
    NodePlaced,
    NodeRegistered,
    NodeStamped,
    NodeUnfit,
    ProducerIdsAllocated,
    QuotaChanged,
    StreamCreated,
    UserChanged,
    VotersChanged,
)
from streamlog.model import NO_LEADER, NodeId
from streamlog.raft.voters import VoterSet

__all__ = [
    "MetadataImage",
    "NodeImage",
    "NodeLoad",
    "PartitionImage",
    "StreamChange",
    "StreamImage",
    "TierImage",
    "leader_of",
    "partition_changed",
]


Told = Callable[[MetadataRecord, int, MetadataDelta], None]
"""A record, its offset, and what was there before it."""


class StreamChange(NamedTuple):
    """One stream in two images; ``old`` is None where it is new, ``new`` where it is gone."""

    old: StreamImage | None
    new: StreamImage | None


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """All of the metadata log below ``offset``, applied; ``epoch`` is the last record's."""

    cluster_id: str
    offset: int = 0
    epoch: int = 0
    nodes: Map[NodeId, NodeImage] = field(default_factory=Map)
    streams: Map[str, StreamImage] = field(default_factory=Map)
    voters: VoterSet = field(default_factory=VoterSet)
    """As last logged; empty while those of the configuration hold."""
    loads: Map[NodeId, NodeLoad] = field(default_factory=Map)
    """Nodes that keep something, and how much; kept up to date by each record."""
    leaderless: int = 0
    """Partitions without a leader."""
    producer_ids_end: int = 0
    """All below belong to some node's block."""
    quotas: Map[str | None, Quota] = field(default_factory=Map)
    """By the client id; None: of each that has none of its own."""
    users: Map[str, Credentials] = field(default_factory=Map)
    """Who may log in by a password."""
    decoy_secret: str = ""
    """In base64; empty until there is a first user."""
    rules: RuleBook = NO_RULES
    """Who may do what, as far as it is kept here; a node's file may add to it."""
    names: Map[bytes, str] = field(default_factory=Map, compare=False)
    """Of the streams, by the 16 bytes of their ids; follows from ``streams``."""
    parent_offset: int = field(default=-1, compare=False)
    """The offset of the image that this one was made of; makes ``changes`` cheap."""
    touched: frozenset[str] = field(default=frozenset(), compare=False)
    """Names of the streams that differ from that image."""
    level: int = FIRST
    """See ``features``."""
    leader_epochs_end: int = 0
    """The first leader epoch of new partitions. It is above any of a stream that was deleted, so a
    leader epoch never means two streams of one name."""
    returning: frozenset[NodeId] = frozenset()
    """Nodes whose voter was removed with its lost folder, and that are to vote again."""
    voters_offset: int = field(default=-1, compare=False)
    """Where the record of the voters stands; 0 in an image of a snapshot, all of it committed."""

    log: MetadataLog | None = None
    """Which metadata log this is an image of; None until its first controller has named it."""

    def stream(self, name: str) -> StreamImage:
        """Raises StreamNotFound."""
        found = self.streams.get(name)
        if found is None:
            raise StreamNotFound(f"there is no stream {name!r}")
        return found

    def machine_of(self, node_id: NodeId) -> NodeId:
        """See ``NodeImage.machine_id``; an unknown node has a machine for itself."""
        node = self.nodes.get(node_id)
        return node_id if node is None else node.machine_id

    def load(self, node_id: NodeId) -> NodeLoad:
        return self.loads.get(node_id, NodeLoad())

    def out_of_sync(self, node_id: NodeId) -> int:
        """Partitions with a leader that this node keeps but is not in sync with."""
        return sum(
            node_id in it.replicas and node_id not in it.isr and it.leader != NO_LEADER
            for stream in self.streams.values()
            for it in stream.partitions
        )

    def apply(self, record: MetadataRecord, *, offset: int, epoch: int) -> "MetadataImage":
        """The image after ``record``, which stands at ``offset`` and was written in ``epoch``."""
        return self.apply_all((record,), offset=offset, epoch=epoch)

    def apply_all(
        self,
        records: Iterable[MetadataRecord],
        *,
        offset: int,
        epoch: int,
        told: Told | None = None,
    ) -> "MetadataImage":
        """The image after the records of one batch that starts at ``offset``. Raises CorruptData.

        Without records: the image itself. ``told`` hears of each record before it is applied.
        """
        if offset < self.offset or epoch < self.epoch:
            raise CorruptData(f"metadata record at {offset} of epoch {epoch} comes too late")
        delta = self._delta()
        end = offset
        for record in records:
            if told is not None:
                told(record, end, delta)
            delta.apply(record, end)
            end += 1
        return self._after(delta, end, epoch) if end > offset else self

    def restored(
        self, records: Iterable[MetadataRecord], *, offset: int, epoch: int
    ) -> "MetadataImage":
        """The image that a snapshot at ``offset`` holds; ``self`` is the empty one."""
        delta = self._delta()
        for record in records:
            delta.apply(record, 0)
        return MetadataImage(
            self.cluster_id, offset, epoch, delta.nodes, delta.streams(), delta.voters,
            delta.loads(), delta.leaderless, delta.producer_ids_end, delta.quotas, delta.users,
            delta.decoy_secret, delta.rules, delta.names,
            level=delta.level, leader_epochs_end=delta.leader_epochs_end, log=delta.log,
            returning=delta.returning, voters_offset=delta.voters_offset,
        )  # fmt: skip

    def changes(self, old: "MetadataImage") -> Iterator[StreamChange]:
        """Streams that are new, gone or different since ``old``; one created again is first gone."""
        if self.parent_offset == old.offset:
            names: Iterable[str] = sorted(self.touched)
        else:
            names = sorted({*old.streams, *self.streams})
        for name in names:
            before, after = old.streams.get(name), self.streams.get(name)
            if before is after or before == after:
                continue
            if before and after and before.stream_id != after.stream_id:
                yield StreamChange(before, None)
                yield StreamChange(None, after)
            else:
                yield StreamChange(before, after)

    def records(self) -> Iterator[MetadataRecord]:
        """Records that build this image out of an empty one; what a snapshot holds."""
        if self.level != FIRST:
            yield FeatureLevelChanged(level=self.level)
        if self.log is not None:
            yield MetadataLogBegun(**self.log._asdict())
        if self.voters:
            yield VotersChanged.of(self.voters, self.returning)
        if self.producer_ids_end:
            yield ProducerIdsAllocated(node_id=NO_LEADER, end=self.producer_ids_end)
        if self.leader_epochs_end:
            yield LeaderEpochsReserved(end=self.leader_epochs_end)
        for client_id in sorted(self.quotas, key=lambda it: (it is not None, it or "")):
            yield QuotaChanged(client_id=client_id, quota=self.quotas[client_id])
        if self.decoy_secret:
            yield DecoySecretChosen(secret=self.decoy_secret)
        for name in sorted(self.users):
            yield UserChanged(name=name, credentials=self.users[name])
        for rule in self.rules.sorted():
            yield AccessRuleAdded(rule=rule)
        for node_id in sorted(self.nodes):
            yield from _node_records(self.nodes[node_id])
        for name in sorted(self.streams):
            stream = self.streams[name]
            yield StreamCreated(
                stream_id=stream.stream_id, config=stream.config, created_ms=stream.created_ms,
                once_clear=stream.once_clear and stream.config.encrypted,
                restored_end=stream.restored_end,
            )  # fmt: skip
            for number, partition in enumerate(stream.partitions):
                yield partition_changed(name, number, partition)
                if partition.tier is not None:
                    yield tier_changed(name, number, partition.tier)

    def _delta(self) -> MetadataDelta:
        return MetadataDelta(
            self.nodes, self.streams, self.voters, self.loads, self.leaderless,
            producer_ids_end=self.producer_ids_end, names=self.names, quotas=self.quotas,
            users=self.users, decoy_secret=self.decoy_secret, rules=self.rules,
            level=self.level, leader_epochs_end=self.leader_epochs_end, log=self.log,
            returning=self.returning, voters_offset=self.voters_offset,
        )  # fmt: skip

    def _after(self, delta: MetadataDelta, offset: int, epoch: int) -> "MetadataImage":
        return MetadataImage(
            self.cluster_id, offset, epoch, delta.nodes, delta.streams(), delta.voters,
            delta.loads(), delta.leaderless, delta.producer_ids_end, delta.quotas, delta.users,
            delta.decoy_secret, delta.rules, delta.names,
            parent_offset=self.offset, touched=frozenset(delta.touched), level=delta.level,
            leader_epochs_end=delta.leader_epochs_end, log=delta.log,
            returning=delta.returning, voters_offset=delta.voters_offset,
        )  # fmt: skip


def leader_of(image: MetadataImage, stream: str, partition: int) -> NodeImage | None:
    """The node that leads, if it is known; raises StreamNotFound, PartitionNotFound."""
    leader = image.stream(stream).partition(partition).leader
    return None if leader == NO_LEADER else image.nodes.get(leader)


def _node_records(node: NodeImage) -> Iterator[MetadataRecord]:
    yield NodeRegistered(
        node_id=node.node_id, incarnation=node.incarnation, host=node.host, port=node.port,
        rack=node.rack, directory_id=node.directory_id, epoch=node.epoch, fenced=node.fenced,
    )  # fmt: skip
    if node.machine is not None:
        yield NodePlaced(node_id=node.node_id, machine=node.machine)
    if node.stopping:
        yield NodeFenced(node_id=node.node_id, fenced=node.fenced, stopping=True)
    if node.draining:
        yield NodeDraining(node_id=node.node_id, draining=True)
    if node.full:
        yield NodeFull(node_id=node.node_id, full=True)
    if node.unfit:
        yield NodeUnfit(node_id=node.node_id, unfit=node.unfit)
    if node.stamp not in (None, node.incarnation):
        yield NodeStamped(node_id=node.node_id, stamp=node.stamp)
