from collections import Counter

import pytest

from streamlog.errors import InvalidRequest, InvalidStreamConfig
from streamlog.metadata import commands as c
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId
from tests.controller_world import World, ids


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


def machines(world: World) -> list[set[int]]:
    """Of the replicas of each partition."""
    image = world.image
    return [{image.machine_of(it) for it in p.replicas} for p in image.stream("s").partitions]


def test_no_machine_keeps_a_partition_twice() -> None:
    """Whatever the racks are, and although each of its nodes has less than the others."""
    world = World(5, racks=["a", "b", "c", "c", "c"], machines=[1, 1, 1])
    world.create(partitions=12, replicas=3)
    assert machines(world) == [{1, 4, 5}] * 12
    assert {p.leader for p in world.image.stream("s").partitions} == {1, 2, 3, 4, 5}


def test_more_replicas_than_machines_are_refused() -> None:
    world = World(4, machines=[1, 1, 3, 3])
    with pytest.raises(
        InvalidStreamConfig, match=r"3 asked for, and the 4 nodes .* on 2 machines, one each"
    ):
        world.create(replicas=3)
    with pytest.raises(InvalidStreamConfig, match="5 asked for, and the 4 nodes"):
        world.create(replicas=5)
    alone = World(2, machines=[1, 1])
    with pytest.raises(InvalidStreamConfig, match="on 1 machine, which takes one"):
        alone.create(replicas=2)
    alone.create(replicas=1)
    with pytest.raises(InvalidStreamConfig, match=r"2 asked for, and the 2 nodes .* on 1 machine"):
        alone.ask(c.UpdateStream(config=StreamConfig.of(name="s", replicas=2)))


def test_replicas_of_one_machine_are_not_named() -> None:
    world = World(4, machines=[1, 1, 3, 3])
    config = StreamConfig.of(name="s", replicas=2)
    with pytest.raises(InvalidRequest, match="nodes 1 and 2 are on one machine"):
        world.ask(c.PlaceStream(config=config, assignments=(ids(1, 2),)))
    world.ask(c.PlaceStream(config=config, assignments=(ids(1, 3),)))
    with pytest.raises(InvalidRequest, match="nodes 4 and 3 are on one machine"):
        world.ask(c.MovePartition(stream="s", partition=0, replicas=ids(4, 3)))


def test_a_drained_node_hands_over_to_its_machine_or_to_another_one() -> None:
    world = World(3, machines=[1, 1])
    world.create(replicas=2)
    drained = next(it for it in world.partition().replicas if it != 3)
    world.ask(c.DrainNode(node_id=drained))
    world.go_on()
    assert set(world.partition().target) == {3 - drained, 3}
    with pytest.raises(InvalidRequest, match="without node 3 there are 1"):
        world.ask(c.DrainNode(node_id=NodeId(3)))


def test_a_node_that_has_its_machine_for_itself_again() -> None:
    world = World(2, machines=[1, 1])
    world.machines.clear()
    world.start(2)
    world.create(replicas=2)


def test_more_replicas_while_a_node_hands_over_to_its_machine() -> None:
    """What is being moved away has the data, but its place on the machine is taken."""
    world = World(4, machines=[1, 1])
    world.ask(c.PlaceStream(config=StreamConfig.of(name="s", replicas=2), assignments=(ids(1, 3),)))
    world.ask(c.MovePartition(stream="s", partition=0, replicas=ids(2, 3)))
    assert world.partition().removing == (1,)
    world.ask(c.UpdateStream(config=StreamConfig.of(name="s", replicas=3)))
    assert world.partition().target == (2, 3, 4)
