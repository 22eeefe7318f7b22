"""Records of ``__consumer_offsets`` about consumer groups of KIP-848, under Kafka's own keys. Pure.

====  =====================================  ====================================================
key   name in Kafka                          value
====  =====================================  ====================================================
3     ConsumerGroupMetadata                  the group epoch
5     ConsumerGroupMemberMetadata            what a member says of itself
6     ConsumerGroupTargetAssignmentMetadata  the epoch of the target assignment
7     ConsumerGroupTargetAssignmentMember    what a member is to have
8     ConsumerGroupCurrentMemberAssignment   what a member has, and its epoch
16    ConsumerGroupRegularExpression         the topics that an expression stands for
====  =====================================  ====================================================

All values are of version 0. Tagged fields that later versions of Kafka have added are passed over.
streamlog 0.1.0 passes over records with these keys.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from streamlog.coordination.effects import KeptRecord
from streamlog.errors import BrokenInvariant, CorruptBatch, MalformedFrame
from streamlog.groups.shares.share_state import ShareState, StateKey
from streamlog.wire.cursor import (
    Cursor,
    encode_array_length,
    encode_bytes,
    encode_string,
    encode_uvarint,
)

_I8: Final = struct.Struct(">b")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_VERSION: Final = _I16.pack(0)
_NO_TAGS: Final = b"\x00"
_HASH_TAG: Final = 0
_CLASSIC_TAG: Final = 0

TopicPartitionId = tuple[UUID, int]
"""A topic's id and a partition's number: a topic of the same name that is made later is another one."""
Assigned = frozenset[TopicPartitionId]
NOTHING: Final[Assigned] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupEpochKey:
    """Its value is a ``GroupEpoch``."""

    group: str


class GroupEpoch(NamedTuple):
    """It rises with each change of members, subscriptions, or subscribed topics."""

    epoch: int
    metadata_hash: int = 0
    """Of the topics that members subscribe to, with their partitions."""


@dataclass(frozen=True, slots=True)
class MemberKey:
    """Its value is a ``MemberMetadata``."""

    group: str
    member_id: str


class ClassicMember(NamedTuple):
    """What is known of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberMetadata(NamedTuple):
    """What a member says of itself."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    rebalance_timeout_ms: int
    assignor: str | None
    classic: ClassicMember | None = None
    """None of one that speaks the consumer protocol."""


@dataclass(frozen=True, slots=True)
class TargetEpochKey:
    """Its value is the group epoch that the target assignment was computed for."""

    group: str


@dataclass(frozen=True, slots=True)
class TargetKey:
    """Its value is the member's part of the target assignment."""

    group: str
    member_id: str


class MemberState(IntEnum):
    """As Kafka numbers them."""

    STABLE = 0
    UNREVOKED = 1
    """It has to give up partitions first."""
    UNRELEASED = 2
    """It waits for partitions that others have to give up."""


@dataclass(frozen=True, slots=True)
class CurrentKey:
    """Its value is a ``CurrentAssignment``."""

    group: str
    member_id: str


class CurrentAssignment(NamedTuple):
    """What a member has."""

    epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Assigned
    revoking: Assigned


@dataclass(frozen=True, slots=True)
class RegexKey:
    """Its value is a ``ResolvedRegex``."""

    group: str
    regex: str


class ResolvedRegex(NamedTuple):
    """The topics that matched it when it was looked at."""

    topics: frozenset[str]
    version: int
    """Of the metadata."""
    at_ms: int
    """Wall clock."""


MembershipKey = GroupEpochKey | MemberKey | TargetEpochKey | TargetKey | CurrentKey | RegexKey
ConsumerGroupKey = MembershipKey | StateKey
"""The last one is of share groups alone, which have no expressions; see ``groups.shares.share_group``."""
ConsumerGroupValue = (
    GroupEpoch | MemberMetadata | int | Assigned | CurrentAssignment | ResolvedRegex | ShareState
)
Change = tuple[ConsumerGroupKey, ConsumerGroupValue | None]
"""A record to write; None: there is no such thing any more."""

_KEYS: Final[dict[int, type[MembershipKey]]] = {
    3: GroupEpochKey,
    5: MemberKey,
    6: TargetEpochKey,
    7: TargetKey,
    8: CurrentKey,
    16: RegexKey,
}
_NUMBERS: Final[dict[type, int]] = {type_: number for number, type_ in _KEYS.items()}


def consumer_group_record(change: Change) -> KeptRecord:
    """As bytes."""
    key, value = change
    encoded = encoded_key(_NUMBERS[type(key)], key)
    return KeptRecord(encoded, None if value is None else _VERSION + encoded_value(value))


def encoded_key(number: int, key: ConsumerGroupKey) -> bytes:
    """Of a key whose fields are all texts."""
    texts = (encode_string(getattr(key, it.name), False) for it in fields(key))
    return _I16.pack(number) + b"".join(texts)


def read_consumer_group_key(
    data: bytes | memoryview, kinds: Mapping[int, type[MembershipKey]] = _KEYS
) -> MembershipKey | None:
    """None for a key of another kind than these. Raises CorruptBatch."""
    try:
        cursor = Cursor(data)
        type_ = kinds.get(cursor.i16())
        if type_ is None:
            return None
        return type_(*(cursor.string(False) for _ in fields(type_)))
    except MalformedFrame as error:
        raise CorruptBatch(f"a key of __consumer_offsets: {error}") from None


