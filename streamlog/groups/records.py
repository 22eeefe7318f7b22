"""What a partition of ``__consumer_offsets`` holds: Kafka's own keys and values. Pure.

========================  =====================  ================================================
record                    key                    value
========================  =====================  ================================================
committed offset          OffsetCommitKey 1      OffsetCommitValue 4 (KIP-915), with the topic's id
group                     GroupMetadataKey 2     GroupMetadataValue 3
========================  =====================  ================================================

Older versions are read, too. A null value is a tombstone: there is no such offset, or group, any
more. Source: ``group-coordinator/src/main/resources/common/message`` of Apache Kafka.
"""

import struct
from typing import Final, NamedTuple
from uuid import UUID

from streamlog.coordination.effects import KeptRecord
from streamlog.errors import CorruptBatch, MalformedFrame
from streamlog.wire.cursor import (
    Cursor,
    encode_array_length,
    encode_bytes,
    encode_string,
    encode_uvarint,
)

_OFFSET_KEYS: Final = (0, 1)
_GROUP_KEY: Final = 2
_OFFSET_VALUE: Final = 4
_GROUP_VALUE: Final = 3
_FLEXIBLE_OFFSET_VALUE: Final = 4
_FLEXIBLE_GROUP_VALUE: Final = 4
_TOPIC_ID_TAG: Final = 0
_NEVER: Final = -1

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")

NO_TOPIC_ID: Final = UUID(int=0)


class OffsetKey(NamedTuple):
    """Whose offset, and of which partition."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """Which group."""

    group: str


class CommittedOffset(NamedTuple):
    """One committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    """Wall clock, of when it was taken in."""
    expire_ms: int | None = None
    """Wall clock; where the client has said so itself (OffsetCommit up to version 4)."""
    topic_id: UUID = NO_TOPIC_ID
    """A stream of the same name that is made later is another one."""


