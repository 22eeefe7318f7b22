"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups: groups of the classic protocol.

ListGroups, DeleteGroups: groups of all kinds.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from streamlog.acl.rules import Operation
from streamlog.errors import StreamlogError
from streamlog.fairness import cooperatively
from streamlog.groups.coordinator import Coordinator
from streamlog.groups.group import CLASSIC_TYPE, State
from streamlog.groups.requests import (
    DescribedGroup,
    GroupCaller,
    Joined,
    JoinRequest,
    SyncedMember,
    SyncRequest,
)
from streamlog.kafka.auth.authorized_operations import group_operations
from streamlog.kafka.auth.resource_checks import group_refusal
from streamlog.kafka.context import Context, Requester
from streamlog.kafka.handlers.coordinators import result_of
from streamlog.kafka.refusal import group_code_of
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode

NO_GENERATION: Final = -1


def caller_of(request: Mapping[str, Any]) -> GroupCaller:
    """Who says that it is a member."""
    return GroupCaller(
        request["member_id"],
        request.get("group_instance_id"),
        request.get("generation_id", NO_GENERATION),
    )


_KNOWN_IDS_FROM: Final = 4
_NULL_PROTOCOL_FROM: Final = 7
_SKIPPING_FROM: Final = 9


async def join_group(request: Message, version: int, context: Context, asker: Requester) -> Message:
    """JoinGroup (11), versions 0 to 9: become a member of a group, in its next generation.

    The answer comes when all members have joined, or when the slowest has had its time. The leader is
    told of all members, and is to assign; the others of none.

        v1  a time to rejoin of its own; before that it is the session's
        v4  a new member is given an id first (KIP-394)
        v5  static members (KIP-345)
        v7  the answer tells the protocol type (KIP-559); no protocol is null, not ""
        v9  a static leader that has restarted need not assign (KIP-814)
    """
    wanted = _join_request(request, version, asker)
    refusal = group_refusal(Operation.READ, wanted.group, context)
    if refusal is not ErrorCode.none:
        return _join_answer(Joined(refusal, wanted.caller.member_id), version)
    reply = context.groups.call(
        wanted.group, lambda coordinator, token, now: coordinator.join(wanted, token, now)
    )
    result = await result_of(reply, asker.poll)
    if isinstance(result, ErrorCode):
        result = Joined(result, wanted.caller.member_id)
    return _join_answer(result, version)


def _join_request(request: Message, version: int, asker: Requester) -> JoinRequest:
    session_timeout_ms = request["session_timeout"]
    return JoinRequest(
        request["group_id"],
        caller_of(request),
        asker.client_id,
        asker.host,
        session_timeout_ms,
        max(0, request["rebalance_timeout"]) if version >= 1 else session_timeout_ms,
        request["protocol_type"],
        tuple((it["name"], bytes(it["metadata"])) for it in request["protocols"]),
        needs_known_id=version >= _KNOWN_IDS_FROM,
        may_skip_assignment=version >= _SKIPPING_FROM,
    )


def _join_answer(joined: Joined, version: int) -> dict[str, Any]:
    may_be_null = version >= _NULL_PROTOCOL_FROM
    return {
        "error_code": joined.error,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": joined.protocol if may_be_null else joined.protocol or "",
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {
                "member_id": it.member_id,
                "group_instance_id": it.instance_id,
                "metadata": it.metadata,
            }
            for it in joined.members
        ],
    }


async def sync_group(
    request: Message, _version: int, context: Context, asker: Requester
) -> Message:
    """SyncGroup (14), versions 0 to 5: a member's part of what the leader assigns.

    The leader brings it for all; it is told when it is in the log.

        v3  static members (KIP-345)
        v5  protocol type and name are checked, and told (KIP-559)
    """
    refusal = group_refusal(Operation.READ, request["group_id"], context)
    if refusal is not ErrorCode.none:
        return {"error_code": refusal, "assignment": b""}
    wanted = SyncRequest(
        request["group_id"],
        caller_of(request),
        request.get("protocol_type"),
        request.get("protocol_name"),
        {it["member_id"]: bytes(it["assignment"]) for it in request["assignments"]},
    )
    reply = context.groups.call(
        wanted.group, lambda coordinator, token, now: coordinator.sync(wanted, token, now)
    )
    result = await result_of(reply, asker.poll)
    synced = SyncedMember(result) if isinstance(result, ErrorCode) else result
    return {
        "error_code": synced.error,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }


async def heartbeat(request: Message, _version: int, context: Context) -> Message:
    """Heartbeat (12), versions 0 to 4: a member is alive, and hears whether it is to join again.

    v3  static members (KIP-345)
    """
    group, caller = request["group_id"], caller_of(request)
    refusal = group_refusal(Operation.READ, group, context)
    if refusal is not ErrorCode.none:
        return {"error_code": refusal}
    error = context.groups.heartbeat(
        group, lambda coordinator, now: coordinator.heartbeat(group, caller, now)
    )
    return {"error_code": error}


_SEVERAL_MEMBERS_FROM: Final = 3


