from uuid import UUID

from streamlog.errors import (
    FencedLeaderEpoch,
    NotLeader,
    PartitionNotFound,
    UnknownLeaderEpoch,
)
from streamlog.metadata.image import Image
from streamlog.model import NO_EPOCH, TopicPartition
from streamlog.server.context import Context, LocalPartition


def led_partition(tp: TopicPartition, leader_epoch: int, context: Context) -> LocalPartition:
    """The partition, if this node leads it, in the epoch that the caller knows (NO_EPOCH: any)."""
    try:
        partition = context.partitions.partition(tp)
    except PartitionNotFound:
        stream = context.metadata.image.streams.get(tp.stream)
        if stream is not None and 0 <= tp.partition < len(stream.partitions):
            raise NotLeader(f"{tp} is on another node") from None
        raise
    if not partition.is_leader:
        raise NotLeader(f"{tp} is led by another node")
    if leader_epoch != NO_EPOCH and leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpoch(f"{tp} is in epoch {partition.leader_epoch}, not {leader_epoch}")
    if leader_epoch != NO_EPOCH and leader_epoch > partition.leader_epoch:
        raise UnknownLeaderEpoch(f"{tp} is in epoch {partition.leader_epoch}, not {leader_epoch}")
    return partition


def stream_named(topic_id: UUID | None, image: Image) -> str | None:
    """The name of the stream with this id; few clients ask so, so nobody keeps a table."""
    return next((name for name, it in image.streams.items() if it.stream_id == topic_id), None)
