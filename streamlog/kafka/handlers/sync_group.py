"""SyncGroup (14), versions 0 to 5: a member's part of what the leader assigns.

The leader brings it for all; it is told when it is in the log.

    v3  static members (KIP-345)
    v5  protocol type and name are checked, and told (KIP-559)
"""

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.groups.requests import SyncedMember, SyncRequest
from streamlog.kafka.auth.resource_checks import group_refusal
from streamlog.kafka.context import Context
from streamlog.kafka.group_reply import caller_of, result_of
from streamlog.kafka.requester import Requester
from streamlog.wire.control import Message


async def handle(request: Message, _version: int, context: Context, asker: Requester) -> Message:
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
