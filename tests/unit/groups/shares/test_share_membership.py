"""Heartbeats of members of share groups (KIP-932)."""

from uuid import UUID

import pytest

from streamlog.coordination.effects import NONE
from streamlog.groups.requests import GroupCaller, HeartbeatAnswer
from streamlog.wire.error_codes import ErrorCode
from tests.consumer_world import numbers
from tests.group_world import NO_DELAY, GroupWorld


@pytest.fixture
def world() -> GroupWorld:
    made = GroupWorld()
    made.topics.make("t", 4)
    made.topics_changed()
    return made


def beat(
    world: GroupWorld, member: str, epoch: int, topics: tuple[str, ...] | None = None
) -> HeartbeatAnswer:
    answer: HeartbeatAnswer = world.share_beat(member, epoch, topics=topics).result
    return answer


def test_a_member_has_all_partitions_with_its_first_answer(world: GroupWorld) -> None:
    answer = beat(world, "m1", 0)
    assert (answer.error, answer.member_id, answer.epoch) == (NONE, "m1", 1)
    assert answer.interval_ms == NO_DELAY.share_heartbeat_interval_ms
    assert answer.assigned is not None
    assert numbers(answer.assigned) == {0, 1, 2, 3}
    assert beat(world, "m1", 1).assigned is None  # as it was told before


def test_two_members_share_at_once_and_nobody_waits(world: GroupWorld) -> None:
    beat(world, "m1", 0)
    second = beat(world, "m2", 0)
    assert second.assigned is not None
    assert len(second.assigned) == 2
    first = beat(world, "m1", 1)
    assert (first.epoch, first.assigned) == (2, first.assigned)
    assert first.assigned is not None
    assert numbers(first.assigned) | numbers(second.assigned) == {0, 1, 2, 3}


def test_more_members_than_partitions_share_partitions(world: GroupWorld) -> None:
    for number in range(8):
        beat(world, f"m{number}", 0)
    described = world.coordinator.describe_consumers("g")
    assert described is not None
    assert (described.assignor, described.state) == ("simple", "Stable")
    targets = [number for it in described.members for _, number in it.target]
    assert sorted(targets) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_lost_answer_is_told_again_and_other_epochs_are_fenced(world: GroupWorld) -> None:
    beat(world, "m1", 0)
    beat(world, "m2", 0)
    told = beat(world, "m1", 1)
    again = beat(world, "m1", 1)
    assert (again.error, again.epoch, again.assigned) == (NONE, 2, told.assigned)
    assert beat(world, "m1", 7).error is ErrorCode.fenced_member_epoch
    assert beat(world, "m9", 2).error is ErrorCode.unknown_member_id


@pytest.mark.parametrize(
    ("member", "epoch", "topics", "said"),
    [
        ("", 0, ("t",), "MemberId can't be empty."),
        ("m1", 0, (), "SubscribedTopicNames must be set in first request."),
        ("m1", -2, None, "MemberEpoch is -2."),
    ],
)
def test_requests_that_say_too_little_are_refused(
    world: GroupWorld, member: str, epoch: int, topics: tuple[str, ...] | None, said: str
) -> None:
    answer = beat(world, member, epoch, topics)
    assert (answer.error, answer.message) == (ErrorCode.invalid_request, said)


def test_who_leaves_or_is_not_heard_leaves_its_partitions_to_others(world: GroupWorld) -> None:
    beat(world, "m1", 0)
    beat(world, "m2", 0)
    assert beat(world, "m2", -1).epoch == -1
    first = beat(world, "m1", 1)
    assert first.assigned is not None
    assert len(first.assigned) == 4
    world.wait(NO_DELAY.share_session_timeout_ms + 1)
    assert world.state() == "Empty"


def test_the_next_coordinator_knows_members_and_epochs(world: GroupWorld) -> None:
    beat(world, "m1", 0)
    before = world.coordinator.describe_consumers("g")
    world.crash()
    assert world.coordinator.describe_consumers("g") == before
    assert beat(world, "m1", 1).error is NONE
    described = world.coordinator.describe("g")
    assert described is not None
    assert (described.group_type, described.protocol_type) == ("share", "share")


def test_a_group_is_of_one_kind(world: GroupWorld) -> None:
    beat(world, "m1", 0)
    assert world.consumer_beat("c1", 0).result.error is ErrorCode.group_id_not_found
    assert world.join().result.error is ErrorCode.inconsistent_group_protocol
    assert world.leave(GroupCaller("m1")) == [ErrorCode.unknown_member_id]
    assert world.commit(1).result == {("t", 0): ErrorCode.group_id_not_found}
    world.join(group="classic")
    refused = world.share_beat("m1", 0, group="classic").result
    assert refused.error is ErrorCode.group_id_not_found
    assert refused.message == "Group classic is not a share group."
    world.consumer_beat("c1", 0, group="modern")
    refused = world.share_beat("m1", 0, group="modern").result
    assert refused.error is ErrorCode.group_id_not_found


def test_a_heartbeat_that_is_not_written_changes_nothing(world: GroupWorld) -> None:
    world.refuse = ErrorCode.coordinator_not_available
    assert beat(world, "m1", 0).error is ErrorCode.coordinator_not_available
    assert world.coordinator.describe("g") is None


def test_partitions_that_are_added_are_assigned(world: GroupWorld) -> None:
    beat(world, "m1", 0)
    world.topics.make("t", 6)
    world.topics_changed("t")
    world.wait(1)
    answer = beat(world, "m1", 1)
    assert answer.assigned is not None
    assert numbers(answer.assigned) == set(range(6))
    assert {topic for topic, _ in answer.assigned} == {UUID(int=1_000)}


def test_a_group_has_the_times_of_its_configs(world: GroupWorld) -> None:
    configs = {"share.heartbeat.interval.ms": "700", "share.session.timeout.ms": "2000"}
    token = world.ask_shares(lambda states, it, now: states.set_configs("g", configs, it, now))
    assert token.result is NONE
    world.crash()
    assert beat(world, "m1", 0).interval_ms == 700
    world.wait(2_001)
    assert world.state() == "Empty"
