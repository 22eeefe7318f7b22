"""Produce (0) by hand, versions 0 to 13: the record batches stay views into the frame.

The schemas of ``kio`` no longer have versions 0 to 2, which are read to be refused in order.
"""

import struct
from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from streamlog.wire.cursor import (
    NO_TAGS,
    STEP_ITEMS,
    Cursor,
    encode_array_length,
    encode_string,
    encode_tags,
    finished,
)
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.framing import frame
from streamlog.wire.leaders import CurrentLeader, NodeEndpoint, encode_leader, encode_nodes

VERSION_MIN: Final = 3
"""The first one with record batches v2, which are all that is stored."""
FLEXIBLE_FROM: Final = 9
LEADERS_FROM: Final = 10
"""The first version that says who leads where this node does not (KIP-951)."""
TRANSACTIONS_2_FROM: Final = 12
"""The first version in which a batch brings its partition into the transaction (KIP-890)."""
TOPIC_IDS_FROM: Final = 13
"""The first version that names topics by their ids (KIP-516)."""
TOPIC_ID_BYTES: Final = 16
ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1
ACKS_AS_STORED: Final = -2
"""None of Kafka's: batches of a backup, with the offsets that they had; else as ACKS_ALL."""
NO_OFFSET: Final = -1
NO_TIME: Final = -1

_ACKS: Final = struct.Struct(">hi")
_I32: Final = struct.Struct(">i")
_RESULT: Final = struct.Struct(">ihq")
_NUMBER: Final = struct.Struct(">q")
_LEADER_TAG: Final = 0


class ProducePartition(NamedTuple):
    """What goes to one partition."""

    partition: int
    records: memoryview | None


class ProduceRequest(NamedTuple):
    """A request; the topics in the order in which they are to be answered."""

    acks: int
    timeout_ms: int
    topics: list[tuple[str | bytes, list[ProducePartition]]]
    """Up to version 12 a topic has a name, from 13 on an id."""
    transactional_id: str | None = None


class ProduceResult(NamedTuple):
    """What became of one partition's batch."""

    partition: int
    error_code: int = ErrorCode.none
    base_offset: int = NO_OFFSET
    """With an error: of the first batch that the producer has in the log, if it was refused for
    that; else NO_OFFSET."""
    log_start_offset: int = NO_OFFSET
    error_message: str | None = None
    append_time_ms: int = NO_TIME
    """NO_TIME: the records keep the producer's."""
    leader: CurrentLeader | None = None
    """Where this node does not lead."""
    faulty: Sequence[int] = ()
    """Places in the batch of records for which it was refused as a whole (KIP-467)."""
    fault: str = ""
    """Of each of them."""


def read_request(cursor: Cursor, version: int) -> ProduceRequest:
    """Raises MalformedFrame."""
    return finished(read_request_in_steps(cursor, version))


def read_request_in_steps(cursor: Cursor, version: int) -> Generator[None, None, ProduceRequest]:
    """The same for a large request: it yields between partitions, so that the caller can let other
    connections have their turn.
    """
    flexible = version >= FLEXIBLE_FROM
    transactional_id = cursor.nullable_string(flexible) if version >= VERSION_MIN else None
    acks, timeout_ms = cursor.unpack(_ACKS)
    topics = []
    for count in range(cursor.array_length(flexible)):
        topic = (
            bytes(cursor.take(TOPIC_ID_BYTES))
            if version >= TOPIC_IDS_FROM
            else cursor.topic_name(flexible)
        )
        partitions = []
        for index in range(cursor.array_length(flexible)):
            (number,) = cursor.unpack(_I32)
            partitions.append(ProducePartition(number, cursor.nullable_bytes(flexible)))
            if flexible:
                cursor.skip_tags()
            if index % STEP_ITEMS == STEP_ITEMS - 1:
                yield
        topics.append((topic, partitions))
        if flexible:
            cursor.skip_tags()
        if count % STEP_ITEMS == STEP_ITEMS - 1:
            yield
    if flexible:
        cursor.skip_tags()
    return ProduceRequest(acks, timeout_ms, topics, transactional_id)


def encode_response(
    header: bytes,
    topics: Sequence[tuple[str | bytes, Sequence[ProduceResult]]],
    version: int,
    *,
    throttle_ms: int = 0,
    nodes: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The whole frame; ``header`` is the encoded response header."""
    flexible = version >= FLEXIBLE_FROM
    tags = NO_TAGS if flexible else b""
    parts = [encode_array_length(len(topics), flexible)]
    for topic, results in topics:
        parts.append(topic if isinstance(topic, bytes) else encode_string(topic, flexible))
        parts.append(encode_array_length(len(results), flexible))
        for result in results:
            parts.append(_encode_result(result, version, flexible))
            if version >= LEADERS_FROM and result.leader is not None:
                parts.append(encode_tags({_LEADER_TAG: encode_leader(result.leader)}))
            else:
                parts.append(tags)
        parts.append(tags)
    if version >= 1:
        parts.append(_I32.pack(throttle_ms))
    return frame(header, *parts, encode_nodes(nodes) if version >= LEADERS_FROM else tags)


def _encode_result(result: ProduceResult, version: int, flexible: bool) -> bytes:
    out = _RESULT.pack(result.partition, result.error_code, result.base_offset)
    if version >= 2:
        out += _NUMBER.pack(result.append_time_ms)
    if version >= 5:
        out += _NUMBER.pack(result.log_start_offset)
    if version >= 8:
        out += encode_array_length(len(result.faulty), flexible)
        told = encode_string(result.fault, flexible) + (NO_TAGS if flexible else b"")
        out += b"".join(_I32.pack(place) + told for place in result.faulty)
        out += encode_string(result.error_message, flexible)
    return out
