"""Produce (0) by hand, versions 0 to 9: the record batches stay views into the frame.

The schemas of ``kio`` no longer have versions 0 to 2, which are read to be refused in order.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from streamlog.wire.cursor import (
    NO_TAGS,
    Cursor,
    encode_array_length,
    encode_string,
)
from streamlog.wire.framing import frame

VERSION_MIN: Final = 3
"""The first one with record batches v2, which are all that is stored."""
FLEXIBLE_FROM: Final = 9
ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1
NO_OFFSET: Final = -1
NO_TIME: Final = -1

_ACKS: Final = struct.Struct(">hi")
_INDEX: Final = struct.Struct(">i")
_RESULT: Final = struct.Struct(">ihq")
_NUMBER: Final = struct.Struct(">q")
_NO_THROTTLE: Final = bytes(4)


class ProducePartition(NamedTuple):
    """What goes to one partition."""

    partition: int
    records: memoryview | None


class ProduceRequest(NamedTuple):
    """A request; the topics in the order in which they are to be answered."""

    acks: int
    timeout_ms: int
    topics: list[tuple[str, list[ProducePartition]]]
    transactional_id: str | None = None


class ProduceResult(NamedTuple):
    """What became of one partition's batch."""

    partition: int
    error_code: int = ErrorCode.none
    base_offset: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    error_message: str | None = None
    append_time_ms: int = NO_TIME
    """NO_TIME: the records keep the producer's."""


def read_request(cursor: Cursor, version: int) -> ProduceRequest:
    """Raises MalformedFrame."""
    flexible = version >= FLEXIBLE_FROM
    transactional_id = cursor.nullable_string(flexible) if version >= VERSION_MIN else None
    acks, timeout_ms = cursor.unpack(_ACKS)
    topics = []
    for _ in range(cursor.array_length(flexible)):
        name = cursor.string(flexible)
        partitions = []
        for _ in range(cursor.array_length(flexible)):
            (number,) = cursor.unpack(_INDEX)
            partitions.append(ProducePartition(number, cursor.nullable_bytes(flexible)))
            if flexible:
                cursor.skip_tags()
        topics.append((name, partitions))
        if flexible:
            cursor.skip_tags()
    if flexible:
        cursor.skip_tags()
    return ProduceRequest(acks, timeout_ms, topics, transactional_id)


def encode_response(
    header: bytes, topics: Sequence[tuple[str, Sequence[ProduceResult]]], version: int
) -> bytes:
    """The whole frame; ``header`` is the encoded response header."""
    flexible = version >= FLEXIBLE_FROM
    tags = NO_TAGS if flexible else b""
    parts = [encode_array_length(len(topics), flexible)]
    for name, results in topics:
        parts += encode_string(name, flexible), encode_array_length(len(results), flexible)
        for result in results:
            parts.append(_encode_result(result, version, flexible))
            parts.append(tags)
        parts.append(tags)
    if version >= 1:
        parts.append(_NO_THROTTLE)
    return frame(header, *parts, tags)


def _encode_result(result: ProduceResult, version: int, flexible: bool) -> bytes:
    out = _RESULT.pack(result.partition, result.error_code, result.base_offset)
    if version >= 2:
        out += _NUMBER.pack(result.append_time_ms)
    if version >= 5:
        out += _NUMBER.pack(result.log_start_offset)
    if version >= 8:  # which records are at fault is not told
        out += encode_array_length(0, flexible) + encode_string(result.error_message, flexible)
    return out
