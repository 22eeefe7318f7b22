from uuid import UUID

import pytest

from streamlog.coordination.effects import NONE
from streamlog.groups.requests import CommitRequest, GroupCaller, OffsetToCommit
from streamlog.wire.error_codes import ErrorCode
from tests.group_world import NO_DELAY, TOPIC_ID, GroupWorld, Token

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS
OTHER = ("other", 0)


def told(token: Token) -> ErrorCode:
    (code,) = token.result.values()
    return ErrorCode(code)


def member(world: GroupWorld) -> GroupCaller:
    (joined,) = world.stable()
    return GroupCaller(joined.member_id, None, joined.generation)


def test_an_offset_counts_when_it_is_committed() -> None:
    world = GroupWorld(commits=False)
    first = world.commit(5)
    assert (first.is_answered, world.committed()) == (False, None)
    assert world.committed(stable=True) is ErrorCode.unstable_offset_commit
    world.commit_log()
    second = world.commit(6)
    assert (told(first), second.is_answered, world.committed()) == (NONE, False, 5)
    world.commit_log()
    assert (told(second), world.committed(stable=True)) == (NONE, 6)
    assert (world.coordinator.commits, world.coordinator.offsets_count) == (2, 1)


def test_what_is_not_kept_has_not_happened() -> None:
    world = GroupWorld()
    world.commit(5)
    world.refuse = ErrorCode.coordinator_not_available
    assert told(world.commit(6)) is ErrorCode.coordinator_not_available
    assert (world.committed(), world.coordinator.offsets_count) == (5, 1)
    assert told(world.commit(1, group="new")) is ErrorCode.coordinator_not_available
    assert world.state("new") is None


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_the_next_coordinator_knows_what_is_in_the_log(kept: int) -> None:
    world = GroupWorld()
    world.commit(5)
    world.commits = False
    world.commit(6)
    world.commit(7)
    world.crash(kept)
    assert world.committed() == 5 + kept


def test_only_members_commit_while_there_are_any() -> None:
    world = GroupWorld()
    caller = member(world)
    assert told(world.commit(5, caller)) is NONE
    assert told(world.commit(5)) is ErrorCode.unknown_member_id
    assert told(world.commit(5, GroupCaller("m", None, 1))) is ErrorCode.unknown_member_id
    former = caller._replace(generation=caller.generation - 1)
    assert told(world.commit(5, former)) is ErrorCode.illegal_generation
    world.leave(GroupCaller(caller.member_id))
    assert told(world.commit(9)) is NONE
    assert told(world.commit(9, caller)) is ErrorCode.unknown_member_id


def test_a_generation_of_a_group_that_is_gone() -> None:
    world = GroupWorld()
    assert told(world.commit(5, GroupCaller("m", None, 1))) is ErrorCode.illegal_generation


def test_while_members_join_they_still_may_and_not_while_it_is_assigned() -> None:
    world = GroupWorld()
    caller = member(world)
    world.join()
    assert told(world.commit(5, caller)) is NONE
    world.join(caller.member_id)
    now = caller._replace(generation=caller.generation + 1)
    assert told(world.commit(6, now)) is ErrorCode.rebalance_in_progress
    assert told(world.commit(6, caller)) is ErrorCode.illegal_generation


def test_a_commit_is_a_sign_of_life() -> None:
    world = GroupWorld()
    caller = member(world)
    for offset in range(3):
        world.wait(9_000)
        assert told(world.commit(offset, caller)) is NONE


def test_limits() -> None:
    limits = {"offset_metadata_bytes_max": 3, "offsets_max": 2, "groups_per_partition_max": 2}
    world = GroupWorld(NO_DELAY.model_copy(update=limits))
    assert told(world.commit(5, metadata="four")) is ErrorCode.offset_metadata_too_large
    assert world.state() is None
    assert told(world.commit(5, metadata="ööö")) is ErrorCode.offset_metadata_too_large
    assert told(world.commit(5)) is NONE
    assert told(world.commit(5, place=("t", 1))) is NONE
    assert told(world.commit(5, place=("t", 2))) is ErrorCode.policy_violation
    assert told(world.commit(6)) is NONE
    assert told(world.commit(6, group="h", place=("t", 3))) is ErrorCode.policy_violation
    world.join(group="h")
    assert told(world.commit(5, group="i")) is ErrorCode.policy_violation


def test_what_is_refused_of_a_request_does_not_stop_the_rest() -> None:
    world = GroupWorld()
    wanted = {
        ("t", 0): OffsetToCommit(1, -1, "", TOPIC_ID),
        ("t", 1): OffsetToCommit(2, -1, "x" * 5_000, TOPIC_ID),
    }
    request = CommitRequest("g", GroupCaller(""), wanted)
    answer = world.ask(lambda token, now: world.coordinator.commit(request, token, now))
    assert answer == {("t", 0): NONE, ("t", 1): ErrorCode.offset_metadata_too_large}
    assert (world.committed(), world.committed(place=("t", 1))) == (1, None)


