from collections import Counter

import pytest

from tests.controller_world import World


@pytest.mark.parametrize("nodes", [3, 4, 5, 7])
@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("partitions", [1, 2, 5, 12, 31])
def test_one_stream_is_spread_evenly(nodes: int, replicas: int, partitions: int) -> None:
    world = World(nodes)
    world.create(partitions=partitions, replicas=replicas)
    loads = [world.image.load(node) for node in world.image.nodes]
    assert sum(load.replicas for load in loads) == partitions * replicas
    assert max(load.replicas for load in loads) - min(load.replicas for load in loads) <= 1
    assert max(load.leaders for load in loads) - min(load.leaders for load in loads) <= 1


def test_many_small_streams_are_spread_evenly() -> None:
    world = World(5)
    for number in range(12):
        world.create(f"s{number}", replicas=3)
    loads = [world.image.load(node) for node in world.image.nodes]
    assert {load.replicas for load in loads} == {7, 8}
    assert {load.leaders for load in loads} == {2, 3}


def test_replicas_stand_in_different_racks() -> None:
    world = World(6, racks=["a", "a", "a", "b", "b", "c"])
    world.create(partitions=12, replicas=3)
    racks = {node.node_id: node.rack for node in world.image.nodes.values()}
    for partition in world.image.stream("s").partitions:
        assert {racks[node] for node in partition.replicas} == {"a", "b", "c"}


def test_more_replicas_than_racks_are_spread_over_them() -> None:
    world = World(4, racks=["a", "a", "b", "b"])
    world.create(partitions=4, replicas=3)
    racks = {node.node_id: node.rack for node in world.image.nodes.values()}
    for partition in world.image.stream("s").partitions:
        assert sorted(Counter(racks[node] for node in partition.replicas).values()) == [1, 2]


def test_nodes_without_a_rack_do_not_share_one() -> None:
    world = World(3, racks=["a", None, None])
    world.create(partitions=9, replicas=2)
    pairs = {frozenset(p.replicas) for p in world.image.stream("s").partitions}
    assert len(pairs) == 3


def test_an_empty_node_gets_the_next_streams() -> None:
    world = World(2)
    world.create(partitions=10)
    world.start(3)
    for number in range(5):
        world.create(f"t{number}")
        assert world.partition(name=f"t{number}").replicas == (3,)


def test_a_new_stream_is_spread_although_one_node_is_empty() -> None:
    world = World(2)
    world.create(partitions=10)
    world.start(3)
    world.create("t", partitions=3)
    assert {p.leader for p in world.image.stream("t").partitions} == {1, 2, 3}
