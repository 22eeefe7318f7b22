from uuid import UUID

import pytest

from streamlog.errors import InvalidRequest, NodeIdTaken, NodeNotFound, StaleNode
from streamlog.metadata import commands as c
from streamlog.metadata.controller import Decision
from streamlog.metadata.image.feature_level import check_writable
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import (
    NodeFenced,
    NodeFull,
    NodeRegistered,
    NodeStamped,
    NodeUnfit,
    PartitionChanged,
    VotersChanged,
)
from streamlog.model import NO_LEADER, NodeId
from streamlog.raft.voters import Voter, VoterSet
from tests.controller_world import World

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def test_the_node_epoch_is_the_offset_of_the_registration() -> None:
    world = World(2)
    world.place(1, 2)
    decision = world.register(1)
    assert isinstance(decision.records[-1], NodeRegistered)
    assert len(decision.records) == 2  # the partition, then the node
    assert decision.result["node_epoch"] == world.image.offset - 1 == world.epoch(1)


def test_a_registration_begins_fenced_until_a_heartbeat_has_seen_it() -> None:
    world = World()
    epoch = world.register(1).result["node_epoch"]
    assert world.image.nodes[ONE].fenced
    early = c.Heartbeat(node_id=ONE, node_epoch=epoch, offset=epoch)
    assert world.ask(early).result == {"fenced": True}
    assert world.image.nodes[ONE].fenced
    ready = c.Heartbeat(node_id=ONE, node_epoch=epoch, offset=epoch + 1)
    assert world.ask(ready).result == {"fenced": False}
    assert not world.image.nodes[ONE].fenced
    again = world.ask(ready)
    assert again.result == {"fenced": False}
    assert not again.changes


def test_a_registration_says_which_machine_it_shares() -> None:
    """Until the next one, also over a snapshot; a node alone says nothing."""
    world = World(2, machines=[1, 1])
    assert [world.image.machine_of(it) for it in (ONE, TWO, THREE)] == [1, 1, 3]
    read = MetadataImage("c").apply_all([*world.image.records()], offset=0, epoch=1)
    assert read.nodes[TWO].machine == ONE
    world.machines.clear()
    world.register(2)
    assert world.image.machine_of(TWO) == 2
    register = c.RegisterNode(
        node_id=TWO, incarnation=UUID(int=1), directory_id=UUID(int=2), host="h", port=1
    )
    assert b"machine" not in c.encode_command(register), "an older controller would refuse it"
    shared = register.model_copy(update={"machine": ONE})
    assert c.decode_command(c.encode_command(shared)) == shared


def test_a_machine_is_not_told_below_the_feature_level() -> None:
    world = World(1, machines=[1])
    records = world.register(1).records
    check_writable(records, 2)
    with pytest.raises(InvalidRequest, match="needs feature level 2"):
        check_writable(records, 1)


def test_the_same_incarnation_registers_once() -> None:
    world = World()
    first = world.register(1, run=7)
    again = world.register(1, run=7)
    assert not again.changes
    assert again.result == first.result


def test_a_restarted_last_member_leads_in_a_new_epoch() -> None:
    world = World(1)
    world.create()
    world.register(1)
    assert world.partition().leader == NO_LEADER
    assert world.partition().isr == (1,)
    world.beat(1)
    assert world.partition().leader == 1
    assert world.partition().leader_epoch == 2


def test_a_restarted_node_leaves_every_isr_in_which_another_can_lead_on() -> None:
    world = World(3)
    world.place(1, 2, 3)
    world.place(2, 1, name="t")
    world.register(1)
    assert (world.partition().leader, world.partition().isr) == (3, (2, 3))
    assert (world.partition(name="t").leader, world.partition(name="t").isr) == (2, (2,))
    assert world.partition(name="t").leader_epoch == 0


def test_a_restarted_member_stays_where_nobody_else_could_lead() -> None:
    world = World(2)
    world.place(1, 2)
    world.fence(1, 2)
    world.register(1)
    assert world.partition().isr == (1, 2)
    world.beat(1)
    assert (world.partition().leader, world.partition().isr) == (1, (1,))


