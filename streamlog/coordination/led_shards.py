"""The coordinators of a node: its shards of one internal stream, and which node has a key's."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from streamlog.condition import Condition
from streamlog.coordination.effects import NONE
from streamlog.coordination.keys import is_key, partition_of
from streamlog.coordination.shard import Shard
from streamlog.errors import PartitionNotFound, StreamlogError
from streamlog.metadata.image.metadata_image import MetadataImage, NodeImage, StreamImage
from streamlog.metadata.nodes.lease import Lease
from streamlog.metadata.stream.internal_stream import InternalStream, StreamMetadata
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.partition.internal_partition import InternalPartition, InternalPartitions
from streamlog.wire.error_codes import ErrorCode

logger = logging.getLogger(__name__)


class CoordinatorMetadata(StreamMetadata, Protocol):
    """What is needed of ``metadata.service.MetadataService``."""

    @property
    def lease(self) -> Lease: ...


class FoundCoordinator(NamedTuple):
    """Which node coordinates a key; ``node`` None, and why, where that is not to be said."""

    node: NodeImage | None
    error: ErrorCode = NONE


class CoordinatorTroubles(NamedTuple):
    """What the log says of them."""

    not_coordinated: Condition
    """A partition cannot be opened."""
    no_stream: Condition
    """The internal stream could not be created."""


S = TypeVar("S", bound=Shard[Any])


class LedShards(ABC, Generic[S]):
    """``run`` as a task, ``apply`` at each change of the image, after the partitions have; ``look``
    when a partition follows later.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        metadata: CoordinatorMetadata,
        partitions: InternalPartitions,
        stream: InternalStream,
        no_key: ErrorCode,
        troubles: CoordinatorTroubles,
    ) -> None:
        """``no_key``: what is said of a key that is none."""
        self._node_id = node_id
        self._metadata = metadata
        self._partitions = partitions
        self._stream = stream
        self._no_key = no_key
        self._troubles = troubles
        self._shards: dict[int, S] = {}
        """Those led here, by the number of their partition."""
        self._begun: asyncio.Queue[S] = asyncio.Queue()
        """To be loaded; never more than partitions have begun to be led."""
        self._tasks: asyncio.Queue[Coroutine[Any, Any, None]] = asyncio.Queue()
        """To be carried out; never more than clients wait for."""
        self._stopping = False

    # For each kind of coordinator

    @abstractmethod
    def _new_shard(self, partition: InternalPartition, leader_epoch: int) -> S: ...

    @abstractmethod
    async def _load(self, shard: S) -> None:
        """Read its log, and have it begin."""

    def _closing(self, shard: S) -> None:
        """It is about to be closed."""

    def _moved(self) -> None:
        """Other partitions than before are led here."""

    # What the server asks

    async def find(self, key: str) -> FoundCoordinator:
        """The node that coordinates ``key``; makes the internal stream, if there is none."""
        if not is_key(key):
            return FoundCoordinator(None, self._no_key)
        if self._stream.stream is None:
            try:
                await self._stream.make()
            except StreamlogError as error:
                logger.warning(self._troubles.no_stream, extra={"error": str(error)})
        stream = self._stream.stream
        if stream is None or not stream.partitions:
            return FoundCoordinator(None, ErrorCode.coordinator_not_available)
        leader = stream.partitions[partition_of(key, len(stream.partitions))].leader
        node = None if leader == NO_LEADER else self._metadata.image.nodes.get(leader)
        if node is None or node.fenced:
            return FoundCoordinator(None, ErrorCode.coordinator_not_available)
        return FoundCoordinator(node)

    def shard(self, key: str, *, may_be_empty: bool = False) -> S | ErrorCode:
        """That of ``key``, if it is this node's to answer for; else what to say instead."""
        if not is_key(key) and not (may_be_empty and key == ""):
            return self._no_key
        stream = self._stream.stream
        if stream is None or not stream.partitions:
            return ErrorCode.not_coordinator  # FindCoordinator makes it
        shard = self._shards.get(partition_of(key, len(stream.partitions)))
        if shard is None:
            return ErrorCode.not_coordinator
        error = shard.why_not
        return shard if error is NONE else error

    def shards(self) -> Iterator[S]:
        """All that are led here, be they open yet or not."""
        yield from tuple(self._shards.values())

    def is_about_to_open(self, key: str, error: ErrorCode) -> bool:
        """This node is to coordinate it soon. ``error``: why it does not now."""
        if self._stopping or error is self._no_key:
            return False
        if error is ErrorCode.coordinator_load_in_progress:
            return True
        stream = self._stream.stream
        if stream is None or not stream.partitions:
            return True
        number = partition_of(key, len(stream.partitions))
        return stream.partitions[number].leader == self._node_id and number not in self._shards

    # Its life

    async def run(self) -> None:
        """Load what is led here, and see to the stream's replicas."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._stream.keep())
            group.create_task(self._start_tasks(group))
            while True:
                shard = await self._begun.get()
                group.create_task(self._load(shard))

    async def _start_tasks(self, group: asyncio.TaskGroup) -> None:
        while True:
            group.create_task(await self._tasks.get())

    def look(self, tp: TopicPartition) -> None:
        """It may be led here by now."""
        if tp.stream == self._stream.name:
            self._lead(self._stream.stream)
            self._moved()

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        """Coordinate as ``new`` says; what is not open yet comes with ``look``."""
        before, after = old.streams.get(self._stream.name), new.streams.get(self._stream.name)
        if before is not after:
            self._lead(after)
        self._stream.look()
        self._moved()

    async def stop(self) -> None:
        """Who waits is told to ask another node; nothing is coordinated here any more."""
        self._stopping = True
        for number in tuple(self._shards):
            self._close(number)
        self._moved()

    def _lead(self, stream: StreamImage | None) -> None:
        led = {} if stream is None else {
            number: partition.leader_epoch
            for number, partition in enumerate(stream.partitions)
            if partition.leader == self._node_id
        }  # fmt: skip
        for number, shard in tuple(self._shards.items()):
            if led.get(number) != shard.leader_epoch:
                self._close(number)
        for number in () if self._stopping else led.keys() - self._shards.keys():
            self._open(number, led[number])

    def _open(self, number: int, leader_epoch: int) -> None:
        tp = TopicPartition(self._stream.name, number)
        try:
            partition = self._partitions.partition(tp)
        except StreamlogError as error:
            level = logging.DEBUG if isinstance(error, PartitionNotFound) else logging.ERROR
            extra = {"stream": tp.stream, "partition": tp.partition, "error": str(error)}
            logger.log(level, self._troubles.not_coordinated, extra=extra)
            return
        if not partition.is_leader or partition.leader_epoch != leader_epoch:
            return  # its log is being cut
        shard = self._new_shard(partition, leader_epoch)
        self._shards[number] = shard
        self._begun.put_nowait(shard)

    def _close(self, number: int) -> None:
        shard = self._shards.pop(number)
        self._closing(shard)
        shard.close()
