"""Fetch, versions 4 to 18, by hand: the request and the response that move all the bytes.

A response is a frame with holes: the record bytes are not here but in segment files.
``encode_response`` gives the bytes before, between and after the holes, so that a shell sends them
in turn. From version 12 on a byte of (no) tagged fields comes after each partition's records.

    v5   the request names the replica's log start, the response the leader's
    v7   fetch sessions (KIP-227): what has not changed since the last request is left out
    v9   the client's leader epoch
    v11  the client's rack; the response's preferred replica (-1: this node)
    v12  the epoch of the last batch fetched; a diverging epoch may come back
    v13  topics have ids instead of names (KIP-516)
    v15  a replica's id goes to a tagged field, with its node epoch (KIP-903)
    v16  the response says where the leaders that it tells of are reached (KIP-951)

Our nodes ask for partitions by topic id, in the newest version: a name may be that of another
stream by the time that the leader reads it. They ask for the metadata log, which has no id, by name
in version 12; its member's folder (KIP-853) travels there as the tagged field that it is from v17
on.
"""

import struct
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from streamlog.model import NO_EPOCH, NO_INCARNATION, EpochEnd, TopicPartition
from streamlog.wire.compiled.plain_fetch import read_plain_fetch
from streamlog.wire.cursor import (
    NO_TAGS,
    STEP_ITEMS,
    Cursor,
    encode_array_length,
    encode_string,
    encode_tags,
    encode_uvarint,
)
from streamlog.wire.framing import LENGTH_BYTES
from streamlog.wire.leaders import (
    CurrentLeader,
    NodeEndpoint,
    encode_leader,
    encode_nodes,
    read_leader,
    read_nodes,
)

CONSUMER: Final = -1
"""The replica id of who is no replica."""

NO_SESSION: Final = 0
SESSIONLESS: Final = -1
"""The session epoch of who does not want a session."""
NEW_SESSION: Final = 0
"""The session epoch of who wants one and names all that it wants; the next request is of 1."""
SESSION_EPOCH_MAX: Final = 2**31 - 1

NOT_TOLD: Final = 2**63 - 1
"""Of a high watermark."""

TOPIC_IDS_FROM: Final = 13
"""The first version that names topics by their ids."""
REPLICA_STATE_FROM: Final = 15
"""The first version in which a replica's id stands beside its epoch, and nowhere else."""
TOPIC_ID_BYTES: Final = 16

_REQUEST_V4: Final = struct.Struct(">iiiib")
_REQUEST_V7: Final = struct.Struct(">iiiibii")
_REQUEST_V15: Final = struct.Struct(">iiibii")
_FORGOTTEN: Final = struct.Struct(">i")
_PARTITION_V4: Final = struct.Struct(">iqi")
_PARTITION_V5: Final = struct.Struct(">iqqi")
_PARTITION_V9: Final = struct.Struct(">iiqqi")
_PARTITION_V12: Final = struct.Struct(">iiqiqi")

_CLUSTER_ID_TAG: Final = 0
_REPLICA_STATE_TAG: Final = 1
_DIRECTORY_TAG: Final = 0
_HIGH_WATERMARK_TAG: Final = 1
_INCARNATION_TAG: Final = 10_000
_PARTITION_EPOCH_TAG: Final = 10_001
"""Ours; far above those that Kafka gives out. Who does not know it passes over it."""
_REPLICA_STATE: Final = struct.Struct(">iq")
_HIGH_WATERMARK: Final = struct.Struct(">q")
_INCARNATION: Final = struct.Struct(">q")
_PARTITION_EPOCH: Final = struct.Struct(">q")


class FetchPartition(NamedTuple):
    """What is wanted of one partition."""

    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = NO_EPOCH  # as the client knows it; NO_EPOCH: do not check
    last_fetched_epoch: int = NO_EPOCH  # of the batch before fetch_offset; NO_EPOCH: do not check
    log_start_offset: int = -1  # of a follower
    directory_id: UUID | None = None  # of a replica's folder
    high_watermark: int = NOT_TOLD  # as a follower knows it
    incarnation: int = NO_INCARNATION  # of a replica: the metadata offset of its assignment
    partition_epoch: int = NO_EPOCH  # as a follower knows it; NO_EPOCH: not told


class FetchTopic(NamedTuple):
    """What is wanted of one topic; up to version 12 it has a name, from 13 on an id."""

    name: str
    partitions: Sequence[FetchPartition]
    topic_id: bytes = b""