def test_with_its_unsynced_tail_it_leaves_also_for_a_member_that_is_away() -> None:
    world = World(2)
    world.place(1, 2, sync="os")
    world.place(1, 2, name="synced")
    world.fence(1, 2)
    decision = world.register(1, tail_lost=True)
    assert world.partition().isr == (2,)
    assert world.partition(name="synced").isr == (1, 2)
    assert decision.result["tail_lost"] == []
    world.beat(1)
    assert world.partition().leader == NO_LEADER
    world.start(2)
    assert world.partition().leader == 2


def test_a_lost_tail_of_the_last_member_is_told() -> None:
    world = World(1)
    world.create(sync="interval")
    world.create("synced")
    assert world.register(1).result["tail_lost"] == []
    decision = world.register(1, tail_lost=True)
    assert decision.result["tail_lost"] == [["s", 0]]
    world.beat(1)
    assert world.partition().leader == 1


def test_the_default_of_the_node_says_whether_a_tail_can_be_lost() -> None:
    world = World(1)
    world.create()
    command = c.RegisterNode(
        node_id=ONE, incarnation=UUID(int=5), directory_id=UUID(int=0), host="h", port=1,
        stamps=world.stamps(1), tail_lost=True, sync="os",
    )  # fmt: skip
    assert world.ask(command).result["tail_lost"] == [["s", 0]]


def test_an_older_copy_leaves_also_for_a_member_that_is_away() -> None:
    world = World(2)
    copied = world.stamps(1)
    world.place(1, 2)
    world.fence(1)
    world.start(1)
    world.alter_isr(1, 2)
    world.fence(1, 2)
    assert world.partition().isr == (1, 2)
    decision = world.register(1, stamps=copied)
    assert decision.result["older_copy"]
    assert decision.result["tail_lost"] == []
    assert world.partition().isr == (2,)
    world.beat(1)
    assert world.partition().leader == NO_LEADER
    world.start(2)
    assert world.partition().leader == 2


def test_an_older_copy_with_the_last_member_is_told_and_stays() -> None:
    world = World(1)
    world.create()
    world.live.clear()  # it is its own controller, which has not heard of it
    decision = world.register(1, stamps=())
    assert (decision.result["older_copy"], decision.result["tail_lost"]) == (True, [["s", 0]])
    world.beat(1)
    assert world.partition().leader == 1


def test_a_folder_that_knows_its_last_registration_is_no_older_copy() -> None:
    world = World(2)
    world.place(1, 2)
    world.fence(1, 2)
    assert not world.register(1).result["older_copy"]
    assert world.partition().isr == (1, 2)


def test_a_registration_that_is_repeated_is_judged_once() -> None:
    """Its answer was lost."""
    world = World(2)
    copied = world.stamps(1)
    world.start(1)
    world.place(1, 2)
    world.place(1, name="alone")
    world.fence(1, 2)
    assert world.register(1, run=50, stamps=copied).result["older_copy"]
    isr, registered = world.partition().isr, world.epoch(1)
    assert isr == (2,)
    decision = world.register(1, run=50, stamps=copied)
    assert (decision.result["node_epoch"], decision.records) == (registered, ())


def test_a_folder_that_knows_more_than_the_metadata_is_no_older_copy() -> None:
    """A quorum was forced that lacked the node's last registration, or it was never granted."""
    world = World(2)
    world.place(1, 2)
    world.fence(1, 2)
    stamps = (*world.stamps(1), UUID(int=77))
    assert not world.register(1, stamps=stamps).result["older_copy"]
    assert world.partition().isr == (1, 2)


def test_a_copy_of_what_a_forced_quorum_lacked_is_an_older_one() -> None:
    world = World(2)
    stamps = (*world.stamps(1), UUID(int=77))
    world.place(1, 2)
    world.fence(1, 2)
    world.register(1, run=50, stamps=(*stamps, UUID(int=78)))
    assert world.register(1, run=51, stamps=stamps).result["older_copy"]
    assert world.partition().isr == (2,)


def test_the_folder_that_a_restored_cluster_begins_with_is_no_older_copy() -> None:
    world = World(2)
    world.place(1, 2)
    world.write(
        NodeRegistered(
            node_id=ONE, incarnation=UUID(int=9), host="", port=0, directory_id=UUID(int=0),
            fenced=True,
        )
    )  # fmt: skip
    world.live.clear()
    assert not world.register(1, stamps=()).result["older_copy"]
    assert world.partition().isr == (1, 2)


