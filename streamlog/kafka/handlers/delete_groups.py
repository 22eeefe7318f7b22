"""DeleteGroups (42), versions 0 to 2: groups without members, and all their offsets (KIP-229)."""

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.fairness import cooperatively
from streamlog.groups.reply import GroupReply
from streamlog.kafka.auth.resource_checks import group_refusal
from streamlog.kafka.context import Context
from streamlog.kafka.group_reply import result_of
from streamlog.kafka.requester import Requester
from streamlog.wire.control import Message


async def handle(request: Message, _version: int, context: Context, asker: Requester) -> Message:
    names = dict.fromkeys(request["groups_names"])
    deleting = [(name, _delete(name, context)) async for name in cooperatively(names)]
    timeout_ms = context.groups.settings.commit_timeout_ms
    return {
        "results": [
            {"group_id": name, "error_code": await result_of(reply, asker.poll, timeout_ms)}
            async for name, reply in cooperatively(deleting)
        ]
    }


def _delete(name: str, context: Context) -> GroupReply | ErrorCode:
    refusal = group_refusal(Operation.DELETE, name, context)
    if refusal is not ErrorCode.none:
        return refusal
    return context.groups.call(
        name,
        lambda coordinator, token, now: coordinator.delete_group(name, token, now),
        may_be_empty=True,
    )
