"""ConsumerGroupHeartbeat over a log in memory: joins, reconciliation, fencing, sessions, failover."""

from typing import Any

import pytest

from streamlog.config import GroupsSection
from streamlog.coordination.effects import NONE
from streamlog.groups.consumer_group import ConsumerGroup
from streamlog.groups.records import NOTHING, Change, GroupEpoch, GroupEpochKey, TargetEpochKey
from streamlog.groups.requests import GroupCaller, HeartbeatAnswer, HeartbeatRequest
from streamlog.wire.error_codes import ErrorCode
from tests.consumer_world import WorldMember, numbers, settle
from tests.group_world import NO_DELAY, GroupWorld, Token


@pytest.fixture
def world() -> GroupWorld:
    made = GroupWorld()
    made.topics.make("t", 4)
    made.topics_changed()
    return made


def member(world: GroupWorld, name: str, **says: Any) -> WorldMember:
    return WorldMember(world, name, **says)


def test_a_first_member_has_everything_at_once(world: GroupWorld) -> None:
    answer = member(world, "a").beat()
    assert (answer.error, answer.epoch, answer.member_id) == (NONE, 1, "a")
    assert answer.interval_ms == NO_DELAY.consumer_heartbeat_interval_ms
    assert answer.assigned is not None
    assert numbers(answer.assigned) == {0, 1, 2, 3}
    assert world.state() == "Stable"


def test_nobody_has_what_another_has_yet_to_give_up(world: GroupWorld) -> None:
    a, b = member(world, "a"), member(world, "b")
    a.step()
    assert b.beat().assigned == NOTHING
    assert a.beat().epoch == 1  # it keeps its epoch until it has given up
    assert len(a.wanted) == 2
    assert b.beat().assigned is None
    assert world.state() == "Reconciling"
    a.reconcile()
    assert a.beat().epoch == 2
    assert len(b.beat().assigned or ()) == 2
    assert world.state() == "Stable"
    assert not numbers(a.wanted) & numbers(b.wanted)


def test_who_does_not_give_up_in_time_is_no_member(world: GroupWorld) -> None:
    a, b = member(world, "a", rebalance_ms=20_000), member(world, "b")
    a.step()
    b.step()
    for _ in range(5):
        a.beat()  # alive, and does not give up
        b.step()
        world.wait(4_000)
    assert a.beat().error is ErrorCode.unknown_member_id
    b.step()
    assert numbers(b.owned) == {0, 1, 2, 3}


def test_who_is_not_heard_of_is_no_member(world: GroupWorld) -> None:
    a, b = member(world, "a"), member(world, "b")
    settle(a, b)
    for _ in range(10):
        world.wait(5_000)
        b.step()
    assert numbers(b.owned) == {0, 1, 2, 3}
    assert a.beat().error is ErrorCode.unknown_member_id


def test_an_epoch_that_is_not_the_members_is_fenced(world: GroupWorld) -> None:
    a, b = member(world, "a"), member(world, "b")
    settle(a, b)
    assert a.epoch == 2
    assert world.consumer_beat("a", 3).result.error is ErrorCode.fenced_member_epoch
    assert world.consumer_beat("a", 1).result.error is ErrorCode.fenced_member_epoch
    # The answer with the new epoch may have been lost.
    assert world.consumer_beat("a", 1, a.owned).result.epoch == 2
    foreign = a.owned | b.owned
    assert world.consumer_beat("a", 1, foreign).result.error is ErrorCode.fenced_member_epoch


def test_leaving_gives_up_everything(world: GroupWorld) -> None:
    a, b = member(world, "a"), member(world, "b")
    settle(a, b)
    assert world.consumer_beat("a", -1).result == HeartbeatAnswer(NONE, None, "a", -1)
    b.step()
    assert numbers(b.owned) == {0, 1, 2, 3}
    assert world.consumer_beat("b", -1).result.error is NONE
    assert world.state() == "Empty"


def test_a_static_member_comes_back_to_its_part(world: GroupWorld) -> None:
    a, b = member(world, "a", instance_id="one"), member(world, "b")
    settle(a, b)
    other = member(world, "c", instance_id="one")
    assert other.beat().error is ErrorCode.unreleased_instance_id
    world.consumer_beat("a", -2, instance_id="one")
    had, epoch = a.owned, b.epoch
    b.step()
    assert b.epoch == epoch
    assert other.beat().assigned == had
    assert (
        world.consumer_beat("a", 2, instance_id="one").result.error is ErrorCode.fenced_instance_id
    )


def test_a_static_member_that_does_not_come_back_is_gone(world: GroupWorld) -> None:
    a, b = member(world, "a", instance_id="one"), member(world, "b")
    settle(a, b)
    world.consumer_beat("a", -2, instance_id="one")
    for _ in range(10):
        world.wait(5_000)
        b.step()
    assert numbers(b.owned) == {0, 1, 2, 3}


