"""OffsetDelete (47), version 0: a group forgets how far it has come in partitions (KIP-496).

Not in those of topics that its members subscribe to.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.groups.requests import PartitionId
from streamlog.kafka.auth.resource_checks import forbidden_topics, group_refusal
from streamlog.kafka.context import Context
from streamlog.kafka.group_reply import result_of
from streamlog.kafka.requester import Requester
from streamlog.wire.control import Message


async def handle(request: Message, _version: int, context: Context, asker: Requester) -> Message:
    group = request["group_id"]
    refusal = group_refusal(Operation.DELETE, group, context)
    if refusal is not ErrorCode.none:
        return {"error_code": refusal, "topics": []}
    places: list[PartitionId] = [
        (topic["name"], it["partition_index"])
        for topic in request["topics"]
        for it in topic["partitions"]
    ]
    forbidden = forbidden_topics((name for name, _ in places), context)
    known = [place for place in places if place[0] not in forbidden and _is_there(place, context)]
    reply = context.groups.call(
        group,
        lambda coordinator, token, now: coordinator.delete_offsets(group, known, token, now),
    )
    result = await result_of(reply, asker.poll, context.groups.settings.commit_timeout_ms)
    if isinstance(result, ErrorCode):
        return {"error_code": result, "topics": []}
    return {
        "error_code": ErrorCode.none,
        "topics": [_topic(topic, result, forbidden) for topic in request["topics"]],
    }


def _is_there(place: PartitionId, context: Context) -> bool:
    stream = context.metadata.image.streams.get(place[0])
    return stream is not None and 0 <= place[1] < len(stream.partitions)


def _topic(
    topic: Message, result: dict[PartitionId, ErrorCode], forbidden: set[str]
) -> dict[str, Any]:
    unknown = ErrorCode.unknown_topic_or_partition
    if topic["name"] in forbidden:
        unknown = ErrorCode.topic_authorization_failed
    return {
        "name": topic["name"],
        "partitions": [
            {
                "partition_index": it["partition_index"],
                "error_code": result.get((topic["name"], it["partition_index"]), unknown),
            }
            for it in topic["partitions"]
        ],
    }
