import pytest

from streamlog.coordination.effects import NONE
from streamlog.groups.requests import GroupCaller, SyncedMember
from streamlog.wire.error_codes import ErrorCode
from tests.group_world import GroupWorld

BUSY = ErrorCode.rebalance_in_progress


def test_nobody_hears_of_an_assignment_before_it_is_kept() -> None:
    world = GroupWorld(commits=False)
    joined = world.join().result
    token = world.sync(joined, {joined.member_id: b"all"})
    assert not token.is_answered
    assert world.state() == "CompletingRebalance"
    world.commit_log()
    assert token.result == SyncedMember(NONE, "consumer", "range", b"all")
    assert world.state() == "Stable"
    assert world.sync(joined).result.assignment == b"all"


def test_an_assignment_that_cannot_be_kept_is_none() -> None:
    world = GroupWorld()
    joined = world.join().result
    world.refuse = ErrorCode.not_coordinator
    token = world.sync(joined, {joined.member_id: b"all"})
    assert token.result == SyncedMember(ErrorCode.not_coordinator)
    assert world.state() == "PreparingRebalance"


def test_a_member_that_comes_while_it_is_being_kept_has_it_done_again() -> None:
    world = GroupWorld(commits=False)
    leader = world.join().result
    token = world.sync(leader, {leader.member_id: b"all"})
    new = world.join()
    assert token.result == SyncedMember(BUSY)
    world.commit_log()
    assert world.state() == "PreparingRebalance"
    world.join(leader.member_id)
    assert new.result.generation == 2


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"member_id": "nobody"}, ErrorCode.unknown_member_id),
        ({"generation": 9}, ErrorCode.illegal_generation),
    ],
)
def test_who_is_not_of_this_generation(change: dict[str, object], error: ErrorCode) -> None:
    world = GroupWorld()
    joined = world.join().result
    wrong = joined._replace(**change)
    assert world.sync(wrong).result == SyncedMember(error)
    assert world.beat(wrong) is error


def test_another_protocol_than_was_chosen() -> None:
    world = GroupWorld()
    joined = world.join().result
    answer = world.sync(joined, protocol="sticky").result
    assert answer.error is ErrorCode.inconsistent_group_protocol


def test_of_a_group_that_is_not_there() -> None:
    world = GroupWorld()
    joined = GroupWorld().join().result
    assert world.sync(joined).result.error is ErrorCode.unknown_member_id
    assert world.beat(joined) is ErrorCode.unknown_member_id
    assert world.leave(GroupCaller("m")) == [ErrorCode.unknown_member_id]


def test_who_does_not_beat_is_gone_and_the_others_share() -> None:
    world = GroupWorld()
    leader, follower = world.stable(2)
    for _ in range(2):
        world.wait(4_000)
        assert world.beat(leader) is NONE
    world.wait(2_000)
    assert world.beat(leader) is BUSY
    assert world.beat(follower) is ErrorCode.unknown_member_id
    alone = world.join(leader.member_id).result
    assert [it.member_id for it in alone.members] == [leader.member_id]


def test_who_waits_for_an_answer_needs_no_beat() -> None:
    world = GroupWorld()
    leader, follower = world.stable(2)
    waiting = world.join(leader.member_id, rebalance_ms=40_000)
    for _ in range(4):
        world.wait(8_000)
        assert world.beat(follower) is BUSY
    assert not waiting.is_answered
    world.join(follower.member_id)
    assert waiting.result.generation == follower.generation + 1


def test_a_rebalance_ends_without_those_who_do_not_come() -> None:
    world = GroupWorld()
    leader, slow = world.stable(2, session_ms=100_000)
    waiting = world.join(leader.member_id, session_ms=100_000)
    world.wait(59_999)
    assert not waiting.is_answered
    world.wait(1)
    assert [it.member_id for it in waiting.result.members] == [leader.member_id]
    assert world.beat(slow) is ErrorCode.unknown_member_id


def test_a_leader_that_does_not_come_is_replaced() -> None:
    world = GroupWorld()
    _, follower = world.stable(2, session_ms=100_000)
    other = (("range", b"something else"),)
    waiting = world.join(follower.member_id, protocols=other, session_ms=100_000)
    world.wait(60_000)
    assert waiting.result.leader == follower.member_id


def test_a_static_leader_that_does_not_come_keeps_its_place_but_not_the_lead() -> None:
    world = GroupWorld()
    (static,) = world.stable(session_ms=100_000, instance_id="one")
    waiting = world.join(session_ms=100_000)
    world.wait(60_000)
    assert waiting.result.leader == waiting.result.member_id
    assert [it.instance_id for it in waiting.result.members] == ["one", None]
    assert world.beat(static._replace(generation=2), instance_id="one") is NONE


