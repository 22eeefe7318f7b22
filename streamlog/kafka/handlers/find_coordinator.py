"""FindCoordinator (10), versions 0 to 4: which node to speak to about a consumer group.

That is the leader of the partition of ``__consumer_offsets`` that the group belongs to; the stream
is made when somebody asks first. Transactions are refused here already: an idempotent producer asks
for no coordinator.

    v3  the answer says in words what is wrong
    v4  several keys in one request, and an error for each
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from streamlog.acl.rules import Operation
from streamlog.fairness import cooperatively
from streamlog.kafka.auth.resource_checks import group_refusal
from streamlog.kafka.context import Context
from streamlog.wire.control import Message

_GROUP: Final = 0
_TRANSACTION: Final = 1
NO_TRANSACTIONS: Final = ErrorCode.transactional_id_authorization_failed
"""What all clients take for final."""
_NOBODY: Final[Message] = {"node_id": -1, "host": "", "port": -1}


async def handle(request: Message, version: int, context: Context) -> Message:
    kind = request.get("key_type", _GROUP)
    keys = request["coordinator_keys"] if version >= 4 else [request["key"]]
    coordinators = [
        {"key": it, **await _find(kind, it, context)} async for it in cooperatively(keys)
    ]
    return {"coordinators": coordinators} if version >= 4 else coordinators[0]


async def _find(kind: int, key: str, context: Context) -> dict[str, Any]:
    if kind == _TRANSACTION:
        return _nobody(NO_TRANSACTIONS, "transactions are not supported")
    if kind != _GROUP:
        return _nobody(ErrorCode.invalid_request, f"there are no coordinators of kind {kind}")
    refusal = group_refusal(Operation.DESCRIBE, key, context)
    if refusal is not ErrorCode.none:
        return _nobody(refusal, "not allowed")
    node, error = await context.groups.find(key)
    if node is None:
        return _nobody(error, "no node coordinates this group just now")
    return {
        "node_id": node.node_id,
        "host": node.host,
        "port": node.port,
        "error_code": ErrorCode.none,
        "error_message": None,
    }


def _nobody(error: ErrorCode, message: str) -> dict[str, Any]:
    return {**_NOBODY, "error_code": error, "error_message": message}
