import pytest

from streamlog.metadata.controller import drain
from streamlog.metadata.controller.self_healing import (
    NO_ROOM,
    DiskRoom,
    Healing,
    LostNodes,
)
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.nodes.healing_status import HealingStatus
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from tests.controller_world import World, ids


def room(world: World, *, size: int = 10, free: int = 1_000, **free_of: int) -> DiskRoom:
    """Every replica is of that size; ``n3=5``: node 3 has room for 5 bytes."""
    tps = [
        TopicPartition(name, number)
        for name, stream in world.image.streams.items()
        for number in range(len(stream.partitions))
    ]
    kept: dict[NodeId, dict[TopicPartition, int]] = {node: {} for node in world.image.nodes}
    for tp in tps:
        partition = world.partition(tp.partition, tp.stream)
        for node in partition.isr:
            kept[node][tp] = size
    return DiskRoom({it: free_of.get(f"n{it}", free) for it in sorted(world.live)}, kept)


def heal(world: World, *lost: int, **free_of: int) -> HealingStatus:
    decision = world.go_on(Healing(frozenset(ids(*lost)), room(world, **free_of)))
    return HealingStatus.of_json(decision.result.get("healing", {}))


def test_a_replica_of_a_lost_node_is_given_up_when_another_one_is_in_sync() -> None:
    world = World(4)
    world.place(1, 2, 3)
    world.fence(3)
    assert not world.go_on().changes, "it may come back"
    assert heal(world, 3) == HealingStatus(ids(3), moving=1)
    assert world.partition().replicas == (1, 2, 4, 3)
    assert (world.partition().adding, world.partition().removing) == ((4,), (3,))
    assert heal(world, 3) == HealingStatus(ids(3), moving=1)
    world.alter_isr(1, 2, 4)
    assert world.partition().replicas == world.partition().isr == (1, 2, 4)
    assert heal(world, 3) == HealingStatus()
    assert world.image.load(NodeId(3)).replicas == 0


def test_the_other_replicas_lead_on() -> None:
    world = World(4)
    world.place(1, 2, 3)
    world.fence(1)
    leader = world.partition().leader
    heal(world, 1)
    assert world.partition().replicas == (4, 2, 3, 1)
    assert world.partition().leader == leader
    world.alter_isr(2, 3, 4)
    assert world.partition().replicas == (4, 2, 3)


def test_a_node_of_another_rack_comes_first() -> None:
    world = World(5, racks=["a", "b", "c", "a", "c"])
    world.place(1, 2, 3)
    world.fence(3)
    heal(world, 3)
    assert world.partition().adding == (5,)


def test_no_machine_gets_two_replicas() -> None:
    world = World(4, machines=(1, 2, 3, 2))
    world.place(1, 2, 3)
    world.fence(3)
    assert heal(world, 3) == HealingStatus(ids(3), without_room=1)
    assert not world.partition().is_moving


def test_a_node_without_room_gets_nothing() -> None:
    world = World(5)
    world.place(1, 2, 3)
    world.fence(3)
    assert heal(world, 3, n4=9, n5=9) == HealingStatus(ids(3), without_room=1)
    assert heal(world, 3, n4=9, n5=10).moving == 1
    assert world.partition().adding == (5,)


def test_a_node_that_says_it_is_full_gets_nothing() -> None:
    world = World(4)
    world.place(1, 2, 3)
    world.fence(3)
    world.beat(4, full=True)
    assert heal(world, 3) == HealingStatus(ids(3), without_room=1)


def test_what_is_on_its_way_to_a_node_needs_its_room() -> None:
    world = World(4)
    world.place(1, 2, 3, name="a")
    world.place(1, 2, 3, name="b")
    world.fence(3)
    assert heal(world, 3, n4=15) == HealingStatus(ids(3), moving=1, without_room=1)
    assert heal(world, 3, n4=15) == HealingStatus(ids(3), moving=1, without_room=1)
    world.alter_isr(1, 2, 4, name="a")
    known = room(world, n4=5)
    assert world.go_on(Healing(frozenset(ids(3)), known)).result["healing"]["without_room"] == 1


def test_room_that_was_measured_before_a_copy_counts_without_it() -> None:
    world = World(4)
    world.place(1, 2, 3, name="a")
    world.place(1, 2, 3, name="b")
    world.fence(3)
    measured = room(world, n4=15)
    world.go_on(Healing(frozenset(ids(3)), measured))
    world.alter_isr(1, 2, 4, name="a")
    told = world.go_on(Healing(frozenset(ids(3)), measured)).result["healing"]
    assert told["without_room"] == 1, "of the 15 bytes 10 are used by now"


def test_nothing_moves_before_nodes_have_told_what_room_they_have() -> None:
    world = World(4)
    world.place(1, 2, 3)
    world.fence(3)
    told = world.go_on(Healing(frozenset(ids(3)), NO_ROOM)).result["healing"]
    assert told == HealingStatus(ids(3), waiting=1).json()
    assert not world.partition().is_moving


