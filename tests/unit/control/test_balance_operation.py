"""A plan for a caller: who may have it, for which streams, from what nodes tell."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from immutables import Map

from streamlog.acl.rules import Operation
from streamlog.control.balance.measurement import (
    ClusterCounts,
    MissingNode,
    NodeCounts,
    ReplicaCounts,
)
from streamlog.control.operation import Caller
from streamlog.control.placement import PlacementOperations
from streamlog.errors import ClusterForbidden, InvalidRequest
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metrics import NodeMetrics
from streamlog.model import TopicPartition
from tests.restricted import ALICE
from tests.unit.control.test_balance_measurement import with_orders
from tests.unit.jetstream.verbs.test_succession import image, partition

FOUR = image("a", "a", "b", None)
IMAGE = with_orders(FOUR, partition(1, 2))
GONE = MissingNode(cast(Any, 4), "connection refused")


class Counters:
    """Node 4 does not answer."""

    async def everywhere(self) -> ClusterCounts:
        counts = {TopicPartition("orders", 0): ReplicaCounts(0, 5, 700, 0)}
        nodes = {it: NodeCounts(1, 10_000, 5_000, counts) for it in IMAGE.nodes if it != 4}
        return ClusterCounts(nodes, (GONE,))


class Access:
    def __init__(self, *rights: Operation) -> None:
        self._rights = rights

    def check_cluster(self, right: Operation) -> None:
        if right not in self._rights:
            raise ClusterForbidden("no")


async def _at_once() -> None:
    pass


def operations(
    access: Access | None = None, known: Callable[[MetadataImage], MetadataImage] = lambda it: it
) -> PlacementOperations:
    service = SimpleNamespace(
        metrics=NodeMetrics(),
        freshness=SimpleNamespace(catch_up=_at_once),
        load=Counters(),
        image=IMAGE,
        metadata_for=lambda _: SimpleNamespace(image=known(IMAGE)),
    )
    return PlacementOperations(cast(Any, service), Caller(ALICE, cast(Any, access)))


async def test_a_plan_names_moves_and_the_nodes_that_do_not_tell() -> None:
    plan = await operations().plan_balance(sample_s=0.1)
    (move,) = plan.moves
    assert (move.before, move.after, move.copied_bytes) == ((1, 2), (1, 3), 700)
    assert (plan.missing, plan.left_alone, plan.copied_bytes) == ((GONE,), 0, 700)
    assert [it.node for it in plan.nodes] == [1, 2, 3]


async def test_a_plan_needs_the_right_to_describe_the_cluster() -> None:
    assert (await operations(Access(Operation.DESCRIBE)).plan_balance(sample_s=0.1)).moves
    with pytest.raises(ClusterForbidden):
        await operations(Access(Operation.ALTER)).plan_balance(sample_s=0.1)


async def test_a_stream_that_the_caller_may_not_know_of_is_not_named() -> None:
    hidden = operations(known=lambda it: replace(it, streams=Map()))
    plan = await hidden.plan_balance(sample_s=0.1)
    assert (plan.moves, plan.left_alone) == ((), 1)
    assert [it.before.replicas for it in plan.nodes] == [1, 1, 0]


@pytest.mark.parametrize("sample_s", [0.0, 301.0, float("nan")])
async def test_a_time_that_is_none(sample_s: float) -> None:
    with pytest.raises(InvalidRequest, match="sample_s"):
        await operations().plan_balance(sample_s=sample_s)
