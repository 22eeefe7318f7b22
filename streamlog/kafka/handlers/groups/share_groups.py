"""ShareGroupHeartbeat, ShareGroupDescribe, and where share groups go on (KIP-932)."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from streamlog.acl.rules import Operation
from streamlog.control.groups import (
    ForgottenOffset,
    GroupDescription,
    GroupPartition,
    StartOffset,
    StreamPartitions,
)
from streamlog.errors import StreamlogError
from streamlog.groups.consumer_group import JOINING_EPOCH
from streamlog.groups.requests import DescribedConsumer, HeartbeatAnswer, HeartbeatRequest
from streamlog.groups.shares.share_group import SHARE_TYPE
from streamlog.kafka.auth.resource_checks import group_refusal
from streamlog.kafka.context import Context, Requester
from streamlog.kafka.handlers.coordinators import result_of
from streamlog.kafka.handlers.groups.consumer_groups import (
    answered_heartbeat,
    assignment,
    described_groups,
    heartbeat_refusal,
    know_topics,
)
from streamlog.kafka.refusal import group_code_of
from streamlog.metadata.image.feature_level import SHARE_GROUPS_LEVEL
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import error_named

ANSWER_S: Final = 4.0
"""For the coordinators of all groups of a request together: a leader is elected, or taken for gone, by then."""
GROUPS_AT_ONCE: Final = 50
"""Of one request; each may ask another node."""
NO_OFFSET: Final = -1
UNKNOWN_PARTITION: Final = ErrorCode.unknown_topic_or_partition


async def share_group_heartbeat(
    request: Message, _version: int, context: Context, asker: Requester
) -> Message:
    """ShareGroupHeartbeat (76), version 1: a member of a share group says which topics it wants, and hears
    which partitions it is to read.

    Needs READ on the group, and DESCRIBE on the topics that it names. It is answered when what it changes is in
    the log. Needs feature level 3 of the cluster.
    """
    group, names = request["group_id"], request["subscribed_topic_names"]
    refusal = heartbeat_refusal(request, context, "share groups need", SHARE_GROUPS_LEVEL)
    if refusal is not None:
        return answered_heartbeat(refusal)
    wanted = HeartbeatRequest(
        group,
        request["member_id"],
        request["member_epoch"],
        asker.client_id,
        asker.host,
        rack_id=request["rack_id"],
        topics=None if names is None else tuple(names),
    )
    if wanted.epoch == JOINING_EPOCH:
        await know_topics(wanted.topics or (), context)
    reply = context.groups.call(
        group, lambda coordinator, token, now: coordinator.share_heartbeat(wanted, token, now)
    )
    result = await result_of(reply, asker.poll, context.groups.settings.commit_timeout_ms)
    return answered_heartbeat(HeartbeatAnswer(result) if isinstance(result, ErrorCode) else result)


async def share_group_describe(request: Message, _version: int, context: Context) -> Message:
    """ShareGroupDescribe (77), version 1: share groups' epochs, members and assignments.

    Needs DESCRIBE on each group, and on the topics that its members subscribe to.
    """
    return await described_groups(request, context, SHARE_TYPE, lambda it: _member(it, context))


def _member(member: DescribedConsumer, context: Context) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "rack_id": member.metadata.rack_id,
        "member_epoch": member.current.epoch,
        "client_id": member.metadata.client_id,
        "client_host": member.metadata.client_host,
        "subscribed_topic_names": member.metadata.topics,
        "assignment": assignment(member.current.assigned, context),
    }


# Where share groups go on


async def describe_share_group_offsets(request: Message, version: int, context: Context) -> Message:
    """DescribeShareGroupOffsets (90), versions 0 and 1: from which offset on a share group has records to read.

    Needs DESCRIBE on the group; of topics that the caller may not describe nothing is told. Any node answers.

        v1  how many records these are

    A group whose coordinator is away is waited for, and all of the request for ``ANSWER_S`` at most.
    """
    asked = list({it["group_id"]: it["topics"] for it in request["groups"]}.items())
    ends_s = asyncio.get_running_loop().time() + ANSWER_S
    described: list[dict[str, Any]] = []
    for first in range(0, len(asked), GROUPS_AT_ONCE):
        described += await asyncio.gather(
            *(
                _offsets_until(ends_s, group, topics, context)
                for group, topics in asked[first : first + GROUPS_AT_ONCE]
            )
        )
        await asyncio.sleep(0)
    return {"groups": described}


async def _offsets_until(
    ends_s: float, name: str, topics: Iterable[Message] | None, context: Context
) -> dict[str, Any]:
    """``ends_s``: loop time. What needs no wait is answered after that, too."""
    try:
        async with asyncio.timeout_at(ends_s):
            return await _offsets_of(name, topics, context)
    except TimeoutError:
        said = f"The coordinator of group {name} does not answer."
        code = ErrorCode.coordinator_not_available
        return {"group_id": name, "topics": [], "error_code": code, "error_message": said}


async def _offsets_of(
    name: str, topics: Iterable[Message] | None, context: Context
) -> dict[str, Any]:
    answer: dict[str, Any] = {"group_id": name, "topics": []}
    refusal = group_refusal(Operation.DESCRIBE, name, context)
    if refusal is not ErrorCode.none:
        return {**answer, "error_code": refusal, "error_message": None}
    try:
        group = await context.control.groups.describe(name)
    except StreamlogError as error:
        return {**answer, "error_code": group_code_of(error), "error_message": str(error)}
    if group.group_type != SHARE_TYPE:
        said = f"Group {name} is not a share group."
        return {**answer, "error_code": ErrorCode.group_id_not_found, "error_message": said}
    answer["topics"] = _told_offsets(group, topics, context)
    return {**answer, "error_code": ErrorCode.none, "error_message": None}


def _told_offsets(
    group: GroupDescription, topics: Iterable[Message] | None, context: Context
) -> list[dict[str, Any]]:
    known = {(it.stream, it.partition): it for it in group.partitions}
    asked: dict[str, Iterable[int]] = {}
    if topics is None:
        for (name, number), it in known.items():
            if it.committed_offset is not None:
                asked[name] = (*asked.get(name, ()), number)
    else:
        asked = {it["topic_name"]: it["partitions"] for it in topics}
    streams = context.metadata.image.streams
    found: list[dict[str, Any]] = []
    for name, numbers in asked.items():
        stream = streams.get(name)
        count = 0 if stream is None else len(stream.partitions)
        partitions = [
            {
                "partition_index": number,
                **_told_start(known.get((name, number))),
                "error_code": ErrorCode.none if 0 <= number < count else UNKNOWN_PARTITION,
                "error_message": None,
            }
            for number in dict.fromkeys(numbers)
        ]
        topic_id = UUID(int=0) if stream is None else stream.stream_id
        found.append({"topic_name": name, "topic_id": topic_id, "partitions": partitions})
    return found


def _told_start(partition: GroupPartition | None) -> dict[str, int]:
    if partition is None or partition.committed_offset is None:
        return {"start_offset": NO_OFFSET, "leader_epoch": 0, "lag": NO_OFFSET}
    return {
        "start_offset": partition.committed_offset,
        "leader_epoch": partition.leader_epoch or 0,
        "lag": NO_OFFSET if partition.lag is None else partition.lag,
    }


async def alter_share_group_offsets(request: Message, _version: int, context: Context) -> Message:
    """AlterShareGroupOffsets (91), version 0: where a share group without members goes on. It is made if there is
    no group by that name.

    Needs READ on the group, and on the topics. Any node has it done.
    """
    group = request["group_id"]
    wanted = tuple(
        StartOffset(topic["topic_name"], it["partition_index"], it["start_offset"])
        for topic in request["topics"]
        for it in topic["partitions"]
    )
    try:
        outcomes = await context.control.groups.set_offsets(group, wanted)
    except StreamlogError as error:
        return {"error_code": group_code_of(error), "error_message": str(error), "responses": []}
    codes = {(it.stream, it.partition): (_code(it), it.message or None) for it in outcomes}
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "responses": [
            {
                "topic_name": topic["topic_name"],
                "topic_id": _id_of(topic["topic_name"], context),
                "partitions": [
                    {
                        "partition_index": it["partition_index"],
                        "error_code": codes[topic["topic_name"], it["partition_index"]][0],
                        "error_message": codes[topic["topic_name"], it["partition_index"]][1],
                    }
                    for it in topic["partitions"]
                ],
            }
            for topic in request["topics"]
        ],
    }


async def delete_share_group_offsets(request: Message, _version: int, context: Context) -> Message:
    """DeleteShareGroupOffsets (92), version 0: a share group without members begins again in topics.

    Needs DELETE on the group, and READ on the topics. Any node has it done.
    """
    names = list(dict.fromkeys(it["topic_name"] for it in request["topics"]))
    try:
        outcomes = await context.control.groups.delete_offsets(
            request["group_id"], tuple(StreamPartitions(it) for it in names), SHARE_TYPE
        )
    except StreamlogError as error:
        return {"error_code": group_code_of(error), "error_message": str(error), "responses": []}
    failed = {it.stream: it for it in outcomes if it.error is not None}
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "responses": [
            {
                "topic_name": name,
                "topic_id": _id_of(name, context),
                "error_code": _code(failed[name]) if name in failed else ErrorCode.none,
                "error_message": failed[name].message if name in failed else None,
            }
            for name in names
        ],
    }


def _code(outcome: ForgottenOffset) -> ErrorCode:
    if outcome.error is None:
        return ErrorCode.none
    return group_code_of(error_named(outcome.error, outcome.message))


def _id_of(name: str, context: Context) -> UUID:
    stream = context.metadata.image.streams.get(name)
    return UUID(int=0) if stream is None else stream.stream_id
