"""OffsetForLeaderEpoch (KIP-101, KIP-320): where a leader epoch ends in a partition's log."""

from typing import Any

from streamlog.acl.rules import Operation
from streamlog.errors import (
    StreamlogError,
    UnknownLeaderEpoch,
)
from streamlog.fairness import cooperatively
from streamlog.kafka.auth.resource_checks import check_topic
from streamlog.kafka.context import Context
from streamlog.kafka.read_barrier import PartitionLookup
from streamlog.model import TopicPartition
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import code_of


async def offset_for_leader_epoch(request: Message, _version: int, context: Context) -> Message:
    """OffsetForLeaderEpoch (23), versions 2 to 4: where an epoch ends in the leader's log.

    A client that has read batches of that epoch past this end has read what was cut off since.
    """
    lookup = PartitionLookup(context)
    return {
        "topics": [
            {
                "topic": topic["topic"],
                "partitions": [
                    await _epoch_end(topic["topic"], asked, lookup, context)
                    async for asked in cooperatively(topic["partitions"])
                ],
            }
            async for topic in cooperatively(request["topics"])
        ]
    }


async def _epoch_end(
    name: str, asked: Message, lookup: PartitionLookup, context: Context
) -> dict[str, Any]:
    index = asked["partition"]
    try:
        partition = await lookup.partition(
            TopicPartition(name, index), asked["current_leader_epoch"]
        )
        check_topic(Operation.DESCRIBE, name, context)
        if asked["leader_epoch"] > partition.leader_epoch and not context.metadata.lease.held:
            raise UnknownLeaderEpoch(f"{partition.tp} is in epoch {partition.leader_epoch} here")
        end = partition.epoch_end(asked["leader_epoch"])
    except StreamlogError as error:
        return {"partition": index, "error_code": code_of(error)}
    return {
        "partition": index,
        "error_code": ErrorCode.none,
        "leader_epoch": end.epoch,
        "end_offset": end.end_offset,
    }
