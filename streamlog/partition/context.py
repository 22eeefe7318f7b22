"""What partitions need of the rest of the node."""

from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from streamlog.config import LogSection
from streamlog.errors import StorageFull
from streamlog.metadata.commands import Command
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.nodes.lease import Lease
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.storage.flusher import Flusher
from streamlog.partition.subjects.index_cache import SubjectIndexCache

if TYPE_CHECKING:
    from streamlog.partition.partition import Partition


class OffsetObserver(Protocol):
    """What a partition tells of itself, so that nobody has to look at all of them."""

    def offsets_changed(self, partition: "Partition") -> None:
        """The checkpoints are behind."""

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


class GrantedCommand(Protocol):
    """``metadata.forwarding.Granted``."""

    @property
    def result(self) -> dict[str, Any]: ...


class ClusterMetadata(Protocol):
    """What is needed of ``metadata.service.MetadataService``."""

    @property
    def image(self) -> MetadataImage: ...
    @property
    def node_epoch(self) -> int: ...
    @property
    def lease(self) -> Lease: ...

    def request(self, command: Command) -> Awaitable[GrantedCommand]:
        """Carried out by the controller. Raises StreamlogError, as RequestTimedOut where nobody
        knows whether it was.
        """

    def report_leader(
        self, tp: TopicPartition, leader: NodeId, leader_epoch: int
    ) -> Awaitable[None]:
        """This node is in sync and cannot reach the leader."""

    def tell_offline(self, offline: Iterable[TopicPartition]) -> None:
        """All partitions that cannot be written here: others are to lead them."""

    def tell_full(self, full: bool) -> None:
        """Whether the disk is full: others are to lead what they have room for."""


class FetchPeer(NamedTuple):
    """A node to be fetched from."""

    node_id: NodeId
    host: str
    port: int


def nothing(_partition: "Partition") -> None:
    """For who is not asked."""


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
