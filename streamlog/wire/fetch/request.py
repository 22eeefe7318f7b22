"""The request: what is wanted, and by whom."""

import struct
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from streamlog.model import NO_EPOCH, NO_INCARNATION, TopicPartition
from streamlog.wire.cursor import (
    NO_TAGS,
    STEP_ITEMS,
    Cursor,
    encode_array_length,
    encode_string,
    encode_tags,
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
"""Ours; far above those that Kafka gives out. Who does not know it passes over it."""
_REPLICA_STATE: Final = struct.Struct(">iq")
_HIGH_WATERMARK: Final = struct.Struct(">q")
_INCARNATION: Final = struct.Struct(">q")


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
    head = _read_head(cursor, version)
    topics = [_read_topic(cursor, version) for _ in range(cursor.array_length(version >= 12))]
    return _read_rest(cursor, version, head, topics)


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
    high_watermark, incarnation = NOT_TOLD, NO_INCARNATION
    if version >= 12:
        partition, epoch, offset, last_epoch, log_start, max_bytes = cursor.unpack(_PARTITION_V12)
        if tags := cursor.tags():
            if _DIRECTORY_TAG in tags:
                directory_id = tags[_DIRECTORY_TAG].uuid()
            if _HIGH_WATERMARK_TAG in tags:
                (high_watermark,) = tags[_HIGH_WATERMARK_TAG].unpack(_HIGH_WATERMARK)
            if _INCARNATION_TAG in tags:
                (incarnation,) = tags[_INCARNATION_TAG].unpack(_INCARNATION)
    elif version >= 9:
        partition, epoch, offset, log_start, max_bytes = cursor.unpack(_PARTITION_V9)
    elif version >= 5:
        partition, offset, log_start, max_bytes = cursor.unpack(_PARTITION_V5)
    else:
        partition, offset, max_bytes = cursor.unpack(_PARTITION_V4)
    return FetchPartition(
        partition, offset, max_bytes, epoch, last_epoch, log_start, directory_id, high_watermark,
        incarnation,
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
    """A topic may come more than once: nobody minds."""
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
    return encode_tags(tags) if tags else NO_TAGS
