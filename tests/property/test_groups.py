"""Offsets of groups, held to a dict that is made of the log anew each time."""

from hypothesis import given
from hypothesis import strategies as st

from streamlog.coordination.effects import NONE
from streamlog.groups.records import (
    CommittedOffset,
    KeptGroup,
    KeptMember,
    OffsetKey,
    group_record,
    offset_record,
    read_group,
    read_key,
    read_offset,
)
from streamlog.groups.requests import PartitionId
from streamlog.wire.error_codes import ErrorCode
from tests.group_world import GroupWorld, Token

GROUPS = ("g", "h")
PLACES: tuple[PartitionId, ...] = (("t", 0), ("t", 1), ("u", 0))

COMMIT = st.tuples(st.just("commit"), st.sampled_from(GROUPS), st.sampled_from(PLACES))
DELETE = st.tuples(st.just("delete"), st.sampled_from(GROUPS), st.none())
FORGET = st.tuples(st.just("forget"), st.sampled_from(GROUPS), st.sampled_from(PLACES))
WRITE = st.tuples(st.just("write"), st.integers(1, 3), st.none())
CRASH = st.tuples(st.just("crash"), st.integers(0, 3), st.none())
STEPS = st.lists(st.one_of(COMMIT, COMMIT, DELETE, FORGET, WRITE, WRITE, CRASH), max_size=40)


def in_log(world: GroupWorld) -> dict[tuple[str, PartitionId], int]:
    found: dict[tuple[str, PartitionId], int] = {}
    for key_bytes, value in world.log:
        key = read_key(key_bytes)
        if isinstance(key, OffsetKey):
            place = key.group, (key.topic, key.partition)
            found.pop(place, None)
            if value is not None:
                found[place] = read_offset(value).offset
    return found


@given(STEPS)
def test_what_is_told_is_what_the_log_says(steps: list[tuple[str, object, object]]) -> None:
    world = GroupWorld(commits=False)
    acknowledged: list[tuple[tuple[str, PartitionId], int, Token]] = []
    for number, (what, group, place) in enumerate(steps):
        match what, group, place:
            case "commit", str(group), (str(topic), int(index)):
                token = world.commit(number, group=group, place=(topic, index))
                acknowledged.append(((group, (topic, index)), number, token))
            case "delete", str(group), _:
                deleting = Token("delete")
                effects = world.coordinator.delete_group(group, deleting, world.now)
                world.carry_out(effects)
            case "forget", str(group), (str(topic), int(index)):
                asked = [(topic, index)]
                forgetting = Token("forget")
                world.carry_out(
                    world.coordinator.delete_offsets(group, asked, forgetting, world.now)
                )
            case "write", int(many), _:
                world.commit_log(many)
            case _, int(kept), _:
                world.crash(kept)
        log = in_log(world)
        told = {
            (name, where): found.committed.offset
            for name in GROUPS
            for where, found in world.coordinator.fetch(name, None).items()
            if found.committed is not None
        }
        assert told == log
        counted = world.coordinator.offsets_count
        assert counted >= len(log)
        if not world.writing:
            assert counted == len(log)
    for _, number, token in acknowledged:
        if token.is_answered and set(token.result.values()) == {NONE}:
            values = [read_offset(value) for _, value in world.log if value is not None]
            assert number in {it.offset for it in values}
        elif token.is_answered:
            assert set(token.result.values()) == {ErrorCode.coordinator_not_available}


TEXT = st.text(max_size=20)
I32 = st.integers(-(2**31), 2**31 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
MEMBERS = st.builds(
    KeptMember, TEXT, st.none() | TEXT, TEXT, TEXT, st.integers(0, 2**31 - 1), I32,
    st.binary(max_size=50), st.binary(max_size=50),
)  # fmt: skip


@given(TEXT, TEXT, I32, st.builds(CommittedOffset, I64, I32, TEXT, I64, st.none(), st.uuids()))
def test_offsets_come_back(group: str, topic: str, index: int, value: CommittedOffset) -> None:
    record = offset_record(OffsetKey(group, topic, index), value)
    assert record.value is not None
    assert read_key(record.key) == (group, topic, index)
    assert read_offset(record.value) == value


@given(
    TEXT,
    st.builds(
        KeptGroup, TEXT, I32, st.none() | TEXT, st.none() | TEXT, I64,
        st.lists(MEMBERS, max_size=4).map(tuple),
    ),
)  # fmt: skip
def test_groups_come_back(group: str, value: KeptGroup) -> None:
    record = group_record(group, value)
    assert record.value is not None
    assert read_key(record.key) == (group,)
    assert read_group(record.value) == value
