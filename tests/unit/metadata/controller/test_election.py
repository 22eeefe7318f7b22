import pytest

from streamlog.errors import InvalidRequest, StaleNode, StalePartition, StreamNotFound
from streamlog.metadata import commands as c
from streamlog.metadata.controller import election
from streamlog.model import NO_LEADER, NodeId
from tests.controller_world import World


def test_the_preferred_replica_leads_again() -> None:
    world = World(3)
    world.place(1, 2, 3)
    world.elect(3)
    assert (world.partition().leader, world.partition().leader_epoch) == (3, 1)
    decision = world.elect()
    assert decision.result == {"leader": 1, "leader_epoch": 2}
    assert (world.partition().leader, world.partition().leader_epoch) == (1, 2)
    again = world.elect()
    assert again.result == {"leader": 1, "leader_epoch": 2}
    assert not again.changes


def test_who_cannot_lead_is_refused() -> None:
    world = World(4)
    world.place(1, 2, 3)
    world.alter_isr(1, 2)
    with pytest.raises(InvalidRequest, match="node 4 has no replica"):
        world.elect(4)
    with pytest.raises(InvalidRequest, match="node 3 is not in sync"):
        world.elect(3)
    world.live.discard(NodeId(2))
    with pytest.raises(InvalidRequest, match="node 2 is not alive"):
        world.elect(2)
    with pytest.raises(StreamNotFound):
        world.elect(name="t")
    assert world.partition().leader == 1


def test_a_preferred_replica_out_of_sync_leaves_the_leader_alone() -> None:
    world = World(2)
    world.place(1, 2)
    world.elect(2)
    world.alter_isr(2)
    with pytest.raises(InvalidRequest, match="node 2 goes on leading"):
        world.elect()


def test_an_unclean_election_begins_the_isr_anew() -> None:
    world = World(3)
    world.place(1, 2, 3)
    world.alter_isr(1)
    world.elect(3, unclean=True)
    partition = world.partition()
    assert (partition.leader, partition.isr, partition.leader_epoch) == (3, (3,), 1)


def test_an_unclean_election_of_anybody_takes_one_in_sync_if_it_can() -> None:
    world = World(3)
    world.place(1, 2, 3)
    world.alter_isr(1, 2)
    world.fence(1, 2)
    with pytest.raises(InvalidRequest, match="none of the in-sync replicas is alive"):
        world.elect()
    world.elect(unclean=True)
    assert (world.partition().leader, world.partition().isr) == (3, (3,))
    world.fence(3)
    with pytest.raises(InvalidRequest, match="none of the replicas is alive"):
        world.elect(unclean=True)


def test_an_election_may_find_a_member_that_waits_to_lead() -> None:
    world = World(2)
    world.place(1, 2)
    world.live.discard(NodeId(2))
    world.fence(1)
    assert world.partition().leader == NO_LEADER
    world.live.add(NodeId(2))  # its session went on before it was fenced
    assert world.elect().result == {"leader": 2, "leader_epoch": 2}
    assert world.partition().isr == (2,)


def test_the_next_moves_lead_whatever_can_be_led() -> None:
    world = World(2)
    world.place(1, 2)
    world.live.discard(NodeId(2))
    world.fence(1)
    assert not world.go_on().changes
    world.live.add(NodeId(2))
    world.go_on()
    assert world.partition().leader == 2
    assert world.image.leaderless == 0


def test_draining_nodes_lead_last() -> None:
    world = World(4)
    world.place(1, 2, 3)
    world.drain(2)
    for number in range(3):
        world.place(3, name=f"t{number}")
    world.fence(1)
    assert world.partition().leader == 3


def test_full_nodes_are_elected_last_and_do_not_get_leaders_back() -> None:
    world = World(3)
    world.place(1, 2, 3)
    world.beat(2, full=True)
    world.alter_isr(1, 3)
    world.fence(1)
    assert world.partition().leader == 3
    world.start(1)
    world.alter_isr(1, 3)
    world.beat(1, full=True)
    assert not world.ask(c.RebalanceLeaders()).changes


def test_leaders_are_rebalanced_in_bounded_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "REBALANCED_MAX", 2)
    world = World(2)
    world.create(partitions=6, replicas=2)
    world.fence(1)
    world.beat(1)
    for number in range(6):
        world.alter_isr(1, 2, partition=number)
    assert world.image.load(NodeId(1)).leaders == 0
    assert world.ask(c.RebalanceLeaders()).result == {"moved": 2, "left": 1}
    assert world.ask(c.RebalanceLeaders()).result == {"moved": 1, "left": 0}
    assert world.image.load(NodeId(1)).leaders == 3
    assert not world.ask(c.RebalanceLeaders()).changes


def test_rebalancing_passes_over_who_cannot_lead() -> None:
    world = World(3)
    for name, preferred in (("away", 1), ("behind", 1), ("draining", 3)):
        world.place(preferred, 2, name=name)
        world.elect(2, name=name)
    world.alter_isr(2, name="behind")
    world.drain(3)
    world.live.discard(NodeId(1))
    assert not world.ask(c.RebalanceLeaders()).changes


def report(world: World, node: int, leader: int, *, leader_epoch: int | None = None) -> c.Command:
    known = world.partition().leader_epoch
    return c.ReportLeader(
        node_id=NodeId(node), node_epoch=world.epoch(node), stream="s", partition=0,
        leader=NodeId(leader), leader_epoch=known if leader_epoch is None else leader_epoch,
    )  # fmt: skip


def test_a_leader_that_cannot_be_reached_is_replaced_and_leaves_the_isr() -> None:
    world = World(3)
    world.place(1, 2, 3)
    world.ask(report(world, 2, 1))
    partition = world.partition()
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2, 3), 1)
    world.alter_isr(1, 2, 3)  # it is alive, and fetches


def test_reports_about_another_leader_are_stale() -> None:
    world = World(3)
    world.place(1, 2, 3)
    with pytest.raises(StalePartition):
        world.ask(report(world, 3, 2))
    with pytest.raises(StalePartition):
        world.ask(report(world, 2, 1, leader_epoch=7))
    stale = report(world, 2, 1).model_copy(update={"node_epoch": 0})
    with pytest.raises(StaleNode):
        world.ask(stale)


def test_a_leader_that_nobody_can_replace_stays() -> None:
    world = World(2)
    world.place(1, 2)
    world.live.discard(NodeId(2))
    assert not world.ask(report(world, 2, 1)).changes
