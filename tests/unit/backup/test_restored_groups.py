from collections.abc import Mapping
from uuid import UUID

from streamlog.backup.group_offsets import GENERATIONS_APART, Ends, too_far
from streamlog.backup.manifest import PartitionBackup, Piece, StreamBackup
from streamlog.backup.restored_groups import BATCH_BYTES, carried_on
from streamlog.groups.group import Group
from streamlog.groups.records import NO_TOPIC_ID, CommittedOffset
from streamlog.groups.replay import GroupReplay
from streamlog.groups.requests import PartitionId
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.record.batch import read_header

ID = UUID(int=3)


def ends(next_offset: int) -> Ends:
    piece = Piece(name="p", size_bytes=1, sha256="", base_offset=0, next_offset=next_offset)
    partition = PartitionBackup(number=0, log_start_offset=0, pieces=(piece,))
    config = StreamConfig.of(name="s")
    return Ends([StreamBackup(stream_id=ID, config=config, created_ms=0, partitions=(partition,))])


def group(offsets: Mapping[PartitionId, CommittedOffset], name: str = "g") -> Group:
    made = Group(name, state_ms=4)
    made.protocol_type, made.generation, made.protocol = "consumer", 7, "range"
    made.offsets = dict(offsets)
    return made


def committed(offset: int, topic_id: UUID = ID) -> CommittedOffset:
    return CommittedOffset(offset, 5, "said", 1, topic_id=topic_id)


def carried(*groups: Group, end: int = 10) -> tuple[list[bytes], dict[str, Group]]:
    batches = list(carried_on(groups, ends(end), offset=100, leader_epoch=2, time_ms=9))
    replay = GroupReplay()
    for batch in batches:
        replay.feed(batch)
    return batches, {it.name: it for it in replay.built()}


def test_what_is_above_the_end_is_lowered_to_it() -> None:
    far, near = ("s", 0), ("t", 0)
    _, found = carried(group({far: committed(12), near: committed(99, UUID(int=4))}))
    assert found["g"].offsets == {far: CommittedOffset(10, -1, "said", 1, topic_id=ID)}
    assert (found["g"].generation, found["g"].protocol_type) == (7 + GENERATIONS_APART, "consumer")
    assert (found["g"].members, found["g"].state_ms) == ({}, 4)


def test_at_the_end_or_below_it_stays() -> None:
    assert list(too_far([group({("s", 0): committed(10)})], ends(10))) == []


def test_an_offset_without_an_id_is_of_whatever_has_the_name() -> None:
    (found,) = too_far([group({("s", 0): committed(11, NO_TOPIC_ID)})], ends(10))
    assert str(found) == (
        "group 'g' has committed offset 11 of s/0, of which the backup has records up to 10"
    )


def test_of_another_stream_of_the_name_nothing_is_said() -> None:
    assert list(too_far([group({("s", 0): committed(11, UUID(int=8))})], ends(10))) == []


def test_many_groups_make_several_batches() -> None:
    groups = [group({("s", 0): committed(12)}, f"{number:0100}") for number in range(3_000)]
    batches, found = carried(*groups)
    assert len(batches) > 1
    assert all(len(batch) < 2 * BATCH_BYTES for batch in batches)
    assert {it.offsets["s", 0].offset for it in found.values()} == {10}
    assert len(found) == 3_000
    headers = [read_header(batch) for batch in batches]
    assert [it.base_offset for it in headers] == [100, *(it.next_offset for it in headers[:-1])]


def test_who_only_keeps_offsets_is_no_group_of_members() -> None:
    lone = Group("lone")
    lone.offsets = {("s", 0): committed(12)}
    _, found = carried(lone)
    assert (found["lone"].generation, found["lone"].protocol_type) == (0, None)
