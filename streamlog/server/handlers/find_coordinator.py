"""FindCoordinator (10), versions 0 to 4: this node, which refuses what coordinators do.

Transactions are refused here already: an idempotent producer asks for no coordinator. Consumer
groups are not there yet. A client that only assigns partitions, but would commit when it
closes (as confluent-kafka does by default), waits most of a minute for a coordinator that cannot be
found; one that is found and refuses, it leaves at once.

    v4  several keys in one request, and an error for each
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from streamlog.server.context import Context
from streamlog.wire.control import Message

_GROUP: Final = 0
_TRANSACTION: Final = 1
NO_TRANSACTIONS: Final = ErrorCode.transactional_id_authorization_failed
"""What all clients take for final."""


async def handle(request: Message, _version: int, context: Context) -> Message:
    if request.get("key_type", _GROUP) == _TRANSACTION:
        return _answer(request, {"node_id": -1, "error_code": NO_TRANSACTIONS})
    node = context.metadata.image.nodes.get(context.node_id)
    if node is None:  # not registered yet
        here: dict[str, Any] = {"node_id": -1, "error_code": ErrorCode.coordinator_not_available}
    else:
        here = {"node_id": context.node_id, "host": node.host, "port": node.port, "error_code": 0}
    return _answer(request, here)


def _answer(request: Message, here: dict[str, Any]) -> Message:
    coordinators: list[dict[str, Any]] = [
        {"key": key, **here} for key in request.get("coordinator_keys", ())
    ]
    return {**here, "coordinators": coordinators}