def test_a_copy_of_before_the_last_stamp_is_an_older_one() -> None:
    world = World(2)
    copied = world.stamps(1)
    world.place(1, 2)
    world.stamp(1, *copied, UUID(int=77))
    assert world.stamp(1, *copied, UUID(int=77)).records == ()  # its answer was lost
    world.fence(1, 2)
    assert world.register(1, stamps=copied).result["older_copy"]
    assert world.partition().isr == (2,)


def test_a_folder_with_the_last_stamp_is_no_older_copy() -> None:
    world = World(2)
    copied = world.stamps(1)
    world.place(1, 2)
    world.stamp(1, *copied, UUID(int=77))
    world.fence(1, 2)
    for stamps in ((UUID(int=77),), (*copied, UUID(int=77), UUID(int=78))):
        assert not world.register(1, stamps=stamps).result["older_copy"]
        assert world.partition().isr == (1, 2)
        world.write(NodeStamped(node_id=ONE, stamp=UUID(int=77)))


def test_a_process_that_goes_on_from_an_older_copy_is_stale() -> None:
    """A machine was set back with its memory."""
    world = World(1)
    copied = world.stamps(1)
    world.stamp(1, *copied, UUID(int=77))
    with pytest.raises(StaleNode, match="older copy"):
        world.stamp(1, *copied, UUID(int=78))


def test_an_older_copy_does_not_replace_a_node_that_is_alive() -> None:
    world = World(2)
    with pytest.raises(NodeIdTaken, match="newer copy"):
        world.register(1, stamps=())
    world.live.remove(ONE)
    assert world.register(1, stamps=()).result["older_copy"]


def test_a_wiped_disk_is_in_no_isr_and_the_loss_of_the_last_copy_is_told() -> None:
    world = World(2)
    world.place(1, 2)
    world.place(1, name="alone")
    world.fence(1)
    world.fence(2)
    assert world.partition().isr == (2,)
    decision = world.register(1, directory=5)
    assert decision.result["data_lost"] == [["alone", 0]]
    assert world.partition(name="alone").isr == ()
    world.beat(1)
    assert world.partition(name="alone").leader == NO_LEADER
    assert world.partition().leader == NO_LEADER
    world.elect(1, unclean=True, name="alone")
    assert (world.partition(name="alone").leader, world.partition(name="alone").isr) == (1, (1,))


def test_a_wiped_member_leaves_also_for_one_that_is_away() -> None:
    world = World(2)
    world.place(1, 2)
    world.fence(1, 2)
    assert world.register(1, directory=5).result["data_lost"] == []
    assert world.partition().isr == (2,)


def test_all_start_again_together_and_one_has_lost_its_disk() -> None:
    """Whoever registers first must not make room for a member that is alive by hearsay only."""
    world = World(3)
    world.place(1, 2, 3)
    world.hearsay = set(world.live)
    world.register(1)
    world.register(2)
    assert {1, 2} <= set(world.partition().isr)
    world.live.remove(THREE)  # it was not heard of for a session
    lost = world.register(3, directory=33)
    assert lost.result["data_lost"] == []
    assert world.partition().isr == (1, 2)
    for node in (1, 2, 3):
        world.beat(node)
    assert world.partition().leader in (1, 2)


def test_a_dead_node_makes_no_room_for_one_that_is_alive_by_hearsay() -> None:
    world = World(3)
    world.place(1, 2, 3)
    world.hearsay = set(world.live)
    world.register(1)
    world.fence(2)
    assert (world.partition().leader, world.partition().isr) == (NO_LEADER, (1, 2, 3))
    world.live.remove(THREE)
    world.register(3, directory=33)
    assert world.partition().isr == (1, 2)
    world.beat(1)
    assert world.partition().leader == 1


def test_whoever_has_been_heard_of_leads_and_hearsay_stays_in_sync() -> None:
    world = World(3)
    world.place(1, 2, 3)
    world.hearsay = {TWO, THREE}
    world.fence(1)
    assert (world.partition().leader, world.partition().isr) == (NO_LEADER, (1, 2, 3))
    assert not world.go_on().changes
    world.hearsay = {THREE}
    world.go_on()
    assert (world.partition().leader, world.partition().isr) == (2, (2, 3))


