import struct
from uuid import UUID

import pytest

from streamlog.errors import BrokenInvariant, CorruptBatch
from streamlog.groups.records import (
    BARRIER,
    NO_TOPIC_ID,
    CommittedOffset,
    GroupEpoch,
    GroupEpochKey,
    GroupKey,
    KeptGroup,
    KeptMember,
    MemberKey,
    MemberMetadata,
    OffsetKey,
    group_record,
    offset_record,
    read_consumer_group_value,
    read_group,
    read_key,
    read_offset,
    share_group_record,
)

KEY = OffsetKey("g", "t", 5)
COMMITTED = CommittedOffset(42, 7, "note", 1_000, None, UUID(int=9))
MEMBER = KeptMember("m-1", "inst", "client", "/host", 60_000, 10_000, b"sub", b"part")
GROUP = KeptGroup("consumer", 3, "range", "m-1", 1_000, (MEMBER,))


def test_keys_are_those_of_kafka() -> None:
    record = offset_record(KEY, None)
    assert record == (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x05", None)
    assert read_key(record[0]) == KEY
    assert group_record("g", None) == (b"\x00\x02\x00\x01g", None)
    assert read_key(BARRIER.key) == GroupKey("")


def test_values_are_those_of_kafka() -> None:
    value = offset_record(KEY, COMMITTED).value
    assert value == b"".join((
        b"\x00\x04", struct.pack(">qi", 42, 7), b"\x05note", struct.pack(">q", 1_000),
        b"\x01\x00\x10", UUID(int=9).bytes,
    ))  # fmt: skip
    assert read_offset(value) == COMMITTED
    encoded = group_record("g", GROUP).value
    assert encoded is not None
    assert encoded.startswith(b"\x00\x03\x00\x08consumer\x00\x00\x00\x03\x00\x05range\x00\x03m-1")
    assert read_group(encoded) == GROUP


def test_a_wish_for_when_to_expire_has_a_version_of_its_own() -> None:
    value = offset_record(KEY, COMMITTED._replace(expire_ms=2_000)).value
    assert value is not None
    assert value[:2] == b"\x00\x01"
    assert read_offset(value) == CommittedOffset(42, -1, "note", 1_000, 2_000)


def test_older_offsets_are_read() -> None:
    oldest = struct.pack(">hqh", 0, 42, 1) + b"n" + struct.pack(">q", 1_000)
    assert read_offset(oldest) == CommittedOffset(42, -1, "n", 1_000)
    third = struct.pack(">hqih", 3, 42, 7, 1) + b"n" + struct.pack(">q", 1_000)
    assert read_offset(third) == CommittedOffset(42, 7, "n", 1_000)


def test_older_groups_are_read() -> None:
    head = struct.pack(">hh", 0, 1) + b"c" + struct.pack(">ih", 4, 1) + b"r"
    member = (
        b"\x00\x01m\x00\x01c\x00\x01h"
        + struct.pack(">i", 9)
        + b"\x00\x00\x00\x01s\x00\x00\x00\x01a"
    )
    data = head + b"\x00\x01m" + struct.pack(">i", 1) + member
    kept = KeptMember("m", None, "c", "h", 9, 9, b"s", b"a")
    assert read_group(data) == KeptGroup("c", 4, "r", "m", -1, (kept,))


def test_keys_of_other_kinds_are_none_of_ours() -> None:
    assert read_key(b"\x00\x09anything") is None


@pytest.mark.parametrize("cut", range(1, 12))
def test_what_is_cut_is_corrupt(cut: int) -> None:
    value = offset_record(KEY, COMMITTED).value
    encoded = group_record("g", GROUP).value
    assert value is not None
    assert encoded is not None
    with pytest.raises(CorruptBatch):
        read_offset(value[:-cut])
    with pytest.raises(CorruptBatch):
        read_group(encoded[:-cut])
    with pytest.raises(CorruptBatch):
        read_key(offset_record(KEY, None).key[:-cut])


def test_a_version_of_the_future_is_not_guessed() -> None:
    with pytest.raises(CorruptBatch, match="version 9"):
        read_offset(b"\x00\x09")


@pytest.mark.parametrize(
    "tags", [b"\x00", b"\x01\x00\x0f" + 15 * b"x", b"\x01\x00\x11" + 17 * b"x"]
)
def test_a_topic_id_has_sixteen_bytes(tags: bytes) -> None:
    value = offset_record(KEY, COMMITTED).value
    assert value is not None
    committed = read_offset(value[: -len(b"\x01\x00\x10") - 16] + tags)
    assert committed == COMMITTED._replace(topic_id=NO_TOPIC_ID)


@pytest.mark.parametrize("change", [{"regex": "t.*"}, {"instance_id": "one"}])
def test_a_member_of_a_share_group_has_neither_an_expression_nor_a_place(
    change: dict[str, str],
) -> None:
    member = MemberMetadata(None, None, "client", "/host", ("t",), None, -1, None)
    assert share_group_record((MemberKey("g", "m"), member)).value is not None
    with pytest.raises(BrokenInvariant, match="neither"):
        share_group_record((MemberKey("g", "m"), member._replace(**change)))  # type: ignore[arg-type]


GROUP_EPOCH = GroupEpochKey("g")


def test_a_consumer_groups_value_of_the_future_is_not_guessed() -> None:
    value = struct.pack(">hi", 1, 5) + b"\x00"
    with pytest.raises(CorruptBatch, match="version 1"):
        read_consumer_group_value(GROUP_EPOCH, value)


@pytest.mark.parametrize(
    ("tags", "metadata_hash"),
    [
        (b"\x02\x00\x08" + struct.pack(">q", 9) + b"\x07\x08" + struct.pack(">q", 4), 9),
        (b"\x01\x07\x08" + struct.pack(">q", 4), 0),
        (b"\x01\x00\x04" + struct.pack(">i", 9), 0),
    ],
)
def test_of_a_group_epoch_only_the_hash_is_read(tags: bytes, metadata_hash: int) -> None:
    """Not a field of another tag, nor one of another length."""
    found = read_consumer_group_value(GROUP_EPOCH, struct.pack(">hi", 0, 5) + tags)
    assert found == GroupEpoch(5, metadata_hash)
