"""What a run of records makes of an image, gathered before the next image is built. Pure.

A run may change thousands of partitions of one stream: they are changed in place here, so that the
run costs its length and not its length times the size of the stream.
"""

from dataclasses import replace

from immutables import Map

from streamlog.acl.rules import RuleBook
from streamlog.errors import CorruptData
from streamlog.metadata.image.credential import Credentials
from streamlog.metadata.image.feature_level import FIRST, check_known
from streamlog.metadata.image.image_types import (
    MetadataLog,
    NodeImage,
    NodeLoad,
    PartitionImage,
    StreamImage,
    TierImage,
)
from streamlog.metadata.image.quota import NO_QUOTA, Quota
from streamlog.metadata.image.records import (
    AccessRuleAdded,
    AccessRuleRemoved,
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
    NodeRemoved,
    NodeStamped,
    NodeUnfit,
    PartitionChanged,
    ProducerIdsAllocated,
    QuorumLeader,
    QuotaChanged,
    StreamCreated,
    StreamDeleted,
    StreamUpdated,
    TierChanged,
    UserChanged,
    VotersChanged,
)
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId
from streamlog.raft.voters import VoterSet

AboutClients = QuotaChanged | UserChanged | DecoySecretChosen | AccessRuleAdded | AccessRuleRemoved


