import pytest

from streamlog.errors import InvalidRequest, NodeNotFound, PartitionNotFound
from streamlog.metadata import commands as c
from streamlog.metadata.controller import drain
from streamlog.model import NO_LEADER, NodeId
from tests.controller_world import World


def cancel(world: World) -> None:
    world.ask(c.CancelMove(stream="s", partition=0))


def test_a_move_keeps_the_old_replicas_until_the_new_ones_are_in_sync() -> None:
    world = World(4)
    world.place(1, 2)
    world.move(3, 4)
    partition = world.partition()
    assert partition.replicas == (3, 4, 1, 2)
    assert (partition.adding, partition.removing) == ((3, 4), (1, 2))
    assert (partition.leader, partition.isr) == (1, (1, 2))
    assert (partition.target, partition.former) == ((3, 4), (1, 2))
    world.alter_isr(1, 2, 3)
    assert world.partition().is_moving
    world.alter_isr(1, 3, 4)
    partition = world.partition()
    assert partition.replicas == partition.isr == (3, 4)
    assert (partition.leader, partition.leader_epoch) == (3, 1)
    assert not partition.is_moving


def test_the_leader_stays_if_it_is_one_of_the_new_replicas() -> None:
    world = World(3)
    world.place(1, 2)
    world.move(3, 1)
    world.alter_isr(1, 2, 3)
    assert world.partition().replicas == (3, 1)
    assert (world.partition().leader, world.partition().leader_epoch) == (1, 0)


def test_another_order_is_another_preferred_leader_at_once() -> None:
    world = World(2)
    world.place(1, 2)
    world.move(2, 1)
    assert world.partition().replicas == world.partition().isr == (2, 1)
    assert world.partition().leader == 1
    world.elect()
    assert world.partition().leader == 2


def test_a_move_does_not_end_with_fewer_in_sync_than_the_stream_asks_for() -> None:
    world = World(4)
    world.place(1, 2, 3)  # two in sync are asked for
    world.alter_isr(1, 3)
    world.move(4, 1, 2)
    world.alter_isr(1, 3)
    world.alter_isr(4, 1, 3)
    assert not world.partition().is_moving  # 4 and 1 are two

    world.place(1, 2, 3, name="t")
    world.alter_isr(1, name="t")
    world.move(4, 2, 3, name="t")
    world.alter_isr(1, 4, name="t")
    assert world.partition(name="t").is_moving  # 4 alone would not do
    world.alter_isr(1, 4, 3, name="t")
    assert world.partition(name="t").isr == (4, 3)


@pytest.mark.parametrize("replicas", [(1,), (1, 2, 3), (1, 1), ()])
def test_a_move_names_as_many_replicas_as_the_stream_has(replicas: tuple[int, ...]) -> None:
    world = World(3)
    world.place(1, 2)
    with pytest.raises(InvalidRequest, match="has 2"):
        world.move(*replicas)


def test_a_move_goes_to_nodes_that_can_take_it() -> None:
    world = World(4)
    world.place(1, 2)
    with pytest.raises(NodeNotFound):
        world.move(1, 9)
    with pytest.raises(PartitionNotFound):
        world.move(1, 2, partition=3)
    world.drain(3)
    with pytest.raises(InvalidRequest, match="node 3 is being drained"):
        world.move(1, 3)
    world.fence(4)
    with pytest.raises(InvalidRequest, match="node 4 is not alive"):
        world.move(1, 4)
    world.fence(2)
    world.move(2, 1)  # it has the replica already


def test_a_move_takes_the_place_of_another() -> None:
    world = World(4)
    world.place(1, 2)
    world.move(1, 3)
    world.alter_isr(1)
    world.move(1, 4)
    partition = world.partition()
    assert partition.replicas == (1, 4, 2)
    assert (partition.adding, partition.removing) == ((4,), (2,))
    world.move(1, 2)
    assert world.partition().replicas == (1, 2)
    assert not world.partition().is_moving


def test_a_cancelled_move_leaves_things_as_they_were() -> None:
    world = World(3)
    world.place(1, 2)
    with pytest.raises(InvalidRequest, match="is not being moved"):
        cancel(world)
    world.move(3, 1)
    cancel(world)
    partition = world.partition()
    assert set(partition.replicas) == set(partition.isr) == {1, 2}
    assert not partition.is_moving
    assert partition.leader == 1


