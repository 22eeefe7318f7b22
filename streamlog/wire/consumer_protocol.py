"""What members of a consumer group say to each other through their coordinator.

A member's assignment, in the ``consumer`` protocol that all Kafka consumers speak: version i16,
then topics with their partitions, then the assignor's own bytes. Later versions append fields.
(``ConsumerProtocolAssignment.json`` in Kafka.)
"""

from typing import Final

from streamlog.errors import MalformedFrame
from streamlog.model import TopicPartition
from streamlog.wire.cursor import Buffer, Cursor

PROTOCOL_TYPE: Final = "consumer"


def read_assignment(data: Buffer) -> tuple[TopicPartition, ...]:
    """The partitions of a member; none before the first assignment. Raises MalformedFrame."""
    if not data:
        return ()
    cursor = Cursor(data)
    if cursor.i16() < 0:
        raise MalformedFrame("an assignment of a version below 0")
    found: list[TopicPartition] = []
    for _ in range(cursor.array_length(flexible=False)):
        stream = cursor.string(flexible=False)
        count = cursor.array_length(flexible=False)
        found += [TopicPartition(stream, cursor.i32()) for _ in range(count)]
    return tuple(found)
