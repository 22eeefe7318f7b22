"""OffsetCommit (8), versions 2 to 9: how far a group has come, partition by partition.

Answered when it is committed as any acknowledged record is. Without a generation (-1) it is for
who assigns partitions itself, and holds while the group has no members.

    v2-4  how long it is to be kept
    v6    the leader epoch of what was read last (KIP-320)
    v7    static members (KIP-345)
"""

from typing import Any

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.groups.requests import CommitRequest, GroupCaller, OffsetToCommit, PartitionId
from streamlog.kafka.auth.resource_checks import forbidden_topics, group_refusal
from streamlog.kafka.context import Context
from streamlog.kafka.group_reply import result_of
from streamlog.kafka.requester import Requester
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.wire.control import Message

UNKNOWN = ErrorCode.unknown_topic_or_partition


async def handle(request: Message, _version: int, context: Context, asker: Requester) -> Message:
    refusal = group_refusal(Operation.READ, request["group_id"], context)
    if refusal is not ErrorCode.none:
        return _failed(request, refusal)
    forbidden = forbidden_topics((it["name"] for it in request["topics"]), context)
    wanted = _commit_request(request, context.metadata.image, forbidden)
    result: Any = {}
    if wanted.offsets:
        reply = context.groups.call(
            wanted.group,
            lambda coordinator, token, now: coordinator.commit(wanted, token, now),
            may_be_empty=True,
        )
        result = await result_of(reply, asker.poll, context.groups.settings.commit_timeout_ms)
    if isinstance(result, ErrorCode):
        result = dict.fromkeys(wanted.offsets, result)
    return {
        "topics": [
            {"name": topic["name"], "partitions": list(_codes(topic, result, forbidden))}
            for topic in request["topics"]
        ]
    }


def _failed(request: Message, error: ErrorCode) -> Message:
    return {
        "topics": [
            {
                "name": topic["name"],
                "partitions": [
                    {"partition_index": it["partition_index"], "error_code": error}
                    for it in topic["partitions"]
                ],
            }
            for topic in request["topics"]
        ]
    }


def _commit_request(request: Message, image: MetadataImage, forbidden: set[str]) -> CommitRequest:
    """Of the partitions that there are, and that the caller may read."""
    offsets: dict[PartitionId, OffsetToCommit] = {}
    for topic in request["topics"]:
        name = topic["name"]
        stream = None if name in forbidden else image.streams.get(name)
        for it in topic["partitions"]:
            index = it["partition_index"]
            if stream is not None and 0 <= index < len(stream.partitions):
                offsets[topic["name"], index] = OffsetToCommit(
                    it["committed_offset"],
                    it.get("committed_leader_epoch", -1),
                    it["committed_metadata"] or "",
                    stream.stream_id,
                )
    caller = GroupCaller(
        request["member_id"],
        request.get("group_instance_id"),
        request["generation_id_or_member_epoch"],
    )
    return CommitRequest(request["group_id"], caller, offsets, request.get("retention_time", -1))


def _codes(
    topic: Message, result: dict[PartitionId, ErrorCode], forbidden: set[str]
) -> list[dict[str, Any]]:
    unknown = ErrorCode.topic_authorization_failed if topic["name"] in forbidden else UNKNOWN
    return [
        {
            "partition_index": it["partition_index"],
            "error_code": result.get((topic["name"], it["partition_index"]), unknown),
        }
        for it in topic["partitions"]
    ]
