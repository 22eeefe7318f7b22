"""The planner of a balance: which replicas and leaders move so that no node carries too much. Pure.

It is a greedy search, in the manner of LinkedIn's Cruise Control. Goals come one after another. A step moves one
replica, or the leadership of one partition. It is taken if it brings its goal forward and worsens no goal before that
one, so the costs of all goals together, read as one number with the first goal in front, fall with each step: the
search ends. It is repeated until no goal finds a step. Only then is another plan for what comes of this one empty.

The cost of a goal is how far nodes are outside of its bounds, in all. The bounds are a share around what each node
would carry if all carried alike, so that small differences move nothing. All numbers are integers: equal input gives
an equal plan.

A step of a later goal may not undo an earlier one; a step of an earlier goal may cost a later one something. What is
not searched: two replicas that change places in one step. Steps of one partition become one move, in the place of the
first: so the costs of what is moved halfway are not those of the search halfway.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from streamlog.errors import InvalidRequest
from streamlog.model import NodeId

SEARCH_MAX: Final = 500_000
"""Steps that are looked at; some seconds. A plan that needs more is not complete."""
TRIES_MAX: Final = 3_000
"""Steps that are looked at in vain for one node, before the next one has its turn."""
MOVES_MAX: Final = 1_000
"""Partitions that one plan moves, unless it is told otherwise."""
TOLERANCE_PERCENT: Final = 10
"""Of what a node would carry if all carried alike; so much more or less is even."""
DISK_LIMIT_PERCENT: Final = 80
"""Of its disk, which no node should use more of."""
DISK_SLACK_PERCENT: Final = 5
"""Of its disk; so much more or less is even, too: data is not copied for a little."""
RATE_SLACK: Final = 64 * 1024
"""Bytes a second; so much more or less is even, too."""
GAIN_PARTS: Final = 2_000
"""A step gains at least such a part of what a node carries: no replica is copied for a byte a second."""


class Goal(StrEnum):
    """In their order."""

    RACKS = "racks"
    """No two replicas of a partition in one rack, as far as there are racks."""
    DISK_LIMIT = "disk limit"
    """No disk fuller than ``DISK_LIMIT_PERCENT``."""
    DISK = "disk"
    """Each node uses the same share of its disk."""
    BYTES_IN = "bytes in"
    """What is written to all replicas of the node."""
    BYTES_OUT = "bytes out"
    """What is read of the partitions that the node leads, by consumers and followers."""
    LEADERS = "leaders"
    REPLICAS = "replicas"


class NodeResources(NamedTuple):
    """A node that takes part."""

    node: NodeId
    rack: str | None
    """None: the node is a rack of its own."""
    machine: NodeId
    """No two replicas of a partition are on nodes of one machine."""
    disk_total_bytes: int
    disk_used_bytes: int
    """With what else is on the disk."""
    takes: bool = True
    """It may be given replicas, and lead them."""
    carries: bool = True
    """It is to carry its part; else it is on its way out, and counts in no mean."""


class PartitionLoad(NamedTuple):
    """What a partition costs the nodes that keep it."""

    stream: str
    partition: int
    replicas: tuple[NodeId, ...]
    """The first one leads."""
    size_bytes: int
    """Of one replica."""
    bytes_in_per_s: int
    """Written to each replica."""
    bytes_out_per_s: int
    """Read from its leader."""
    movable: bool = True


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """A partition that is to be kept by others, or led by another one; the first replica leads."""

    stream: str
    partition: int
    before: tuple[NodeId, ...]
    after: tuple[NodeId, ...]
    goal: Goal
    """For which it is moved first."""
    copied_bytes: int
    """To all new replicas together; 0: only the leader changes."""


@dataclass(frozen=True, slots=True)
class NodeTotals:
    """What a node carries."""

    disk_used_bytes: int
    bytes_in_per_s: int
    bytes_out_per_s: int
    leaders: int
    replicas: int


@dataclass(frozen=True, slots=True)
class NodeBalance:
    """What a node carries now, and what it will."""

    node: NodeId
    rack: str | None
    disk_total_bytes: int
    before: NodeTotals
    after: NodeTotals


@dataclass(frozen=True, slots=True)
class GoalCost:
    """How far nodes are outside of a goal's bounds, in all: bytes, bytes a second, leaders, replicas; of racks:
    replicas that share one.
    """

    goal: Goal
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class BalancePlan:
    """Moves, in the order in which they are to be made."""

    moves: tuple[PartitionMove, ...]
    nodes: tuple[NodeBalance, ...]
    goals: tuple[GoalCost, ...]
    is_complete: bool
    """False: there was more to move than one plan may, or more to look at."""

    @property
    def copied_bytes(self) -> int:
        return sum(it.copied_bytes for it in self.moves)


DISK, IN, OUT, LEADERS, REPLICAS = range(5)
"""What a node has a sum of."""
_LED: Final = (OUT, LEADERS)
"""Those that go with the leader."""


class _GoalBounds(NamedTuple):
    """Of a goal, for each node."""

    goal: Goal
    resource: int
    lower: list[int]
    upper: list[int]
    gain_min: int


class _PlannedPartition:
    __slots__ = ("costs", "load", "movable", "replicas")

    def __init__(self, load: PartitionLoad, replicas: list[int]) -> None:
        self.load = load
        self.replicas = replicas
        """Indexes of nodes; -1 for one that takes no part."""
        self.movable = load.movable and -1 not in replicas
        self.costs = (load.size_bytes, load.bytes_in_per_s, load.bytes_out_per_s, 1, 1)
        """Of a replica that leads, by the resource."""


def plan_balance(
    nodes: Sequence[NodeResources],
    partitions: Iterable[PartitionLoad],
    *,
    moves_max: int = MOVES_MAX,
    disk_limit_percent: int = DISK_LIMIT_PERCENT,
    tolerance_percent: int = TOLERANCE_PERCENT,
) -> BalancePlan:
    """Raises InvalidRequest as ``plan_in_steps``."""
    steps = plan_in_steps(
        nodes,
        partitions,
        moves_max=moves_max,
        disk_limit_percent=disk_limit_percent,
        tolerance_percent=tolerance_percent,
    )
    while True:
        try:
            next(steps)
        except StopIteration as end:
            plan: BalancePlan = end.value
            return plan


def plan_in_steps(
    nodes: Sequence[NodeResources],
    partitions: Iterable[PartitionLoad],
    *,
    moves_max: int = MOVES_MAX,
    disk_limit_percent: int = DISK_LIMIT_PERCENT,
    tolerance_percent: int = TOLERANCE_PERCENT,
) -> Generator[None, None, BalancePlan]:
    """Between two steps others may be served. Raises InvalidRequest for limits that are none."""
    if moves_max < 1:
        raise InvalidRequest("moves_max: at least 1")
    if not 1 <= disk_limit_percent <= 100:
        raise InvalidRequest("disk_limit_percent: 1 to 100")
    if not 0 <= tolerance_percent <= 100:
        raise InvalidRequest("tolerance_percent: 0 to 100")
    planner = _Planner(nodes, partitions, moves_max)
    return (yield from planner.run(disk_limit_percent, tolerance_percent))


class _Planner:
    """One plan in the making."""

    def __init__(
        self, nodes: Sequence[NodeResources], partitions: Iterable[PartitionLoad], moves_max: int
    ) -> None:
        self._nodes = sorted(nodes)
        index = {it.node: i for i, it in enumerate(self._nodes)}
        self._racks = [it.node if it.rack is None else it.rack for it in self._nodes]
        self._machines = [it.machine for it in self._nodes]
        self._partitions = [
            _PlannedPartition(it, [index.get(node, -1) for node in it.replicas])
            for it in sorted(partitions)
        ]
        count = len(self._nodes)
        self._loads = [[0] * count for _ in range(5)]
        self._loads[DISK] = [it.disk_used_bytes for it in self._nodes]
        self._kept: list[set[int]] = [set() for _ in self._nodes]
        """Partitions of each node."""
        for number, it in enumerate(self._partitions):
            for place, node in enumerate(it.replicas):
                if node < 0:
                    continue
                self._kept[node].add(number)
                self._loads[IN][node] += it.costs[IN]
                self._loads[REPLICAS][node] += 1
                if not place:
                    self._loads[OUT][node] += it.costs[OUT]
                    self._loads[LEADERS][node] += 1
        self._takes = [i for i, it in enumerate(self._nodes) if it.takes]
        self._moved: dict[int, Goal] = {}
        self._moves_max = moves_max
        self._looked = 0
        self._is_complete = True
        self._bounds: list[_GoalBounds] = []

    def run(self, limit_percent: int, percent: int) -> Generator[None, None, BalancePlan]:
        self._bounds = self._all_bounds(limit_percent, percent)
        before, costs = self._totals(), self._costs()
        taken = -1
        while taken:
            taken = yield from self._spread_racks()
            for rank in range(len(self._bounds)):
                taken += yield from self._even_out(rank)
        after = self._totals()
        return BalancePlan(
            tuple(self._moves()),
            tuple(
                NodeBalance(it.node, it.rack, it.disk_total_bytes, *both)
                for it, *both in zip(self._nodes, before, after, strict=True)
            ),
            tuple(
                GoalCost(goal, cost, self_cost)
                for (goal, cost), (_, self_cost) in zip(costs, self._costs(), strict=True)
            ),
            self._is_complete,
        )

    # Bounds and costs

    def _all_bounds(self, limit_percent: int, percent: int) -> list[_GoalBounds]:
        capacity = [it.disk_total_bytes for it in self._nodes]
        no_lower = [0] * len(capacity)
        limit = _GoalBounds(
            Goal.DISK_LIMIT, DISK, no_lower, [it * limit_percent // 100 for it in capacity], 1
        )
        disk_slack = [it * DISK_SLACK_PERCENT // 100 for it in capacity]
        alike, rate_slack, no_slack = ([it] * len(capacity) for it in (1, RATE_SLACK, 0))
        return [
            limit,
            self._even(Goal.DISK, DISK, capacity, disk_slack, percent),
            self._even(Goal.BYTES_IN, IN, alike, rate_slack, percent),
            self._even(Goal.BYTES_OUT, OUT, alike, rate_slack, percent),
            self._even(Goal.LEADERS, LEADERS, alike, no_slack, percent),
            self._even(Goal.REPLICAS, REPLICAS, alike, no_slack, percent),
        ]

    def _even(
        self, goal: Goal, resource: int, weights: list[int], slacks: list[int], percent: int
    ) -> _GoalBounds:
        load, carries = self._loads[resource], [it.carries for it in self._nodes]
        whole = sum(w for w, counts in zip(weights, carries, strict=True) if counts)
        total = sum(load)
        lower, upper = [0] * len(load), [total] * len(load)
        for node, weight in enumerate(weights):
            if carries[node] and whole:
                mean = total * weight // whole
                mean_up = -(-total * weight // whole)
                slack = max(mean * percent // 100, slacks[node])
                lower[node], upper[node] = max(0, mean - slack), mean_up + slack
        gain_min = max(1, total // max(1, sum(carries)) // GAIN_PARTS)
        return _GoalBounds(goal, resource, lower, upper, gain_min)

    def _costs(self) -> list[tuple[Goal, int]]:
        shared = sum(
            len(it.replicas) - len({self._racks[node] for node in it.replicas})
            for it in self._partitions
            if -1 not in it.replicas
        )
        found = [(Goal.RACKS, shared)]
        for bounds in self._bounds:
            load = self._loads[bounds.resource]
            cost = sum(map(_outside, load, bounds.lower, bounds.upper))
            found.append((bounds.goal, cost))
        return found

    def _totals(self) -> list[NodeTotals]:
        return [NodeTotals(*each) for each in zip(*self._loads, strict=True)]

    def _moves(self) -> Iterable[PartitionMove]:
        for number, goal in self._moved.items():
            it = self._partitions[number]
            load, after = it.load, tuple(self._nodes[i].node for i in it.replicas)
            if after != load.replicas:
                added = len(set(after) - set(load.replicas))
                yield PartitionMove(
                    load.stream,
                    load.partition,
                    load.replicas,
                    after,
                    goal,
                    added * load.size_bytes,
                )

    # Steps

    def _may_move(self, number: int) -> bool:
        """It can be moved, and the plan has room for it."""
        if not self._partitions[number].movable:
            return False
        if number in self._moved or len(self._moved) < self._moves_max:
            return True
        self._is_complete = False  # and the search ends: the next plan goes on
        return False

    def _may_search(self) -> bool:
        if self._looked >= SEARCH_MAX:
            self._is_complete = False
        return self._is_complete

    def _may_keep(self, it: _PlannedPartition, source: int, target: int) -> bool:
        """``target`` may keep the replica of ``source``: racks get no worse, and no machine has two."""
        if target in it.replicas:
            return False
        racks, machines = self._racks, self._machines
        others = [node for node in it.replicas if node != source]
        if machines[target] in [machines[node] for node in others]:
            return False
        taken = [racks[node] for node in others]
        return racks[target] not in taken or racks[source] in taken

    def _is_better(self, rank: int, source: int, target: int, amounts: Sequence[int]) -> bool:
        """The goal of that rank gains enough, and none before it loses."""
        self._looked += 1
        bounds = self._bounds[rank]
        if self._change(bounds, source, target, amounts) > -bounds.gain_min:
            return False
        return all(self._change(it, source, target, amounts) <= 0 for it in self._bounds[:rank])

    def _change(self, bounds: _GoalBounds, source: int, target: int, amounts: Sequence[int]) -> int:
        """Of the cost."""
        amount = amounts[bounds.resource]
        if not amount:
            return 0
        load, lower, upper = self._loads[bounds.resource], bounds.lower, bounds.upper
        change = 0
        for node, by in ((source, -amount), (target, amount)):
            low, high, now = lower[node], upper[node], load[node]
            change += _outside(now + by, low, high) - _outside(now, low, high)
        return change

    def _carry(self, source: int, target: int, amounts: Sequence[int]) -> None:
        for load, amount in zip(self._loads, amounts, strict=True):
            load[source] -= amount
            load[target] += amount

    def _move(self, number: int, source: int, target: int, goal: Goal) -> None:
        it = self._partitions[number]
        self._carry(source, target, _replica_amounts(it, source))
        it.replicas[it.replicas.index(source)] = target
        self._kept[source].discard(number)
        self._kept[target].add(number)
        self._moved.setdefault(number, goal)

    def _lead(self, number: int, target: int, goal: Goal) -> None:
        it = self._partitions[number]
        self._carry(it.replicas[0], target, _leader_amounts(it))
        it.replicas.remove(target)
        it.replicas.insert(0, target)
        self._moved.setdefault(number, goal)

    # Racks

    def _spread_racks(self) -> Generator[None, None, int]:
        """How many replicas move to racks of their own."""
        taken = 0
        racks = self._racks
        for number, it in enumerate(self._partitions):
            yield
            while it.movable and self._may_search():
                had = [racks[node] for node in it.replicas]
                doubles = [node for node in reversed(it.replicas) if had.count(racks[node]) > 1]
                found = [
                    (source, target)
                    for source in doubles
                    for target in self._takes
                    if racks[target] not in had and self._may_keep(it, source, target)
                ]
                self._looked += len(self._takes) if doubles else 0
                if not found or not self._may_move(number):
                    break

                def cost(pair: tuple[int, int], it: _PlannedPartition = it) -> tuple[int, int, int]:
                    amounts = _replica_amounts(it, pair[0])
                    worse = self._change(self._bounds[0], *pair, amounts)
                    return worse, amounts[LEADERS], self._loads[REPLICAS][pair[1]]

                self._move(number, *min(found, key=cost), Goal.RACKS)
                taken += 1
        return taken

    # Evenness

    def _even_out(self, rank: int) -> Generator[None, None, int]:
        """How many steps are taken for the goal of that rank."""
        bounds = self._bounds[rank]
        load = self._loads[bounds.resource]
        total = 0
        while True:
            taken = 0
            over = [i for i, it in enumerate(load) if it > bounds.upper[i]]
            for node in sorted(over, key=lambda i: (bounds.upper[i] - load[i], i)):
                taken += yield from self._shed(rank, node)
            under = [i for i in self._takes if load[i] < bounds.lower[i]]
            for node in sorted(under, key=lambda i: (load[i] - bounds.lower[i], i)):
                taken += yield from self._pull(rank, node)
            total += taken
            if not taken:
                return total

    def _shed(self, rank: int, source: int) -> Generator[None, None, int]:
        """How many steps take from a node that carries too much."""
        bounds = self._bounds[rank]
        load, upper, taken = self._loads[bounds.resource], bounds.upper, 0
        targets, last = list[int](), self._looked + TRIES_MAX
        for number in self._candidates(bounds.resource, source):
            yield
            surplus = load[source] - upper[source]
            if surplus < bounds.gain_min or self._looked > last or not self._may_search():
                break
            if not self._may_move(number):
                continue
            if not targets:
                targets = self._by_load(bounds, (i for i in self._takes if load[i] < upper[i]))
            if self._step(rank, number, source, targets):
                taken += 1
                targets, last = [], self._looked + TRIES_MAX
        return taken

    def _pull(self, rank: int, target: int) -> Generator[None, None, int]:
        """How many steps give to a node that carries too little."""
        bounds = self._bounds[rank]
        load, lower, taken = self._loads[bounds.resource], bounds.lower, 0
        last = self._looked + TRIES_MAX
        for source in reversed(self._by_load(bounds, range(len(load)))):
            if source == target or load[source] <= lower[source]:
                continue
            for number in self._candidates(bounds.resource, source):
                yield
                deficit = lower[target] - load[target]
                if deficit < bounds.gain_min or self._looked > last or not self._may_search():
                    return taken
                if load[source] <= lower[source]:
                    break
                if self._may_move(number) and self._step(rank, number, source, (target,)):
                    taken, last = taken + 1, self._looked + TRIES_MAX
        return taken

    def _step(self, rank: int, number: int, source: int, targets: Sequence[int]) -> bool:
        """Whether one is taken: the leadership goes, if that is enough, else the replica."""
        bounds, it = self._bounds[rank], self._partitions[number]
        if bounds.resource in _LED:
            amounts = _leader_amounts(it)
            for target in targets:
                if (
                    target != source
                    and target in it.replicas
                    and self._is_better(rank, source, target, amounts)
                ):
                    self._lead(number, target, bounds.goal)
                    return True
        amounts = _replica_amounts(it, source)
        for target in targets:
            if self._is_better(rank, source, target, amounts) and self._may_keep(
                it, source, target
            ):
                self._move(number, source, target, bounds.goal)
                return True
        return False

    def _candidates(self, resource: int, node: int) -> list[int]:
        """Partitions of a node that carry something of it: those with most first, or those that are least to copy."""
        partitions = self._partitions
        kept: Iterable[int] = self._kept[node]
        if resource in _LED:
            kept = [number for number in kept if partitions[number].replicas[0] == node]
        if resource in (LEADERS, REPLICAS):
            return sorted(kept, key=lambda number: (partitions[number].costs[DISK], number))
        found = [number for number in kept if partitions[number].costs[resource]]
        return sorted(found, key=lambda number: (-partitions[number].costs[resource], number))

    def _by_load(self, bounds: _GoalBounds, nodes: Iterable[int]) -> list[int]:
        """Those with least first, by what they are to carry."""
        load, upper = self._loads[bounds.resource], bounds.upper
        return sorted(nodes, key=lambda i: (load[i] / upper[i] if upper[i] else 0.0, i))


def _outside(value: int, lower: int, upper: int) -> int:
    """How far."""
    if value > upper:
        return value - upper
    return lower - value if value < lower else 0


def _replica_amounts(it: _PlannedPartition, source: int) -> tuple[int, ...]:
    size, bytes_in, bytes_out, leaders, replicas = it.costs
    if it.replicas[0] == source:
        return size, bytes_in, bytes_out, leaders, replicas
    return size, bytes_in, 0, 0, replicas


def _leader_amounts(it: _PlannedPartition) -> tuple[int, ...]:
    return 0, 0, it.costs[OUT], 1, 0
