"""What the socket API needs of the rest of the node: partitions, metadata, slices of files.

The adapter and its tests meet here: a test serves Kafka without a cluster.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from streamlog.authz.permissions import Permissions
from streamlog.metadata.commands import Command
from streamlog.metadata.forwarding import Granted
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.stream.alteration import SettingChange
from streamlog.metadata.stream.config import StreamConfig
from streamlog.model import EpochEnd, NodeId, TopicPartition
from streamlog.raft.messages import Answer, Request, SnapshotId

if TYPE_CHECKING:
    from streamlog.partition.producer_state_manager import ProducerAppend
    from streamlog.partition.state import Acknowledgement
    from streamlog.partition.statistics import PartitionStatistics
    from streamlog.record.produced import ProducedBatch


class Slice(Protocol):
    """A range of a segment file that stays open until ``close``."""

    @property
    def held(self) -> bytes | None:
        """Its bytes, where they are in memory and not to be had of the file as they are there."""

    @property
    def position(self) -> int: ...
    def __len__(self) -> int: ...
    def fileno(self) -> int: ...
    def read(self) -> bytes: ...
    def close(self) -> None: ...


class LocalPartition(Protocol):
    """A partition of which this node has the log."""

    @property
    def tp(self) -> TopicPartition: ...
    @property
    def topic_id(self) -> bytes:
        """Of its stream: a stream that is created anew has another one."""

    @property
    def is_leader(self) -> bool: ...
    @property
    def may_serve_reads(self) -> bool:
        """Consumers may read here: the leader, or a follower in sync while the lease is held."""

    @property
    def high_watermark_known(self) -> bool:
        """What is committed is known: not so on a new leader until its followers have fetched."""

    @property
    def leader_epoch(self) -> int:
        """Of the leader that is followed, if it is not this node."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def isr(self) -> frozenset[NodeId]:
        """The replicas in sync, as last heard."""

    @property
    def below_min_isr(self) -> bool:
        """Fewer replicas are in sync than the stream wants: nothing is committed meanwhile."""

    async def know_producers(self) -> None:
        """Before the first numbered batch. Raises NotLeader, StorageFailed."""

    def produce(self, batch: "ProducedBatch", ack: "Acknowledgement") -> "ProducerAppend":
        """Append what a producer sent; if it is there already, where that is.

        Raises NotLeader, StorageFull, StorageFailed, Overloaded, InvalidTimestamp,
        InvalidProducerEpoch, OutOfOrderSequence.
        """

    def restore(self, records: memoryview, ack: "Acknowledgement") -> None:
        """Append batches of a backup, with their offsets; those that are there are passed over.

        Raises NotLeader, StorageFull, StorageFailed, Overloaded, CorruptBatch.
        """

    async def read(self, offset: int, max_bytes: int) -> Slice:
        """Whole batches below the high watermark, first the one with ``offset``, however large."""

    async def read_for_follower(
        self,
        node_id: NodeId,
        node_epoch: int,
        offset: int,
        last_epoch: int,
        max_bytes: int,
        *,
        log_start: int,
        incarnation: int,
    ) -> Slice | EpochEnd:
        """A replica has all below ``offset``, the last of it of ``last_epoch``, from ``log_start``
        on; that counts.

        What follows, up to the log end, the first batch whole; nothing where ``max_bytes`` is 0. Or
        where histories part, and then nothing has counted.
        Raises NotLeader, StaleNode, StaleReplica, UnknownReplica, OffsetOutOfRange, CorruptBatch,
        StorageFailed.
        """

    def replica_had_all(self, node_id: NodeId, node_epoch: int, ago_ms: int) -> None:
        """So long ago it had asked again for what it had asked for before, and that was the end."""

    def add_watcher(self, watcher: Callable[[], None], *, end: bool = False) -> None:
        """``watcher`` is called when the high watermark, leadership or existence changes.

        ``end``: when the log end changes instead of the high watermark; for followers.
        """

    def remove_watcher(self, watcher: Callable[[], None]) -> None: ...

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """The first offset of that time or later, with its time."""

    async def latest_timestamp(self) -> tuple[int, int] | None:
        """The offset of the latest time, with that time."""

    def epoch_end(self, epoch: int) -> EpochEnd: ...

    def statistics(self) -> "PartitionStatistics": ...

    async def purge(self, up_to_offset: int, *, timeout_s: float) -> int:
        """Forget the committed records below ``up_to_offset``, on every in-sync replica; how many
        they were. Raises NotLeader, NotEnoughReplicas, RequestTimedOut, StorageFull, StorageFailed.
        """


class Partitions(Protocol):
    """The partitions of this node."""

    def partition(self, tp: TopicPartition) -> LocalPartition:
        """Raises PartitionNotFound."""

    def partitions(self) -> Iterator[LocalPartition]: ...


class Metadata(Protocol):
    """The cluster's metadata, and the ways to change them."""

    @property
    def image(self) -> MetadataImage: ...
    @property
    def controller_id(self) -> NodeId | None:
        """The leader of the quorum, as this node knows it."""

    @property
    def lease(self) -> Lease: ...

    async def create_stream(
        self, config: StreamConfig, assignments: tuple[tuple[NodeId, ...], ...] = ()
    ) -> tuple[StreamImage, bool]:
        """The stream, and whether it is new: the same again is a success.

        ``assignments``: who keeps each partition, where that is not left to the controller.
        """

    async def alter_stream(
        self,
        name: str,
        changes: tuple[SettingChange, ...],
        assignments: tuple[tuple[NodeId, ...], ...] = (),
        seen: StreamConfig | None = None,
    ) -> StreamImage:
        """``assignments``: who keeps each new partition, where that is not left to the controller.
        ``seen``: upon which it was judged that the caller may.

        Raises StreamNotFound, InvalidStreamConfig, InvalidSubject."""

    async def delete_stream(self, name: str, stream_id: UUID | None = None) -> None:
        """``stream_id``: only if it has this id. Raises StreamNotFound, UnknownTopicId."""

    async def request(self, command: Command) -> Granted:
        """Carried out by the controller, wherever that is; this node knows of it afterwards."""

    async def take(self, command: Command, *, forwarded: bool) -> Granted:
        """Carried out here or, unless another node has forwarded it already, by the controller."""

    async def raft_request(self, request: Request) -> Answer:
        """Another member of the quorum asks; may wait. Raises NoController."""

    async def read_snapshot(
        self, snapshot: SnapshotId, position: int, max_bytes: int
    ) -> tuple[bytes, int]:
        """A piece of it, and how long it is in all. Raises OffsetOutOfRange where it is gone."""


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    """This node, its partitions and the cluster's metadata, as one requester may see them."""

    node_id: NodeId
    address: Callable[[], tuple[str, int]]
    """Host and port at which clients reach this node."""
    partitions: Partitions
    metadata: Metadata
    access: Permissions | None = None
    """What the requester may do; None: everything. Where there is one, ``partitions`` and
    ``metadata`` are without what the requester may not know of: see ``kafka.auth.visibility``."""
