import pytest

from streamlog.config import GroupsSection
from streamlog.coordination.effects import NONE
from streamlog.groups.requests import GroupCaller, Joined
from streamlog.wire.error_codes import ErrorCode
from tests.group_world import NO_DELAY, GroupWorld, subscription

RANGE = ("range", subscription("t"))
STICKY = ("sticky", subscription("t"))


def test_a_new_member_is_given_an_id_first() -> None:
    world = GroupWorld()
    first = world.join(needs_known_id=True).result
    assert first == Joined(ErrorCode.member_id_required, "client-id1")
    assert world.state() == "Empty"
    joined = world.join(first.member_id, needs_known_id=True).result
    assert (joined.error, joined.generation, joined.leader) == (NONE, 1, "client-id1")
    assert [it.member_id for it in joined.members] == ["client-id1"]
    assert world.state() == "CompletingRebalance"


def test_an_id_that_nobody_comes_with_is_forgotten() -> None:
    world = GroupWorld()
    first = world.join(needs_known_id=True).result
    world.wait(10_000)
    assert world.state() is None
    assert world.join(first.member_id).result.error is ErrorCode.unknown_member_id


def test_a_rebalance_waits_for_whoever_was_given_an_id() -> None:
    world = GroupWorld()
    (old,) = world.stable()
    promised = world.join(needs_known_id=True).result
    assert world.beat(old) is NONE
    new = world.join(promised.member_id, needs_known_id=True)
    assert world.beat(old) is ErrorCode.rebalance_in_progress
    other = world.join(needs_known_id=True).result
    again = world.join(old.member_id)
    assert not again.is_answered
    world.join(other.member_id)
    assert (again.result.generation, new.result.generation) == (2, 2)


def test_the_first_generation_waits_for_more_as_long_as_they_come() -> None:
    world = GroupWorld(GroupsSection(initial_rebalance_delay_ms=3_000))
    first = world.join()
    world.wait(2_000)
    second = world.join()
    world.wait(3_999)
    assert not first.is_answered
    world.wait(1)
    assert (first.result.generation, second.result.generation) == (1, 1)
    assert len(first.result.members) == 2
    assert second.result.members == ()


