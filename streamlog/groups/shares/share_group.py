"""A share group (KIP-932): what its records say. Pure.

Kafka's own keys and values say who its members are; they mean what those of consumer groups do:

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

Kafka keeps the state of share partitions at share coordinators, in ``__share_group_state``, and what is
initialized there at the group's coordinator: each change of offsets or deletion is a conversation of the two, with
states between. Here the group's coordinator keeps both, in one log: what is deleted or altered is so at once, or
not at all, and a group has one node to ask. Clients see none of it. A group's share partitions are written by one
node then; in a cluster with many groups they are spread as groups are.

A member of a share group has what the target assignment gives it as soon as it is told: others may have it, too,
so no member has to give anything up first.
"""

import struct
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from streamlog.coordination.effects import KeptRecord
from streamlog.errors import BrokenInvariant, CorruptBatch, MalformedFrame
from streamlog.groups.consumer_group import ConsumerGroup
from streamlog.groups.consumer_group_records import (
    NOTHING,
    Assigned,
    Change,
    ConsumerGroupKey,
    ConsumerGroupValue,
    CurrentAssignment,
    CurrentKey,
    GroupEpochKey,
    MemberKey,
    MemberMetadata,
    MembershipKey,
    MemberState,
    TargetEpochKey,
    TargetKey,
    TopicPartitionId,
    assigned_value,
    encoded_key,
    encoded_value,
    read_assigned,
    read_consumer_group_key,
    read_consumer_group_value,
)
from streamlog.groups.shares.share_state import ShareState, StateKey
from streamlog.groups.shares.simple_assignor import SIMPLE, assign_simple
from streamlog.groups.subscribed_topics import Topics
from streamlog.wire.cursor import Cursor, encode_array_length, encode_bytes, encode_string

SHARE_TYPE: Final = "share"

_KEYS: Final[dict[int, type[MembershipKey]]] = {
    10: MemberKey,
    11: GroupEpochKey,
    12: TargetEpochKey,
    13: TargetKey,
    14: CurrentKey,
}
_NUMBERS: Final[dict[type, int]] = {type_: number for number, type_ in _KEYS.items()}
_STATE_KEY: Final = 1000
_CONFIGS_KEY: Final = 1001
_VERSION: Final = b"\x00\x00"
_NO_TAGS: Final = b"\x00"
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_STATE_NUMBERS: Final = struct.Struct(">qqqq")
_CURRENT_HEAD: Final = struct.Struct(">iib")
_NO_TIMEOUT: Final = -1
"""Members of share groups have no time to give up partitions."""


class ShareGroup(ConsumerGroup):
    """Its members, and the states of its share partitions."""

    group_type = SHARE_TYPE

    def _rebuild(self) -> None:
        self.states: dict[TopicPartitionId, ShareState] = {}
        super()._rebuild()

    def _value(self, key: ConsumerGroupKey) -> ConsumerGroupValue | None:
        if isinstance(key, StateKey):
            return self.states.get((key.topic_id, key.partition))
        return super()._value(key)

    def _apply(self, key: ConsumerGroupKey, value: ConsumerGroupValue | None) -> None:
        if not isinstance(key, StateKey):
            super()._apply(key, value)
        elif isinstance(value, ShareState):
            self.states[key.topic_id, key.partition] = value
        else:
            self.states.pop((key.topic_id, key.partition), None)

    def record(self, change: Change) -> KeptRecord:
        return share_group_record(change)

    @property
    def state(self) -> str:
        """As Kafka names it: members wait for no other."""
        return "Stable" if self.members else "Empty"

    def assignor(self, available: tuple[str, ...]) -> str:
        return SIMPLE

    def next_assignment(self, member_id: str, owned: Assigned | None) -> CurrentAssignment:
        """All of the target assignment, at once."""
        current, target = self.assignment(member_id), self.target(member_id)
        if current.epoch == self.target_epoch and current.assigned == target:
            return current
        previous = current.previous_epoch if current.epoch == self.target_epoch else current.epoch
        return CurrentAssignment(self.target_epoch, previous, MemberState.STABLE, target, NOTHING)

    def computed_targets(
        self, topics: Topics, available: tuple[str, ...]
    ) -> Mapping[str, Assigned]:
        return assign_simple(*self.assignor_input(topics))


# Records


def share_group_record(change: Change) -> KeptRecord:
    """As bytes."""
    key, value = change
    if isinstance(key, StateKey):
        place = key.topic_id.bytes + _I32.pack(key.partition)
        encoded = _I16.pack(_STATE_KEY) + encode_string(key.group, False) + place
    else:
        encoded = encoded_key(_NUMBERS[type(key)], key)
    return KeptRecord(encoded, None if value is None else _VERSION + _encoded(value))


def read_share_group_key(data: bytes | memoryview) -> ConsumerGroupKey | None:
    """None for a key of another kind. Raises CorruptBatch."""
    try:
        cursor = Cursor(data)
        if cursor.i16() != _STATE_KEY:
            return read_consumer_group_key(data, _KEYS)
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
                return member_metadata(rack_id, client_id, host, topics)
            case CurrentKey():
                member_epoch, previous, state = cursor.unpack(_CURRENT_HEAD)
                assigned = read_assigned(cursor)
                return CurrentAssignment(
                    member_epoch, previous, MemberState(state), assigned, NOTHING
                )
            case _:
                return read_consumer_group_value(key, data)
    except (MalformedFrame, ValueError) as error:
        raise CorruptBatch(f"a share group of __consumer_offsets: {error}") from None


def member_metadata(
    rack_id: str | None, client_id: str, client_host: str, topics: tuple[str, ...]
) -> MemberMetadata:
    return MemberMetadata(None, rack_id, client_id, client_host, topics, None, _NO_TIMEOUT, None)


def _encoded(value: ConsumerGroupValue) -> bytes:
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
            return head + assigned_value(value.assigned) + _NO_TAGS
        case _:
            return encoded_value(value)


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
