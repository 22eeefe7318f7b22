"""What the server needs of the rest of the node, as small protocols."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from streamlog.config import KafkaSection
from streamlog.metadata.image import Image, StreamImage
from streamlog.metadata.stream import StreamConfig
from streamlog.metrics import NodeMetrics
from streamlog.model import EpochEnd, NodeId, TopicPartition


class Slice(Protocol):
    """A range of a segment file that stays open until ``close``."""

    @property
    def position(self) -> int: ...
    def __len__(self) -> int: ...
    def fileno(self) -> int: ...
    def read(self) -> bytes: ...
    def close(self) -> None: ...


class LocalPartition(Protocol):
    """A partition of which this node has the log."""

    @property
    def is_leader(self) -> bool: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...

    async def read(self, offset: int, max_bytes: int) -> Slice:
        """Whole batches below the high watermark, first the one with ``offset``, however large."""

    def add_watcher(self, watcher: Callable[[], None]) -> None:
        """``watcher`` is called when the high watermark, leadership or existence changes."""

    def remove_watcher(self, watcher: Callable[[], None]) -> None: ...

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        """The first offset of that time or later, with its time."""

    async def latest_timestamp(self) -> tuple[int, int] | None:
        """The offset of the latest time, with that time."""

    def epoch_end(self, epoch: int) -> EpochEnd: ...


class Partitions(Protocol):
    """The partitions of this node."""

    def partition(self, tp: TopicPartition) -> LocalPartition:
        """Raises PartitionNotFound."""


class Metadata(Protocol):
    """The cluster's metadata, and the ways to change them."""

    @property
    def image(self) -> Image: ...

    async def create_stream(self, config: StreamConfig) -> tuple[StreamImage, bool]:
        """The stream, and whether it is new: the same again is a success."""

    async def delete_stream(self, name: str) -> None: ...


@dataclass(frozen=True)
class Context:
    """What a handler may use."""

    node_id: NodeId
    settings: KafkaSection
    partitions: Partitions
    metadata: Metadata
    metrics: NodeMetrics
