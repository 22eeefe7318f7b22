"""JoinGroup (11), versions 0 to 9: become a member of a group, in its next generation.

The answer comes when all members have joined, or when the slowest has had its time. The leader is
told of all members, and is to assign; the others of none.

    v1  a time to rejoin of its own; before that it is the session's
    v4  a new member is given an id first (KIP-394)
    v5  static members (KIP-345)
    v7  the answer tells the protocol type (KIP-559); no protocol is null, not ""
    v9  a static leader that has restarted need not assign (KIP-814)
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.groups.requests import Joined, JoinRequest
from streamlog.kafka.auth.resource_checks import group_refusal
from streamlog.kafka.context import Context
from streamlog.kafka.group_reply import caller_of, result_of
from streamlog.kafka.requester import Requester
from streamlog.wire.control import Message

_KNOWN_IDS_FROM: Final = 4
_NULL_PROTOCOL_FROM: Final = 7
_SKIPPING_FROM: Final = 9


async def handle(request: Message, version: int, context: Context, asker: Requester) -> Message:
    wanted = _join_request(request, version, asker)
    refusal = group_refusal(Operation.READ, wanted.group, context)
    if refusal is not ErrorCode.none:
        return _answer(Joined(refusal, wanted.caller.member_id), version)
    reply = context.groups.call(
        wanted.group, lambda coordinator, token, now: coordinator.join(wanted, token, now)
    )
    result = await result_of(reply, asker.poll)
    if isinstance(result, ErrorCode):
        result = Joined(result, wanted.caller.member_id)
    return _answer(result, version)


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


def _answer(joined: Joined, version: int) -> dict[str, Any]:
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
