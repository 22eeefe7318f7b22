"""InitProducerId (22), versions 0 to 6: an id that no other producer has, in epoch 0.

Who has a transactional id is refused: there are no transactions.

    v3  who gives its id and epoch goes on with that id in the next epoch (KIP-360)
"""

from streamlog.acl.rules import Operation
from streamlog.errors import NoTransactions, StreamlogError
from streamlog.kafka.context import Context
from streamlog.kafka.produce.producer_ids import EPOCH_MAX
from streamlog.wire.control import Message
from streamlog.wire.errors import code_of

NO_PRODUCER = -1


async def handle(request: Message, _version: int, context: Context) -> Message:
    try:
        if request["transactional_id"] is not None:
            raise NoTransactions("transactions are not supported")
        _check(context)
        known, epoch = request.get("producer_id", NO_PRODUCER), request.get("producer_epoch", -1)
        given = 0 <= known < context.metadata.image.producer_ids_end
        if given and 0 <= epoch < EPOCH_MAX:
            return {"error_code": 0, "producer_id": known, "producer_epoch": epoch + 1}
        producer_id = await context.producer_ids.take(context.metadata, context.node_id)
    except StreamlogError as error:
        return {"error_code": code_of(error), "producer_id": NO_PRODUCER, "producer_epoch": -1}
    return {"error_code": 0, "producer_id": producer_id, "producer_epoch": 0}


def _check(context: Context) -> None:
    """Whoever may write anything may number it (KIP-679). Raises ClusterForbidden."""
    access = context.access
    if access is not None and not access.allows_some_topic(Operation.WRITE):
        access.check_cluster(Operation.IDEMPOTENT_WRITE)
