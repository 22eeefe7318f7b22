"""Moves of a plan are made a few at a time, in their order, in a cluster that takes its time."""

import asyncio
import itertools
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from streamlog.cli.cluster import balance
from streamlog.cli.cluster.balance import BalanceOutcome, Execution, PlannedMove
from streamlog.cli.cluster.controller import Controller
from streamlog.client.topology import PartitionInfo, TopicInfo, Topology
from streamlog.errors import InvalidRequest, NoController, RequestTimedOut
from streamlog.model import NodeId


class SlowCluster:
    """Each look at it brings the moves under way a step forward; ``steps`` looks end one."""

    def __init__(self, partitions: int, *, steps: int = 2) -> None:
        self.replicas: dict[int, tuple[int, ...]] = dict.fromkeys(range(partitions), (1, 2))
        self.leaders = dict.fromkeys(range(partitions), 1)
        self.moving: dict[int, tuple[tuple[int, ...], int]] = {}
        self.begun: list[int] = []
        self.most_at_once = 0
        self.refused: set[int] = set()
        self.stuck: set[int] = set()
        self.away = 0
        """So many requests are refused, as there is no controller."""
        self._steps = steps

    async def topology(self) -> Topology:
        for number, (target, left) in list(self.moving.items()):
            if left > 0 or number in self.stuck:
                self.moving[number] = target, left - 1
                continue
            del self.moving[number]
            self.replicas[number] = target
        partitions = tuple(map(self._told, self.replicas))
        return Topology("test", NodeId(1), {}, {"orders": TopicInfo("orders", None, partitions)})

    def _told(self, number: int) -> PartitionInfo:
        kept = self.replicas[number]
        if number in self.moving:
            target = self.moving[number][0]
            kept = (*target, *(it for it in kept if it not in target))
        ids = tuple(map(NodeId, kept))
        return PartitionInfo(number, NodeId(self.leaders[number]), 1, ids, ids, ())

    async def operate(self, name: str, **given: Any) -> Any:
        if self.away:
            self.away -= 1
            raise NoController("there is none")
        number = given["partition"]
        if name == "placement.elect":
            self.leaders[number] = self.replicas[number][0]
            return None
        assert name == "placement.move"
        if number in self.refused:
            raise InvalidRequest("node 3 is not alive")
        self.begun.append(number)
        self.moving[number] = given["replicas"], self._steps
        self.most_at_once = max(self.most_at_once, len(self.moving))
        return None


def move(number: int, *after: int, copied_bytes: int = 0) -> PlannedMove:
    return PlannedMove("orders", number, (1, 2), after, "leaders", copied_bytes)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "POLL_S", 0.001)


def run(
    cluster: SlowCluster,
    moves: list[PlannedMove],
    *,
    at_once: int = 2,
    bytes_per_s: int | None = None,
    beside: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> BalanceOutcome:
    async def all_of_it() -> BalanceOutcome:
        execution = Execution(cast(Controller, cluster), moves, at_once, bytes_per_s)
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            if beside is not None:
                group.create_task(beside())
            return await execution.run()

    return asyncio.run(all_of_it())


def test_moves_are_made_in_their_order_so_many_at_once() -> None:
    cluster = SlowCluster(6)
    moves = [move(number, 3, 2) for number in (4, 1, 0, 5)]
    assert run(cluster, moves) == (4, {}, False)
    assert cluster.begun == [4, 1, 0, 5]
    assert cluster.most_at_once == 2
    assert [cluster.replicas[it] for it in range(6)] == [
        (3, 2), (3, 2), (1, 2), (1, 2), (3, 2), (3, 2),
    ]  # fmt: skip
    assert cluster.leaders == {0: 3, 1: 3, 2: 1, 3: 1, 4: 3, 5: 3}


def test_a_controller_that_is_away_is_waited_for() -> None:
    cluster = SlowCluster(2)
    cluster.away = 3
    assert run(cluster, [move(0, 2, 1), move(1, 2, 3)]) == (2, {}, False)


def test_a_move_whose_answer_was_lost_is_waited_for() -> None:
    class Deaf(SlowCluster):
        async def operate(self, name: str, **given: Any) -> Any:
            await super().operate(name, **given)
            if self.begun.count(0) == len(self.begun) == 1 and name == "placement.move":
                raise RequestTimedOut("whether it was done is not known")

    cluster = Deaf(2)
    assert run(cluster, [move(0, 3, 2), move(1, 3, 2)]) == (2, {}, False)
    assert cluster.begun == [0, 1]


def test_what_cannot_be_moved_is_told_and_the_others_are_moved() -> None:
    cluster = SlowCluster(3)
    cluster.refused = {0}
    cluster.replicas[1] = (1, 7)
    done = run(cluster, [move(0, 3, 2), move(1, 3, 2), move(2, 3, 2), move(9, 3, 2)])
    assert done.moved == 1
    assert done.failed["orders/0"] == "node 3 is not alive"
    assert "other replicas" in done.failed["orders/1"]
    assert set(done.failed) == {"orders/0", "orders/1", "orders/9"}


def test_a_move_that_is_cancelled_ends_it() -> None:
    cluster = SlowCluster(4)
    cluster.stuck = {0}

    async def cancel() -> None:
        while 0 not in cluster.moving:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        del cluster.moving[0]

    done = run(cluster, [move(number, 3, 2) for number in range(4)], at_once=1, beside=cancel)
    assert done == (0, {"orders/0": "its move was cancelled"}, False)
    assert cluster.begun == [0]


def test_a_move_that_no_node_ever_tells_of_was_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(SlowCluster):
        async def operate(self, name: str, **given: Any) -> Any:
            return None

    monkeypatch.setattr(balance, "UNSEEN_S", 0.05)
    done = run(Forgetful(2), [move(0, 3, 2), move(1, 3, 2)], at_once=1)
    assert done == (0, {"orders/0": "its move was cancelled"}, False)


def test_an_interrupt_lets_moves_end_that_are_under_way() -> None:
    cluster = SlowCluster(5, steps=20)

    async def interrupt() -> None:
        while not cluster.begun:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    done = run(cluster, [move(number, 3, 2) for number in range(5)], beside=interrupt)
    assert done == (2, {}, True)
    assert cluster.begun == [0, 1]


def test_a_second_interrupt_leaves_at_once() -> None:
    cluster = SlowCluster(5)
    cluster.stuck = {0, 1}

    async def interrupt() -> None:
        for _ in range(2):
            while len(cluster.begun) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.02)

    done = run(cluster, [move(number, 3, 2) for number in range(5)], beside=interrupt)
    assert done == (0, {}, True)
    assert set(cluster.moving) == {0, 1}


def test_moves_begin_no_faster_than_a_rate() -> None:
    """Each begins once the one before it has had its time."""
    cluster = SlowCluster(3, steps=0)
    began_s: list[float] = []

    class Timed(SlowCluster):
        async def operate(self, name: str, **given: Any) -> Any:
            if name == "placement.move":
                began_s.append(asyncio.get_running_loop().time())
            return await cluster.operate(name, **given)

        async def topology(self) -> Topology:
            return await cluster.topology()

    moves = [move(number, 3, 2, copied_bytes=200) for number in range(3)]
    assert run(Timed(3), moves, at_once=3, bytes_per_s=1_000) == (3, {}, False)
    pauses_s = [later - earlier for earlier, later in itertools.pairwise(began_s)]
    assert [it >= 0.19 for it in pauses_s] == [True, True]