def test_a_restarted_node_leaves_once_others_have_been_heard_of() -> None:
    world = World(3)
    world.place(1, 2, 3)
    world.hearsay = set(world.live)
    world.beat(2)
    world.register(1)
    assert world.partition().isr == (2, 3)
    assert world.partition().leader == 2


def test_two_folders_of_one_id_are_never_alive_together() -> None:
    world = World(1)
    with pytest.raises(NodeIdTaken):
        world.register(1, directory=5)
    world.live.clear()  # its session is over, though it is not fenced yet
    world.register(1, directory=5)
    assert world.image.nodes[ONE].directory_id == UUID(int=5)


def test_a_folder_without_an_id_is_whoever_comes_next() -> None:
    world = World()
    old = NodeRegistered(node_id=ONE, incarnation=UUID(int=1), host="h", port=1)
    world.apply(Decision((old,)))
    world.live.add(ONE)
    world.create()
    assert world.register(1, directory=5).result["data_lost"] == []
    assert world.partition().isr == (1,)


def test_a_fenced_node_leads_nothing_and_leaves_what_others_keep() -> None:
    world = World(3)
    world.place(1, 2, 3)
    world.place(2, 1, 3, name="t")
    world.place(1, name="alone")
    world.fence(1)
    assert (world.partition().leader, world.partition().isr) == (3, (2, 3))
    assert world.partition().leader_epoch == 1
    assert (world.partition(name="t").leader, world.partition(name="t").isr) == (2, (2, 3))
    assert world.partition(name="t").leader_epoch == 0
    assert world.partition(name="alone").leader == NO_LEADER
    assert world.partition(name="alone").isr == (1,)
    assert world.image.leaderless == 1


def test_fencing_notes_leaders_first_and_the_node_last() -> None:
    world = World(2)
    world.place(2, 1, name="a")
    world.place(1, 2, name="b")
    world.live.discard(ONE)
    records = world.ask(c.FenceNode(node_id=ONE, node_epoch=world.epoch(1))).records
    assert [r.stream for r in records if isinstance(r, PartitionChanged)] == ["b", "a"]
    assert records[-1] == NodeFenced(node_id=ONE, fenced=True)
    again = world.ask(c.FenceNode(node_id=ONE, node_epoch=world.epoch(1)))
    assert not again.changes


def test_members_that_are_away_together_stay_and_the_first_to_return_leads() -> None:
    world = World(3)
    world.place(1, 2, 3)
    world.fence(1, 2, 3)
    assert world.partition().isr == (1, 2, 3)
    world.start(3)
    assert (world.partition().leader, world.partition().isr) == (3, (3,))


def test_the_leadership_of_a_fenced_node_is_shared_out() -> None:
    world = World(3)
    world.create(partitions=9, replicas=3)
    world.fence(1)
    assert [world.image.load(NodeId(node)).leaders for node in (1, 2, 3)] == [0, 5, 4]


def test_a_node_without_a_session_is_not_elected() -> None:
    world = World(3)
    world.place(1, 2, 3)
    world.live.discard(NodeId(2))
    world.fence(1)
    assert world.partition().leader == 3


def test_where_the_stream_allows_it_a_replica_out_of_sync_leads() -> None:
    world = World(2)
    world.place(1, 2, unclean_election=True)
    world.alter_isr(1)
    world.fence(1)
    assert (world.partition().leader, world.partition().isr) == (2, (2,))


def test_whoever_stopped_comes_back_only_by_registering() -> None:
    world = World(2)
    world.place(1, 2)
    world.stop(1)
    assert (world.partition().leader, world.partition().isr) == (2, (2,))
    assert world.beat(1).result == {"fenced": True}
    assert world.image.nodes[ONE].fenced
    assert not world.stop(1).changes
    world.start(1)
    assert not world.image.nodes[ONE].fenced
    assert not world.image.nodes[ONE].stopping


def test_a_fenced_node_can_still_say_goodbye() -> None:
    world = World(1)
    world.fence(1)
    assert world.stop(1).records == (NodeFenced(node_id=ONE, fenced=True, stopping=True),)


