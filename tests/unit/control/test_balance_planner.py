"""Which replicas and leaders a balance moves."""

import time

import pytest

from streamlog.control.balance.planner import (
    MOVES_MAX,
    BalancePlan,
    Goal,
    NodeResources,
    PartitionLoad,
    plan_balance,
)
from streamlog.errors import InvalidRequest
from streamlog.model import NodeId
from tests.unit.control.balance_worlds import DISK_BYTES, after, nodes_of, partition, with_sizes

THREE = nodes_of(None, None, None)
MIB = 1024 * 1024


def leaders(plan: BalancePlan) -> list[int]:
    return [it.after.leaders for it in plan.nodes]


def cost(plan: BalancePlan, goal: Goal) -> tuple[int, int]:
    return next((it.before, it.after) for it in plan.goals if it.goal == goal)


def test_a_balanced_cluster_is_left_alone() -> None:
    even = [partition(i, 1 + i % 3, 1 + (i + 1) % 3, bytes_in=MIB) for i in range(6)]
    plan = plan_balance(THREE, even)
    assert (plan.moves, plan.is_complete, plan.copied_bytes) == ((), True, 0)
    assert plan_balance([], []).moves == ()


def test_leadership_moves_without_data_where_that_is_enough() -> None:
    plan = plan_balance(THREE, [partition(i, 1, 2, 3, size=1_000) for i in range(6)])
    assert leaders(plan) == [2, 2, 2]
    assert len(plan.moves) == 4
    assert plan.copied_bytes == 0
    assert all(set(it.before) == set(it.after) for it in plan.moves)


def test_a_new_node_gets_its_share() -> None:
    old = [partition(i, 1 + i % 2, 2 - i % 2, size=1_000) for i in range(6)]
    plan = plan_balance(with_sizes(THREE, old), old)
    assert leaders(plan) == [2, 2, 2]
    assert [it.after.replicas for it in plan.nodes] == [4, 4, 4]
    assert plan.copied_bytes == 4_000


def test_a_full_disk_is_relieved_first() -> None:
    big = [partition(i, 1, size=DISK_BYTES // 5) for i in range(5)]
    plan = plan_balance(with_sizes(THREE, big), big, disk_limit_percent=50)
    assert plan.moves[0].goal == Goal.DISK_LIMIT
    assert max(it.after.disk_used_bytes for it in plan.nodes) <= DISK_BYTES // 2
    assert plan.copied_bytes == 3 * DISK_BYTES // 5


def test_two_replicas_of_one_rack_are_parted() -> None:
    nodes = nodes_of("a", "a", "b")
    (move,) = plan_balance(nodes, [partition(0, 1, 2)]).moves
    assert (move.after, move.goal) == ((1, 3), Goal.RACKS)
    assert plan_balance(nodes_of("a", "a"), [partition(0, 1, 2)]).moves == ()


def test_one_machine_never_keeps_two_replicas() -> None:
    nodes = [it._replace(machine=NodeId(min(it.node, 2))) for it in THREE]
    loads = [partition(i, 1, 2, bytes_in=MIB) for i in range(8)]
    for move in plan_balance(nodes, loads).moves:
        assert 1 in move.after


def test_what_is_written_is_evened_out() -> None:
    loads = [partition(i, 1, bytes_in=(i + 1) * MIB) for i in range(20)]
    plan = plan_balance(THREE, loads)
    assert all(63 * MIB <= it.after.bytes_in_per_s <= 77 * MIB for it in plan.nodes)
    assert cost(plan, Goal.BYTES_IN)[1] == 0


def test_a_node_that_is_drained_is_neither_given_nor_asked_for_anything() -> None:
    leaving = [*THREE[:2], THREE[2]._replace(takes=False, carries=False)]
    kept = [partition(i, 1, 3)._replace(movable=False) for i in range(2)]
    plan = plan_balance(leaving, [*kept, *(partition(i, 1) for i in range(2, 6))])
    assert [it.after.replicas for it in plan.nodes] == [3, 3, 2]


def test_what_may_not_move_stays() -> None:
    pinned = [partition(i, 1)._replace(movable=False) for i in range(6)]
    elsewhere = [partition(9, 1, 7)]  # node 7 takes no part
    assert plan_balance(THREE, [*pinned, *elsewhere]).moves == ()


def test_a_plan_is_bounded() -> None:
    many = [partition(i, 1) for i in range(30)]
    plan = plan_balance(THREE, many, moves_max=5)
    assert (len(plan.moves), plan.is_complete) == (5, False)
    found = many
    for _ in range(9):
        plan = plan_balance(THREE, found, moves_max=5)
        found = after(found, plan)
    assert (plan.moves, plan.is_complete) == ((), True)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"moves_max": 0}, "moves_max"),
        ({"disk_limit_percent": 101}, "disk_limit_percent"),
        ({"tolerance_percent": -1}, "tolerance_percent"),
    ],
)
def test_limits_that_are_none(wrong: dict[str, int], name: str) -> None:
    with pytest.raises(InvalidRequest, match=name):
        plan_balance(THREE, [], **wrong)


def large_cluster() -> tuple[list[NodeResources], list[PartitionLoad]]:
    """A hundred nodes in five racks keep ten thousand partitions three times; the last twenty are empty."""
    nodes = nodes_of(*(f"rack-{i % 5}" for i in range(100)))
    loads = []
    for i in range(10_000):
        kept = [1 + (i * 7 + i // 80 + k * 21) % 80 for k in range(3)]
        size, rate = (i * 7_919 % 97) * 10_000, (i * 104_729 % 89) * 2_000
        loads.append(partition(i, *kept, size=size, bytes_in=rate, bytes_out=3 * rate))
    return with_sizes(nodes, loads), loads


@pytest.mark.parametrize("moves_max", [MOVES_MAX, 100_000])
def test_a_large_cluster_is_planned_in_seconds(moves_max: int) -> None:
    """Of the processor's time; this is a few times more than it takes."""
    nodes, loads = large_cluster()
    began_s = time.process_time()
    plan = plan_balance(nodes, loads, moves_max=moves_max)
    assert time.process_time() - began_s < 30
    assert len(plan.moves) >= min(moves_max, 1_000)
    for goal in (Goal.RACKS, Goal.DISK_LIMIT):
        assert cost(plan, goal)[1] <= cost(plan, goal)[0]