def test_topics_that_change_are_another_epoch(world: GroupWorld) -> None:
    a, b = member(world, "a"), member(world, "b")
    settle(a, b)
    world.topics.make("t", 6)
    world.topics_changed("t")
    world.topics.make("other", 6)
    world.topics_changed("other")
    world.wait(1)
    settle(a, b)
    assert a.epoch == 3
    assert numbers(a.owned) | numbers(b.owned) == set(range(6))
    before = a.owned
    world.topics.delete("t")
    world.topics.make("t", 2)
    world.topics_changed("t")
    world.wait(1)
    settle(a, b)
    assert numbers(a.owned) | numbers(b.owned) == {0, 1}
    assert not a.owned & before


def test_an_expression_stands_for_what_the_member_may_know_of(world: GroupWorld) -> None:
    world.topics.make("t-1", 1)
    world.topics.make("t-secret", 1)
    world.topics_changed()
    a = member(world, "a", regex="t-.*", sees=lambda name: name != "t-secret")
    a.step()
    assert {world.topics.name_of(it[0]) for it in a.owned} == {"t-1"}
    world.topics.make("t-2", 1)
    world.topics_changed("t-2")
    world.wait(1_000)
    a.step()
    assert {world.topics.name_of(it[0]) for it in a.owned} == {"t-1", "t-2"}
    refused = world.consumer_beat("b", 0, regex="(t").result
    assert refused.error is ErrorCode.invalid_regular_expression
    assert world.consumer_beat("b", 0, regex="(?=t)").result.error is refused.error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (ErrorCode.invalid_request, {"member_id": ""}),
        (ErrorCode.invalid_request, {"epoch": -3}),
        (ErrorCode.invalid_request, {"epoch": -2}),
        (ErrorCode.invalid_request, {"instance_id": ""}),
        (ErrorCode.invalid_request, {"epoch": 0, "rebalance_ms": 0}),
        (ErrorCode.unsupported_assignor, {"epoch": 0, "assignor": "mine"}),
        (ErrorCode.unknown_member_id, {"epoch": 1}),
        (ErrorCode.unknown_member_id, {"epoch": -1}),
        (ErrorCode.group_id_not_found, {"epoch": 1, "group": "none"}),
    ],
)
def test_what_is_refused(world: GroupWorld, error: ErrorCode, says: dict[str, object]) -> None:
    member(world, "a").step()
    asked: dict[str, object] = {"member_id": "b", "epoch": 0, **says}
    token = world.consumer_beat(asked.pop("member_id"), asked.pop("epoch"), **asked)  # type: ignore[arg-type]
    assert token.result.error is error


def test_who_joins_owns_nothing(world: GroupWorld) -> None:
    a = member(world, "a")
    a.step()
    asked = HeartbeatRequest(
        "g", "b", 0, "client", "/host", rebalance_timeout_ms=60_000, topics=("t",), owned=a.owned
    )
    for owned, error in ((a.owned, ErrorCode.invalid_request), (NOTHING, NONE)):
        token = Token("b")
        request = asked._replace(owned=owned)
        world.carry_out(world.coordinator.consumer_heartbeat(request, token, world.now))
        assert token.result.error is error


def test_a_full_group() -> None:
    world = GroupWorld(GroupsSection(group_size_max=1))
    member(world, "a").step()
    assert member(world, "b").beat().error is ErrorCode.group_max_size_reached
    assert member(world, "a").beat().error is NONE


def test_offsets_of_a_member_with_another_epoch_are_stale(world: GroupWorld) -> None:
    a = member(world, "a")
    a.step()
    assert set(world.commit(1, GroupCaller("a", None, 1)).result.values()) == {NONE}
    stale = ErrorCode.stale_member_epoch
    assert set(world.commit(2, GroupCaller("a", None, 0)).result.values()) == {stale}
    unknown = ErrorCode.unknown_member_id
    assert set(world.commit(2, GroupCaller("b", None, 1)).result.values()) == {unknown}
    assert set(world.commit(2).result.values()) == {unknown}
    assert world.committed() == 1
    assert world.coordinator.member_refusal("g", "a", 1) is NONE
    assert world.coordinator.member_refusal("g", "a", 0) is stale
    assert world.coordinator.member_refusal("g", "", -1) is NONE


def test_the_next_coordinator_goes_on(world: GroupWorld) -> None:
    a, b = member(world, "a"), member(world, "b", instance_id="two")
    settle(a, b)
    before = world.coordinator.describe_consumers("g")
    world.crash()
    assert world.coordinator.describe_consumers("g") == before
    assert [it.step().error for it in (a, b)] == [NONE, NONE]
    assert a.epoch == 2
    world.wait(46_000)
    assert world.state() == "Empty"


