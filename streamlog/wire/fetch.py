"""Fetch, versions 4 to 12, by hand: the request and the response that move all the bytes.

A response is a frame with holes: the record bytes are not here but in segment files.
``encode_response`` gives the bytes before, between and after the holes, so that a shell sends them
in turn. Version 12 is flexible: it has a byte of (no) tagged fields after each partition's records.

    v5   the request names the replica's log start, the response the leader's
    v7   fetch sessions: parsed, never granted; a session id of 0 tells the client so
    v9   the client's leader epoch
    v11  the client's rack; the response's preferred replica (-1: this node)
    v12  the epoch of the last batch fetched; a diverging epoch may come back
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from streamlog.model import NO_EPOCH, EpochEnd
from streamlog.wire.cursor import (
    Cursor,
    encode_array_length,
    encode_string,
    encode_uvarint,
)

CONSUMER: Final = -1
"""The replica id of who is no replica."""

NO_SESSION: Final = 0
SESSIONLESS: Final = -1
"""The session epoch of who does not want a session."""

_REQUEST_V4: Final = struct.Struct(">iiiib")
_SESSION: Final = struct.Struct(">ii")
_PARTITION_V4: Final = struct.Struct(">iqi")
_PARTITION_V5: Final = struct.Struct(">iqqi")
_PARTITION_V9: Final = struct.Struct(">iiqqi")
_PARTITION_V12: Final = struct.Struct(">iiqiqi")
_ERROR_SESSION: Final = struct.Struct(">hi")
_I32: Final = struct.Struct(">i")
_FETCHED_V4: Final = struct.Struct(">ihqqi")
_FETCHED_V5: Final = struct.Struct(">ihqqqi")
_FETCHED_V11: Final = struct.Struct(">ihqqqii")
_FETCHED_V12: Final = struct.Struct(">ihqqqbi")
_EPOCH_END: Final = struct.Struct(">iq")

_NO_LENGTH_YET: Final = bytes(4)
_NO_THROTTLE: Final = bytes(4)
_DIVERGING_EPOCH_TAG: Final = 0
_EPOCH_END_BYTES: Final = _EPOCH_END.size + 1  # and its own tagged fields


class FetchPartition(NamedTuple):
    """What is wanted of one partition."""

    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = NO_EPOCH  # as the client knows it; NO_EPOCH: do not check
    last_fetched_epoch: int = NO_EPOCH  # of the batch before fetch_offset; NO_EPOCH: do not check
    log_start_offset: int = -1  # of a follower


class FetchTopic(NamedTuple):
    """What is wanted of one topic."""

    name: str
    partitions: Sequence[FetchPartition]


class FetchRequest(NamedTuple):
    """A Fetch request of any version."""

    topics: Sequence[FetchTopic]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    replica_id: int = CONSUMER
    isolation_level: int = 0
    session_id: int = NO_SESSION
    session_epoch: int = SESSIONLESS
    rack_id: str = ""


class FetchedPartition(NamedTuple):
    """One partition's part of a response; its record bytes are elsewhere, here is their length."""

    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    records_bytes: int = 0
    diverging: EpochEnd | None = None  # v12: the caller's history leaves ours at this epoch's end


FetchedTopic = tuple[str, Sequence[FetchedPartition]]


class FetchedRecords(NamedTuple):
    """One partition's part of a response as a client reads it."""

    topic: str
    fetched: FetchedPartition
    records: memoryview


def read_request(cursor: Cursor, version: int) -> FetchRequest:
    """The body of a request. Raises MalformedFrame."""
    flexible = version >= 12
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation = cursor.unpack(_REQUEST_V4)
    session_id, session_epoch = (
        cursor.unpack(_SESSION) if version >= 7 else (NO_SESSION, SESSIONLESS)
    )
    topics = [_read_topic(cursor, version) for _ in range(cursor.array_length(flexible))]
    if version >= 7:
        _skip_forgotten(cursor, flexible)
    rack_id = cursor.string(flexible) if version >= 11 else ""
    if flexible:
        cursor.skip_tags()
    return FetchRequest(
        topics,
        max_wait_ms,
        min_bytes,
        max_bytes,
        replica_id,
        isolation,
        session_id,
        session_epoch,
        rack_id,
    )