class TopicIdPartition(NamedTuple):
    """A partition of the topic with this id."""

    topic_id: bytes
    partition: int


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
    replica_epoch: int = -1
    """The replica's node epoch; -1: not told."""
    cluster_id: str | None = None
    """Of a member of the metadata quorum."""
    forgotten: Sequence[TopicPartition | TopicIdPartition] = ()
    """To be left out of the session from now on."""

    @property
    def is_by_id(self) -> bool:
        """All topics in it have ids; of a replica's that names none, too: replicas use no names."""
        if self.topics:
            return all(topic.topic_id for topic in self.topics)
        if self.forgotten:
            return all(isinstance(it, TopicIdPartition) for it in self.forgotten)
        return self.replica_id != CONSUMER


def next_session_epoch(epoch: int) -> int:
    """Of the request after the one of ``epoch``; never NEW_SESSION again."""
    return epoch + 1 if epoch < SESSION_EPOCH_MAX else 1


def read_request(cursor: Cursor, version: int) -> FetchRequest:
    """The body of a request. Raises MalformedFrame."""
    plain = _read_plain(cursor, version)
    if plain is not None:
        return plain
    head = _read_head(cursor, version)
    topics = [_read_topic(cursor, version) for _ in range(cursor.array_length(version >= 12))]
    return _read_rest(cursor, version, head, topics)


def _read_plain(cursor: Cursor, version: int) -> FetchRequest | None:
    """None: it is not as most consumers' are, or too large to be read without counting what is in it."""
    if not cursor.needs_no_count:
        return None
    found = read_plain_fetch(cursor.buffer, cursor.position, version)
    if found is None:
        return None
    wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, plain, rack_id = found
    topics = [
        FetchTopic(name, [FetchPartition(*it) for it in partitions], topic_id)
        for name, partitions, topic_id in plain
    ]
    cursor.position = cursor.end
    return FetchRequest(
        topics,
        wait_ms,
        min_bytes,
        max_bytes,
        CONSUMER,
        isolation,
        session_id,
        session_epoch,
        rack_id,
    )


def read_request_in_steps(cursor: Cursor, version: int) -> Generator[None, None, FetchRequest]:
    """The same for a large request: it yields between partitions, so that the caller can let other
    connections have their turn.
    """
    head = _read_head(cursor, version)
    topics: list[FetchTopic] = []
    for number in range(cursor.array_length(version >= 12)):
        topics.append((yield from _read_topic_in_steps(cursor, version)))
        if number % STEP_ITEMS == STEP_ITEMS - 1:
            yield
    return _read_rest(cursor, version, head, topics)


def _read_head(cursor: Cursor, version: int) -> tuple[int, ...]:
    """What comes before the topics: replica, max_wait_ms, min_bytes, max_bytes, isolation level,
    session id, session epoch.
    """
    if version >= REPLICA_STATE_FROM:
        return CONSUMER, *cursor.unpack(_REQUEST_V15)
    if version >= 7:
        return cursor.unpack(_REQUEST_V7)
    return *cursor.unpack(_REQUEST_V4), NO_SESSION, SESSIONLESS


def _read_rest(
    cursor: Cursor, version: int, head: tuple[int, ...], topics: list[FetchTopic]
) -> FetchRequest:
    flexible = version >= 12
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch = head
    forgotten: list[TopicPartition | TopicIdPartition] = []
    for _ in range(cursor.array_length(flexible) if version >= 7 else 0):
        of: Callable[[int], TopicPartition | TopicIdPartition]
        if version >= TOPIC_IDS_FROM:
            of = partial(TopicIdPartition, bytes(cursor.take(TOPIC_ID_BYTES)))
        else:
            of = partial(TopicPartition, cursor.topic_name(flexible))
        forgotten += [of(cursor.i32()) for _ in range(cursor.array_length(flexible))]
        if flexible:
            cursor.skip_tags()
    rack_id = cursor.string(flexible) if version >= 11 else ""
    replica_epoch, cluster_id = -1, None
    if flexible and (tags := cursor.tags()):
        if _REPLICA_STATE_TAG in tags:
            told_id, replica_epoch = tags[_REPLICA_STATE_TAG].unpack(_REPLICA_STATE)
            replica_id = told_id if version >= REPLICA_STATE_FROM else replica_id
        if _CLUSTER_ID_TAG in tags:
            cluster_id = tags[_CLUSTER_ID_TAG].nullable_string(flexible)
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
        replica_epoch,
        cluster_id,
        tuple(forgotten),
    )


