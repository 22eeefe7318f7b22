"""OffsetFetch (9), versions 1 to 9: how far groups have come.

Before it answers, the coordinator makes sure that it still is the one: an offset that was committed
at another node in the meantime must not seem to go back. That costs the time of a commit.

    v2  null topics stand for all; an error of the whole request
    v5  the leader epoch of what was read last (KIP-320)
    v7  nothing that is about to be another offset (KIP-447)
    v8  several groups (KIP-709), each of them once: a name takes a few bytes, and the answer to it
        all that the group has committed
    v9  a member of the new protocol, which there are none of
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.groups.records import NO_TOPIC_ID
from streamlog.groups.reply import GroupReply
from streamlog.groups.requests import FoundOffset, PartitionId
from streamlog.kafka.auth.resource_checks import group_refusal
from streamlog.kafka.context import Context
from streamlog.kafka.group_reply import result_of
from streamlog.kafka.requester import Requester
from streamlog.wire.control import Message

_WHOLE_ERROR_FROM: Final = 2
_SEVERAL_FROM: Final = 8
NO_OFFSET: Final = -1


async def handle(request: Message, version: int, context: Context, asker: Requester) -> Message:
    several = version >= _SEVERAL_FROM
    asked = request["groups"] if several else [request]
    stable = request.get("require_stable", False)
    counts = Counter(it["group_id"] for it in asked)
    confirming = [
        ErrorCode.invalid_request if counts[group] > 1 else _confirm(group, context)
        for group in (it["group_id"] for it in asked)
    ]
    answers = []
    for it, confirmed in zip(asked, confirming, strict=True):
        timeout_ms = context.groups.settings.commit_timeout_ms
        error = await result_of(confirmed, asker.poll, timeout_ms)
        answers.append(_group(it, error, version, context, stable))
    return {"groups": answers} if several else answers[0]


def _confirm(group: str, context: Context) -> GroupReply | ErrorCode:
    refusal = group_refusal(Operation.DESCRIBE, group, context)
    return context.groups.confirm(group) if refusal is ErrorCode.none else refusal


def _group(
    asked: Message, error: ErrorCode, version: int, context: Context, stable: bool
) -> dict[str, Any]:
    group, topics = asked["group_id"], asked["topics"]
    coordinator = context.groups.coordinator(group, may_be_empty=True)
    if error is ErrorCode.none and isinstance(coordinator, ErrorCode):
        error = coordinator
    if error is not ErrorCode.none or isinstance(coordinator, ErrorCode):
        told = _failed(topics or (), error) if version < _WHOLE_ERROR_FROM else []
        return {"group_id": group, "error_code": error, "topics": told}
    found = coordinator.fetch(group, _places(topics), stable=stable)
    found = _seen(_of_today(found, topics, context), topics, context)
    return {"group_id": group, "error_code": ErrorCode.none, "topics": _topics(found)}


def _of_today(
    found: dict[PartitionId, FoundOffset], topics: Iterable[Message] | None, context: Context
) -> dict[PartitionId, FoundOffset]:
    """What was committed of a deleted stream is nothing to the one that has its name now.

    The coordinator removes it, which may fail. This node's image is no older than the one by which
    it was committed: whoever coordinated then had not heard of this node's leadership.
    """
    streams = context.metadata.image.streams
    others = {
        place
        for place, it in found.items()
        if it.committed is not None
        and it.committed.topic_id != NO_TOPIC_ID
        and (stream := streams.get(place[0])) is not None
        and stream.stream_id != it.committed.topic_id
    }
    if not others:
        return found
    if topics is None:
        return {place: it for place, it in found.items() if place not in others}
    nothing = FoundOffset(None, ErrorCode.none)
    return {place: nothing if place in others else it for place, it in found.items()}


def _seen(
    found: dict[PartitionId, FoundOffset], topics: Iterable[Message] | None, context: Context
) -> dict[PartitionId, FoundOffset]:
    """Nothing was committed of a topic that the caller may not know of; where all are asked for, it
    is left out.
    """
    access = context.access
    if access is None:
        return found
    if topics is None:
        return {place: it for place, it in found.items() if access.sees(place[0])}
    nothing = FoundOffset(None, ErrorCode.none)
    return {place: it if access.finds(place[0]) else nothing for place, it in found.items()}


def _places(topics: Iterable[Message] | None) -> list[PartitionId] | None:
    if topics is None:
        return None
    return [(topic["name"], index) for topic in topics for index in topic["partition_indexes"]]


def _topics(found: dict[PartitionId, FoundOffset]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), offset in found.items():
        topics.setdefault(topic, []).append(_partition(index, offset))
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]


def _partition(index: int, found: FoundOffset) -> dict[str, Any]:
    committed = found.committed
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET if committed is None else committed.offset,
        "committed_leader_epoch": -1 if committed is None else committed.leader_epoch,
        "metadata": "" if committed is None else committed.metadata,
        "error_code": found.error,
    }


def _failed(topics: Iterable[Message], error: ErrorCode) -> list[dict[str, Any]]:
    failed = FoundOffset(None, error)
    return [
        {
            "name": topic["name"],
            "partitions": [_partition(index, failed) for index in topic["partition_indexes"]],
        }
        for topic in topics
    ]
