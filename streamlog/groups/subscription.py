"""What members of the protocol type ``consumer`` say that they subscribe to. Pure.

``ConsumerProtocolSubscription`` begins with its version and the names of topics, in every version;
what follows (user data, owned partitions, rack) changes from one join to the next.
"""

from typing import Final

from streamlog.errors import MalformedFrame
from streamlog.wire.cursor import Cursor

CONSUMER: Final = "consumer"
TOPICS_MAX: Final = 100_000


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """None where it cannot be told: others may use that protocol type for bytes of their own."""
    try:
        cursor = Cursor(metadata)
        if cursor.i16() < 0:
            return None
        count = cursor.array_length(False)
        if count > TOPICS_MAX:
            return None
        return frozenset(cursor.string(False) for _ in range(count))
    except MalformedFrame:
        return None


def same_subscription(protocol_type: str | None, before: bytes, after: bytes) -> bool:
    """Whether whoever assigns partitions would find the same wish in both."""
    if before == after:
        return True
    known = subscribed_topics(before) if protocol_type == CONSUMER else None
    return known is not None and known == subscribed_topics(after)
