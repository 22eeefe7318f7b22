"""``__activity`` on one node: it is made, kept, and told for as long as this node leads it."""

import asyncio
import logging
from functools import partial
from typing import Protocol

from streamlog.activity.activity_stream import config_of
from streamlog.activity.writer import ActivityWriter, History
from streamlog.config import ActivitySection
from streamlog.errors import PartitionNotFound, StreamlogError
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.config import ACTIVITY_STREAM
from streamlog.metadata.stream.internal_stream import InternalStream, StreamMetadata
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.led_partition import LedPartitions

logger = logging.getLogger(__name__)

ACTIVITY = TopicPartition(ACTIVITY_STREAM, 0)


class ActivityMetadata(StreamMetadata, Protocol):
    """What is needed of ``metadata.service.MetadataService``."""

    @property
    def history(self) -> History: ...


class ActivityService:
    """``run`` as a task, ``apply`` at each change of the image, after the partitions have; ``look``
    when a partition follows later.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        settings: ActivitySection,
        metadata: ActivityMetadata,
        partitions: LedPartitions,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._partitions = partitions
        self._stream = InternalStream(
            metadata, node_id, ACTIVITY_STREAM, partial(config_of, settings), unasked=True
        )
        self._epoch: int | None = None
        """Of the leadership of this node; None where it has none."""
        self._changed = asyncio.Event()
        """The leadership has."""
        self._publisher: ActivityWriter | None = None
        self._stopping = False

    @property
    def told_offset(self) -> int | None:
        """All metadata below is told; None on a node that does not tell it."""
        return None if self._publisher is None else self._publisher.told_offset

    def look(self, tp: TopicPartition) -> None:
        """It may be led here by now."""
        if tp == ACTIVITY and self._publisher is None:
            self._changed.set()

    def apply(self, old: MetadataImage, new: MetadataImage) -> None:
        """What is not open yet comes with ``look``."""
        self._lead(new)
        self._stream.look()
        if self._publisher is not None:
            self._publisher.look()

    async def stop(self) -> None:
        """Nothing is told any more; whoever leads next goes on from there."""
        self._stopping = True
        self._epoch = None
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._stream.keep())
            telling: asyncio.Task[None] | None = None
            while True:
                await self._changed.wait()
                self._changed.clear()
                if telling is not None:
                    telling.cancel()
                publisher = self._publisher = self._begun(self._epoch)
                telling = None if publisher is None else group.create_task(publisher.run())

    def _lead(self, image: MetadataImage) -> None:
        stream = image.streams.get(ACTIVITY_STREAM)
        partitions = stream.partitions if stream is not None and not self._stopping else ()
        epochs = [it.leader_epoch for it in partitions if it.leader == self._node_id]
        epoch = epochs[0] if epochs else None
        if epoch != self._epoch:
            self._epoch = epoch
            self._changed.set()

    def _begun(self, epoch: int | None) -> ActivityWriter | None:
        if epoch is None:
            return None
        try:
            partition = self._partitions.partition(ACTIVITY)
        except PartitionNotFound:  # it is being opened
            return None
        except StreamlogError as error:
            extra = {"stream": ACTIVITY.stream, "epoch": epoch, "error": str(error)}
            logger.error("activity cannot be told here", extra=extra)
            return None
        if not partition.is_leader or partition.leader_epoch != epoch:
            return None  # its log is being cut
        return ActivityWriter(partition, epoch, self._metadata.history)