def _read_topic(cursor: Cursor, version: int) -> FetchTopic:
    flexible = version >= 12
    by_id = version >= TOPIC_IDS_FROM
    topic_id = bytes(cursor.take(TOPIC_ID_BYTES)) if by_id else b""
    name = "" if by_id else cursor.topic_name(flexible)
    partitions = [_read_partition(cursor, version) for _ in range(cursor.array_length(flexible))]
    if flexible:
        cursor.skip_tags()
    return FetchTopic(name, partitions, topic_id)


def _read_topic_in_steps(cursor: Cursor, version: int) -> Generator[None, None, FetchTopic]:
    flexible = version >= 12
    by_id = version >= TOPIC_IDS_FROM
    topic_id = bytes(cursor.take(TOPIC_ID_BYTES)) if by_id else b""
    name = "" if by_id else cursor.topic_name(flexible)
    partitions: list[FetchPartition] = []
    for number in range(cursor.array_length(flexible)):
        partitions.append(_read_partition(cursor, version))
        if number % STEP_ITEMS == STEP_ITEMS - 1:
            yield
    if flexible:
        cursor.skip_tags()
    return FetchTopic(name, partitions, topic_id)


def _read_partition(cursor: Cursor, version: int) -> FetchPartition:
    epoch = last_epoch = NO_EPOCH
    log_start = -1
    directory_id = None
    high_watermark, incarnation, partition_epoch = NOT_TOLD, NO_INCARNATION, NO_EPOCH
    if version >= 12:
        partition, epoch, offset, last_epoch, log_start, max_bytes = cursor.unpack(_PARTITION_V12)
        if tags := cursor.tags():
            if _DIRECTORY_TAG in tags:
                directory_id = tags[_DIRECTORY_TAG].uuid()
            if _HIGH_WATERMARK_TAG in tags:
                (high_watermark,) = tags[_HIGH_WATERMARK_TAG].unpack(_HIGH_WATERMARK)
            if _INCARNATION_TAG in tags:
                (incarnation,) = tags[_INCARNATION_TAG].unpack(_INCARNATION)
            if _PARTITION_EPOCH_TAG in tags:
                (partition_epoch,) = tags[_PARTITION_EPOCH_TAG].unpack(_PARTITION_EPOCH)
    elif version >= 9:
        partition, epoch, offset, log_start, max_bytes = cursor.unpack(_PARTITION_V9)
    elif version >= 5:
        partition, offset, log_start, max_bytes = cursor.unpack(_PARTITION_V5)
    else:
        partition, offset, max_bytes = cursor.unpack(_PARTITION_V4)
    return FetchPartition(
        partition, offset, max_bytes, epoch, last_epoch, log_start, directory_id, high_watermark,
        incarnation, partition_epoch,
    )  # fmt: skip


def encode_request(request: FetchRequest, version: int) -> bytes:
    """The body of a request."""
    flexible = version >= 12
    tags = b"\x00" if flexible else b""
    limits = request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level
    session = request.session_id, request.session_epoch
    if version >= REPLICA_STATE_FROM:
        out = bytearray(_REQUEST_V15.pack(*limits, *session))
    elif version >= 7:
        out = bytearray(_REQUEST_V7.pack(request.replica_id, *limits, *session))
    else:
        out = bytearray(_REQUEST_V4.pack(request.replica_id, *limits))
    out += encode_array_length(len(request.topics), flexible)
    for topic in request.topics:
        by_id = version >= TOPIC_IDS_FROM
        out += topic.topic_id if by_id else encode_string(topic.name, flexible)
        out += encode_array_length(len(topic.partitions), flexible)
        for partition in topic.partitions:
            out += _encode_partition(partition, version)
        out += tags
    if version >= 7:
        out += _encode_forgotten(request.forgotten, flexible)
    if version >= 11:
        out += encode_string(request.rack_id, flexible)
    if flexible:
        out += _encode_request_tags(request, version)
    return bytes(out)


def _encode_forgotten(
    forgotten: Sequence[TopicPartition | TopicIdPartition], flexible: bool
) -> bytes:
    """A topic may come more than once."""
    out = bytearray(encode_array_length(len(forgotten), flexible))
    for topic, partition in forgotten:
        out += topic if isinstance(topic, bytes) else encode_string(topic, flexible)
        out += encode_array_length(1, flexible) + _FORGOTTEN.pack(partition)
        if flexible:
            out += NO_TAGS
    return bytes(out)


