"""ConsumerGroupHeartbeat, ConsumerGroupDescribe: consumer groups of the protocol of KIP-848."""

from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

from streamlog.acl.rules import Operation
from streamlog.errors import StreamlogError
from streamlog.fairness import cooperatively
from streamlog.groups.consumer_group import JOINING_EPOCH
from streamlog.groups.group import CONSUMER_TYPE
from streamlog.groups.records import Assigned, by_topic
from streamlog.groups.requests import (
    DescribedConsumer,
    DescribedConsumerGroup,
    HeartbeatAnswer,
    HeartbeatRequest,
)
from streamlog.kafka.auth.authorized_operations import group_operations
from streamlog.kafka.auth.resource_checks import check_topic, group_refusal
from streamlog.kafka.context import Context, Requester
from streamlog.kafka.handlers.coordinators import result_of
from streamlog.metadata.image.feature_level import CONSUMER_GROUPS_LEVEL
from streamlog.metadata.read_barrier import catch_up
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode

_OWN_ID_FROM: Final = 1
_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


async def consumer_group_heartbeat(
    request: Message, version: int, context: Context, asker: Requester
) -> Message:
    """ConsumerGroupHeartbeat (68), versions 0 and 1: a member says what it wants and has, and hears what it is to have.

    Needs READ on the group, and DESCRIBE on the topics that it names; an expression stands for no others. It
    is answered when what it changes is in the log. Needs feature level 3 of the cluster.

        v1  the member makes its own id (KIP-1082), and may subscribe by an expression of RE2
    """
    group, names = request["group_id"], request["subscribed_topic_names"]
    refusal = heartbeat_refusal(
        request, context, "the consumer group protocol needs", CONSUMER_GROUPS_LEVEL
    )
    if refusal is not None:
        return answered_heartbeat(refusal)
    owned = request["topic_partitions"]
    wanted = HeartbeatRequest(
        group,
        request["member_id"],
        request["member_epoch"],
        asker.client_id,
        asker.host,
        request["instance_id"],
        request["rack_id"],
        request["rebalance_timeout"],
        None if names is None else tuple(names),
        request.get("subscribed_topic_regex"),
        request["server_assignor"],
        None if owned is None else _owned(owned),
        version >= _OWN_ID_FROM,
        None if context.access is None else context.access.sees,
    )
    if wanted.epoch == JOINING_EPOCH:
        # What a client has just made may not have come here yet.
        await know_topics(wanted.topics or (), context)
    reply = context.groups.call(
        group, lambda coordinator, token, now: coordinator.consumer_heartbeat(wanted, token, now)
    )
    result = await result_of(reply, asker.poll, context.groups.settings.commit_timeout_ms)
    return answered_heartbeat(HeartbeatAnswer(result) if isinstance(result, ErrorCode) else result)


def may_describe(names: Iterable[str], context: Context) -> bool:
    for name in names:
        try:
            check_topic(Operation.DESCRIBE, name, context)
        except StreamlogError:
            return False
    return True


async def know_topics(names: Iterable[str], context: Context) -> None:
    if any(name not in context.metadata.image.streams for name in names):
        await catch_up(context.metadata)


def _owned(topics: Iterable[Message]) -> Assigned:
    return frozenset((it["topic_id"] or UUID(int=0), n) for it in topics for n in it["partitions"])


def heartbeat_refusal(
    request: Message, context: Context, needs: str, level: int
) -> HeartbeatAnswer | None:
    """Why no coordinator here hears this heartbeat; None: one does. ``needs``: what needs that feature level."""
    refusal = group_refusal(Operation.READ, request["group_id"], context)
    if refusal is not ErrorCode.none:
        return HeartbeatAnswer(refusal)
    coordinator = context.groups.coordinator(request["group_id"])
    if isinstance(coordinator, ErrorCode):  # a node that has just started knows no level yet
        return HeartbeatAnswer(coordinator)
    if context.metadata.image.level < level:
        said = (
            f"{needs} feature level {level}: once all nodes run this version,"
            " `streamlog cluster features upgrade`"
        )
        return HeartbeatAnswer(ErrorCode.unsupported_version, said)
    if context.access is not None and not may_describe(
        request["subscribed_topic_names"] or (), context
    ):
        return HeartbeatAnswer(ErrorCode.topic_authorization_failed)
    return None


