from uuid import UUID

import pytest

from streamlog.metadata import commands as c
from streamlog.metadata.image.snapshot import decode_snapshot, encode_snapshot
from streamlog.model import NO_INCARNATION, NodeId
from tests.controller_world import World


@pytest.fixture
def world() -> World:
    """Node 1 leads s-0 of nodes 1 to 3; 3 is not in sync. Node 4 keeps nothing."""
    world = World(4)
    world.place(1, 2, 3)
    world.alter_isr(1, 2)
    return world


def test_members_leave_and_join(world: World) -> None:
    epoch = world.partition().partition_epoch
    assert world.propose(world.proposal(1), leader=1) == ["granted"]
    assert world.partition().isr == (1,)
    assert world.propose(world.proposal(3, 1, 2), leader=1) == ["granted"]
    assert world.partition().isr == (1, 2, 3)
    assert world.partition().partition_epoch == epoch + 2
    assert world.partition().leader_epoch == 0


def test_a_full_node_does_not_join(world: World) -> None:
    world.beat(3, full=True)
    assert world.propose(world.proposal(1, 2, 3), leader=1) == ["refused"]
    world.beat(3)
    assert world.propose(world.proposal(1, 2, 3), leader=1) == ["granted"]


def test_what_is_in_force_is_granted_again(world: World) -> None:
    change = world.proposal(1, 2, 3)
    assert world.propose(change, leader=1) == ["granted"]
    epoch = world.partition().partition_epoch
    assert world.propose(change, leader=1) == ["granted"]
    assert world.partition().partition_epoch == epoch


@pytest.mark.parametrize(
    "changed",
    [
        {"leader_epoch": 7},
        {"partition_epoch": 0},
        {"stream_id": UUID(int=99)},
        {"stream": "t"},
        {"partition": 1},
        {"partition": -1},
    ],
)
def test_an_old_view_is_stale(world: World, changed: dict[str, object]) -> None:
    change = world.proposal(1, 2, 3).model_copy(update=changed)
    assert world.propose(change, leader=1) == ["stale"]
    assert world.partition().isr == (1, 2)


def test_only_the_leader_may_propose(world: World) -> None:
    assert world.propose(world.proposal(1, 2, 3), leader=2) == ["stale"]


def test_an_isr_needs_its_leader_and_none_but_replicas(world: World) -> None:
    for isr in ((2,), (2, 3), (1, 2, 4), (1, 3, 3), ()):
        assert world.propose(world.proposal(*isr), leader=1) == ["refused"]
    assert world.partition().isr == (1, 2)


def test_members_must_be_alive_in_the_registration_that_fetched(world: World) -> None:
    old = world.proposal(1, 2, 3)
    world.register(3)
    fenced = world.proposal(1, 2, 3)
    assert world.propose(fenced, leader=1) == ["refused"]
    world.beat(3)
    assert world.propose(old, leader=1) == ["refused"]
    world.live.discard(NodeId(3))
    assert world.propose(fenced, leader=1) == ["refused"]
    world.live.add(NodeId(3))
    assert world.propose(fenced, leader=1) == ["granted"]


def test_each_change_has_a_verdict_of_its_own(world: World) -> None:
    world.place(1, 2, name="t")
    good = world.proposal(1, name="t")
    bad = world.proposal(1, 4)
    again = world.proposal(1, 2, name="t")
    assert world.propose(bad, good, again, leader=1) == ["refused", "granted", "stale"]
    assert world.partition(name="t").isr == (1,)


def test_nothing_proposed_is_nothing_decided(world: World) -> None:
    decision = world.ask(c.AlterIsr(node_id=NodeId(1), node_epoch=world.epoch(1), changes=()))
    assert decision.result == {"verdicts": []}
    assert not decision.changes


def test_a_move_ends_with_the_change_that_has_its_replicas_in_sync(world: World) -> None:
    world.move(1, 2, 4)
    assert world.partition().replicas == (1, 2, 4, 3)
    world.alter_isr(1, 2, 4)
    partition = world.partition()
    assert partition.replicas == partition.isr == (1, 2, 4)
    assert not partition.is_moving


def test_a_replica_that_was_moved_away_and_back_is_another_one(world: World) -> None:
    """What its node had of the stream before does not count, nor who speaks of that."""
    before = world.partition().incarnation(NodeId(2))
    world.alter_isr(1, 2, 3)
    world.move(1, 3, 4)
    world.alter_isr(1, 3, 4)
    world.move(1, 3, 2)
    known = world.partition()
    assert set(known.isr) == {1, 3, 4}
    assert known.adding == (2,)
    assert known.incarnation(NodeId(2)) > before
    assert known.incarnation(NodeId(4)) < known.incarnation(NodeId(2))
    change = world.proposal(1, 2, 3, 4)
    old = tuple((it, epoch, before if it == 2 else at) for it, epoch, at in change.isr)
    stale = change.model_copy(update={"isr": old})
    assert world.propose(stale, leader=1) == ["refused"]
    assert world.partition() == known, "the move does not end by that"
    assert world.propose(change, leader=1) == ["granted"]
    assert set(world.partition().replicas) == {1, 2, 3}


def test_a_cancelled_move_leaves_nothing_to_a_later_one(world: World) -> None:
    world.move(1, 2, 4)
    first = world.partition().incarnation(NodeId(4))
    world.ask(c.CancelMove(stream="s", partition=0))
    assert world.partition().incarnation(NodeId(4)) == NO_INCARNATION
    world.move(1, 2, 4)
    assert world.partition().incarnation(NodeId(4)) > first


def test_whoever_stays_keeps_its_incarnation(world: World) -> None:
    """Restarts, elections and moves of others change nothing; nor does a move that turns back."""
    before = [world.partition().incarnation(NodeId(it)) for it in (1, 2)]
    world.start(2)
    world.alter_isr(1, 2, 3)
    world.elect(2)
    world.move(4, 2, 3)
    assert world.partition().removing == (1,)
    world.move(1, 2, 3)
    world.image = decode_snapshot(encode_snapshot(world.image), "here")
    world.elect(1)
    assert [world.partition().incarnation(NodeId(it)) for it in (1, 2)] == before
