"""The response: a frame around record bytes that lie elsewhere."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from streamlog.model import EpochEnd
from streamlog.wire.cursor import (
    NO_TAGS,
    Cursor,
    encode_array_length,
    encode_string,
    encode_tags,
    encode_uvarint,
)
from streamlog.wire.fetch.request import NO_SESSION, TOPIC_ID_BYTES, TOPIC_IDS_FROM
from streamlog.wire.framing import LENGTH_BYTES
from streamlog.wire.leaders import (
    CurrentLeader,
    NodeEndpoint,
    encode_leader,
    encode_nodes,
    read_leader,
    read_nodes,
)

NO_REPLICA: Final = -1

_HEAD_V4: Final = struct.Struct(">i")
_HEAD_V7: Final = struct.Struct(">ihi")
_I32: Final = struct.Struct(">i")
_FETCHED_V4: Final = struct.Struct(">ihqqi")
_FETCHED_V5: Final = struct.Struct(">ihqqqi")
_FETCHED_V11: Final = struct.Struct(">ihqqqii")
_FETCHED_V12: Final = struct.Struct(">ihqqqbi")

_DIVERGING_EPOCH_TAG: Final = 0
_CURRENT_LEADER_TAG: Final = 1
_SNAPSHOT_TAG: Final = 2
_EPOCH_END: Final = struct.Struct(">iq")
_SNAPSHOT: Final = struct.Struct(">qi")

NODES_FROM: Final = 16
"""The first version that tells where leaders are reached (KIP-951)."""

_NO_LENGTH_YET: Final = bytes(LENGTH_BYTES)


class FetchSnapshot(NamedTuple):
    """What is to be fetched before any record."""

    end_offset: int
    epoch: int


class FetchedPartition(NamedTuple):
    """One partition's part of a response; its record bytes are elsewhere, here is their length."""

    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    records_bytes: int = 0
    diverging: EpochEnd | None = None  # v12: the caller's history leaves ours at this epoch's end
    preferred_read_replica: int = NO_REPLICA  # v11: where the caller should rather read
    current_leader: CurrentLeader | None = None  # v12
    snapshot: FetchSnapshot | None = None  # v12


FetchedTopic = tuple[str | bytes, Sequence[FetchedPartition]]
"""A topic's name or, from version 13 on, its id."""


class FetchedRecords(NamedTuple):
    """One partition's part of a response as a client reads it."""

    topic: str
    fetched: FetchedPartition
    records: memoryview
    topic_id: bytes = b""
    """From version 13 on, instead of the name."""


def encode_response(
    header: bytes,
    topics: Sequence[FetchedTopic],
    version: int,
    *,
    error_code: int = 0,
    session_id: int = NO_SESSION,
    throttle_ms: int = 0,
    nodes: Sequence[NodeEndpoint] = (),
) -> list[bytes]:
    """The frame around its holes: ``result[i]`` goes before the i-th non-empty run of records.

    ``header`` is the response's header; the frame's length is put before it. The last piece follows
    the last run, and is empty where nothing does. ``nodes`` are told from version 16 on.
    """
    flexible = version >= 12
    piece = bytearray(_NO_LENGTH_YET + header)
    if version >= 7:
        piece += _HEAD_V7.pack(throttle_ms, error_code, session_id)
    else:
        piece += _HEAD_V4.pack(throttle_ms)
    pieces = [piece]
    length = -LENGTH_BYTES
    piece += encode_array_length(len(topics), flexible)
    for topic, partitions in topics:
        piece += topic if isinstance(topic, bytes) else encode_string(topic, flexible)
        piece += encode_array_length(len(partitions), flexible)
        for fetched in partitions:
            piece += _encode_fetched(fetched, version)
            if fetched.records_bytes:
                length += len(piece) + fetched.records_bytes
                piece = bytearray()
                pieces.append(piece)
            if flexible:
                piece += _encode_fetched_tags(fetched)
        if flexible:
            piece += NO_TAGS
    if flexible:
        piece += encode_nodes(nodes) if nodes and version >= NODES_FROM else NO_TAGS
    pieces[0][:LENGTH_BYTES] = _I32.pack(length + len(piece))
    return [bytes(piece) for piece in pieces]


