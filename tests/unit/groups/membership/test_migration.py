"""Classic members in consumer groups: upgrade and downgrade while they run."""

from typing import Any

import pytest

from streamlog.config import GroupsSection
from streamlog.coordination.effects import NONE
from streamlog.groups.records import NOTHING, by_topic
from streamlog.groups.requests import GroupCaller, Joined, SyncedMember
from streamlog.model import TopicPartition
from streamlog.wire.consumer_protocol import (
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from streamlog.wire.error_codes import ErrorCode
from tests.consumer_world import WorldMember, numbers
from tests.group_world import GroupWorld, subscription

PROTOCOLS = (("range", subscription("t", more=b"\x00\x00\x00\x00\x00\x00\x00\x00")),)
IN_PROGRESS = ErrorCode.rebalance_in_progress


def world_with(**settings: Any) -> GroupWorld:
    made = GroupWorld(GroupsSection(initial_rebalance_delay_ms=0, **settings))
    made.topics.make("t", 4)
    made.topics_changed()
    return made


def classic(world: GroupWorld, member_id: str = "", **says: Any) -> Joined:
    joined: Joined = world.join(member_id, protocols=PROTOCOLS, **says).result
    return joined


def first(world: GroupWorld) -> Joined:
    """A classic member with all partitions."""
    joined = classic(world)
    everything = write_assignment(1, {"t": range(4)})
    synced: SyncedMember = world.sync(joined, {joined.member_id: everything}).result
    assert synced.assignment == everything
    return joined


def has(world: GroupWorld, joined: Joined) -> set[int]:
    synced: SyncedMember = world.sync(joined).result
    assert synced.error is NONE
    return {it.partition for it in read_assignment(synced.assignment)}


def kind(world: GroupWorld) -> str:
    described = world.coordinator.describe("g")
    assert described is not None
    return described.group_type


def test_members_of_both_protocols_share() -> None:
    world = world_with()
    old = first(world)
    world.commit(7, GroupCaller(old.member_id, None, old.generation))
    new = WorldMember(world, "new")
    new.step()
    assert kind(world) == "consumer"
    assert world.committed() == 7
    assert new.owned == frozenset()
    assert world.beat(old) is IN_PROGRESS
    again = classic(world, old.member_id)
    assert again.generation > old.generation
    assert len(has(world, again)) == 2
    assert world.beat(again) is NONE
    new.step()
    assert has(world, again) | numbers(new.owned) == {0, 1, 2, 3}
    assert len(new.owned) == 2
    world.crash()
    assert world.beat(again) is NONE
    assert new.step().error is NONE
    assert len(has(world, again)) == 2


def test_the_last_of_the_new_protocol_leaves_a_classic_group() -> None:
    world = world_with()
    old = first(world)
    new = WorldMember(world, "new")
    new.step()
    again = classic(world, old.member_id)
    has(world, again)
    world.consumer_beat("new", -1)
    assert kind(world) == "classic"
    assert world.beat(again) is IN_PROGRESS
    last = classic(world, old.member_id)
    assert last.generation > again.generation
    assert last.leader == last.member_id
    world.sync(last, {last.member_id: write_assignment(1, {"t": range(4)})})
    world.crash()
    assert kind(world) == "classic"
    assert world.beat(last) is NONE


def test_a_group_that_is_classic_again_is_so_for_the_next_coordinator() -> None:
    world = world_with()
    old = first(world)
    WorldMember(world, "new").step()
    again = classic(world, old.member_id)
    has(world, again)
    world.consumer_beat("new", -1)
    world.crash()
    assert kind(world) == "classic"
    assert world.beat(again) is not ErrorCode.unknown_member_id


def test_a_classic_member_that_does_not_join_again_is_gone() -> None:
    world = world_with()
    old = first(world)
    new = WorldMember(world, "new")
    new.step()
    for _ in range(9):
        world.wait(8_000)
        world.beat(old)
        new.step()
    assert world.beat(old) is ErrorCode.unknown_member_id
    new.step()
    assert numbers(new.owned) == {0, 1, 2, 3}


def test_what_is_not_allowed() -> None:
    world = world_with(consumer_migration_policy="disabled")
    old = first(world)
    new = WorldMember(world, "new")
    assert new.beat().error is ErrorCode.group_id_not_found
    assert kind(world) == "classic"
    assert world.beat(old) is NONE
    world.leave(GroupCaller(old.member_id))
    assert new.beat().error is NONE
    assert kind(world) == "consumer"


def test_other_types_of_group_are_none_for_consumers() -> None:
    world = world_with()
    world.stable(protocol_type="connect")
    assert WorldMember(world, "new").beat().error is ErrorCode.group_id_not_found
    assert kind(world) == "classic"


def test_an_upgrade_that_cannot_be_written_has_not_been() -> None:
    world = world_with()
    old = first(world)
    world.refuse = ErrorCode.coordinator_not_available
    assert WorldMember(world, "new").beat().error is ErrorCode.coordinator_not_available
    assert kind(world) == "classic"
    assert world.beat(old) is NONE
    world.refuse = None
    assert has(world, old) == {0, 1, 2, 3}


def test_a_downgrade_that_cannot_be_written_has_not_been() -> None:
    world = world_with()
    old = first(world)
    new = WorldMember(world, "new")
    new.step()
    again = classic(world, old.member_id)
    has(world, again)
    new.step()
    world.refuse = ErrorCode.coordinator_not_available
    assert world.consumer_beat("new", -1).result.error is ErrorCode.coordinator_not_available
    assert kind(world) == "consumer"
    world.refuse = None
    assert world.beat(again) is NONE
    assert new.step().error is NONE


def test_an_empty_group_is_what_joins_it() -> None:
    world = world_with()
    new = WorldMember(world, "new")
    new.step()
    world.consumer_beat("new", -1)
    old = first(world)
    assert kind(world) == "classic"
    assert old.generation > 1
    world.leave(GroupCaller(old.member_id))
    assert new.beat().error is ErrorCode.group_id_not_found
    new.step()
    assert kind(world) == "consumer"
    assert new.epoch > old.generation
    world.crash()
    assert kind(world) == "consumer"
    assert new.step().error is NONE


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_of_all_versions(version: int) -> None:
    data = version.to_bytes(2, "big") + subscription("t")[2:] + b"\xff\xff\xff\xff"
    owned = b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x03"
    data += (owned if version >= 1 else b"") + (b"\x00\x00\x00\x05" if version >= 2 else b"")
    data += b"\x00\x01r" if version >= 3 else b""
    has_owned = (TopicPartition("t", 3),) if version >= 1 else ()
    rack = "r" if version >= 3 else None
    assert read_subscription(data) == Subscription(version, ("t",), has_owned, rack)


def test_assigned_partitions_by_topic() -> None:
    world = world_with()
    new = WorldMember(world, "new")
    new.step()
    assert list(by_topic(new.owned).values()) == [[0, 1, 2, 3]]


def test_an_empty_group_that_cannot_be_made_a_classic_one_stays() -> None:
    world = world_with()
    new = WorldMember(world, "new")
    new.step()
    world.consumer_beat("new", -1)
    world.refuse = ErrorCode.coordinator_not_available
    joined = classic(world)  # answered before the log is: nothing of it is kept before it syncs
    assert kind(world) == "consumer"
    world.refuse = None
    assert world.sync(joined).result.error is ErrorCode.unknown_member_id
    assert world.ask(lambda token, now: world.coordinator.delete_group("g", token, now)) is NONE
    assert world.state() is None


def test_a_static_member_with_the_id_of_another_is_fenced() -> None:
    world = world_with()
    new = WorldMember(world, "new", instance_id="one")
    new.step()
    other = WorldMember(world, "other")
    other.step()
    fenced = classic(world, "other", instance_id="one")
    assert (fenced.error, fenced.member_id) == (ErrorCode.fenced_instance_id, "other")
    assert new.step().error is NONE


def test_the_time_to_join_again_begins_anew_with_each_upgrade() -> None:
    world = world_with()
    old, new = first(world), WorldMember(world, "new")
    new.step()
    assert world.beat(old) is IN_PROGRESS  # it has 60 s
    world.consumer_beat("new", -1)
    old = classic(world, old.member_id)
    world.sync(old, {old.member_id: write_assignment(1, {"t": range(4)})})
    for _ in range(10):
        world.wait(5_000)
        assert world.beat(old) is NONE
    new.epoch, new.owned = 0, NOTHING
    new.step()
    for _ in range(4):
        assert world.beat(old) is IN_PROGRESS
        world.wait(5_000)


def test_after_a_downgrade_a_member_that_is_not_heard_of_is_gone() -> None:
    world = world_with()
    first(world)
    WorldMember(world, "new").step()
    world.consumer_beat("new", -1)
    assert (kind(world), world.state()) == ("classic", "PreparingRebalance")
    world.wait(10_000)
    assert world.state() == "Empty"
