"""Heartbeat (12), versions 0 to 4: a member is alive, and hears whether it is to join again.

v3  static members (KIP-345)
"""

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.kafka.auth.resource_checks import group_refusal
from streamlog.kafka.context import Context
from streamlog.kafka.group_reply import caller_of
from streamlog.wire.control import Message


async def handle(request: Message, _version: int, context: Context) -> Message:
    group, caller = request["group_id"], caller_of(request)
    refusal = group_refusal(Operation.READ, group, context)
    if refusal is not ErrorCode.none:
        return {"error_code": refusal}
    error = context.groups.heartbeat(
        group, lambda coordinator, now: coordinator.heartbeat(group, caller, now)
    )
    return {"error_code": error}
