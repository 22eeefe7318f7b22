"""LeaveGroup (13), versions 0 to 5: members go, and the others share what they had.

v3  several members; static ones by their instance id alone (KIP-345)
v5  a reason, which nobody here needs
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.kafka.auth.resource_checks import group_refusal
from streamlog.kafka.context import Context
from streamlog.kafka.group_reply import caller_of, result_of
from streamlog.kafka.requester import Requester
from streamlog.wire.control import Message

_SEVERAL_FROM: Final = 3


async def handle(request: Message, version: int, context: Context, asker: Requester) -> Message:
    group = request["group_id"]
    refusal = group_refusal(Operation.READ, group, context)
    if refusal is not ErrorCode.none:
        return {"error_code": refusal, "members": []}
    asked = request["members"] if version >= _SEVERAL_FROM else [request]
    callers = [caller_of(it) for it in asked]
    reply = context.groups.call(
        group, lambda coordinator, token, now: coordinator.leave(group, callers, token, now)
    )
    result = await result_of(reply, asker.poll)
    if isinstance(result, ErrorCode):
        return {"error_code": result, "members": []}
    if version < _SEVERAL_FROM:
        return {"error_code": result[0]}
    members: list[dict[str, Any]] = [
        {"member_id": it.member_id, "group_instance_id": it.instance_id, "error_code": error}
        for it, error in zip(callers, result, strict=True)
    ]
    return {"error_code": ErrorCode.none, "members": members}
