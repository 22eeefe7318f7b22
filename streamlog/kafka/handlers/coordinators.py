"""FindCoordinator, and the wait for the reply of a coordinator, of groups or of transactions."""

import asyncio
from typing import Any, Final

from streamlog.acl.rules import Operation
from streamlog.coordination.led_shards import FoundCoordinator
from streamlog.coordination.reply import DelayedReply
from streamlog.fairness import cooperatively
from streamlog.kafka.auth.resource_checks import group_refusal, transactional_id_refusal
from streamlog.kafka.context import Context
from streamlog.kafka.net.channel import RequestWait
from streamlog.kafka.transaction_support import why_no_transactions
from streamlog.wire.api_messages import Message
from streamlog.wire.error_codes import ErrorCode

_GROUP_KEY: Final = 0
_TRANSACTION_KEY: Final = 1
NO_TRANSACTIONS: Final = ErrorCode.transactional_id_authorization_failed
"""What all clients take for final."""
_NO_NODE: Final[Message] = {"node_id": -1, "host": "", "port": -1}


async def find_coordinator(request: Message, version: int, context: Context) -> Message:
    """FindCoordinator (10), versions 0 to 5: which node to speak to about a consumer group, or a transactional id.

    That is the leader of the partition of ``__consumer_offsets``, or ``__transaction_state``, that it belongs
    to; the stream is made at the first request.

        v3  the answer says in words what is wrong
        v4  several keys in one request, and an error for each
    """
    kind = request.get("key_type", _GROUP_KEY)
    keys = request["coordinator_keys"] if version >= 4 else [request["key"]]
    coordinators = [
        {"key": it, **await _find_coordinator(kind, it, context)}
        async for it in cooperatively(keys)
    ]
    return {"coordinators": coordinators} if version >= 4 else coordinators[0]


async def _find_coordinator(kind: int, key: str, context: Context) -> dict[str, Any]:
    if kind == _TRANSACTION_KEY:
        return await _find_transaction_coordinator(key, context)
    if kind != _GROUP_KEY:
        return _no_coordinator(
            ErrorCode.invalid_request, f"there are no coordinators of kind {kind}"
        )
    refusal = group_refusal(Operation.DESCRIBE, key, context)
    if refusal is not ErrorCode.none:
        return _no_coordinator(refusal, "not allowed")
    return _coordinator(await context.groups.find(key), "no node coordinates this group just now")


async def _find_transaction_coordinator(key: str, context: Context) -> dict[str, Any]:
    reason = why_no_transactions(context)
    if reason is not None or context.transactions is None:
        return _no_coordinator(NO_TRANSACTIONS, reason or "transactions are not supported")
    refusal = transactional_id_refusal(Operation.DESCRIBE, key, context)
    if refusal is not ErrorCode.none:
        return _no_coordinator(refusal, "not allowed")
    found = await context.transactions.find(key)
    return _coordinator(found, "no node coordinates this transactional id just now")


def _coordinator(found: FoundCoordinator, message: str) -> dict[str, Any]:
    node = found.node
    if node is None:
        return _no_coordinator(found.error, message)
    return {
        "node_id": node.node_id,
        "host": node.host,
        "port": node.port,
        "error_code": ErrorCode.none,
        "error_message": None,
    }


def _no_coordinator(error: ErrorCode, message: str) -> dict[str, Any]:
    return {**_NO_NODE, "error_code": error, "error_message": message}


async def result_of(
    reply: DelayedReply | ErrorCode, poll: RequestWait, timeout_ms: int | None = None
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