async def leave_group(
    request: Message, version: int, context: Context, asker: Requester
) -> Message:
    """LeaveGroup (13), versions 0 to 5: members go, and the others share what they had.

    v3  several members; static ones by their instance id alone (KIP-345)
    v5  a reason, which is not used here
    """
    group = request["group_id"]
    refusal = group_refusal(Operation.READ, group, context)
    if refusal is not ErrorCode.none:
        return {"error_code": refusal, "members": []}
    asked = request["members"] if version >= _SEVERAL_MEMBERS_FROM else [request]
    callers = [caller_of(it) for it in asked]
    reply = context.groups.call(
        group, lambda coordinator, token, now: coordinator.leave(group, callers, token, now)
    )
    result = await result_of(reply, asker.poll)
    if isinstance(result, ErrorCode):
        return {"error_code": result, "members": []}
    if version < _SEVERAL_MEMBERS_FROM:
        return {"error_code": result[0]}
    members: list[dict[str, Any]] = [
        {"member_id": it.member_id, "group_instance_id": it.instance_id, "error_code": error}
        for it, error in zip(callers, result, strict=True)
    ]
    return {"error_code": ErrorCode.none, "members": members}


_NOT_FOUND_FROM: Final = 6


async def describe_groups(request: Message, version: int, context: Context) -> Message:
    """DescribeGroups (15), versions 0 to 6: groups' states and members.

    Who is asked about twice is told of once: a name takes a few bytes, and what a member has us keep
    may take a MiB.

    v3  which operations the caller may do, where it asks for that (KIP-430)
    v4  static members (KIP-345)
    v6  a group that is not there is an error (KIP-1043); before that, it is dead. So is one of the
        consumer protocol: ConsumerGroupDescribe has it
    """
    names = dict.fromkeys(request["groups"])
    asked = request.get("include_authorized_operations", False)
    groups = [_describe_group(name, version, context) async for name in cooperatively(names)]
    for it in groups:
        tells = asked and it["error_code"] is ErrorCode.none
        it["authorized_operations"] = group_operations(it["group_id"], context, asked=tells)
    return {"groups": groups}


def _describe_group(name: str, version: int, context: Context) -> dict[str, Any]:
    refusal = group_refusal(Operation.DESCRIBE, name, context)
    if refusal is not ErrorCode.none:
        return _described(DescribedGroup(name, "", "", ""), refusal)
    coordinator = context.groups.coordinator(name)
    if isinstance(coordinator, ErrorCode):
        return _described(DescribedGroup(name, "", "", ""), coordinator)
    group = coordinator.describe(name)
    if group is not None and group.group_type == CLASSIC_TYPE:
        return _described(group, ErrorCode.none)
    dead = DescribedGroup(name, State.DEAD.value, "", "")
    if version < _NOT_FOUND_FROM:
        return _described(dead, ErrorCode.none)
    is_other = group is not None
    said = f"Group {name} is not a classic group." if is_other else f"there is no group {name!r}"
    return _described(dead, ErrorCode.group_id_not_found, said)


def _described(
    group: DescribedGroup, error: ErrorCode, message: str | None = None
) -> dict[str, Any]:
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


async def list_groups(request: Message, _version: int, context: Context) -> Message:
    """ListGroups (16), versions 0 to 5: the groups that this node coordinates; ask every node.

    v4  only those in certain states (KIP-518)
    v5  only those of certain types (KIP-848): ``classic`` or ``consumer``
    """
    states = {it.casefold() for it in request.get("states_filter", ())}
    types = {it.casefold() for it in request.get("types_filter", ())}
    asked = list(context.groups.coordinators())
    is_loading = ErrorCode.coordinator_load_in_progress in asked
    groups = [
        {
            "group_id": group.group,
            "protocol_type": group.protocol_type,
            "group_state": group.state,
            "group_type": group.group_type,
        }
        for coordinator in asked
        if isinstance(coordinator, Coordinator)
        for group in coordinator.listed()
        if (not states or group.state.casefold() in states)
        and (not types or group.group_type in types)
        and (context.access is None or context.access.sees_group(group.group))
    ]
    error = ErrorCode.coordinator_load_in_progress if is_loading else ErrorCode.none
    return {"error_code": error, "groups": groups}


DELETES_AT_ONCE: Final = 100
"""Groups of one request whose coordinators are waited for together."""


async def delete_groups(request: Message, _version: int, context: Context) -> Message:
    """DeleteGroups (42), versions 0 to 2: groups without members, and all their offsets (KIP-229).

    Any node has them deleted, wherever their coordinators are. No more are begun once the time of a commit is
    over: a client asks again for the others.
    """
    names = dict.fromkeys(request["groups_names"])
    codes: dict[str, ErrorCode] = dict.fromkeys(names, ErrorCode.coordinator_not_available)
    free = asyncio.Semaphore(DELETES_AT_ONCE)

    async def delete(name: str) -> None:
        try:
            codes[name] = await _delete_group(name, context)
        finally:
            free.release()

    async with asyncio.TaskGroup() as group:
        # A timer ends the loop, not a comparison of times: uvloop's clock counts whole milliseconds, and
        # "now + timeout" can be one rounding above the time at which the deletions' own timers fire. Timers of
        # one time fire in the order in which they were set, so this one comes first.
        with suppress(TimeoutError):
            async with asyncio.timeout(context.groups.settings.commit_timeout_ms / 1000):
                for name in names:
                    await free.acquire()
                    group.create_task(delete(name))
                    await asyncio.sleep(0)  # it comes as far as it can at once; others are next
    return {"results": [{"group_id": name, "error_code": code} for name, code in codes.items()]}


async def _delete_group(name: str, context: Context) -> ErrorCode:
    try:
        await context.control.groups.delete(name)
    except StreamlogError as error:
        return group_code_of(error)
    return ErrorCode.none
