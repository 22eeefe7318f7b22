import pytest

from streamlog.errors import CorruptBatch
from streamlog.groups.records import BARRIER
from streamlog.groups.replay import GroupReplay
from streamlog.groups.requests import GroupCaller
from streamlog.record.codec import RecordRun
from tests.group_world import GroupWorld


def log_of(world: GroupWorld, *, base_offset: int = 0) -> bytes:
    """Each record in a batch of its own."""
    data = b""
    for number, (key, value) in enumerate(world.log):
        run = RecordRun()
        run.append(key, value)
        data += run.seal(base_offset=base_offset + number, leader_epoch=1, timestamp_ms=1_000)
    return data


def test_the_last_record_of_each_key_holds() -> None:
    world = GroupWorld()
    (joined,) = world.stable()
    caller = GroupCaller(joined.member_id, None, joined.generation)
    for offset in range(3):
        world.commit(offset, caller)
    world.commit(9, group="alone")
    world.log.append(BARRIER)
    replay = GroupReplay()
    replay.feed(log_of(world))
    assert (replay.next_offset, replay.records) == (len(world.log), len(world.log))
    known = {group.name: group for group in replay.built()}
    assert set(known) == {"g", "alone"}
    assert {place: it.offset for place, it in known["g"].offsets.items()} == {("t", 0): 2}
    assert (known["g"].state.value, list(known["g"].members)) == ("Stable", [joined.member_id])
    assert (known["alone"].state.value, known["alone"].protocol_type) == ("Empty", None)


def test_it_goes_on_where_it_was() -> None:
    world = GroupWorld()
    world.commit(5)
    world.commit(6)
    data = log_of(world)
    replay = GroupReplay()
    replay.next_offset = 1
    replay.feed(data)
    assert replay.records == 1
    replay.feed(data)
    assert replay.records == 1


def test_damage_is_not_passed_over() -> None:
    run = RecordRun()
    run.append(b"\x00\x01broken", b"")
    with pytest.raises(CorruptBatch):
        GroupReplay().feed(run.seal(base_offset=0, leader_epoch=1, timestamp_ms=1))
