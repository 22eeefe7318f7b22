"""DescribeTopicPartitions (75), version 0: topics by name, page by page (KIP-966).

No topics named means all of them. A page ends after the number of partitions that was asked for;
the cursor in the answer says where the next one begins. Eligible leaders outside the ISR are not
kept, so there are none; the field may be null, too, but Java's client fails then.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from streamlog.errors import InvalidStreamName, StreamlogError, StreamNotFound
from streamlog.fairness import cooperatively
from streamlog.kafka.context import Context
from streamlog.kafka.refusal import RequestRefused, told
from streamlog.kafka.topology import OPERATIONS_UNKNOWN, live_nodes, shown_partition
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.config import check_stream_name, is_internal
from streamlog.wire.control import Message

PARTITIONS_MAX: Final = 2_000
"""In one answer, however many are asked for."""


async def handle(request: Message, _version: int, context: Context) -> Message:
    image, cursor = context.metadata.image, request["cursor"]
    names = sorted({topic["name"] for topic in request["topics"]} or image.streams)
    limit = min(request["response_partition_limit"], PARTITIONS_MAX)
    fault = _fault(limit, cursor)
    if fault is not None:
        return {"topics": [_error(name, fault) async for name in cooperatively(names)]}
    if cursor is not None:
        names = [name for name in names if name >= cursor["topic_name"]]
    topics: list[dict[str, Any]] = []
    async for name in cooperatively(names):
        if limit == 0:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
        first = 0
        if cursor is not None and name == cursor["topic_name"]:
            first = cursor["partition_index"]
        topic = _topic(name, first, limit, image)
        topics.append(topic)
        limit -= len(topic["partitions"])
        end = first + len(topic["partitions"])
        if name in image.streams and end < len(image.streams[name].partitions):
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": end}}
    return {"topics": topics, "next_cursor": None}


_OUT_OF_SYNC: Final = {"eligible_leader_replicas": (), "last_known_elr": ()}
"""Replicas outside the ISR that have all that is committed: see above."""


def _fault(limit: int, cursor: Message | None) -> RequestRefused | None:
    if limit < 1:
        return RequestRefused(ErrorCode.invalid_request, "a page has at least one partition")
    if cursor is not None and cursor["partition_index"] < 0:
        return RequestRefused(
            ErrorCode.invalid_request, "a cursor does not point below partition 0"
        )
    return None


def _topic(name: str, first: int, limit: int, image: MetadataImage) -> dict[str, Any]:
    stream = image.streams.get(name)
    if stream is None:
        return _error(name, _why_unknown(name))
    live = live_nodes(image)
    return {
        "error_code": ErrorCode.none,
        "name": name,
        "topic_id": stream.stream_id,
        "is_internal": is_internal(name),
        "partitions": [
            {**shown_partition(first + i, partition, live), **_OUT_OF_SYNC}
            for i, partition in enumerate(stream.partitions[first : first + limit])
        ],
        "topic_authorized_operations": OPERATIONS_UNKNOWN,
    }


def _why_unknown(name: str) -> StreamlogError:
    try:
        check_stream_name(name)
    except InvalidStreamName as error:
        return error
    return StreamNotFound(f"there is no stream {name!r}")


def _error(name: str, error: StreamlogError) -> dict[str, Any]:
    return {"error_code": told(error)["error_code"], "name": name, "partitions": []}