def test_nor_longer_than_its_members_may_take() -> None:
    world = GroupWorld(GroupsSection(initial_rebalance_delay_ms=3_000))
    first = world.join(rebalance_ms=7_000)
    for _ in range(3):
        world.wait(2_000)
        world.join(rebalance_ms=7_000)
    assert not first.is_answered
    world.wait(1_000)
    assert first.result.generation == 1


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_that_is_too_short_or_too_long(session_ms: int) -> None:
    answer = GroupWorld().join(session_ms=session_ms).result
    assert answer.error is ErrorCode.invalid_session_timeout


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("consumer", ()), ("", (RANGE,)), ("connect", (RANGE,)), ("consumer", (STICKY,))],
)
def test_whoever_speaks_otherwise_cannot_join(
    protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    world = GroupWorld()
    world.stable(protocols=(RANGE,))
    answer = world.join(protocol_type=protocol_type, protocols=protocols).result
    assert answer.error is ErrorCode.inconsistent_group_protocol


def test_nor_begin_a_group_with_nothing() -> None:
    world = GroupWorld()
    assert world.join(protocols=()).result.error is ErrorCode.inconsistent_group_protocol
    assert world.state() is None


def test_the_protocol_with_most_votes_is_taken() -> None:
    world = GroupWorld(GroupsSection(initial_rebalance_delay_ms=100))
    both, turned = (RANGE, STICKY), (STICKY, RANGE)
    tokens = [world.join(protocols=it) for it in (both, turned, (*turned, ("odd", b"")))]
    world.wait(200)
    assert {it.result.protocol for it in tokens} == {"sticky"}


def test_among_equals_the_leader_decides() -> None:
    world = GroupWorld(GroupsSection(initial_rebalance_delay_ms=100))
    tokens = [world.join(protocols=it) for it in ((RANGE, STICKY), (STICKY, RANGE))]
    world.wait(200)
    assert {it.result.protocol for it in tokens} == {"range"}


def test_a_follower_that_joins_again_unchanged_is_told_what_there_is() -> None:
    world = GroupWorld()
    _, follower = world.stable(2)
    again = world.join(follower.member_id).result
    assert (again.error, again.generation, again.members) == (NONE, follower.generation, ())
    assert world.state() == "Stable"


def test_the_leader_asks_for_a_rebalance_by_joining_again() -> None:
    world = GroupWorld()
    leader, follower = world.stable(2)
    token = world.join(leader.member_id)
    assert not token.is_answered
    assert world.beat(follower) is ErrorCode.rebalance_in_progress


def test_so_does_a_follower_that_wants_something_else() -> None:
    world = GroupWorld()
    leader, follower = world.stable(2)
    world.join(follower.member_id, protocols=(("range", subscription("other")),))
    assert world.beat(leader) is ErrorCode.rebalance_in_progress


def test_an_answer_that_was_lost_is_given_again() -> None:
    world = GroupWorld()
    first = world.join().result
    assert world.join(first.member_id).result == first
    world.join(first.member_id, protocols=(("range", subscription("x")),))
    assert world.coordinator.describe("g").state == "CompletingRebalance"  # type: ignore[union-attr]
    assert world.coordinator.rebalances == 2


def test_a_second_request_of_a_member_takes_the_place_of_the_first() -> None:
    world = GroupWorld()
    leader, follower = world.stable(2)
    first = world.join(leader.member_id)
    second = world.join(leader.member_id)
    world.join(follower.member_id)
    assert (first.is_answered, second.result.generation) == (False, leader.generation + 1)


def test_a_full_group_takes_no_more() -> None:
    world = GroupWorld(NO_DELAY.model_copy(update={"group_size_max": 2}))
    members = world.stable(2)
    assert world.join().result.error is ErrorCode.group_max_size_reached
    assert world.join(needs_known_id=True).result.error is ErrorCode.group_max_size_reached
    assert world.join(members[1].member_id).result.error is NONE


def test_ids_that_were_given_out_count_towards_its_size() -> None:
    world = GroupWorld(NO_DELAY.model_copy(update={"group_size_max": 2}))
    given = [world.join(needs_known_id=True).result for _ in range(3)]
    assert [it.error for it in given] == [
        ErrorCode.member_id_required, ErrorCode.member_id_required,
        ErrorCode.group_max_size_reached,
    ]  # fmt: skip


def test_members_cannot_have_us_keep_without_end() -> None:
    world = GroupWorld(NO_DELAY.model_copy(update={"group_bytes_max": 1024}))
    world.stable()
    answer = world.join(protocols=(("range", bytes(1024)),)).result
    assert answer.error is ErrorCode.group_max_size_reached
    assert world.join(group="h" * 5000).result.error is NONE  # names are for the service to check
    long = world.join(instance_id="i" * 5000).result
    assert long.error is ErrorCode.invalid_request


def test_nor_all_groups_together() -> None:
    world = GroupWorld(NO_DELAY.model_copy(update={"groups_bytes_max": 1024}))
    (first,) = world.stable(protocols=(("range", bytes(700)),))
    full = ErrorCode.group_max_size_reached
    large = (("range", bytes(400)),)
    assert world.join(group="h", protocols=large).result.error is full
    assert world.join(first.member_id, protocols=(("range", bytes(900)),)).result.error is NONE
    world.crash()
    assert world.join(group="h", protocols=large).result.error is full
    world.leave(GroupCaller(first.member_id))
    assert world.join(group="h", protocols=large).result.error is NONE


def test_members_count_from_when_they_join() -> None:
    world = GroupWorld(NO_DELAY.model_copy(update={"groups_bytes_max": 1024}))
    assert world.join(protocols=(("range", bytes(700)),)).result.error is NONE
    answer = world.join(group="h", protocols=(("range", bytes(400)),)).result
    assert answer.error is ErrorCode.group_max_size_reached


@pytest.mark.parametrize("more", [0, 1])
def test_all_groups_together_may_have_just_so_much(more: int) -> None:
    world = GroupWorld(NO_DELAY.model_copy(update={"groups_bytes_max": 1024}))
    world.stable(protocols=(("range", bytes(700)),))
    left = 1024 - world.coordinator._table.kept_bytes - len("range")
    answer = world.join(group="h", protocols=(("range", bytes(left + more)),)).result
    assert answer.error is (ErrorCode.group_max_size_reached if more else NONE)


def test_there_are_only_so_many_groups() -> None:
    world = GroupWorld(NO_DELAY.model_copy(update={"groups_per_partition_max": 1}))
    world.stable()
    assert world.join(group="other").result.error is ErrorCode.policy_violation


def test_who_is_no_member_cannot_come_back() -> None:
    world = GroupWorld()
    assert world.join("m").result.error is ErrorCode.unknown_member_id
    world.stable()
    assert world.join("m").result.error is ErrorCode.unknown_member_id


# Static members (KIP-345)


def test_a_static_member_that_restarts_keeps_its_place_and_troubles_nobody() -> None:
    world = GroupWorld()
    (leader,) = world.stable(instance_id="one")
    world.commits = False
    token = world.join(instance_id="one")
    assert not token.is_answered
    world.commit_log()
    again = token.result
    assert (again.error, again.generation) == (NONE, leader.generation)
    assert again.member_id != leader.member_id == again.leader
    assert again.members == ()
    synced = world.sync(again, instance_id="one").result
    assert synced.assignment == leader.member_id.encode()
    assert world.coordinator.rebalances == 1
    assert world.beat(leader, instance_id="one") is ErrorCode.fenced_instance_id
    world.crash()
    assert world.beat(again, instance_id="one") is NONE


def test_one_that_may_skip_the_assignment_is_told_that_it_leads() -> None:
    world = GroupWorld()
    world.stable(instance_id="one")
    again = world.join(instance_id="one", may_skip=True).result
    assert again.leader == again.member_id
    assert again.skip_assignment
    assert [it.instance_id for it in again.members] == ["one"]


def test_what_it_owned_is_no_new_wish() -> None:
    world = GroupWorld()
    world.stable(instance_id="one")
    more = (("range", subscription("t", more=b"\x00\x00\x00\x00whatever")),)
    world.join(instance_id="one", protocols=more)
    assert world.state() == "Stable"


def test_another_wish_is_a_rebalance() -> None:
    world = GroupWorld()
    world.stable(instance_id="one")
    answer = world.join(instance_id="one", protocols=(("range", subscription("u")),)).result
    assert (answer.generation, world.coordinator.rebalances) == (2, 2)


def test_what_cannot_be_kept_has_not_happened() -> None:
    world = GroupWorld()
    (leader,) = world.stable(instance_id="one")
    world.refuse = ErrorCode.coordinator_not_available
    answer = world.join(instance_id="one").result
    assert answer.error is ErrorCode.coordinator_not_available
    assert world.beat(leader, instance_id="one") is NONE


def test_of_two_with_one_name_the_later_stays() -> None:
    world = GroupWorld(GroupsSection(initial_rebalance_delay_ms=100))
    first = world.join(instance_id="one")
    second = world.join(instance_id="one")
    assert first.result.error is ErrorCode.fenced_instance_id
    world.wait(200)
    assert second.result.error is NONE


def test_while_its_generation_is_being_assigned_a_restart_is_a_rebalance() -> None:
    world = GroupWorld()
    world.join(instance_id="one")
    assert world.state() == "CompletingRebalance"
    assert world.join(instance_id="one").result.generation == 2


def test_an_old_id_is_fenced_and_a_wrong_name_unknown() -> None:
    world = GroupWorld()
    (one,) = world.stable(instance_id="one")
    answer = world.join("other", instance_id="one").result
    assert answer.error is ErrorCode.fenced_instance_id
    answer = world.join(one.member_id, instance_id="two").result
    assert answer.error is ErrorCode.unknown_member_id
    assert world.leave(GroupCaller("x", "one")) == [ErrorCode.fenced_instance_id]


def test_a_member_that_waits_no_longer_than_the_delay_has_no_second_one() -> None:
    world = GroupWorld(GroupsSection(initial_rebalance_delay_ms=3_000))
    first = world.join(rebalance_ms=3_000)
    world.wait(2_000)
    world.join(rebalance_ms=3_000)
    world.wait(1_000)
    assert first.is_answered
