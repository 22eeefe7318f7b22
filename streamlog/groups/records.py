"""What a partition of ``__consumer_offsets`` holds: Kafka's own keys and values. Pure.

Offsets and groups of the classic protocol:

====  ====================================  =======================================================
key   name in Kafka                         value
====  ====================================  =======================================================
1     OffsetCommitKey                       a committed offset, OffsetCommitValue 4 (KIP-915), with
                                            the topic's id
2     GroupMetadataKey                      a group, GroupMetadataValue 3
====  ====================================  =======================================================

Consumer groups of KIP-848; streamlog 0.1.0 passes over records with these keys:

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

Share groups (KIP-932); they mean what those of consumer groups do:

====  ==================================  =======================================================
key   name in Kafka                       value
====  ==================================  =======================================================
10    ShareGroupMemberMetadata            what a member says of itself
11    ShareGroupMetadata                  the group epoch
12    ShareGroupTargetAssignmentMetadata  the epoch of the target assignment
13    ShareGroupTargetAssignmentMember    what a member is to have
14    ShareGroupCurrentMemberAssignment   what a member has, and its epoch
====  ==================================  =======================================================

Two more are our own, with numbers that Kafka is far from:

====  ===================================================  ============================================
key   of                                                   value
====  ===================================================  ============================================
1000  a group, a topic's id, and a partition's number      ``ShareState``
1001  a group                                              its configs: names and values
====  ===================================================  ============================================

Values of consumer and share groups are of version 0; tagged fields that later versions of Kafka have added are
passed over. Older versions of offsets and classic groups are read, too. A null value is a tombstone: there is no
such thing any more. Source: ``group-coordinator/src/main/resources/common/message`` of Apache Kafka.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from streamlog.coordination.effects import KeptRecord
from streamlog.errors import BrokenInvariant, CorruptBatch, MalformedFrame
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
_NO_TAGS: Final = b"\x00"

_I8: Final = struct.Struct(">b")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")

NO_TOPIC_ID: Final = UUID(int=0)

# Offsets, and groups of the classic protocol


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
        members = tuple(_classic_member(cursor, version, flexible) for _ in range(count))
    except MalformedFrame as error:
        raise CorruptBatch(f"a group of __consumer_offsets: {error}") from None
    return KeptGroup(protocol_type, generation, protocol, leader, state_ms, members)


def _check_version(version: int, newest: int) -> None:
    if not 0 <= version <= newest:
        raise CorruptBatch(f"a value of __consumer_offsets has version {version}")


def _topic_id(cursor: Cursor) -> UUID:
    content = _tagged(cursor, _TOPIC_ID_TAG)
    return NO_TOPIC_ID if content is None or len(content) != 16 else UUID(bytes=content)


def _classic_member(cursor: Cursor, version: int, flexible: bool) -> KeptMember:
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
        _NO_TAGS if value.topic_id == NO_TOPIC_ID else _tag(_TOPIC_ID_TAG, value.topic_id.bytes),
    ))  # fmt: skip


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


# What is kept of a share partition: a partition as a share group reads it

NO_OWNER: Final = UUID(int=0)
NOT_SET: Final = -1
"""The start offset of a share partition that has none: ``share.auto.offset.reset`` says where it begins."""


@dataclass(frozen=True, slots=True)
class StateKey:
    """Its value is a ``ShareState``."""

    group: str
    topic_id: UUID
    partition: int


class ShareState(NamedTuple):
    """How far a group has come in a partition, as the leader of the partition has kept it."""

    leader_epoch: int = -1
    """Of the partition, when its leader took the state over."""
    owner: UUID = NO_OWNER
    """made by each leader that takes the state over: no other may change it from then on."""
    version: int = 0
    """It rises with each change by the owner."""
    start_offset: int = NOT_SET
    """All below is done with."""
    end_offset: int = NOT_SET
    """Nothing from here on was delivered."""
    pending: int = 0
    """Records between the two that are not done with."""
    delivery: bytes = b""
    """``delivery.Delivery.encode``; empty: nothing was delivered from the start offset on."""


# Groups of the consumer protocol

_VERSION: Final = _I16.pack(0)
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
"""The last one is of share groups alone, which have no expressions."""
ConsumerGroupValue = (
    GroupEpoch | MemberMetadata | int | Assigned | CurrentAssignment | ResolvedRegex | ShareState
)
Change = tuple[ConsumerGroupKey, ConsumerGroupValue | None]
"""A record to write; None: there is no such thing any more."""

_CONSUMER_KEYS: Final[dict[int, type[MembershipKey]]] = {
    3: GroupEpochKey,
    5: MemberKey,
    6: TargetEpochKey,
    7: TargetKey,
    8: CurrentKey,
    16: RegexKey,
}
_CONSUMER_NUMBERS: Final[dict[type, int]] = {
    type_: number for number, type_ in _CONSUMER_KEYS.items()
}


def consumer_group_record(change: Change) -> KeptRecord:
    """As bytes."""
    key, value = change
    encoded = _texts_key(_CONSUMER_NUMBERS[type(key)], key)
    return KeptRecord(encoded, None if value is None else _VERSION + _consumer_value(value))


def _texts_key(number: int, key: ConsumerGroupKey) -> bytes:
    """Of a key whose fields are all texts."""
    texts = (encode_string(getattr(key, it.name), False) for it in fields(key))
    return _I16.pack(number) + b"".join(texts)


def read_consumer_group_key(
    data: bytes | memoryview, kinds: Mapping[int, type[MembershipKey]] = _CONSUMER_KEYS
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
                return _consumer_member(cursor)
            case TargetEpochKey():
                return cursor.i32()
            case TargetKey():
                return _read_assigned(cursor)
            case CurrentKey():
                epoch, previous, state = cursor.i32(), cursor.i32(), cursor.take(1)[0]
                return CurrentAssignment(
                    epoch,
                    previous,
                    MemberState(state),
                    _read_assigned(cursor),
                    _read_assigned(cursor),
                )
            case RegexKey():
                count = cursor.array_length(True)
                topics = frozenset(cursor.string(True) for _ in range(count))
                return ResolvedRegex(topics, cursor.i64(), cursor.i64())
    except (MalformedFrame, ValueError) as error:
        raise CorruptBatch(f"a consumer group of __consumer_offsets: {error}") from None


def _consumer_value(value: ConsumerGroupValue) -> bytes:
    match value:
        case GroupEpoch():
            content = _I64.pack(value.metadata_hash)
            return _I32.pack(value.epoch) + (
                _tag(_HASH_TAG, content) if value.metadata_hash else _NO_TAGS
            )
        case MemberMetadata():
            return _consumer_member_value(value)
        case int():
            return _I32.pack(value) + _NO_TAGS
        case CurrentAssignment():
            return b"".join((
                _I32.pack(value.epoch), _I32.pack(value.previous_epoch), _I8.pack(value.state),
                _assigned_value(value.assigned), _assigned_value(value.revoking), _NO_TAGS,
            ))  # fmt: skip
        case ResolvedRegex():
            names = b"".join(encode_string(it, True) for it in sorted(value.topics))
            head = encode_array_length(len(value.topics), True)
            return head + names + _I64.pack(value.version) + _I64.pack(value.at_ms) + _NO_TAGS
        case ShareState():
            raise BrokenInvariant("consumer groups keep no share partitions")
        case _:
            return _assigned_value(value) + _NO_TAGS


def _consumer_member_value(value: MemberMetadata) -> bytes:
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


def _consumer_member(cursor: Cursor) -> MemberMetadata:
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


def _assigned_value(assigned: Assigned) -> bytes:
    topics = by_topic(assigned)
    out = bytearray(encode_array_length(len(topics), True))
    for topic_id, numbers in topics.items():
        out += topic_id.bytes + encode_array_length(len(numbers), True)
        out += struct.pack(f">{len(numbers)}i", *numbers) + _NO_TAGS
    return bytes(out)


def _read_assigned(cursor: Cursor) -> Assigned:
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


# Share groups

_SHARE_KEYS: Final[dict[int, type[MembershipKey]]] = {
    10: MemberKey,
    11: GroupEpochKey,
    12: TargetEpochKey,
    13: TargetKey,
    14: CurrentKey,
}
_SHARE_NUMBERS: Final[dict[type, int]] = {type_: number for number, type_ in _SHARE_KEYS.items()}
_STATE_KEY: Final = 1000
_CONFIGS_KEY: Final = 1001
_STATE_NUMBERS: Final = struct.Struct(">qqqq")
_CURRENT_HEAD: Final = struct.Struct(">iib")
_NO_TIMEOUT: Final = -1
"""Members of share groups have no time to give up partitions."""


def share_group_record(change: Change) -> KeptRecord:
    """As bytes."""
    key, value = change
    if isinstance(key, StateKey):
        place = key.topic_id.bytes + _I32.pack(key.partition)
        encoded = _I16.pack(_STATE_KEY) + encode_string(key.group, False) + place
    else:
        encoded = _texts_key(_SHARE_NUMBERS[type(key)], key)
    return KeptRecord(encoded, None if value is None else _VERSION + _share_value(value))


def read_share_group_key(data: bytes | memoryview) -> ConsumerGroupKey | None:
    """None for a key of another kind. Raises CorruptBatch."""
    try:
        cursor = Cursor(data)
        if cursor.i16() != _STATE_KEY:
            return read_consumer_group_key(data, _SHARE_KEYS)
        return StateKey(cursor.string(False), UUID(bytes=bytes(cursor.take(16))), cursor.i32())
    except MalformedFrame as error:
        raise CorruptBatch(f"a key of __consumer_offsets: {error}") from None


def read_share_group_value(key: ConsumerGroupKey, data: bytes | memoryview) -> ConsumerGroupValue:
    """Raises CorruptBatch."""
    try:
        cursor = Cursor(data)
        version = cursor.i16()
        if version != 0:
            raise CorruptBatch(f"a value of __consumer_offsets has version {version}")
        match key:
            case StateKey():
                epoch, owner = cursor.i32(), UUID(bytes=bytes(cursor.take(16)))
                version, start, end, pending = cursor.unpack(_STATE_NUMBERS)
                delivery = bytes(cursor.nullable_bytes(True) or b"")
                return ShareState(epoch, owner, version, start, end, pending, delivery)
            case MemberKey():
                rack_id, client_id = cursor.nullable_string(True), cursor.string(True)
                host, count = cursor.string(True), cursor.array_length(True)
                topics = tuple(cursor.string(True) for _ in range(count))
                return _share_member(rack_id, client_id, host, topics)
            case CurrentKey():
                member_epoch, previous, state = cursor.unpack(_CURRENT_HEAD)
                assigned = _read_assigned(cursor)
                return CurrentAssignment(
                    member_epoch, previous, MemberState(state), assigned, NOTHING
                )
            case _:
                return read_consumer_group_value(key, data)
    except (MalformedFrame, ValueError) as error:
        raise CorruptBatch(f"a share group of __consumer_offsets: {error}") from None


def _share_member(
    rack_id: str | None, client_id: str, client_host: str, topics: tuple[str, ...]
) -> MemberMetadata:
    return MemberMetadata(None, rack_id, client_id, client_host, topics, None, _NO_TIMEOUT, None)


def _share_value(value: ConsumerGroupValue) -> bytes:
    match value:
        case ShareState():
            numbers = _STATE_NUMBERS.pack(
                value.version, value.start_offset, value.end_offset, value.pending
            )
            head = _I32.pack(value.leader_epoch) + value.owner.bytes + numbers
            return head + encode_bytes(value.delivery, True) + _NO_TAGS
        case MemberMetadata():
            if value.regex is not None or value.instance_id is not None:
                raise BrokenInvariant("members of share groups have neither expressions nor places")
            texts = (value.rack_id, value.client_id, value.client_host)
            head = b"".join(encode_string(it, True) for it in texts)
            names = b"".join(encode_string(it, True) for it in value.topics)
            return head + encode_array_length(len(value.topics), True) + names + _NO_TAGS
        case CurrentAssignment():
            head = _CURRENT_HEAD.pack(value.epoch, value.previous_epoch, value.state)
            return head + _assigned_value(value.assigned) + _NO_TAGS
        case _:
            return _consumer_value(value)


def configs_record(group: str, configs: Mapping[str, str]) -> KeptRecord:
    """The configs of a group; none: a tombstone."""
    key = _I16.pack(_CONFIGS_KEY) + encode_string(group, False)
    if not configs:
        return KeptRecord(key, None)
    texts = (encode_string(it, True) for entry in sorted(configs.items()) for it in entry)
    return KeptRecord(
        key, _VERSION + encode_array_length(len(configs), True) + b"".join(texts) + _NO_TAGS
    )


def read_configs_key(data: bytes | memoryview) -> str | None:
    """Whose configs; None for a key of another kind. Raises CorruptBatch."""
    try:
        cursor = Cursor(data)
        return cursor.string(False) if cursor.i16() == _CONFIGS_KEY else None
    except MalformedFrame as error:
        raise CorruptBatch(f"a key of __consumer_offsets: {error}") from None


def read_configs(data: bytes | memoryview) -> dict[str, str]:
    """Raises CorruptBatch."""
    try:
        cursor = Cursor(data)
        version = cursor.i16()
        if version != 0:
            raise CorruptBatch(f"configs of a group have version {version}")
        return {cursor.string(True): cursor.string(True) for _ in range(cursor.array_length(True))}
    except MalformedFrame as error:
        raise CorruptBatch(f"configs of a group: {error}") from None