def test_nothing_is_told_before_it_is_committed(world: GroupWorld) -> None:
    world.commits = False
    first = world.consumer_beat("a", 0)
    again = world.consumer_beat("a", 1)
    assert not first.is_answered
    assert not again.is_answered
    world.commit_log()
    assert first.result.epoch == again.result.epoch == 1


def test_what_cannot_be_written_has_not_been(world: GroupWorld) -> None:
    a, b = member(world, "a"), member(world, "b")
    a.step()
    before = world.coordinator.describe_consumers("g")
    world.refuse = ErrorCode.coordinator_not_available
    assert b.beat().error is ErrorCode.coordinator_not_available
    assert world.coordinator.describe_consumers("g") == before
    assert a.beat().error is NONE
    assert world.consumer_beat("c", 0, group="new").result.error is not NONE
    assert world.coordinator.describe("new") is None
    world.refuse = None
    settle(a, b)
    assert world.state() == "Stable"


def test_topics_are_looked_at_again_where_their_epoch_could_not_be_written(
    world: GroupWorld,
) -> None:
    a = member(world, "a")
    a.step()
    world.topics.make("t", 6)
    world.topics_changed("t")
    world.refuse = ErrorCode.coordinator_not_available
    a.beat()
    world.wait(1)
    world.refuse = None
    a.step()
    assert numbers(a.owned) == set(range(6))


def test_an_expression_is_looked_at_by_the_next_coordinator(world: GroupWorld) -> None:
    a = member(world, "a", regex="t-.*")
    a.step()
    world.crash()
    world.topics.make("t-1", 1)
    world.topics_changed("t-1")
    a.step()
    world.wait(1_000)
    a.step()
    assert {world.topics.name_of(it[0]) for it in a.owned} == {"t-1"}


def test_a_group_without_members_is_deleted(world: GroupWorld) -> None:
    a = member(world, "a")
    a.step()
    delete = world.coordinator.delete_group
    assert world.ask(lambda token, now: delete("g", token, now)) is ErrorCode.non_empty_group
    world.consumer_beat("a", -1)
    assert world.ask(lambda token, now: delete("g", token, now)) is NONE
    world.crash()
    assert world.coordinator.describe("g") is None


def test_topics_that_change_are_another_epoch_before_any_member_beats(world: GroupWorld) -> None:
    world.commit(1, group="earlier, of another kind")
    a = member(world, "a")
    a.step()
    world.topics.make("t", 6)
    world.topics_changed("t")
    world.wait(1)
    described = world.coordinator.describe_consumers("g")
    assert described is not None
    assert (described.epoch, described.target_epoch) == (2, 2)


def test_offsets_of_what_its_members_read_are_not_forgotten(world: GroupWorld) -> None:
    a = member(world, "a")
    a.step()
    world.commit(5, GroupCaller("a", None, a.epoch))
    world.commit(6, GroupCaller("a", None, a.epoch), place=("other", 0))
    places = (("t", 0), ("other", 0))
    answer = world.ask(lambda token, now: world.coordinator.delete_offsets("g", places, token, now))
    assert answer == {places[0]: ErrorCode.group_subscribed_to_topic, places[1]: NONE}


def test_a_member_that_says_all_of_itself_is_told_all(world: GroupWorld) -> None:
    a = member(world, "a")
    a.step()
    assert world.consumer_beat("a", a.epoch, a.owned, rebalance_ms=0).result.assigned is None
    answer = world.consumer_beat("a", a.epoch, a.owned, rebalance_ms=1).result
    assert answer.assigned == a.owned


def test_what_fails_takes_nothing_back_of_what_is_written_after_it() -> None:
    group = ConsumerGroup("g")
    changes: list[Change] = [(TargetEpochKey("g"), 4), (GroupEpochKey("g"), GroupEpoch(5, 9))]
    for change in changes:
        assert group.change(*change)
    first, second = (group.append([it]) for it in changes)
    group.failed(first)
    assert (group.target_epoch, group.epoch) == (0, 5)
    group.committed(second)
    assert (group.epoch, group.metadata_hash) == (5, 9)


def test_the_time_to_give_up_ends_at_the_next_coordinator_too(world: GroupWorld) -> None:
    a, b = member(world, "a", rebalance_ms=20_000), member(world, "b")
    a.step()
    b.step()
    a.beat()
    world.crash()
    for _ in range(5):
        assert a.beat().error is NONE
        b.step()
        world.wait(4_000)
    assert a.beat().error is ErrorCode.unknown_member_id