def test_static_members_that_all_stay_away_are_waited_for_until_their_sessions_end() -> None:
    world = GroupWorld()
    world.stable(session_ms=100_000, instance_id="one")
    world.join(session_ms=100_000)
    assert world.leave(GroupCaller("client-id2")) == [NONE]
    world.wait(99_999)
    assert world.state() == "PreparingRebalance"
    world.wait(1)
    assert world.state() == "Empty"


def test_members_that_never_ask_for_their_part_are_gone() -> None:
    world = GroupWorld()
    tokens = [world.join(session_ms=100_000)]
    first = tokens[0].result
    second = world.join(session_ms=100_000)
    world.join(first.member_id, session_ms=100_000)
    world.sync(second.result)
    world.wait(60_000)
    assert world.beat(first._replace(generation=2)) is ErrorCode.unknown_member_id
    assert world.state() == "PreparingRebalance"


def test_leaving_begins_a_rebalance_and_the_last_one_leaves_it_empty() -> None:
    world = GroupWorld()
    leader, follower = world.stable(2)
    assert world.leave(GroupCaller(follower.member_id)) == [NONE]
    assert world.beat(leader) is BUSY
    assert world.leave(GroupCaller(leader.member_id)) == [NONE]
    assert world.state() == "Empty"
    world.crash()
    described = world.coordinator.describe("g")
    assert described is not None
    assert (described.state, described.protocol_type) == ("Empty", "consumer")


def test_several_leave_at_once_static_ones_by_their_name_alone() -> None:
    world = GroupWorld()
    world.stable(instance_id="one")
    answers = world.leave(
        GroupCaller("", "one"), GroupCaller("", "two"), GroupCaller("m"), GroupCaller("")
    )
    unknown = ErrorCode.unknown_member_id
    assert answers == [NONE, unknown, unknown, unknown]
    assert world.state() == "Empty"


def test_an_id_that_was_given_out_can_be_given_back() -> None:
    world = GroupWorld()
    given = world.join(needs_known_id=True).result
    assert world.leave(GroupCaller(given.member_id)) == [NONE]
    assert world.state() is None


def test_members_go_on_after_their_coordinator_has_gone() -> None:
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.wait(9_000)
    world.crash()
    world.wait(9_999)
    assert (world.beat(leader), world.beat(follower)) == (NONE, NONE)
    assert world.sync(follower).result.assignment == follower.member_id.encode()
    world.wait(10_000)
    assert world.state() == "Empty"


def test_those_who_had_no_assignment_yet_have_to_join_anew() -> None:
    world = GroupWorld(commits=False)
    joined = world.join().result
    world.sync(joined, {joined.member_id: b"all"})
    world.crash()
    assert world.beat(joined) is ErrorCode.unknown_member_id


def test_when_another_coordinates_whoever_waits_is_told() -> None:
    world = GroupWorld()
    leader, _ = world.stable(2)
    joining = world.join(leader.member_id)
    world.carry_out(world.coordinator.close())
    assert joining.result.error is ErrorCode.not_coordinator


def test_members_that_wait_for_nothing_are_told_nothing_by_the_end_of_a_leadership() -> None:
    world = GroupWorld()
    world.stable(2)
    assert not world.coordinator.close()


def test_while_we_cannot_be_heard_no_session_ends() -> None:
    world = GroupWorld()
    (leader,) = world.stable()
    world.wait(9_999)
    world.coordinator.resume(50_000, world.now)
    world.wait(9_999)
    assert world.beat(leader) is NONE


def test_what_is_told_of_a_group() -> None:
    world = GroupWorld()
    (leader,) = world.stable(instance_id="one")
    described = world.coordinator.describe("g")
    assert described is not None
    assert described[:4] == ("g", "Stable", "consumer", "range")
    (member,) = described.members
    assert member[:4] == (leader.member_id, "one", "client", "/host")
    assert member.assignment == leader.member_id.encode()
    assert world.coordinator.listed() == [described._replace(members=())]
    assert world.coordinator.states() == {"Stable": 1}
    world.leave(GroupCaller("", "one"))
    assert world.coordinator.listed()[0].state == "Empty"


def test_when_another_coordinates_those_that_wait_for_nothing_are_not_told() -> None:
    """Some wait for their part of the assignment, the leader has not been heard of yet."""
    world = GroupWorld()
    leader, follower = world.stable(2)
    first, second = world.join(leader.member_id), world.join(follower.member_id)
    assert first.is_answered
    waiting = world.sync(second.result)
    assert not waiting.is_answered
    effects = world.coordinator.close()
    assert len(effects) == 1
    world.carry_out(effects)
    assert waiting.result.error is ErrorCode.not_coordinator
