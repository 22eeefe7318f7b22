"""Any plan of a balance against a naive count of what comes of it."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.control.balance.planner import (
    BalancePlan,
    Goal,
    NodeResources,
    NodeTotals,
    PartitionLoad,
    plan_balance,
)
from streamlog.model import NodeId
from tests.unit.control.balance_worlds import DISK_BYTES, after, with_sizes

KIB = 1024
Cluster = tuple[list[NodeResources], list[PartitionLoad]]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    count = draw(st.integers(1, 7))
    racks = draw(st.integers(1, 4))
    nodes = []
    for i in range(1, count + 1):
        takes = draw(st.sampled_from([True, True, True, False]))
        nodes.append(
            NodeResources(
                NodeId(i),
                draw(st.sampled_from([None, *"abcd"[:racks]])),
                NodeId(draw(st.sampled_from([i, i, (i + 1) // 2]))),
                draw(st.sampled_from([DISK_BYTES, 2 * DISK_BYTES])),
                draw(st.integers(0, DISK_BYTES // 10)),
                takes,
                takes or draw(st.booleans()),
            )
        )
    loads = []
    ids = st.sampled_from([*(it.node for it in nodes), NodeId(99)])
    for number in range(draw(st.integers(0, 25))):
        kept = draw(st.lists(ids, min_size=1, max_size=min(count, 4), unique=True))
        loads.append(
            PartitionLoad(
                "orders",
                number,
                tuple(kept),
                draw(st.integers(0, DISK_BYTES // 8)),
                draw(st.integers(0, 900 * KIB)),
                draw(st.integers(0, 2_000 * KIB)),
                draw(st.sampled_from([True, True, True, False])),
            )
        )
    return with_sizes(nodes, loads), loads


def rack_of(nodes: list[NodeResources]) -> dict[NodeId, object]:
    return {it.node: it.node if it.rack is None else it.rack for it in nodes}


@given(cluster=clusters())
def test_a_plan_keeps_the_rules_and_makes_no_goal_worse_than_it_pays_for(cluster: Cluster) -> None:
    nodes, before = cluster
    plan = plan_balance(nodes, before)
    found = after(before, plan)
    known = {it.node: it for it in nodes}
    racks = rack_of(nodes)
    takers = {it.node for it in nodes if it.takes}
    for old, new in zip(before, found, strict=True):
        assert len(set(new.replicas)) == len(old.replicas)
        if not old.movable or not known.keys() >= set(old.replicas):
            assert new == old
            continue
        added = set(new.replicas) - set(old.replicas)
        assert added <= takers
        if new.replicas[0] != old.replicas[0]:
            assert new.replicas[0] in takers
        for node in added:  # no machine that has one already
            assert [known[it].machine for it in new.replicas].count(known[node].machine) == 1
        kept = [racks[it] for it in new.replicas]
        assert len(set(kept)) >= len({racks[it] for it in old.replicas})
        for double in (it for it in new.replicas if kept.count(racks[it]) > 1):
            others = {known[it].machine for it in new.replicas if it != double}
            free = [
                it for it in takers if racks[it] not in kept and known[it].machine not in others
            ]
            assert not free, f"{double} could go to {free}"
    assert {it.replicas for it in before} or not plan.moves
    costs_before = tuple(it.before for it in plan.goals)
    costs_after = tuple(it.after for it in plan.goals)
    assert costs_after <= costs_before, "the first goal that changes gets better"
    assert (costs_after == costs_before) == (not plan.moves)


@given(cluster=clusters())
def test_a_plan_tells_what_each_node_will_carry(cluster: Cluster) -> None:
    nodes, before = cluster
    plan = plan_balance(nodes, before)
    found = after(before, plan)
    copied = 0
    for stage, loads in (("before", before), ("after", found)):
        replicas, leaders = Counter[NodeId](), Counter[NodeId]()
        bytes_in, bytes_out = Counter[NodeId](), Counter[NodeId]()
        for it in loads:
            leaders[it.replicas[0]] += 1
            bytes_out[it.replicas[0]] += it.bytes_out_per_s
            for node in it.replicas:
                replicas[node] += 1
                bytes_in[node] += it.bytes_in_per_s
        for row in plan.nodes:
            told = getattr(row, stage)
            assert told.replicas == replicas[row.node]
            assert told.leaders == leaders[row.node]
            assert told.bytes_in_per_s == bytes_in[row.node]
            assert told.bytes_out_per_s == bytes_out[row.node]
    used = {it.node: it.disk_used_bytes for it in nodes}
    for old, new in zip(before, found, strict=True):
        for node in set(new.replicas) - set(old.replicas):
            used[node] += old.size_bytes
            copied += old.size_bytes
        for node in set(old.replicas) - set(new.replicas):
            used[node] -= old.size_bytes
    assert {it.node: it.after.disk_used_bytes for it in plan.nodes} == used
    assert plan.copied_bytes == copied


@given(cluster=clusters())
def test_after_a_plan_there_is_no_other(cluster: Cluster) -> None:
    nodes, before = cluster
    plan = plan_balance(nodes, before)
    assert plan == plan_balance(nodes[::-1], before[::-1])
    used = {it.node: it.after.disk_used_bytes for it in plan.nodes}
    then = [it._replace(disk_used_bytes=used[it.node]) for it in nodes]
    again = plan_balance(then, after(before, plan))
    if plan.is_complete:
        assert not again.moves
    assert [it.before for it in again.goals] == [it.after for it in plan.goals]


@given(cluster=clusters(), moves_max=st.integers(1, 4))
def test_a_plan_that_is_cut_short_is_no_step_back(cluster: Cluster, moves_max: int) -> None:
    nodes, before = cluster
    plan = plan_balance(nodes, before, moves_max=moves_max)
    assert len(plan.moves) <= moves_max
    goals = {it.goal: it for it in plan.goals}
    assert goals[Goal.RACKS].after <= goals[Goal.RACKS].before
    assert [it.after for it in plan.goals] <= [it.before for it in plan.goals]


# A cluster whose load is skewed, and shifts


class SkewedCluster:
    """Three racks. A few partitions have most of the load, as Zipf's law has it: sizes, what is written and what is
    read, each with a favourite of its own.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        count = random.randint(6, 9)
        self.nodes = [_node(number) for number in range(1, count + 1)]
        partitions = random.randint(60, 120)
        self._shares = [_zipf(random, partitions) for _ in range(3)]
        self.loads = []
        for number in range(partitions):
            first = [random.choice(self._in_rack(rack)) for rack in "abc"]
            random.shuffle(first)
            self.loads.append(PartitionLoad("orders", number, tuple(first), 0, 0, 0))
        self._load()

    def event(self) -> None:
        """A node is added, the favourites change, or a node is to be emptied."""
        kind = self._random.choice(("node", "favourites", "drain"))
        if kind == "node":
            self.nodes.append(_node(len(self.nodes) + 1))
        elif kind == "favourites":
            self._random.shuffle(self._shares[self._random.randrange(3)])
        else:
            taking = [it for it in self.nodes if it.takes]
            leaving = self._random.choice(taking)
            if sum(it.rack == leaving.rack for it in taking) > 2:
                index = self.nodes.index(leaving)
                self.nodes[index] = leaving._replace(takes=False)
        self._load()

    def execute(self, plan: BalancePlan) -> None:
        self.loads = after(self.loads, plan)
        self._load()

    def measured(self) -> dict[NodeId, NodeTotals]:
        """What each node carries, counted anew."""
        found = {}
        for node, _, _, _, disk_used_bytes, *_ in self.nodes:
            kept = [it for it in self.loads if node in it.replicas]
            led = [it for it in kept if it.replicas[0] == node]
            found[node] = NodeTotals(
                disk_used_bytes,
                sum(it.bytes_in_per_s for it in kept),
                sum(it.bytes_out_per_s for it in led),
                len(led),
                len(kept),
            )
        return found

    def _load(self) -> None:
        sizes, written, read = self._shares
        self.loads = [
            it._replace(
                size_bytes=int(sizes[it.partition] * DISK_BYTES),
                bytes_in_per_s=int(written[it.partition] * 100 * KIB * KIB),
                bytes_out_per_s=int(read[it.partition] * 300 * KIB * KIB),
            )
            for it in self.loads
        ]
        self.nodes = with_sizes([it._replace(disk_used_bytes=0) for it in self.nodes], self.loads)

    def _in_rack(self, rack: str) -> list[NodeId]:
        return [it.node for it in self.nodes if it.rack == rack]


