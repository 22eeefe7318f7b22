"""What a group's coordinator says, when it says it."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from kio.schema.errors import ErrorCode

from streamlog.groups.reply import GroupReply
from streamlog.groups.requests import GroupCaller
from streamlog.kafka.net.request_wait import RequestWait

NO_GENERATION: Final = -1


async def result_of(
    reply: GroupReply | ErrorCode, poll: RequestWait, timeout_ms: int | None = None
) -> Any:
    """The result; an error code where there is none, nor will be in ``timeout_ms``.

    A client that goes away meanwhile changes nothing for its group: it stays a member until its
    session ends, and may come back for the answer.
    """
    if isinstance(reply, ErrorCode):
        return reply
    reply.watch(poll.wake)
    timer = None
    if timeout_ms is not None:
        timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, poll.end)
    try:
        while not reply.is_there and not poll.ended:
            await poll.wait()
    finally:
        reply.unwatch(poll.wake)
        if timer is not None:
            timer.cancel()
    return reply.result if reply.is_there else ErrorCode.coordinator_not_available


def caller_of(request: Mapping[str, Any]) -> GroupCaller:
    """Who says that it is a member."""
    return GroupCaller(
        request["member_id"],
        request.get("group_instance_id"),
        request.get("generation_id", NO_GENERATION),
    )
