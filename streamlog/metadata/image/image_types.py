"""What an image is made of: nodes, streams, partitions, and how loaded each node is. Pure."""

from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from streamlog.errors import PartitionNotFound
from streamlog.metadata.image.records import PartitionChanged, TierChanged
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_INCARNATION, NodeId


class MetadataLog(NamedTuple):
    """Which metadata log an image is of; see ``records.MetadataLogBegun``."""

    log_id: UUID
    begun_ms: int
    first_producer_id: int


@dataclass(frozen=True, slots=True)
class NodeImage:
    """A node as it last registered."""

    node_id: NodeId
    incarnation: UUID
    host: str
    port: int
    rack: str | None
    directory_id: UUID | None = None
    """Of its data folder; None if it registered before folders had ids."""
    epoch: int = -1
    """The node epoch: the metadata offset of its registration."""
    fenced: bool = False
    """Leads nothing, and joins no ISR. A controller's registration begins fenced."""
    stopping: bool = False
    """Fenced because it said goodbye: only a new registration ends that."""
    draining: bool = False
    """Gets no replica, and loses those it has. Outlives registrations."""
    full: bool = False
    """Has no room on its disk: leads and is in sync only where no live member has any."""
    unfit: tuple[str, ...] = ()
    """What else is wrong with it, by the names of ``condition``. With most of it the node leads
    only where no other member in sync is well.
    """
    stamp: UUID | None = None
    """The last one of its data folder that is known. A folder without it is an older copy."""
    machine: NodeId | None = None
    """The first node of the machine that it shares with others; None: it has one for itself."""

    @property
    def machine_id(self) -> NodeId:
        """Nodes with the same one are lost together: no two of them keep the same partition."""
        return self.node_id if self.machine is None else self.machine

    @property
    def has_address(self) -> bool:
        """Not so in a cluster made of a backup, before the node has registered there."""
        return self.port > 0


class TierImage(NamedTuple):
    """What of a partition is in the object store: all of ``[log_start_offset, end_offset)``."""

    leader_epoch: int
    """Of the leader that wrote the manifest that counts, with ``version`` its name; version 0: there is none."""
    version: int
    log_start_offset: int
    """Of the partition: the manifest may still name what is below."""
    end_offset: int


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """Who keeps a partition. The leader is in the ISR, or is NO_LEADER.

    The ISR stands in the order of ``replicas``. It is empty only when the data of its last member
    is known to be lost. While a move is under way ``replicas`` has the wanted ones first, then
    those that go (``removing``).
    """

    replicas: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: int
    isr: tuple[NodeId, ...]
    partition_epoch: int
    adding: tuple[NodeId, ...] = ()
    removing: tuple[NodeId, ...] = ()
    incarnations: tuple[int, ...] = ()
    """Of each of ``replicas``: the metadata offset at which the node was assigned. A replica that
    is removed and assigned again has another one, and its log of before does not count. Empty in a
    partition that is yet to be decided on."""
    tier: TierImage | None = None
    """None: it begins where the logs of its replicas do."""

    def incarnation(self, node: NodeId) -> int:
        """NO_INCARNATION for a node that keeps no replica."""
        for replica, incarnation in zip(self.replicas, self.incarnations, strict=False):
            if replica == node:
                return incarnation
        return NO_INCARNATION

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[NodeId, ...]:
        """The replicas once no move is under way; the first one is preferred as leader."""
        if not self.removing:
            return self.replicas
        return tuple(node for node in self.replicas if node not in self.removing)

    @property
    def former(self) -> tuple[NodeId, ...]:
        """The replicas that a cancelled move stays with."""
        if not self.adding:
            return self.replicas
        return tuple(node for node in self.replicas if node not in self.adding)


@dataclass(frozen=True, slots=True)
class StreamImage:
    """A stream; ``partitions[i]`` is partition i."""

    config: StreamConfig
    stream_id: UUID
    created_ms: int
    partitions: tuple[PartitionImage, ...]
    once_clear: bool = True
    """Records may be in the clear, on the disk; False: it has been encrypted since it was made."""
    restored_end: int = 0
    """Messages below that offset are those of a snapshot: another stream had them before, as it has these offsets."""

    @property
    def name(self) -> str:
        return self.config.name

    def partition(self, number: int) -> PartitionImage:
        """Raises PartitionNotFound."""
        if not 0 <= number < len(self.partitions):
            raise PartitionNotFound(f"stream {self.name!r} has no partition {number}")
        return self.partitions[number]

    def min_isr(self, number: int) -> int:
        """In-sync replicas that a write with acks=all needs now.

        The setting, but never more than the replicas that are there already: while a stream grows
        from one replica to three, the new ones are not asked for before they have caught up. A setting
        above the replicas that the stream is to have refuses every such write, as in Kafka.
        """
        partition = self.partition(number)
        if self.config.min_isr > self.config.replicas:
            return self.config.min_isr
        return min(self.config.min_isr, max(1, len(partition.former)))


class NodeLoad(NamedTuple):
    """How much a node keeps, over all streams."""

    replicas: int = 0
    leaders: int = 0


def tier_changed(stream: str, number: int, tier: TierImage) -> TierChanged:
    """The record that says what ``tier`` is."""
    return TierChanged(
        stream=stream,
        partition=number,
        leader_epoch=tier.leader_epoch,
        manifest_version=tier.version,
        log_start_offset=tier.log_start_offset,
        end_offset=tier.end_offset,
    )


def partition_changed(stream: str, number: int, partition: PartitionImage) -> PartitionChanged:
    """The record that says what ``partition`` is."""
    return PartitionChanged(
        stream=stream,
        partition=number,
        replicas=partition.replicas,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        partition_epoch=partition.partition_epoch,
        adding=partition.adding,
        removing=partition.removing,
        incarnations=partition.incarnations,
    )