def _read_topic(cursor: Cursor, version: int) -> FetchTopic:
    flexible = version >= 12
    name = cursor.string(flexible)
    partitions = [_read_partition(cursor, version) for _ in range(cursor.array_length(flexible))]
    if flexible:
        cursor.skip_tags()
    return FetchTopic(name, partitions)


def _read_partition(cursor: Cursor, version: int) -> FetchPartition:
    epoch = last_epoch = NO_EPOCH
    log_start = -1
    if version >= 12:
        partition, epoch, offset, last_epoch, log_start, max_bytes = cursor.unpack(_PARTITION_V12)
        cursor.skip_tags()
    elif version >= 9:
        partition, epoch, offset, log_start, max_bytes = cursor.unpack(_PARTITION_V9)
    elif version >= 5:
        partition, offset, log_start, max_bytes = cursor.unpack(_PARTITION_V5)
    else:
        partition, offset, max_bytes = cursor.unpack(_PARTITION_V4)
    return FetchPartition(partition, offset, max_bytes, epoch, last_epoch, log_start)


def _skip_forgotten(cursor: Cursor, flexible: bool) -> None:
    """Topics to leave out of a session; there are no sessions."""
    for _ in range(cursor.array_length(flexible)):
        cursor.string(flexible)
        cursor.take(4 * cursor.array_length(flexible))
        if flexible:
            cursor.skip_tags()


def encode_request(request: FetchRequest, version: int) -> bytes:
    """The body of a request."""
    flexible = version >= 12
    tags = b"\x00" if flexible else b""
    out = bytearray(
        _REQUEST_V4.pack(
            request.replica_id,
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.isolation_level,
        )
    )
    if version >= 7:
        out += _SESSION.pack(request.session_id, request.session_epoch)
    out += encode_array_length(len(request.topics), flexible)
    for topic in request.topics:
        out += encode_string(topic.name, flexible)
        out += encode_array_length(len(topic.partitions), flexible)
        for partition in topic.partitions:
            out += _encode_partition(partition, version) + tags
        out += tags
    if version >= 7:
        out += encode_array_length(0, flexible)
    if version >= 11:
        out += encode_string(request.rack_id, flexible)
    return bytes(out + tags)


def _encode_partition(wanted: FetchPartition, version: int) -> bytes:
    number, offset, max_bytes, epoch, last_epoch, log_start = wanted
    if version >= 12:
        return _PARTITION_V12.pack(number, epoch, offset, last_epoch, log_start, max_bytes)
    if version >= 9:
        return _PARTITION_V9.pack(number, epoch, offset, log_start, max_bytes)
    if version >= 5:
        return _PARTITION_V5.pack(number, offset, log_start, max_bytes)
    return _PARTITION_V4.pack(number, offset, max_bytes)


def encode_response(
    header: bytes, topics: Sequence[FetchedTopic], version: int, *, error_code: int = 0
) -> list[bytes]:
    """The frame around its holes: ``result[i]`` goes before the i-th non-empty run of records.

    ``header`` is the response's header; the frame's length is put before it. The last piece follows
    the last run, and is empty where nothing does.
    """
    flexible = version >= 12
    piece = bytearray(_NO_LENGTH_YET + header + _NO_THROTTLE)
    if version >= 7:
        piece += _ERROR_SESSION.pack(error_code, NO_SESSION)
    pieces = [piece]
    records_bytes = 0
    piece += encode_array_length(len(topics), flexible)
    for name, partitions in topics:
        piece += encode_string(name, flexible) + encode_array_length(len(partitions), flexible)
        for fetched in partitions:
            piece += _encode_fetched(fetched, version)
            if fetched.records_bytes:
                records_bytes += fetched.records_bytes
                piece = bytearray()
                pieces.append(piece)
            if flexible:
                piece += _encode_fetched_tags(fetched)
        if flexible:
            piece.append(0)
    if flexible:
        piece.append(0)
    length = sum(map(len, pieces)) - 4 + records_bytes
    pieces[0][:4] = _I32.pack(length)
    return [bytes(piece) for piece in pieces]


