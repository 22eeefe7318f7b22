"""Offsets that producers commit in transactions: they count once the transaction is committed (KIP-447)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.coordination.effects import NONE
from streamlog.groups.requests import GroupCaller, PartitionId
from streamlog.wire.error_codes import ErrorCode
from tests.group_world import NO_DELAY, GroupWorld, Token

UNSTABLE = ErrorCode.unstable_offset_commit
WEEK_MS = 7 * 86_400_000


def told(token: Token) -> ErrorCode:
    (code,) = token.result.values()
    return ErrorCode(code)


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("commit", [True, False])
def test_an_offset_counts_once_its_transaction_is_committed(commit: bool, crash: bool) -> None:
    world = GroupWorld()
    world.commit(5)
    assert told(world.commit_in_transaction(8)) is NONE
    if crash:
        world.crash()
    assert (world.committed(), world.committed(stable=True)) == (5, UNSTABLE)
    assert world.coordinator.offsets_count == 2
    world.end_transaction(7, commit=commit)
    expected = 8 if commit else 5
    assert (world.committed(), world.committed(stable=True)) == (expected, expected)
    assert world.coordinator.offsets_count == 1
    world.crash()
    assert world.committed(stable=True) == expected


def test_the_last_one_of_a_transaction_counts() -> None:
    world = GroupWorld()
    world.commit_in_transaction(8)
    world.commit_in_transaction(9)
    assert world.coordinator.offsets_count == 1
    world.end_transaction(7, commit=True)
    assert (world.committed(), world.coordinator.offsets_count) == (9, 1)


def test_what_stands_later_in_the_log_holds() -> None:
    world = GroupWorld()
    world.commit_in_transaction(8)
    world.commit(5)
    world.end_transaction(7, commit=True)
    assert world.committed() == 5
    world.crash()
    assert world.committed() == 5


@pytest.mark.parametrize("first", [1, 2])
def test_of_two_transactions_the_later_offset_holds(first: int) -> None:
    world = GroupWorld()
    world.commit_in_transaction(1, 1)
    world.commit_in_transaction(2, 2)
    world.end_transaction(first, commit=True)
    world.end_transaction(3 - first, commit=True)
    assert (world.committed(stable=True), world.coordinator.offsets_count) == (2, 1)
    world.crash()
    assert world.committed(stable=True) == 2


def test_other_partitions_and_groups_are_let_alone() -> None:
    world = GroupWorld()
    world.commit_in_transaction(8, place=("t", 1))
    world.commit_in_transaction(9, group="h")
    world.commit(5)
    assert world.committed(stable=True) == 5
    world.end_transaction(99, commit=True)
    assert world.committed(place=("t", 1), stable=True) is UNSTABLE
    world.end_transaction(7, commit=True)
    assert (world.committed(place=("t", 1)), world.committed("h")) == (8, 9)


def test_a_group_of_transactions_alone_is_gone_with_them() -> None:
    world = GroupWorld()
    world.commit_in_transaction(8)
    assert world.state() == "Empty"
    world.end_transaction(7, commit=False)
    assert (world.state(), world.coordinator.offsets_count) == (None, 0)


def test_an_open_transaction_keeps_offsets_from_expiring() -> None:
    world = GroupWorld()
    world.commit(5)
    world.commit_in_transaction(8)
    world.wait(2 * WEEK_MS)
    assert world.committed() == 5
    world.end_transaction(7, commit=False)
    world.wait(WEEK_MS)
    assert world.state() is None


@pytest.mark.parametrize("crash", [False, True])
def test_what_is_deleted_does_not_come_back(crash: bool) -> None:
    world = GroupWorld()
    world.commit(5)
    world.commit_in_transaction(8)
    token = Token("delete")
    world.carry_out(world.coordinator.delete_group("g", token, world.now))
    assert token.result is NONE
    if crash:
        world.crash()
    world.end_transaction(7, commit=True)
    assert (world.state(), world.coordinator.offsets_count) == (None, 0)


def test_members_that_are_none_any_more_are_refused() -> None:
    world = GroupWorld(NO_DELAY)
    (joined,) = world.stable()
    member = GroupCaller(joined.member_id, None, joined.generation)
    assert told(world.commit_in_transaction(8, caller=member)) is NONE
    older = member._replace(generation=joined.generation - 1)
    refused = world.commit_in_transaction(9, caller=older)
    assert told(refused) is ErrorCode.illegal_generation
    stranger = GroupCaller("x", None, joined.generation)
    refused = world.commit_in_transaction(9, caller=stranger)
    assert told(refused) is ErrorCode.unknown_member_id
    assert told(world.commit_in_transaction(9)) is NONE  # an older producer says nothing of it
    assert told(world.commit_in_transaction(9, caller=member, group="h")) is (
        ErrorCode.illegal_generation
    )


def test_what_could_not_be_written_is_not_pending() -> None:
    world = GroupWorld()
    world.refuse = ErrorCode.invalid_producer_epoch
    assert told(world.commit_in_transaction(8)) is ErrorCode.invalid_producer_epoch
    assert (world.state(), world.coordinator.offsets_count) == (None, 0)


PLACES: tuple[PartitionId, ...] = (("t", 0), ("t", 1))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(0, 1), st.integers(0, 1)),
        st.tuples(st.just("pend"), st.integers(0, 1), st.integers(1, 3)),
        st.tuples(st.just("pend"), st.integers(0, 1), st.integers(1, 3)),
        st.tuples(st.just("end"), st.integers(0, 1), st.integers(1, 3)),
        st.tuples(st.just("forget"), st.integers(0, 1), st.integers(0, 1)),
        st.tuples(st.just("write"), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("crash"), st.integers(0, 2), st.just(0)),
    ),
    max_size=40,
)


@given(STEPS)
def test_the_coordinator_knows_what_the_log_says(steps: list[tuple[str, int, int]]) -> None:
    """Whether it has written it, or read it."""
    world = GroupWorld(commits=False)
    for number, (what, first, second) in enumerate(steps):
        match what:
            case "commit":
                world.commit(number, place=PLACES[first])
            case "pend":
                world.commit_in_transaction(number, second, place=PLACES[first])
            case "end":
                world.end_transaction(second, commit=bool(first))
            case "forget":
                token = Token("forget")
                asked = [PLACES[first]]
                world.carry_out(world.coordinator.delete_offsets("g", asked, token, world.now))
            case "write":
                world.commit_log(first)
            case "crash":
                world.crash(first)
        known = {it.name: it for it in world.replayed().built()}
        offsets = known["g"].offsets if "g" in known else {}
        pending = known["g"].transactional.places if "g" in known else set()
        for place in PLACES:
            expected = offsets[place].offset if place in offsets else None
            assert world.committed(place=place) == expected
            if place in pending:
                assert world.committed(place=place, stable=True) is UNSTABLE
    world.commit_log()
    known = {it.name: it for it in world.replayed().built()}
    count = sum(len(it.offsets) + len(it.transactional) for it in known.values())
    assert world.coordinator.offsets_count == count


def test_after_a_failover_a_commit_counts_against_earlier_ones_of_any_group() -> None:
    world = GroupWorld()
    world.commit_in_transaction(5, 8, group="early")
    world.commit(1, group="late")
    world.commit(2, group="late")
    world.commit_in_transaction(6, 7, group="late")
    world.crash()
    world.commit(9, group="late")
    world.end_transaction(7, commit=True)
    assert world.committed("late") == 9
