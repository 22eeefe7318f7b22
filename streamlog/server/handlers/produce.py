"""Produce (0), versions 3 to 9: refused, partition by partition; records come in through NATS.

It is offered nevertheless, from version 0: a librdkafka that does not see it takes the node for one
from before record batches v2, and does not fetch either.
"""

from typing import Any, Final

from kio.schema.errors import ErrorCode

from streamlog.errors import ProtocolViolation
from streamlog.server.context import Context
from streamlog.wire.control import Message

NO_ANSWER_WANTED: Final = 0
REFUSAL: Final = "records are published over NATS, not over this socket"


async def handle(request: Message, _version: int, _context: Context) -> Message:
    """Where the producer wants no answer, only a closed connection can tell it."""
    if request["acks"] == NO_ANSWER_WANTED:
        raise ProtocolViolation(f"Produce without an answer: {REFUSAL}")
    return {
        "responses": [
            {
                "name": topic["name"],
                "partition_responses": [
                    _refusal(data["index"]) for data in topic["partition_data"]
                ],
            }
            for topic in request["topic_data"]
        ]
    }


def _refusal(index: int) -> dict[str, Any]:
    return {
        "index": index,
        "error_code": ErrorCode.policy_violation,
        "base_offset": -1,
        "error_message": REFUSAL,
    }