class KeptMember(NamedTuple):
    """A member as it is kept."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """Its metadata for the protocol that was chosen."""
    assignment: bytes


class KeptGroup(NamedTuple):
    """A group as it is kept: after each of its generations."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    """Wall clock, of its last change of state; -1: not known."""
    members: tuple[KeptMember, ...]


def offset_record(key: OffsetKey, value: CommittedOffset | None) -> KeptRecord:
    """``value`` None: it is to be forgotten."""
    encoded = b"".join((
        _I16.pack(_OFFSET_KEYS[-1]), encode_string(key.group, False),
        encode_string(key.topic, False), _I32.pack(key.partition),
    ))  # fmt: skip
    return KeptRecord(encoded, None if value is None else _offset_value(value))


def group_record(group: str, value: KeptGroup | None) -> KeptRecord:
    """``value`` None: it is to be forgotten."""
    encoded = _I16.pack(_GROUP_KEY) + encode_string(group, False)
    return KeptRecord(encoded, None if value is None else _group_value(value))


BARRIER: Final = group_record("", None)
"""Says nothing: it is written to see that it can be. No group of that name is ever kept."""


def read_key(data: bytes | memoryview) -> OffsetKey | GroupKey | None:
    """None for a key of a kind that is none of ours. Raises CorruptBatch."""
    try:
        cursor = Cursor(data)
        version = cursor.i16()
        if version in _OFFSET_KEYS:
            return OffsetKey(cursor.string(False), cursor.string(False), cursor.i32())
        return GroupKey(cursor.string(False)) if version == _GROUP_KEY else None
    except MalformedFrame as error:
        raise CorruptBatch(f"a key of __consumer_offsets: {error}") from None


def read_offset(data: bytes | memoryview) -> CommittedOffset:
    """Raises CorruptBatch."""
    try:
        cursor = Cursor(data)
        version = cursor.i16()
        _check_version(version, _OFFSET_VALUE)
        flexible = version >= _FLEXIBLE_OFFSET_VALUE
        offset = cursor.i64()
        leader_epoch = cursor.i32() if version >= 3 else -1
        metadata = cursor.string(flexible)
        commit_ms = cursor.i64()
        expire_ms = cursor.i64() if version == 1 else _NEVER
        topic_id = _topic_id(cursor) if flexible else NO_TOPIC_ID
    except MalformedFrame as error:
        raise CorruptBatch(f"an offset of __consumer_offsets: {error}") from None
    wish = None if expire_ms == _NEVER else expire_ms
    return CommittedOffset(offset, leader_epoch, metadata, commit_ms, wish, topic_id)


def read_group(data: bytes | memoryview) -> KeptGroup:
    """Raises CorruptBatch."""
    try:
        cursor = Cursor(data)
        version = cursor.i16()
        _check_version(version, _FLEXIBLE_GROUP_VALUE)
        flexible = version >= _FLEXIBLE_GROUP_VALUE
        protocol_type, generation = cursor.string(flexible), cursor.i32()
        protocol, leader = cursor.nullable_string(flexible), cursor.nullable_string(flexible)
        state_ms = cursor.i64() if version >= 2 else -1
        count = cursor.array_length(flexible)
        members = tuple(_member(cursor, version, flexible) for _ in range(count))
    except MalformedFrame as error:
        raise CorruptBatch(f"a group of __consumer_offsets: {error}") from None
    return KeptGroup(protocol_type, generation, protocol, leader, state_ms, members)


def _check_version(version: int, newest: int) -> None:
    if not 0 <= version <= newest:
        raise CorruptBatch(f"a value of __consumer_offsets has version {version}")


def _topic_id(cursor: Cursor) -> UUID:
    found = NO_TOPIC_ID
    for _ in range(cursor.uvarint()):
        tag = cursor.uvarint()
        content = cursor.take(cursor.uvarint())
        if tag == _TOPIC_ID_TAG and len(content) == 16:
            found = UUID(bytes=bytes(content))
    return found


def _member(cursor: Cursor, version: int, flexible: bool) -> KeptMember:
    member_id = cursor.string(flexible)
    instance_id = cursor.nullable_string(flexible) if version >= 3 else None
    client_id, client_host = cursor.string(flexible), cursor.string(flexible)
    rebalance_ms = cursor.i32() if version >= 1 else _NEVER
    session_ms = cursor.i32()
    subscription = bytes(cursor.nullable_bytes(flexible) or b"")
    assignment = bytes(cursor.nullable_bytes(flexible) or b"")
    if flexible:
        cursor.skip_tags()
    if rebalance_ms == _NEVER:
        rebalance_ms = session_ms
    return KeptMember(
        member_id, instance_id, client_id, client_host, rebalance_ms, session_ms, subscription,
        assignment,
    )  # fmt: skip


def _offset_value(value: CommittedOffset) -> bytes:
    if value.expire_ms is not None:  # only this version has a place for it
        return b"".join((
            _I16.pack(1), _I64.pack(value.offset), encode_string(value.metadata, False),
            _I64.pack(value.commit_ms), _I64.pack(value.expire_ms),
        ))  # fmt: skip
    return b"".join((
        _I16.pack(_OFFSET_VALUE), _I64.pack(value.offset), _I32.pack(value.leader_epoch),
        encode_string(value.metadata, True), _I64.pack(value.commit_ms),
        _tags(value.topic_id),
    ))  # fmt: skip


def _tags(topic_id: UUID) -> bytes:
    if topic_id == NO_TOPIC_ID:
        return encode_uvarint(0)
    content = topic_id.bytes
    head = encode_uvarint(1) + encode_uvarint(_TOPIC_ID_TAG) + encode_uvarint(len(content))
    return head + content


def _group_value(value: KeptGroup) -> bytes:
    out = bytearray(_I16.pack(_GROUP_VALUE))
    out += encode_string(value.protocol_type, False) + _I32.pack(value.generation)
    out += encode_string(value.protocol, False) + encode_string(value.leader, False)
    out += _I64.pack(value.state_ms) + encode_array_length(len(value.members), False)
    for it in value.members:
        for text in (it.member_id, it.instance_id, it.client_id, it.client_host):
            out += encode_string(text, False)
        out += _I32.pack(it.rebalance_timeout_ms) + _I32.pack(it.session_timeout_ms)
        out += encode_bytes(it.subscription, False) + encode_bytes(it.assignment, False)
    return bytes(out)