def test_a_cancelled_move_elects_another_leader_if_it_must() -> None:
    world = World(4)
    world.place(1, 2)
    world.move(3, 4)
    world.alter_isr(1, 2, 3)
    world.elect(3)
    cancel(world)
    assert world.partition().leader in (1, 2)
    assert world.partition().isr == (1, 2)


def test_there_is_no_way_back_to_replicas_that_are_out_of_sync() -> None:
    world = World(4)
    world.place(1, 2, min_isr=1)
    world.move(3, 4)
    world.alter_isr(1, 3)
    world.elect(3)
    world.fence(1, 2)
    before = world.partition()
    assert before.isr == (3,)
    with pytest.raises(InvalidRequest, match=r"only .* are in sync"):
        cancel(world)
    assert world.partition() == before


def test_growth_is_not_cancelled_as_a_move() -> None:
    world = World(2)
    world.place(1)
    world.update(replicas=2)
    with pytest.raises(InvalidRequest, match="update the stream"):
        cancel(world)


def test_a_drain_moves_everything_off_in_bounded_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "DRAINED_AT_ONCE_MAX", 2)
    world = World(4)
    world.create(partitions=4, replicas=3)
    kept = world.image.load(NodeId(1)).replicas
    assert kept == 3
    assert not world.go_on().changes
    world.drain(1)
    assert not world.drain(1).changes
    assert world.go_on().result == {"moving": 2, "left": 1}
    assert world.go_on().result == {"moving": 2, "left": 1}
    for _ in range(3):
        for number, partition in enumerate(world.image.stream("s").partitions):
            if partition.is_moving:
                world.alter_isr(*partition.replicas, partition=number)
        world.go_on()
    assert world.image.load(NodeId(1)).replicas == 0
    assert world.go_on().result == {"moving": 0, "left": 0}
    world.create("t", partitions=4)
    assert world.image.load(NodeId(1)).replicas == 0
    world.ask(c.RemoveNode(node_id=NodeId(1)))


def test_a_drain_outlives_a_restart_and_ends_when_it_is_undone() -> None:
    world = World(2)
    world.place(1)
    world.drain(1)
    world.start(1)
    assert world.image.nodes[NodeId(1)].draining
    world.go_on()
    assert world.partition().is_moving
    world.drain(1, undo=True)
    assert world.partition().replicas == (1,)
    assert not world.image.nodes[NodeId(1)].draining
    assert not world.drain(1, undo=True).changes


def test_a_drain_that_cannot_succeed_is_refused() -> None:
    world = World(3)
    world.place(1, 2, 3)
    with pytest.raises(InvalidRequest, match=r"3 replicas .* there are 2 nodes"):
        world.drain(1)
    with pytest.raises(NodeNotFound):
        world.drain(7)


def test_a_drain_goes_elsewhere_when_the_new_node_dies() -> None:
    world = World(3)
    world.place(1)
    world.drain(1)
    world.go_on()
    assert world.partition().adding == (2,)
    world.fence(2)
    world.go_on()
    assert world.partition().adding == (3,)
    assert set(world.partition().replicas) == {1, 3}
    world.fence(3)
    assert world.go_on().result == {"moving": 0, "left": 1}
    world.beat(2)
    world.go_on()
    assert world.partition().adding == (2,)


def test_a_drain_waits_for_partitions_without_a_leader() -> None:
    world = World(2)
    world.place(1)
    world.drain(1)
    world.fence(1)
    assert world.partition().leader == NO_LEADER
    assert not world.go_on().changes
    world.beat(1)
    world.go_on()
    assert world.partition().adding == (2,)


def test_undoing_a_drain_lets_moves_without_a_way_back_go_on() -> None:
    world = World(3)
    world.place(1, min_isr=1)
    world.drain(1)
    world.go_on()
    assert world.partition().replicas == (2, 1)
    world.update(replicas=2)
    assert world.partition().replicas == (2, 3, 1)
    world.drain(1, undo=True)
    assert world.partition().removing == (1,)
    world.alter_isr(1, 2, 3)
    assert world.partition().replicas == (2, 3)