def test_a_partition_without_a_leader_is_left_alone() -> None:
    world = World(4)
    world.place(1, 2, 3)
    world.alter_isr(1)
    world.fence(1)
    assert world.partition().leader == NO_LEADER
    assert heal(world, 1) == HealingStatus(ids(1), leaderless=1)
    assert world.partition().replicas == (1, 2, 3)
    world.start(1)
    assert world.partition().leader == 1


def test_few_partitions_move_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain, "HEALED_AT_ONCE_MAX", 2)
    world = World(4)
    for name in "abc":
        world.place(1, 2, 3, name=name)
    world.fence(3)
    assert heal(world, 3) == HealingStatus(ids(3), moving=2, waiting=1)
    world.alter_isr(1, 2, 4, name="a")
    assert heal(world, 3) == HealingStatus(ids(3), moving=2)


def test_drains_and_self_healing_do_not_hold_up_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drain, "HEALED_AT_ONCE_MAX", 1)
    monkeypatch.setattr(drain, "DRAINED_AT_ONCE_MAX", 1)
    world = World(6)
    world.place(1, 2, 3, name="a")
    world.place(1, 2, 4, name="b")
    world.fence(3)
    world.drain(4)
    assert heal(world, 3) == HealingStatus(ids(3), moving=1)
    assert world.partition(name="a").is_moving
    assert world.partition(name="b").is_moving


def test_when_the_node_is_back_what_moves_ends_and_nothing_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drain, "HEALED_AT_ONCE_MAX", 1)
    world = World(4)
    for name in "ab":
        world.place(1, 2, 3, name=name)
    world.fence(3)
    heal(world, 3)
    world.start(3)
    assert not world.go_on().changes
    world.alter_isr(1, 2, 4, name="a")
    assert not world.go_on().changes
    assert world.partition(name="a").replicas == (1, 2, 4)
    assert world.partition(name="b").replicas == (1, 2, 3)


def test_where_the_node_dies_that_was_to_take_over_another_one_does() -> None:
    world = World(6)
    world.place(1, 2, 3)
    world.fence(3)
    heal(world, 3)
    assert world.partition().adding == (4,)
    world.fence(4)
    heal(world, 3)
    assert world.partition().adding == (5,)
    assert 4 not in world.partition().replicas


def test_two_lost_nodes_are_replaced_together() -> None:
    world = World(5)
    world.place(1, 2, 3)
    world.fence(2, 3)
    heal(world, 2, 3)
    assert world.partition().adding == (4, 5)
    world.alter_isr(1, 4)
    assert world.partition().is_moving
    world.alter_isr(1, 4, 5)
    assert world.partition().replicas == (1, 4, 5)


def test_where_too_many_nodes_are_lost_nothing_moves() -> None:
    world = World(6)
    world.place(1, 2, 3)
    world.place(4, 5, 6, name="t")
    world.fence(2, 3, 4)
    assert heal(world, 2, 3, 4) == HealingStatus(ids(2, 3, 4), too_many=True)
    assert not world.partition().is_moving


def test_nodes_that_keep_nothing_are_not_counted_among_the_lost() -> None:
    world = World(6)
    world.place(1, 2, 3)
    world.fence(3, 4, 5)
    assert heal(world, 3, 4, 5) == HealingStatus(ids(3), moving=1)


def test_nothing_moves_while_it_is_not_known_who_is_alive() -> None:
    world = World(4)
    world.place(1, 2, 3)
    world.fence(3)
    world.hearsay.add(NodeId(4))
    heal(world, 3)
    assert not world.partition().is_moving


# Who is lost


def lost(nodes: LostNodes, image: MetadataImage, now_ms: int) -> set[int]:
    return set(nodes.look(image, now_ms))


def test_a_node_is_lost_when_it_has_been_fenced_for_so_long() -> None:
    world = World(3)
    nodes = LostNodes(1_000)
    world.fence(3)
    assert lost(nodes, world.image, 500) == set()
    assert lost(nodes, world.image, 1_499) == set()
    assert lost(nodes, world.image, 1_500) == {3}


def test_a_node_that_has_registered_is_about_to_come_back() -> None:
    world = World(3)
    nodes = LostNodes(1_000)
    world.fence(3)
    lost(nodes, world.image, 0)
    world.register(3)
    assert world.image.nodes[NodeId(3)].fenced
    assert lost(nodes, world.image, 1_000) == set()
    world.beat(3)
    assert lost(nodes, world.image, 9_000) == set()
    world.fence(3)
    assert lost(nodes, world.image, 9_500) == set()


def test_a_new_controller_counts_from_its_own_beginning() -> None:
    world = World(3)
    nodes = LostNodes(1_000)
    world.fence(3)
    lost(nodes, world.image, 0)
    nodes.started()
    assert lost(nodes, world.image, 1_000) == set()
    assert lost(nodes, world.image, 2_000) == {3}


def test_no_node_is_lost_unless_it_is_asked_for() -> None:
    world = World(3)
    nodes = LostNodes(0)
    world.fence(3)
    lost(nodes, world.image, 0)
    assert lost(nodes, world.image, 10**9) == set()


def test_what_another_version_tells_is_read() -> None:
    status = HealingStatus(ids(3), moving=1)
    assert HealingStatus.of_json({**status.json(), "more": 1}) == status
    assert HealingStatus.of_json({}) == HealingStatus()