def _encode_fetched(fetched: FetchedPartition, version: int) -> bytes:
    """Everything before the records, their length included; transactions are not known here."""
    number, error_code, high_watermark, log_start_offset, records_bytes, _ = fetched
    stable = high_watermark
    if version >= 12:
        fixed = _FETCHED_V12.pack(
            number, error_code, high_watermark, stable, log_start_offset, 0, -1
        )
        return fixed + encode_uvarint(records_bytes + 1)
    if version >= 11:
        fixed = _FETCHED_V11.pack(
            number, error_code, high_watermark, stable, log_start_offset, -1, -1
        )
    elif version >= 5:
        fixed = _FETCHED_V5.pack(number, error_code, high_watermark, stable, log_start_offset, -1)
    else:
        fixed = _FETCHED_V4.pack(number, error_code, high_watermark, stable, -1)
    return fixed + _I32.pack(records_bytes)


def _encode_fetched_tags(fetched: FetchedPartition) -> bytes:
    if fetched.diverging is None:
        return b"\x00"
    head = bytes((1, _DIVERGING_EPOCH_TAG, _EPOCH_END_BYTES))
    return head + _EPOCH_END.pack(*fetched.diverging) + b"\x00"


class FetchResponse(NamedTuple):
    """A response as a client reads it."""

    error_code: int
    partitions: Sequence[FetchedRecords]


def read_response(cursor: Cursor, version: int) -> FetchResponse:
    """The body of a response; records are views into the frame. Raises MalformedFrame."""
    flexible = version >= 12
    cursor.i32()  # throttle time: we have none
    error_code, _ = cursor.unpack(_ERROR_SESSION) if version >= 7 else (0, 0)
    partitions: list[FetchedRecords] = []
    for _ in range(cursor.array_length(flexible)):
        name = cursor.string(flexible)
        partitions += [
            FetchedRecords(name, *_read_fetched(cursor, version))
            for _ in range(cursor.array_length(flexible))
        ]
        if flexible:
            cursor.skip_tags()
    if flexible:
        cursor.skip_tags()
    return FetchResponse(error_code, partitions)


def _read_fetched(cursor: Cursor, version: int) -> tuple[FetchedPartition, memoryview]:
    flexible = version >= 12
    partition, error_code = cursor.i32(), cursor.i16()
    high_watermark, _ = cursor.i64(), cursor.i64()
    log_start_offset = cursor.i64() if version >= 5 else -1
    for _ in range(cursor.nullable_array_length(flexible) or 0):
        cursor.take(16)  # an aborted transaction: the producer and its first offset
        if flexible:
            cursor.skip_tags()
    if version >= 11:
        cursor.i32()  # the preferred replica
    records = cursor.nullable_bytes(flexible) or memoryview(b"")
    diverging = _read_fetched_tags(cursor) if flexible else None
    fetched = FetchedPartition(
        partition, error_code, high_watermark, log_start_offset, len(records), diverging
    )
    return fetched, records


def _read_fetched_tags(cursor: Cursor) -> EpochEnd | None:
    diverging = None
    for _ in range(cursor.uvarint()):
        tag, length = cursor.uvarint(), cursor.uvarint()
        content = Cursor(cursor.take(length))
        if tag == _DIVERGING_EPOCH_TAG:
            diverging = EpochEnd(content.i32(), content.i64())
    return diverging