def test_others_lead_what_a_node_cannot_write() -> None:
    world = World(2)
    world.place(1, 2)
    world.place(2, 1, name="t")
    world.place(1, name="alone")
    offline = (("s", 0), ("s", 0), ("t", 0), ("alone", 0), ("alone", 9), ("gone", 0))
    world.beat(1, offline=offline)
    assert (world.partition().leader, world.partition().isr) == (2, (2,))
    assert world.partition(name="t").isr == (2,)
    assert world.partition(name="alone").leader == 1
    assert not world.beat(1, offline=offline).changes


def test_a_returning_node_leaves_what_it_cannot_write_to_members_that_are_away() -> None:
    world = World(2)
    world.place(1, 2)
    world.fence(1, 2)
    world.beat(1, offline=(("s", 0),))
    assert (world.partition().leader, world.partition().isr) == (NO_LEADER, (2,))
    world.beat(2)
    assert world.partition().leader == 2


def test_a_full_node_gives_way_to_members_with_room() -> None:
    world = World(3)
    world.place(1, 2, 3)
    world.place(2, 1, 3, name="t")
    world.place(1, name="alone")
    decision = world.beat(1, full=True)
    assert decision.records[-1] == NodeFull(node_id=ONE, full=True)
    assert (world.partition().leader, world.partition().isr) == (3, (2, 3)), "who led nothing"
    assert (world.partition(name="t").leader, world.partition(name="t").isr) == (2, (2, 3))
    assert (world.partition(name="alone").leader, world.partition(name="alone").isr) == (1, (1,))
    assert not world.beat(1, full=True).changes
    assert world.beat(1).records == (NodeFull(node_id=ONE, full=False),)
    assert world.partition().isr == (2, 3), "it comes back by fetching"


def test_what_a_full_node_cannot_write_besides_is_decided_once() -> None:
    world = World(2)
    world.place(1, 2)
    world.place(1, 2, name="t")
    before = world.partition().partition_epoch
    world.beat(1, offline=(("s", 0),), full=True)
    assert world.partition().partition_epoch == before + 1
    assert (world.partition().leader, world.partition(name="t").leader) == (2, 2)


def test_among_full_nodes_nobody_gives_way() -> None:
    world = World(3)
    world.place(1, 2, 3)
    world.beat(2, full=True)
    world.beat(1, full=True)
    assert (world.partition().leader, world.partition().isr) == (3, (3,))
    world.create("t", replicas=3)  # all of them begin in sync
    world.beat(3, full=True)
    s, t = world.partition(), world.partition(name="t")
    assert (s.leader, s.isr) == (3, (3,))
    for node in (1, 2, 3, 1):
        assert not world.beat(node, full=True).changes, "whose turn it is does not matter"
    assert (world.partition(), world.partition(name="t")) == (s, t)
    world.beat(2)
    for node in (1, 3):
        world.beat(node, full=True)
    assert (world.partition().leader, world.partition().isr) == (3, (3,)), "2 has yet to fetch"
    assert (world.partition(name="t").leader, world.partition(name="t").isr) == (2, (2,))


def test_nobody_gives_way_to_members_that_are_away() -> None:
    world = World(2)
    world.place(1, 2)
    world.live.discard(TWO)
    world.beat(1, full=True)
    assert (world.partition().leader, world.partition().isr) == (1, (1, 2))


def test_a_full_node_leads_where_nobody_else_can() -> None:
    world = World(2)
    world.place(1, 2)
    world.beat(2, full=True)
    world.beat(1, full=True)
    assert world.partition().isr == (1,)
    world.register(1)
    world.beat(1, full=True)
    assert world.partition().leader == 1


def test_a_registration_tells_nothing_of_room() -> None:
    world = World(1)
    world.beat(1, full=True)
    assert world.image.nodes[ONE].full
    world.start(1)
    assert not world.image.nodes[ONE].full


ILL = ("certificate",)