def read_consumer_group_value(key: MembershipKey, data: bytes | memoryview) -> ConsumerGroupValue:
    """Raises CorruptBatch."""
    try:
        cursor = Cursor(data)
        version = cursor.i16()
        if version != 0:
            raise CorruptBatch(f"a value of __consumer_offsets has version {version}")
        match key:
            case GroupEpochKey():
                return GroupEpoch(cursor.i32(), _tagged_i64(cursor, _HASH_TAG))
            case MemberKey():
                return _member(cursor)
            case TargetEpochKey():
                return cursor.i32()
            case TargetKey():
                return read_assigned(cursor)
            case CurrentKey():
                epoch, previous, state = cursor.i32(), cursor.i32(), cursor.take(1)[0]
                return CurrentAssignment(
                    epoch,
                    previous,
                    MemberState(state),
                    read_assigned(cursor),
                    read_assigned(cursor),
                )
            case RegexKey():
                count = cursor.array_length(True)
                topics = frozenset(cursor.string(True) for _ in range(count))
                return ResolvedRegex(topics, cursor.i64(), cursor.i64())
    except (MalformedFrame, ValueError) as error:
        raise CorruptBatch(f"a consumer group of __consumer_offsets: {error}") from None


def encoded_value(value: ConsumerGroupValue) -> bytes:
    match value:
        case GroupEpoch():
            content = _I64.pack(value.metadata_hash)
            return _I32.pack(value.epoch) + (
                _tag(_HASH_TAG, content) if value.metadata_hash else _NO_TAGS
            )
        case MemberMetadata():
            return _member_value(value)
        case int():
            return _I32.pack(value) + _NO_TAGS
        case CurrentAssignment():
            return b"".join((
                _I32.pack(value.epoch), _I32.pack(value.previous_epoch), _I8.pack(value.state),
                assigned_value(value.assigned), assigned_value(value.revoking), _NO_TAGS,
            ))  # fmt: skip
        case ResolvedRegex():
            names = b"".join(encode_string(it, True) for it in sorted(value.topics))
            head = encode_array_length(len(value.topics), True)
            return head + names + _I64.pack(value.version) + _I64.pack(value.at_ms) + _NO_TAGS
        case ShareState():
            raise BrokenInvariant("consumer groups keep no share partitions")
        case _:
            return assigned_value(value) + _NO_TAGS


def _member_value(value: MemberMetadata) -> bytes:
    out = bytearray()
    for text in (value.instance_id, value.rack_id, value.client_id, value.client_host):
        out += encode_string(text, True)
    out += encode_array_length(len(value.topics), True)
    for topic in value.topics:
        out += encode_string(topic, True)
    out += encode_string(value.regex, True) + _I32.pack(value.rebalance_timeout_ms)
    out += encode_string(value.assignor, True)
    if value.classic is None:
        return bytes(out + _NO_TAGS)
    classic = bytearray(b"\x01")  # it is there
    classic += _I32.pack(value.classic.session_timeout_ms)
    classic += encode_array_length(len(value.classic.protocols), True)
    for name, metadata in value.classic.protocols:
        classic += encode_string(name, True) + encode_bytes(metadata, True) + _NO_TAGS
    return bytes(out + _tag(_CLASSIC_TAG, bytes(classic + _NO_TAGS)))


def _member(cursor: Cursor) -> MemberMetadata:
    instance_id, rack_id = cursor.nullable_string(True), cursor.nullable_string(True)
    client_id, client_host = cursor.string(True), cursor.string(True)
    topics = tuple(cursor.string(True) for _ in range(cursor.array_length(True)))
    regex, rebalance_timeout_ms = cursor.nullable_string(True), cursor.i32()
    assignor = cursor.nullable_string(True)
    content = _tagged(cursor, _CLASSIC_TAG)
    classic = None
    if content is not None and content[0] == 1:
        inner = Cursor(content, 1)
        session_timeout_ms = inner.i32()
        protocols = []
        for _ in range(inner.array_length(True)):
            protocols.append((inner.string(True), bytes(inner.nullable_bytes(True) or b"")))
            inner.skip_tags()
        classic = ClassicMember(session_timeout_ms, tuple(protocols))
    return MemberMetadata(
        instance_id, rack_id, client_id, client_host, topics, regex, rebalance_timeout_ms, assignor,
        classic,
    )  # fmt: skip


def by_topic(assigned: Assigned) -> dict[UUID, list[int]]:
    """Numbers of partitions in order, by the topic's id, in order."""
    found: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(assigned):
        found.setdefault(topic_id, []).append(number)
    return found


def assigned_value(assigned: Assigned) -> bytes:
    topics = by_topic(assigned)
    out = bytearray(encode_array_length(len(topics), True))
    for topic_id, numbers in topics.items():
        out += topic_id.bytes + encode_array_length(len(numbers), True)
        out += struct.pack(f">{len(numbers)}i", *numbers) + _NO_TAGS
    return bytes(out)


def read_assigned(cursor: Cursor) -> Assigned:
    found: list[TopicPartitionId] = []
    for _ in range(cursor.array_length(True)):
        topic_id = UUID(bytes=bytes(cursor.take(16)))
        count = cursor.array_length(True)
        found += ((topic_id, cursor.i32()) for _ in range(count))
        cursor.skip_tags()
    return frozenset(found)


def _tag(number: int, content: bytes) -> bytes:
    return b"".join((
        encode_uvarint(1), encode_uvarint(number), encode_uvarint(len(content)), content,
    ))  # fmt: skip


def _tagged(cursor: Cursor, number: int) -> bytes | None:
    """The content of the tagged field with this number."""
    found = None
    for _ in range(cursor.uvarint()):
        tag = cursor.uvarint()
        content = bytes(cursor.take(cursor.uvarint()))
        if tag == number:
            found = content
    return found


def _tagged_i64(cursor: Cursor, number: int) -> int:
    content = _tagged(cursor, number)
    if content is None or len(content) != _I64.size:
        return 0
    value: int = _I64.unpack(content)[0]
    return value
