"""What the page knows about the node and its cluster at one moment; ``app`` makes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.nodes.healing_status import NOTHING_LOST, HealingStatus
from streamlog.metadata.nodes.node_condition import Trouble
from streamlog.model import NodeId, TopicPartition
from streamlog.transactions.transaction import Transaction

if TYPE_CHECKING:
    from streamlog.partition.state import PartitionStatistics


class CoordinatedGroup(NamedTuple):
    """A group at one moment, as its coordinator has told."""

    group_id: str
    state: str
    member_count: int
    committed: Mapping[TopicPartition, int]
    coordinator: NodeId


class CoordinatedTransaction(NamedTuple):
    """A transactional id at one moment, as its coordinator has told."""

    transactional_id: str
    transaction: Transaction
    coordinator: NodeId | None


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """Immutable; the image is the only part that grows with the cluster, and it is shared."""

    node_id: NodeId
    version: str
    now_ms: int
    image: MetadataImage
    role: str
    """What this node is to the metadata quorum."""
    quorum_epoch: int
    controller: NodeId | None
    voters: tuple[NodeId, ...]
    lease_held: bool
    reasons: Mapping[str, str]
    """Why the node is not ready, by the part that is not."""
    nats_remedy: str = ""
    loop_lag_s: float = 0.0
    troubles: Sequence[Trouble] = ()
    """What keeps this node from its work, as ``metadata.nodes.node_condition`` judges it."""
    failures: Mapping[TopicPartition, str] | None = None
    """Partitions that cannot be written to here, and why."""
    keyless: frozenset[TopicPartition] = frozenset()
    """Those of them for which this node lacks a key."""
    damaged: tuple[TopicPartition, ...] = ()
    answers: Mapping[NodeId, bool] = field(default_factory=dict)
    """Where there is no controller: which of the others answer this node; else empty."""
    healing: HealingStatus = NOTHING_LOST
    """Nothing but on the controller."""
    groups: Sequence[CoordinatedGroup] = ()
    groups_hidden: int = 0
    """Beyond the limit; not shown."""
    transactions: Sequence[CoordinatedTransaction] = ()
    """While they are looked at: those that have been open for the longest time first, those that are not open last."""
    tail_refused: str = ""
    """Why the page shows no payloads; empty where it does."""
    console_writes: bool = False
    """The page offers changes."""

    @property
    def silent(self) -> frozenset[NodeId]:
        """Nodes that count as alive for want of a controller, and do not answer."""
        return frozenset(node_id for node_id, answers in self.answers.items() if not answers)

    @property
    def cluster_id(self) -> str:
        return self.image.cluster_id


class LocalReplicaState(NamedTuple):
    """A partition on this node, as cheaply as can be: a stream's row asks for all that it has."""

    log_start_offset: int
    high_watermark: int
    size_bytes: int

    @property
    def records(self) -> int:
        return max(0, self.high_watermark - self.log_start_offset)


class Local(Protocol):
    """What this node keeps; asked for the rows that are shown, and no others."""

    def kept(self, tp: TopicPartition) -> LocalReplicaState | None: ...
    def statistics(self, tp: TopicPartition) -> "PartitionStatistics | None": ...
    def end(self, tp: TopicPartition) -> int | None:
        """The high watermark, wherever it is led, as far as it is known just now."""
