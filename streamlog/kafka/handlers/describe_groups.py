"""DescribeGroups (15), versions 0 to 6: groups' states and members.

Who is asked about twice is told of once: a name takes a few bytes, and what a member has us keep
may take a MiB.

v3  which operations are allowed, which is not said
v4  static members (KIP-345)
v6  a group that is not there is an error (KIP-1043); before that, it is dead
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.fairness import cooperatively
from streamlog.groups.group import State
from streamlog.groups.requests import DescribedGroup
from streamlog.kafka.auth.resource_checks import group_refusal
from streamlog.kafka.context import Context
from streamlog.wire.control import Message

_NOT_FOUND_FROM: Final = 6


async def handle(request: Message, version: int, context: Context) -> Message:
    names = dict.fromkeys(request["groups"])
    return {"groups": [_describe(name, version, context) async for name in cooperatively(names)]}


def _describe(name: str, version: int, context: Context) -> dict[str, Any]:
    refusal = group_refusal(Operation.DESCRIBE, name, context)
    if refusal is not ErrorCode.none:
        return _answer(DescribedGroup(name, "", "", ""), refusal)
    coordinator = context.groups.coordinator(name)
    if isinstance(coordinator, ErrorCode):
        return _answer(DescribedGroup(name, "", "", ""), coordinator)
    group = coordinator.describe(name)
    if group is not None:
        return _answer(group, ErrorCode.none)
    dead = DescribedGroup(name, State.DEAD.value, "", "")
    if version < _NOT_FOUND_FROM:
        return _answer(dead, ErrorCode.none)
    return _answer(dead, ErrorCode.group_id_not_found, f"there is no group {name!r}")


def _answer(group: DescribedGroup, error: ErrorCode, message: str | None = None) -> dict[str, Any]:
    return {
        "error_code": error,
        "error_message": message,
        "group_id": group.group,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            {
                "member_id": it.member_id,
                "group_instance_id": it.instance_id,
                "client_id": it.client_id,
                "client_host": it.client_host,
                "member_metadata": it.metadata,
                "member_assignment": it.assignment,
            }
            for it in group.members
        ],
    }