class MetadataDelta:
    """Changes on top of an image's parts, which stay as they are. Used once, by one ``Image``."""

    def __init__(
        self,
        nodes: Map[NodeId, NodeImage],
        streams: Map[str, StreamImage],
        voters: VoterSet,
        loads: Map[NodeId, NodeLoad],
        leaderless: int,
        *,
        producer_ids_end: int = 0,
        names: Map[bytes, str],
        quotas: Map[str | None, Quota],
        users: Map[str, Credentials],
        decoy_secret: str,
        rules: RuleBook,
        level: int = FIRST,
        leader_epochs_end: int = 0,
        log: MetadataLog | None = None,
        returning: frozenset[NodeId] = frozenset(),
        voters_offset: int = -1,
    ) -> None:
        self.nodes = nodes
        self.voters = voters
        self.returning = returning
        self.voters_offset = voters_offset
        self.leaderless = leaderless
        self.producer_ids_end = producer_ids_end
        self.names = names
        self.quotas = quotas
        self.users = users
        self.decoy_secret = decoy_secret
        self.rules = rules
        self.level = level
        self.leader_epochs_end = leader_epochs_end
        self.log = log
        self.touched: set[str] = set()
        """Names of the streams that a record was about."""
        self._streams = streams
        self._loads = loads
        self._replicas: dict[NodeId, int] = {}  # more, or fewer, than in ``_loads``
        self._leaders: dict[NodeId, int] = {}
        self._open: dict[str, list[PartitionImage]] = {}  # partitions of touched streams

    def apply(self, record: MetadataRecord, offset: int) -> None:
        """Raises CorruptData if the record cannot follow what was applied before it, and
        FeatureLevelUnknown.
        """
        match record:
            case PartitionChanged():
                self._partition_changed(record, offset)
            case TierChanged():
                self._tier_changed(record, offset)
            case (
                NodeRegistered()
                | NodePlaced()
                | NodeFenced()
                | NodeDraining()
                | NodeFull()
                | NodeUnfit()
                | NodeStamped()
                | NodeRemoved()
            ):
                self._node_changed(record, offset)
            case StreamCreated():
                self._created(record, offset)
            case StreamUpdated():
                known = self._known(record.config.name, offset)
                once_clear = known.once_clear or not record.config.encrypted
                changed = replace(known, config=record.config, once_clear=once_clear)
                self._streams = self._streams.set(known.name, changed)
                self.touched.add(known.name)
            case StreamDeleted():
                self._deleted(record, offset)
            case VotersChanged():
                self.voters, self.voters_offset = record.voter_set, offset
                self.returning = frozenset(record.returning)
            case ProducerIdsAllocated() | LeaderEpochsReserved() | FeatureLevelChanged():
                self._cluster_changed(record, offset)
            case (
                QuotaChanged()
                | UserChanged()
                | DecoySecretChosen()
                | AccessRuleAdded()
                | AccessRuleRemoved()
            ):
                self._clients_changed(record)
            case MetadataLogBegun():
                self._log_begun(record)
            case QuorumLeader():
                pass
            case _:
                raise CorruptData(f"metadata record at {offset} has an unknown type")

    def config(self, stream: str) -> StreamConfig | None:
        """As it is now; None where there is no such stream."""
        known = self._streams.get(stream)
        return None if known is None else known.config

    def partition(self, stream: str, number: int) -> PartitionImage | None:
        """As it is now; None where there is none."""
        known = self._streams.get(stream)
        partitions = self._open.get(stream, () if known is None else known.partitions)
        return partitions[number] if number < len(partitions) else None

    def streams(self) -> Map[str, StreamImage]:
        """The streams with all changes."""
        for name, partitions in self._open.items():
            stream = replace(self._streams[name], partitions=tuple(partitions))
            self._streams = self._streams.set(name, stream)
        self._open.clear()
        return self._streams

    def loads(self) -> Map[NodeId, NodeLoad]:
        """The loads with all changes; a node that keeps nothing has none."""
        for node in {*self._replicas, *self._leaders}:
            known = self._loads.get(node, NodeLoad())
            load = NodeLoad(
                known.replicas + self._replicas.get(node, 0),
                known.leaders + self._leaders.get(node, 0),
            )
            if load != known:
                self._loads = self._loads.set(node, load) if any(load) else self._loads.delete(node)
        self._replicas.clear()
        self._leaders.clear()
        return self._loads

    def _node_changed(
        self,
        record: (
            NodeRegistered
            | NodePlaced
            | NodeFenced
            | NodeDraining
            | NodeFull
            | NodeUnfit
            | NodeStamped
            | NodeRemoved
        ),
        offset: int,
    ) -> None:
        node_id = record.node_id
        known = self.nodes.get(node_id)
        match record:
            case NodeRegistered():
                draining = known is not None and known.draining
                self.nodes = self.nodes.set(node_id, _node(record, offset, draining=draining))
                return
            case _ if known is None:
                raise CorruptData(f"metadata record at {offset} is about unknown node {node_id}")
            case NodeFenced():
                known = replace(known, fenced=record.fenced, stopping=record.stopping)
            case NodePlaced():
                known = replace(known, machine=record.machine)
            case NodeDraining():
                known = replace(known, draining=record.draining)
            case NodeFull():
                known = replace(known, full=record.full)
            case NodeUnfit():
                known = replace(known, unfit=record.unfit)
            case NodeStamped():
                known = replace(known, stamp=record.stamp)
            case NodeRemoved():
                self.nodes = self.nodes.delete(node_id)
                return
        self.nodes = self.nodes.set(node_id, known)

    def _clients_changed(self, record: AboutClients) -> None:
        match record:
            case AccessRuleAdded(rule=rule):
                self.rules = self.rules.added(rule)
            case AccessRuleRemoved(rule=rule):
                self.rules = self.rules.removed(rule)
            case QuotaChanged(client_id=client_id, quota=quota):
                if quota != NO_QUOTA:
                    self.quotas = self.quotas.set(client_id, quota)
                elif client_id in self.quotas:
                    self.quotas = self.quotas.delete(client_id)
            case UserChanged(name=name, credentials=credentials):
                if credentials:
                    self.users = self.users.set(name, credentials)
                elif name in self.users:
                    self.users = self.users.delete(name)
            case DecoySecretChosen(secret=secret):
                self.decoy_secret = secret

    def _cluster_changed(
        self,
        record: ProducerIdsAllocated | LeaderEpochsReserved | FeatureLevelChanged,
        offset: int,
    ) -> None:
        match record:
            case ProducerIdsAllocated():
                if record.end < self.producer_ids_end:
                    raise CorruptData(f"metadata record at {offset} takes back producer ids")
                self.producer_ids_end = record.end
            case LeaderEpochsReserved():
                if record.end < self.leader_epochs_end:
                    raise CorruptData(f"metadata record at {offset} takes back leader epochs")
                self.leader_epochs_end = record.end
            case FeatureLevelChanged():
                check_known(record.level)
                if record.level < self.level:
                    raise CorruptData(f"metadata record at {offset} takes back a feature level")
                self.level = record.level

    def _log_begun(self, record: MetadataLogBegun) -> None:
        self.log = MetadataLog(record.log_id, record.begun_ms, record.first_producer_id)
        self.producer_ids_end = max(self.producer_ids_end, record.first_producer_id)
        first = record.first_leader_epoch
        self.leader_epochs_end = max(self.leader_epochs_end, first)
        for name, stream in self.streams().items():
            if any(it.leader_epoch < first for it in stream.partitions):
                self._open[name] = [_with_epoch(it, first) for it in stream.partitions]
                self.touched.add(name)

    def _created(self, record: StreamCreated, offset: int) -> None:
        name = record.config.name
        if name in self._streams:
            raise CorruptData(f"metadata record at {offset} creates {name!r} a second time")
        once_clear = record.once_clear or not record.config.encrypted
        stream = StreamImage(
            record.config,
            record.stream_id,
            record.created_ms,
            (),
            once_clear=once_clear,
            restored_end=record.restored_end,
        )
        self._streams = self._streams.set(name, stream)
        self.names = self.names.set(record.stream_id.bytes, name)
        self.touched.add(name)

    def _deleted(self, record: StreamDeleted, offset: int) -> None:
        known = self._known(record.name, offset)
        if known.stream_id != record.stream_id:
            raise CorruptData(f"metadata record at {offset} deletes another {record.name!r}")
        for partition in self._open.pop(record.name, known.partitions):
            self._count(partition, -1)
            self.leader_epochs_end = max(self.leader_epochs_end, partition.leader_epoch + 1)
        self._streams = self._streams.delete(record.name)
        self.names = self.names.delete(record.stream_id.bytes)
        self.touched.add(record.name)

    def _partition_changed(self, record: PartitionChanged, offset: int) -> None:
        name, number = record.stream, record.partition
        partitions = self._open.get(name)
        if partitions is None:
            partitions = self._open[name] = list(self._known(name, offset).partitions)
            self.touched.add(name)
        if not 0 <= number <= len(partitions):
            raise CorruptData(f"metadata record at {offset} skips partitions of {name!r}")
        known = partitions[number] if number < len(partitions) else None
        changed = PartitionImage(
            record.replicas, record.leader, record.leader_epoch, record.isr,
            record.partition_epoch, record.adding, record.removing,
            _incarnations(record, known, offset), None if known is None else known.tier,
        )  # fmt: skip
        if known is None:
            partitions.append(changed)
        else:
            if record.leader_epoch < known.leader_epoch:
                raise CorruptData(f"metadata record at {offset} takes back a leader epoch")
            if record.partition_epoch < known.partition_epoch:
                raise CorruptData(f"metadata record at {offset} takes back a partition epoch")
            self._count(known, -1)
            partitions[number] = changed
        self._count(changed, 1)

    def _tier_changed(self, record: TierChanged, offset: int) -> None:
        name, number = record.stream, record.partition
        partitions = self._open.get(name)
        if partitions is None:
            partitions = self._open[name] = list(self._known(name, offset).partitions)
            self.touched.add(name)
        if not 0 <= number < len(partitions):
            raise CorruptData(f"metadata record at {offset} is about no partition of {name!r}")
        known = partitions[number]
        tier = TierImage(
            record.leader_epoch, record.manifest_version, record.log_start_offset, record.end_offset
        )
        if known.tier is not None and tier[:2] < known.tier[:2]:
            raise CorruptData(f"metadata record at {offset} takes back a manifest")
        partitions[number] = replace(known, tier=tier)

    def _count(self, partition: PartitionImage, by: int) -> None:
        for node in partition.replicas:
            self._replicas[node] = self._replicas.get(node, 0) + by
        leader = partition.leader
        if leader == NO_LEADER:
            self.leaderless += by
        else:
            self._leaders[leader] = self._leaders.get(leader, 0) + by

    def _known(self, name: str, offset: int) -> StreamImage:
        found = self._streams.get(name)
        if found is None:
            raise CorruptData(f"metadata record at {offset} is about an unknown stream {name!r}")
        return found


def _with_epoch(partition: PartitionImage, first: int) -> PartitionImage:
    if partition.leader_epoch >= first:
        return partition
    return replace(partition, leader_epoch=first, partition_epoch=partition.partition_epoch + 1)


def _incarnations(
    record: PartitionChanged, known: PartitionImage | None, offset: int
) -> tuple[int, ...]:
    """A node that was no replica just before is assigned by this record, and by no other."""
    if record.incarnations:
        if len(record.incarnations) != len(record.replicas):
            raise CorruptData(f"metadata record at {offset} does not tell all incarnations")
        return record.incarnations
    if known is None:
        return (offset,) * len(record.replicas)
    if record.replicas == known.replicas:
        return known.incarnations
    before = known.replicas
    return tuple(known.incarnation(it) if it in before else offset for it in record.replicas)


def _node(record: NodeRegistered, offset: int, *, draining: bool) -> NodeImage:
    epoch = offset if record.epoch < 0 else record.epoch
    return NodeImage(
        record.node_id, record.incarnation, record.host, record.port, record.rack,
        record.directory_id, epoch, record.fenced, draining=draining, stamp=record.incarnation,
    )  # fmt: skip