def _encode_fetched(fetched: FetchedPartition, version: int) -> bytes:
    """Everything before the records, their length included; transactions are not known here."""
    number, error_code, high_watermark, log_start_offset, records_bytes, *_ = fetched
    stable, preferred = high_watermark, fetched.preferred_read_replica
    if version >= 12:
        fixed = _FETCHED_V12.pack(
            number, error_code, high_watermark, stable, log_start_offset, 0, preferred
        )
        return fixed + encode_uvarint(records_bytes + 1)
    if version >= 11:
        fixed = _FETCHED_V11.pack(
            number, error_code, high_watermark, stable, log_start_offset, -1, preferred
        )
    elif version >= 5:
        fixed = _FETCHED_V5.pack(number, error_code, high_watermark, stable, log_start_offset, -1)
    else:
        fixed = _FETCHED_V4.pack(number, error_code, high_watermark, stable, -1)
    return fixed + _I32.pack(records_bytes)


def _encode_fetched_tags(fetched: FetchedPartition) -> bytes:
    tags: dict[int, bytes] = {}
    if fetched.diverging is not None:
        tags[_DIVERGING_EPOCH_TAG] = _EPOCH_END.pack(*fetched.diverging) + NO_TAGS
    if fetched.current_leader is not None:
        tags[_CURRENT_LEADER_TAG] = encode_leader(fetched.current_leader)
    if fetched.snapshot is not None:
        tags[_SNAPSHOT_TAG] = _SNAPSHOT.pack(*fetched.snapshot) + NO_TAGS
    return encode_tags(tags) if tags else NO_TAGS


class FetchResponse(NamedTuple):
    """A response as a client reads it."""

    error_code: int
    partitions: Sequence[FetchedRecords]
    session_id: int = NO_SESSION
    throttle_ms: int = 0
    """The node takes nothing more in for so long."""
    nodes: Sequence[NodeEndpoint] = ()


def read_response(cursor: Cursor, version: int) -> FetchResponse:
    """The body of a response; records are views into the frame. Raises MalformedFrame."""
    flexible = version >= 12
    throttle_ms = cursor.i32()
    error_code, session_id = (cursor.i16(), cursor.i32()) if version >= 7 else (0, NO_SESSION)
    partitions: list[FetchedRecords] = []
    for _ in range(cursor.array_length(flexible)):
        by_id = version >= TOPIC_IDS_FROM
        topic_id = bytes(cursor.take(TOPIC_ID_BYTES)) if by_id else b""
        name = "" if by_id else cursor.string(flexible)
        partitions += [
            FetchedRecords(name, *_read_fetched(cursor, version), topic_id)
            for _ in range(cursor.array_length(flexible))
        ]
        if flexible:
            cursor.skip_tags()
    nodes = read_nodes(cursor) if flexible else ()
    return FetchResponse(error_code, partitions, session_id, throttle_ms, nodes)


def _read_fetched(cursor: Cursor, version: int) -> tuple[FetchedPartition, memoryview]:
    flexible = version >= 12
    partition, error_code = cursor.i32(), cursor.i16()
    high_watermark, _ = cursor.i64(), cursor.i64()
    log_start_offset = cursor.i64() if version >= 5 else -1
    for _ in range(cursor.nullable_array_length(flexible) or 0):
        cursor.take(16)  # an aborted transaction: the producer and its first offset
        if flexible:
            cursor.skip_tags()
    preferred = cursor.i32() if version >= 11 else NO_REPLICA
    records = cursor.nullable_bytes(flexible) or memoryview(b"")
    tags = cursor.tags() if flexible else {}
    fetched = FetchedPartition(
        partition,
        error_code,
        high_watermark,
        log_start_offset,
        len(records),
        preferred_read_replica=preferred,
    )
    if not tags:
        return fetched, records
    end = tags.get(_DIVERGING_EPOCH_TAG)
    leader = tags.get(_CURRENT_LEADER_TAG)
    snapshot = tags.get(_SNAPSHOT_TAG)
    fetched = fetched._replace(
        diverging=None if end is None else EpochEnd(*end.unpack(_EPOCH_END)),
        current_leader=None if leader is None else read_leader(leader),
        snapshot=None if snapshot is None else FetchSnapshot(*snapshot.unpack(_SNAPSHOT)),
    )
    return fetched, records