def test_an_unfit_node_hands_its_leaderships_over_and_stays_in_sync() -> None:
    world = World(3)
    world.place(1, 2, 3)
    world.place(2, 1, 3, name="t")
    world.place(1, name="alone")
    decision = world.beat(1, unfit=ILL)
    assert decision.records[-1] == NodeUnfit(node_id=ONE, unfit=ILL)
    assert world.partition().leader in (2, 3)
    assert world.partition().isr == (1, 2, 3)
    assert world.partition(name="t").leader == 2
    assert world.partition(name="alone").leader == 1, "nobody else has it"
    assert not world.beat(1, unfit=ILL).changes
    world.ask(c.RebalanceLeaders())
    assert world.partition().leader in (2, 3), "it gets nothing back while it is unfit"
    world.create("u", replicas=3, partitions=6)
    assert 1 not in {world.partition(number, "u").leader for number in range(6)}
    assert world.beat(1).records == (NodeUnfit(node_id=ONE, unfit=()),)
    world.ask(c.RebalanceLeaders())
    assert world.partition().leader == 1


def test_what_is_told_of_a_node_that_leads_on() -> None:
    """It is known in the cluster, and moves nothing."""
    world = World(3)
    world.place(1, 2, 3)
    told = ("http_certificate", "nats")
    assert world.beat(1, unfit=told).records == (NodeUnfit(node_id=ONE, unfit=told),)
    assert world.partition().leader == 1
    world.place(2, 3, 1, name="t")
    world.beat(2, unfit=ILL)
    assert world.partition(name="t").leader in (1, 3)
    world.create("u", replicas=3, partitions=6)
    assert 1 in {world.partition(number, "u").leader for number in range(6)}


def test_among_unfit_nodes_nobody_hands_over() -> None:
    world = World(2)
    world.place(1, 2)
    world.beat(2, unfit=("clock",))
    world.beat(1, unfit=ILL)
    assert world.partition().leader == 1
    world.fence(1)
    assert world.partition().leader == 2, "better than nobody"
    world.beat(2)
    assert world.image.nodes[TWO].unfit == ()


def test_a_full_node_gets_nothing_from_an_unfit_one() -> None:
    world = World(2)
    world.place(1, 2)
    world.place(2, 1, name="t")
    world.beat(2, full=True)
    world.beat(1, unfit=ILL)
    assert world.partition().leader == 1


def test_a_registration_tells_nothing_of_what_was_wrong() -> None:
    world = World(1)
    world.beat(1, unfit=ILL)
    assert world.image.nodes[ONE].unfit == ILL
    world.start(1)
    assert world.image.nodes[ONE].unfit == ()


def test_older_registrations_are_refused() -> None:
    world = World(1)
    old = world.epoch(1)
    world.start(1)
    commands: list[c.Command] = [
        c.Heartbeat(node_id=ONE, node_epoch=old, offset=100),
        c.FenceNode(node_id=ONE, node_epoch=old),
        c.StopNode(node_id=ONE, node_epoch=old),
        c.AlterIsr(node_id=ONE, node_epoch=old, changes=()),
        c.Heartbeat(node_id=NodeId(9), node_epoch=0, offset=100),
    ]
    for command in commands:
        with pytest.raises(StaleNode):
            world.ask(command)


def test_only_a_node_that_keeps_nothing_and_does_not_vote_is_removed() -> None:
    world = World(2)
    world.place(1)
    voters = VoterSet.of([Voter(NodeId(2), "h", 1, UUID(int=2))])
    world.write(VotersChanged.of(voters))
    with pytest.raises(InvalidRequest, match="keeps 1 replicas"):
        world.ask(c.RemoveNode(node_id=ONE))
    with pytest.raises(InvalidRequest, match="is a voter"):
        world.ask(c.RemoveNode(node_id=NodeId(2)))
    with pytest.raises(NodeNotFound):
        world.ask(c.RemoveNode(node_id=NodeId(3)))
    world.write(VotersChanged.of(VoterSet(), returning=[NodeId(2)]))
    with pytest.raises(InvalidRequest, match="is a voter"):
        world.ask(c.RemoveNode(node_id=NodeId(2)))
    world.write(VotersChanged.of(VoterSet()))
    world.ask(c.RemoveNode(node_id=NodeId(2)))
    assert list(world.image.nodes) == [1]
    with pytest.raises(StaleNode):
        world.ask(c.Heartbeat(node_id=NodeId(2), node_epoch=2, offset=99))
