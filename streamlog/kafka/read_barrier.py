"""The image as the controller knows it, for requests that are decided, or described, by it."""

import asyncio

from streamlog.errors import NotLeader
from streamlog.kafka.auth.resource_checks import led_partition
from streamlog.kafka.context import Context
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.read_barrier import catch_up
from streamlog.model import NO_EPOCH, TopicPartition
from streamlog.partition.partition import Partition


async def newest_image(context: Context) -> MetadataImage:
    """All that was decided before this was called; what another node was told is found here."""
    await catch_up(context.metadata)
    return context.metadata.image


class PartitionLookup:
    """Finds the partitions that one request names and that this node leads.

    A partition is unknown only if the controller does not know it. This node's metadata may be late:
    it has just started, or another node told the client of a new stream first. A client takes
    "unknown topic or partition" for final where librdkafka does so for ListOffsets: its consumer
    never asks for the partition again. "Not the leader" makes it refresh its metadata and ask again.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = asyncio.Lock()
        self._is_newest: bool | None = None
        """None: the controller has not been asked; it is asked once a request."""

    async def partition(self, tp: TopicPartition, leader_epoch: int = NO_EPOCH) -> Partition:
        """The partition, if this node leads it, in the epoch that the caller knows (NO_EPOCH: any).

        Raises PartitionNotFound, NotLeader, FencedLeaderEpoch, UnknownLeaderEpoch.
        """
        await self.look_up(tp)
        return led_partition(tp, leader_epoch, self._context)

    async def look_up(self, tp: TopicPartition) -> None:
        """The image has the partition if it exists.

        Raises NotLeader where the image does not have it, and no controller says that it is all.
        """
        if self._has(tp):
            return
        async with self._lock:
            if self._is_newest is None:
                self._is_newest = await catch_up(self._context.metadata)
        if not self._is_newest and not self._has(tp):
            raise NotLeader(f"this node cannot say just now whether there is a partition {tp}")

    def _has(self, tp: TopicPartition) -> bool:
        stream = self._context.metadata.image.streams.get(tp.stream)
        return stream is not None and 0 <= tp.partition < len(stream.partitions)