def _encode_request_tags(request: FetchRequest, version: int) -> bytes:
    tags: dict[int, bytes] = {}
    if request.cluster_id is not None:
        tags[_CLUSTER_ID_TAG] = encode_string(request.cluster_id, flexible=True)
    is_replica = version >= REPLICA_STATE_FROM and request.replica_id != CONSUMER
    if request.replica_epoch >= 0 or is_replica:
        state = _REPLICA_STATE.pack(request.replica_id, request.replica_epoch)
        tags[_REPLICA_STATE_TAG] = state + NO_TAGS
    return encode_tags(tags)


def _encode_partition(wanted: FetchPartition, version: int) -> bytes:
    number, offset, max_bytes, epoch, last_epoch, log_start, *_ = wanted
    if version >= 12:
        fixed = _PARTITION_V12.pack(number, epoch, offset, last_epoch, log_start, max_bytes)
        return fixed + _encode_partition_tags(wanted)
    if version >= 9:
        return _PARTITION_V9.pack(number, epoch, offset, log_start, max_bytes)
    if version >= 5:
        return _PARTITION_V5.pack(number, offset, log_start, max_bytes)
    return _PARTITION_V4.pack(number, offset, max_bytes)


def _encode_partition_tags(wanted: FetchPartition) -> bytes:
    tags: dict[int, bytes] = {}
    if wanted.directory_id is not None:
        tags[_DIRECTORY_TAG] = wanted.directory_id.bytes
    if wanted.high_watermark != NOT_TOLD:
        tags[_HIGH_WATERMARK_TAG] = _HIGH_WATERMARK.pack(wanted.high_watermark)
    if wanted.incarnation != NO_INCARNATION:
        tags[_INCARNATION_TAG] = _INCARNATION.pack(wanted.incarnation)
    if wanted.partition_epoch != NO_EPOCH:
        tags[_PARTITION_EPOCH_TAG] = _PARTITION_EPOCH.pack(wanted.partition_epoch)
    return encode_tags(tags) if tags else NO_TAGS


# The response: a frame around record bytes that lie elsewhere

NO_REPLICA: Final = -1
READ_COMMITTED: Final = 1
"""The isolation level of who reads no record of a transaction that is aborted, or open."""

_HEAD_V4: Final = struct.Struct(">i")
_HEAD_V7: Final = struct.Struct(">ihi")
_I32: Final = struct.Struct(">i")
_FETCHED_V4: Final = struct.Struct(">ihqqi")
_FETCHED_V5: Final = struct.Struct(">ihqqqi")
_FETCHED_V11: Final = struct.Struct(">ihqqqii")
_FETCHED_V12: Final = struct.Struct(">ihqqqbi")
_FETCHED_HEAD_V4: Final = struct.Struct(">ihqq")
_FETCHED_HEAD_V5: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")

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


class AbortedRange(NamedTuple):
    """Of this producer the records from this offset up to its next marker are aborted."""

    producer_id: int
    first_offset: int


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
    stable_offset: int | None = None  # None: the high watermark
    aborted: Sequence[
        AbortedRange
    ] = ()  # of who reads committed records, in the order of their offsets


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
    """Everything before the records, their length included."""
    number, error_code, high_watermark, log_start_offset, records_bytes, *_ = fetched
    stable, preferred = fetched.stable_offset, fetched.preferred_read_replica
    stable = high_watermark if stable is None else stable
    if fetched.aborted:
        head = number, error_code, high_watermark, stable, log_start_offset
        return _encode_fetched_aborted(head, fetched, version)
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


def _encode_fetched_aborted(
    head: tuple[int, int, int, int, int], fetched: FetchedPartition, version: int
) -> bytes:
    flexible = version >= 12
    out = bytearray(
        _FETCHED_HEAD_V5.pack(*head) if version >= 5 else _FETCHED_HEAD_V4.pack(*head[:4])
    )
    out += encode_array_length(len(fetched.aborted), flexible)
    for aborted in fetched.aborted:
        out += _ABORTED.pack(*aborted) + (NO_TAGS if flexible else b"")
    if version >= 11:
        out += _I32.pack(fetched.preferred_read_replica)
    records_bytes = fetched.records_bytes
    out += encode_uvarint(records_bytes + 1) if flexible else _I32.pack(records_bytes)
    return bytes(out)


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
    high_watermark, stable_offset = cursor.i64(), cursor.i64()
    log_start_offset = cursor.i64() if version >= 5 else -1
    aborted: list[AbortedRange] = []
    for _ in range(cursor.nullable_array_length(flexible) or 0):
        aborted.append(AbortedRange(*cursor.unpack(_ABORTED)))
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
        stable_offset=None if stable_offset == high_watermark else stable_offset,
        aborted=tuple(aborted),
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