def _node(number: int) -> NodeResources:
    return NodeResources(NodeId(number), "abc"[number % 3], NodeId(number), DISK_BYTES, 0)


def _zipf(random: Random, count: int) -> list[float]:
    weights = [1 / rank ** random.uniform(0.8, 1.2) for rank in range(1, count + 1)]
    random.shuffle(weights)
    return [it / sum(weights) for it in weights]


@pytest.mark.parametrize("seed", range(20))
def test_a_skewed_load_is_evened_out_in_small_plans_as_each_says(seed: int) -> None:
    random = Random(seed)
    cluster = SkewedCluster(random)
    for _ in range(4):
        while (plan := plan_balance(cluster.nodes, cluster.loads, moves_max=10)).moves:
            costs = [it.after for it in plan.goals]
            assert costs < [it.before for it in plan.goals], "so that it comes to an end"
            cluster.execute(plan)
            assert cluster.measured() == {it.node: it.after for it in plan.nodes}
            racks = rack_of(cluster.nodes)
            for load in cluster.loads:
                assert len({racks[it] for it in load.replicas}) == 3
        _check_even(cluster)
        cluster.event()


def _check_even(cluster: SkewedCluster) -> None:
    """No node that takes part carries more than its part, by more than the largest of what it keeps: no single
    replica is too much there.
    """
    carried = Counter[NodeId]()
    largest = Counter[NodeId]()
    for load in cluster.loads:
        for node in load.replicas:
            carried[node] += load.bytes_in_per_s
            largest[node] = max(largest[node], load.bytes_in_per_s)
    for rack in "abc":
        nodes = [it.node for it in cluster.nodes if it.rack == rack and it.takes]
        mean = sum(carried[it] for it in nodes) / len(nodes)
        for node in nodes:
            assert carried[node] <= 1.2 * mean + largest[node], (rack, carried)
