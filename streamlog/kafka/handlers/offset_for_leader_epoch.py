"""OffsetForLeaderEpoch (23), versions 2 to 4: where an epoch ends in the leader's log.

A client that has read batches of that epoch past this end has read what was cut off since.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.errors import StreamlogError
from streamlog.fairness import cooperatively
from streamlog.kafka.auth.resource_checks import check_topic, led_partition
from streamlog.kafka.context import Context
from streamlog.model import TopicPartition
from streamlog.wire.control import Message
from streamlog.wire.errors import code_of


async def handle(request: Message, _version: int, context: Context) -> Message:
    return {
        "topics": [
            {
                "topic": topic["topic"],
                "partitions": [
                    _partition(topic["topic"], asked, context)
                    async for asked in cooperatively(topic["partitions"])
                ],
            }
            async for topic in cooperatively(request["topics"])
        ]
    }


def _partition(name: str, asked: Message, context: Context) -> dict[str, Any]:
    index = asked["partition"]
    try:
        partition = led_partition(
            TopicPartition(name, index), asked["current_leader_epoch"], context
        )
        check_topic(Operation.DESCRIBE, name, context)
        end = partition.epoch_end(asked["leader_epoch"])
    except StreamlogError as error:
        return {"partition": index, "error_code": code_of(error)}
    return {
        "partition": index,
        "error_code": ErrorCode.none,
        "leader_epoch": end.epoch,
        "end_offset": end.end_offset,
    }