def answered_heartbeat(answer: HeartbeatAnswer) -> Message:
    assigned = None
    if answer.assigned is not None:
        topics = by_topic(answer.assigned).items()
        assigned = {
            "topic_partitions": [{"topic_id": it, "partitions": them} for it, them in topics]
        }
    return {
        "error_code": answer.error,
        "error_message": answer.message,
        "member_id": answer.member_id,
        "member_epoch": answer.epoch,
        "heartbeat_interval": answer.interval_ms,
        "assignment": assigned,
    }


async def consumer_group_describe(request: Message, version: int, context: Context) -> Message:
    """ConsumerGroupDescribe (69), versions 0 and 1: groups' epochs, members and assignments.

    Needs DESCRIBE on each group, and on the topics that its members subscribe to. A group of the classic
    protocol is not found here: DescribeGroups has it, as ShareGroupDescribe has share groups.

        v1  which protocol each member speaks
    """
    return await described_groups(
        request, context, CONSUMER_TYPE, lambda it: _member(it, version, context)
    )


async def described_groups(
    request: Message,
    context: Context,
    kind: str,
    member: Callable[[DescribedConsumer], dict[str, Any]],
) -> Message:
    """Those of one ``kind``, with what ``member`` tells of each member; which operations the caller may do with a group
    where it asks for that.
    """
    groups = []
    async for name in cooperatively(dict.fromkeys(request["group_ids"])):
        it = _described(name, context, kind, member)
        tells = request["include_authorized_operations"] and it["error_code"] is ErrorCode.none
        it["authorized_operations"] = group_operations(name, context, asked=tells)
        groups.append(it)
    return {"groups": groups}


def _described(
    name: str, context: Context, kind: str, member: Callable[[DescribedConsumer], dict[str, Any]]
) -> dict[str, Any]:
    refusal = group_refusal(Operation.DESCRIBE, name, context)
    if refusal is not ErrorCode.none:
        return _failed_group(name, refusal)
    coordinator = context.groups.coordinator(name)
    if isinstance(coordinator, ErrorCode):
        return _failed_group(name, coordinator)
    listed, group = coordinator.describe(name), coordinator.describe_consumers(name)
    if group is None or listed is None or listed.group_type != kind:
        said = f"Group {name} is not a {kind} group."
        return _failed_group(name, ErrorCode.group_id_not_found, said)
    if context.access is not None and not _sees_all(group, context):
        said = "The group has topics that the caller may not describe."
        return _failed_group(name, ErrorCode.topic_authorization_failed, said)
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_id": name,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.assignor,
        "members": [member(it) for it in group.members],
    }


def _sees_all(group: DescribedConsumerGroup, context: Context) -> bool:
    topics = {topic for member in group.members for topic in member.metadata.topics}
    return may_describe(topics, context)


def _failed_group(name: str, error: ErrorCode, message: str | None = None) -> dict[str, Any]:
    return {
        "error_code": error,
        "error_message": message,
        "group_id": name,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }


def _member(member: DescribedConsumer, version: int, context: Context) -> dict[str, Any]:
    metadata = member.metadata
    found: dict[str, Any] = {
        "member_id": member.member_id,
        "instance_id": metadata.instance_id,
        "rack_id": metadata.rack_id,
        "member_epoch": member.current.epoch,
        "client_id": metadata.client_id,
        "client_host": metadata.client_host,
        "subscribed_topic_names": metadata.topics,
        "subscribed_topic_regex": metadata.regex,
        "assignment": assignment(member.current.assigned, context),
        "target_assignment": assignment(member.target, context),
    }
    if version >= 1:
        found["member_type"] = _CLASSIC_MEMBER if metadata.classic else _CONSUMER_MEMBER
    return found


def assignment(assigned: Assigned, context: Context) -> dict[str, Any]:
    names = context.metadata.image.names
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": name, "partitions": numbers}
            for topic_id, numbers in by_topic(assigned).items()
            if (name := names.get(topic_id.bytes)) is not None
        ]
    }
