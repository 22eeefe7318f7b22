"""What a coordinator keeps of share partitions, and who may change it."""

from uuid import UUID

import pytest

from streamlog.coordination.effects import NONE
from streamlog.groups.records import NOT_SET, ShareState, StateKey
from streamlog.groups.service import progress_of
from streamlog.groups.shares.share_states import ShareStateAnswer
from streamlog.model import TopicPartition
from streamlog.wire.error_codes import ErrorCode
from tests.group_world import GroupWorld, Token

ONE, OTHER = UUID(int=1), UUID(int=2)


@pytest.fixture
def world() -> GroupWorld:
    made = GroupWorld()
    made.topics.make("t", 2)
    made.topics_changed()
    made.share_beat("m1", 0)
    return made


def key_of(world: GroupWorld) -> StateKey:
    return StateKey("g", world.topics.known["t"].topic_id, 0)


def take_over(world: GroupWorld, owner: UUID = ONE, epoch: int = 5) -> ShareStateAnswer:
    key = key_of(world)
    token = world.ask_shares(lambda states, it, now: states.take_over(key, epoch, owner, it, now))
    answer: ShareStateAnswer = token.result
    return answer


def save(world: GroupWorld, owner: UUID, version: int, start: int = 10) -> Token:
    key = key_of(world)
    state = ShareState(5, owner, version, start, start + 2, 1, b"state")
    return world.ask_shares(lambda states, it, now: states.save(key, state, it, now))


def test_the_first_leader_finds_nothing_and_the_next_one_what_was_saved(world: GroupWorld) -> None:
    first = take_over(world)
    assert first.error is NONE
    assert first.state == ShareState(5, ONE, 0, NOT_SET, NOT_SET, 0, b"")
    assert save(world, ONE, 1).result.error is NONE
    world.crash()
    second = take_over(world, OTHER, epoch=6)
    assert second.state == ShareState(6, OTHER, 0, 10, 12, 1, b"state")


def test_only_the_owner_saves_and_only_forwards(world: GroupWorld) -> None:
    take_over(world)
    assert save(world, ONE, 2).result.error is NONE
    written = len(world.log)
    assert save(world, ONE, 2).result.error is NONE  # sent again, or only asks whose the state is
    assert len(world.log) == written
    assert save(world, ONE, 1).result.error is ErrorCode.fenced_state_epoch  # came late
    take_over(world, OTHER, epoch=6)
    assert save(world, ONE, 3).result.error is ErrorCode.fenced_state_epoch
    world.crash()
    assert save(world, ONE, 4).result.error is ErrorCode.fenced_state_epoch
    assert save(world, OTHER, 1).result.error is NONE


def test_a_leader_of_before_does_not_take_over(world: GroupWorld) -> None:
    take_over(world, epoch=6)
    assert take_over(world, OTHER, epoch=5).error is ErrorCode.fenced_leader_epoch
    assert take_over(world, OTHER, epoch=6).error is NONE  # the same one, started again


def test_a_save_is_answered_when_it_is_in_the_log(world: GroupWorld) -> None:
    take_over(world)
    world.commits = False
    first, again = save(world, ONE, 1), save(world, ONE, 1)
    assert not first.is_answered
    assert not again.is_answered
    world.commit_log()
    assert first.result.error is again.result.error is NONE


def test_a_save_that_fails_leaves_the_state_before(world: GroupWorld) -> None:
    take_over(world)
    save(world, ONE, 1)
    world.refuse = ErrorCode.coordinator_not_available
    assert save(world, ONE, 2, 99).result.error is ErrorCode.coordinator_not_available
    world.refuse = None
    state = take_over(world, OTHER).state
    assert state is not None
    assert state.start_offset == 10


def test_offsets_are_altered_while_the_group_has_no_members(world: GroupWorld) -> None:
    key = key_of(world)
    place = (key.topic_id, key.partition)
    take_over(world)
    save(world, ONE, 1)

    def alter() -> ErrorCode:
        token = world.ask_shares(lambda it, token, now: it.alter("g", {place: 3}, token, now))
        code: ErrorCode = token.result
        return code

    assert alter() is ErrorCode.non_empty_group
    world.share_beat("m1", -1)
    assert alter() is NONE
    assert save(world, ONE, 2).result.error is ErrorCode.fenced_state_epoch
    state = take_over(world, OTHER).state
    assert state is not None
    assert (state.start_offset, state.end_offset, state.pending) == (3, 3, 0)


def test_a_group_is_made_by_its_offsets_unless_there_is_another_of_its_name() -> None:
    world = GroupWorld()
    world.topics.make("t", 2)
    world.topics_changed()
    topic_id = world.topics.known["t"].topic_id

    def alter(group: str, topic: UUID = topic_id) -> ErrorCode:
        token = world.ask_shares(
            lambda it, token, now: it.alter(group, {(topic, 0): 3}, token, now)
        )
        code: ErrorCode = token.result
        return code

    assert alter("g", UUID(int=9)) is ErrorCode.unknown_topic_or_partition
    assert world.state() is None
    world.refuse = ErrorCode.coordinator_not_available
    assert alter("g") is ErrorCode.coordinator_not_available
    world.refuse = None
    assert world.state() is None
    assert alter("g") is NONE
    world.crash()
    state = take_over(world).state
    assert state is not None
    assert (state.start_offset, state.end_offset) == (3, 3)
    world.consumer_beat("m", 0, group="consumers")
    assert alter("consumers") is ErrorCode.group_id_not_found


def test_offsets_are_deleted_while_the_group_has_no_members(world: GroupWorld) -> None:
    place = (key_of(world).topic_id, 0)
    take_over(world)
    save(world, ONE, 1)
    world.share_beat("m1", -1)
    token = world.ask_shares(lambda it, token, now: it.delete("g", [place], token, now))
    assert token.result is NONE
    world.crash()
    assert world.coordinator.share_states.states("g") == {}
    assert save(world, ONE, 2).result.error is ErrorCode.fenced_state_epoch


def test_nothing_is_left_of_a_deleted_group_or_topic(world: GroupWorld) -> None:
    take_over(world)
    save(world, ONE, 1)
    world.topics.delete("t")
    world.topics_changed("t")
    assert world.coordinator.share_states.states("g") == {}
    world.topics.make("t", 1)
    world.topics_changed("t")
    take_over(world)
    world.share_beat("m1", -1)
    token = Token("delete")
    world.carry_out(world.coordinator.delete_group("g", token, world.now))
    assert token.result is NONE
    world.crash()
    assert world.coordinator.describe("g") is None
    assert take_over(world).error is ErrorCode.group_id_not_found


def test_a_topic_that_is_not_known_has_no_state(world: GroupWorld) -> None:
    key = StateKey("g", UUID(int=77), 0)
    token = world.ask_shares(lambda it, token, now: it.take_over(key, 1, ONE, token, now))
    assert token.result.error is ErrorCode.unknown_topic_id


async def test_the_lag_of_a_share_group_is_what_it_has_yet_to_read(world: GroupWorld) -> None:
    """Of 12 records from offset 0 on, 10 and one later are done with: one is left, and those behind."""
    take_over(world)
    save(world, ONE, 1)
    names = {key_of(world).topic_id.bytes: "t"}
    (told,) = await progress_of(world.coordinator.groups(), 10, names)
    assert (told.group_id, told.committed) == ("g", {TopicPartition("t", 0): 11})
