"""What members of a consumer group say to each other through their coordinator.

A member's assignment, in the ``consumer`` protocol that all Kafka consumers speak: version i16,
then topics with their partitions, then the assignor's own bytes. Later versions append fields.
(``ConsumerProtocolAssignment.json`` in Kafka.)

A member's subscription: version i16, names of topics, bytes of the assignor, from version 1 on what
the member has (KIP-429), from 2 on its generation, from 3 on its rack (KIP-881).
(``ConsumerProtocolSubscription.json``.)
"""

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from streamlog.errors import MalformedFrame
from streamlog.model import TopicPartition
from streamlog.wire.cursor import Buffer, Cursor, encode_array_length, encode_bytes, encode_string

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


def write_assignment(version: int, assigned: Mapping[str, Iterable[int]]) -> bytes:
    """For a member whose subscription has this version."""
    out = bytearray(struct.pack(">h", version) + encode_array_length(len(assigned), False))
    for topic, numbers in assigned.items():
        them = tuple(numbers)
        out += encode_string(topic, False) + encode_array_length(len(them), False)
        out += struct.pack(f">{len(them)}i", *them)
    return bytes(out + encode_bytes(b"", False))


class Subscription(NamedTuple):
    """What a member wants, and has."""

    version: int
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    rack_id: str | None = None


SUBSCRIPTION_VERSION_MAX: Final = 3
_TOPICS_MAX: Final = 100_000


def read_subscription(data: Buffer) -> Subscription:
    """Raises MalformedFrame."""
    cursor = Cursor(data, 0, _TOPICS_MAX)
    version = cursor.i16()
    if version < 0:
        raise MalformedFrame("a subscription of a version below 0")
    topics = tuple(cursor.string(False) for _ in range(cursor.array_length(False)))
    cursor.nullable_bytes(False)
    owned: list[TopicPartition] = []
    if version >= 1:
        for _ in range(cursor.array_length(False)):
            topic = cursor.string(False)
            count = cursor.array_length(False)
            owned += [TopicPartition(topic, cursor.i32()) for _ in range(count)]
    if version >= 2:
        cursor.i32()
    rack_id = cursor.nullable_string(False) if version >= 3 else None
    return Subscription(min(version, SUBSCRIPTION_VERSION_MAX), topics, tuple(owned), rack_id)