def test_all_offsets_of_a_group() -> None:
    world = GroupWorld()
    world.commit(5)
    world.commit(6, place=OTHER)
    found = world.coordinator.fetch("g", None)
    assert {place: it.committed.offset for place, it in found.items() if it.committed} == {
        ("t", 0): 5, OTHER: 6,
    }  # fmt: skip
    assert world.coordinator.fetch("nobody", None) == {}
    assert world.committed("nobody") is None


# Groups and offsets that are deleted


def delete(world: GroupWorld, group: str = "g") -> ErrorCode:
    code: ErrorCode = world.ask(
        lambda token, now: world.coordinator.delete_group(group, token, now)
    )
    return code


def test_a_group_without_members_can_be_deleted() -> None:
    world = GroupWorld()
    caller = member(world)
    world.commit(5, caller)
    assert delete(world) is ErrorCode.non_empty_group
    world.leave(GroupCaller(caller.member_id))
    assert delete(world) is NONE
    assert delete(world) is ErrorCode.group_id_not_found
    assert world.coordinator.offsets_count == 0
    world.crash()
    assert (world.state(), world.committed()) == (None, None)


def test_while_it_is_being_deleted_nobody_joins_or_commits() -> None:
    world = GroupWorld()
    world.commit(5)
    world.commits = False
    late = world.commit(6)
    gone = Token("delete")
    world.carry_out(world.coordinator.delete_group("g", gone, world.now))
    busy = ErrorCode.coordinator_not_available
    assert world.join().result.error is busy
    assert told(world.commit(7)) is busy
    world.commit_log()
    assert (gone.result, told(late), world.committed()) == (NONE, NONE, None)
    assert world.coordinator.offsets_count == 0
    world.crash()
    assert world.committed() is None


def test_one_that_cannot_be_deleted_stays() -> None:
    world = GroupWorld()
    world.commit(5)
    world.refuse = ErrorCode.coordinator_not_available
    assert delete(world) is ErrorCode.coordinator_not_available
    world.refuse = None
    assert (world.state(), world.committed()) == ("Empty", 5)
    assert told(world.commit(6)) is NONE


def forget(world: GroupWorld, *places: tuple[str, int]) -> object:
    return world.ask(lambda token, now: world.coordinator.delete_offsets("g", places, token, now))


def test_offsets_are_forgotten_but_not_of_what_members_read() -> None:
    world = GroupWorld()
    assert forget(world, ("t", 0)) is ErrorCode.group_id_not_found
    caller = member(world)
    world.commit(5, caller)
    world.commit(6, caller, place=OTHER)
    assert forget(world, ("t", 0), OTHER) == {
        ("t", 0): ErrorCode.group_subscribed_to_topic, OTHER: NONE,
    }  # fmt: skip
    assert (world.committed(), world.committed(place=OTHER)) == (5, None)
    world.leave(GroupCaller(caller.member_id))
    assert forget(world, ("t", 0), ("t", 9)) == {("t", 0): NONE, ("t", 9): NONE}
    world.crash()
    assert world.committed() is None


def test_of_members_that_do_not_tell_what_they_read_nothing_is_forgotten() -> None:
    world = GroupWorld()
    world.stable(protocol_type="connect")
    assert forget(world, ("t", 0)) is ErrorCode.non_empty_group
    world = GroupWorld()
    world.stable(protocols=(("range", b"?"),))
    assert forget(world, ("t", 0)) == {("t", 0): ErrorCode.group_subscribed_to_topic}


# What expires


def test_offsets_of_a_group_without_members_ever_go_by_their_age() -> None:
    world = GroupWorld()
    world.commit(5)
    world.wait(DAY_MS)
    world.commit(6, place=OTHER)
    world.wait(WEEK_MS - DAY_MS - 600_000)
    assert world.committed() == 5
    world.wait(1_200_000)
    assert (world.committed(), world.committed(place=OTHER)) == (None, 6)
    world.wait(DAY_MS)
    assert (world.state(), world.coordinator.expired) == (None, 2)
    world.crash()
    assert world.state() is None


def test_those_of_a_group_that_lost_its_members_stay_as_long_again() -> None:
    world = GroupWorld()
    caller = member(world)
    world.commit(5, caller)
    for _ in range(2 * WEEK_MS // 9_000_000):
        world.ms += 9_000_000
        assert world.coordinator.heartbeat("g", caller, world.now) is NONE
    world.leave(GroupCaller(caller.member_id))
    world.wait(WEEK_MS - 600_000)
    assert world.committed() == 5
    world.wait(1_200_000)
    assert (world.committed(), world.state()) == (None, None)


def test_no_age_counts_from_before_the_cluster_was_restored() -> None:
    """Nobody could commit while it was lost."""
    world = GroupWorld()
    world.commit(5)
    world.ms += 2 * WEEK_MS
    world.since_ms = world.now.wall_ms
    world.crash()
    world.wait(WEEK_MS - 600_000)
    assert world.committed() == 5
    world.wait(1_200_000)
    assert world.committed() is None


def test_what_members_do_not_read_any_more_expires() -> None:
    world = GroupWorld()
    caller = member(world)
    world.commit(5, caller)
    world.commit(6, caller, place=OTHER)
    world.ms += WEEK_MS
    world.coordinator.heartbeat("g", caller, world.now)
    world.carry_out(world.coordinator.tick(world.now))
    assert (world.committed(), world.committed(place=OTHER)) == (5, None)


def test_a_client_may_say_when_an_offset_expires() -> None:
    world = GroupWorld()
    world.commit(5, retention_ms=DAY_MS)
    world.crash()
    world.wait(DAY_MS - 600_000)
    assert world.committed() == 5
    world.wait(1_200_000)
    assert world.committed() is None


def test_a_commit_on_its_way_is_not_lost_to_what_expires() -> None:
    world = GroupWorld()
    world.commit(5)
    world.ms += WEEK_MS
    world.commits = False
    world.commit(6)
    world.carry_out(world.coordinator.tick(world.now))
    world.commit_log()
    assert world.committed() == 6


def test_looking_for_what_has_expired_is_done_in_parts() -> None:
    world = GroupWorld()
    for number in range(1_500):
        world.commit(1, group=f"g{number}")
    world.ms += WEEK_MS
    world.carry_out(world.coordinator.tick(world.now))
    assert 0 < len(world.coordinator.listed()) < 1_500
    world.wait(100)
    assert world.coordinator.listed() == []


# Streams that go


def test_a_stream_takes_its_offsets_along() -> None:
    world = GroupWorld()
    world.commit(5)
    world.commit(6, place=OTHER)
    world.commits = False
    late = world.commit(7)
    world.carry_out(world.coordinator.streams_changed({"t": None}))
    world.commit_log()
    assert told(late) is NONE
    assert (world.committed(), world.committed(place=OTHER)) == (None, 6)
    world.crash()
    assert world.committed() is None


def test_a_commit_that_is_refused_does_not_end_a_group_that_has_had_members() -> None:
    world = GroupWorld(NO_DELAY.model_copy(update={"offset_metadata_bytes_max": 3}))
    world.leave(GroupCaller(member(world).member_id))
    for group, state in (("g", "Empty"), ("new", None)):
        token = world.commit(5, metadata="four", group=group)
        assert told(token) is ErrorCode.offset_metadata_too_large
        assert world.state(group) == state


def test_one_of_the_same_name_is_another() -> None:
    world = GroupWorld()
    world.commit(5)
    world.carry_out(world.coordinator.streams_changed({"t": TOPIC_ID}))
    assert world.committed() == 5
    world.carry_out(world.coordinator.streams_changed({"t": UUID(int=8)}))
    assert world.committed() is None


def test_what_is_on_its_way_to_the_log_was_meant_for_the_stream_of_before() -> None:
    """It is deleted and created again in one change of the image."""
    world = GroupWorld()
    world.commits = False
    late = world.commit(7)
    world.carry_out(world.coordinator.streams_changed({"t": UUID(int=8)}))
    world.commit_log()
    assert told(late) is NONE
    assert world.committed() is None
    world.crash()
    assert world.committed() is None


def test_what_is_on_its_way_stays_where_the_stream_does() -> None:
    world = GroupWorld()
    world.commits = False
    late = world.commit(7)
    world.carry_out(world.coordinator.streams_changed({"t": TOPIC_ID}))
    world.commit_log()
    assert told(late) is NONE
    assert world.committed() == 7


def test_a_new_coordinator_forgets_streams_that_went_meanwhile() -> None:
    world = GroupWorld()
    world.commit(5)
    world.commit(6, place=OTHER)
    world.crash()
    world.carry_out(world.coordinator.only_streams({"t": TOPIC_ID}))
    assert (world.committed(), world.committed(place=OTHER)) == (5, None)


def test_an_offset_that_could_not_be_forgotten_is_told() -> None:
    """And one that its readers still want is told for that reason."""
    world = GroupWorld()
    caller = member(world)
    world.commit(5, caller)
    world.commit(6, caller, place=OTHER)
    world.refuse = ErrorCode.coordinator_not_available
    assert forget(world, ("t", 0), OTHER) == {
        ("t", 0): ErrorCode.group_subscribed_to_topic,
        OTHER: ErrorCode.coordinator_not_available,
    }
    world.refuse = None
    assert forget(world, OTHER) == {OTHER: NONE}


def test_a_group_does_not_end_for_one_that_was_given_an_id() -> None:
    """It is about to come with it."""
    world = GroupWorld()
    world.wait(5_000)
    world.commit(5)
    world.wait(WEEK_MS + 590_000)
    promised = world.join(needs_known_id=True).result
    assert world.committed() == 5
    world.wait(6_000)
    assert world.join(promised.member_id).result.error is NONE
