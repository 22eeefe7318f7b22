"""Known ways to get Raft wrong, planted one by one: the checkers find each, and nothing without.

Those that chance finds soon are left to random trouble; for the others the story is told that the
literature tells.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest

from streamlog.model import EpochEnd, NodeId
from streamlog.raft.candidate import Candidacy
from streamlog.raft.election_state import ElectionState
from streamlog.raft.events import Effect, Event, SaveVote
from streamlog.raft.leader import LeaderState
from streamlog.raft.messages import FetchAnswer, RaftFetchRequest, VoteAnswer, VoteRequest
from streamlog.raft.node import RaftNode
from streamlog.raft.replica_tracker import ReplicaTracker
from streamlog.raft.vote_handler import VoteHandler
from streamlog.raft.voters import ReplicaKey, VoterSet
from tests.property.quorum_trouble import Trouble
from tests.quorum_checkers import Violation
from tests.quorum_host import Host
from tests.quorum_log import Entry, MemoryLog, Payload, configured, recorded, voters_payload
from tests.quorum_world import World

Plant = Callable[[pytest.MonkeyPatch], None]
STORIES = 25

# Bugs


def acknowledge_before_syncing(patch: pytest.MonkeyPatch) -> None:
    start = Host.start

    def careless(self: Host) -> None:
        self.acknowledges_unsynced = True
        start(self)

    patch.setattr(Host, "start", careless)


def count_own_records_before_syncing(patch: pytest.MonkeyPatch) -> None:
    committed_offset = ReplicaTracker.committed_offset
    commit = RaftNode._commit

    def careless(self: RaftNode) -> None:
        end = self.log.end_offset
        patch.setattr(
            ReplicaTracker,
            "committed_offset",
            lambda it, voters, _: committed_offset(it, voters, end),
        )
        commit(self)

    patch.setattr(RaftNode, "_commit", careless)


def answer_before_saving_the_vote(patch: pytest.MonkeyPatch) -> None:
    step = RaftNode.step

    def hasty(self: RaftNode, event: Event, now_ms: int) -> list[Effect]:
        return sorted(step(self, event, now_ms), key=lambda it: isinstance(it, SaveVote))

    patch.setattr(RaftNode, "step", hasty)


def vote_for_any_log(patch: pytest.MonkeyPatch) -> None:
    answer = VoteHandler.answer

    def generous(self: VoteHandler, request: VoteRequest, now_ms: int) -> VoteAnswer:
        return answer(self, replace(request, last_epoch=1 << 30), now_ms)

    patch.setattr(VoteHandler, "answer", generous)


def vote_for_all(patch: pytest.MonkeyPatch) -> None:
    def vote(self: ElectionState, candidate: ReplicaKey, now_ms: int) -> None:
        self.voted_for = candidate
        self._be_idle()
        self.be_patient(now_ms)

    def may_elect(self: VoteHandler, request: VoteRequest, now_ms: int) -> bool:
        return not (request.pre_vote and self._election.hears(now_ms))

    patch.setattr(ElectionState, "vote", vote)
    patch.setattr(VoteHandler, "_may_elect", may_elect)


def never_look_where_histories_part(patch: pytest.MonkeyPatch) -> None:
    parting = LeaderState._parting

    def blind(self: LeaderState, request: RaftFetchRequest) -> FetchAnswer | None:
        log = self._log
        if log.start_offset <= request.offset <= log.end_offset:
            return None
        return parting(self, request)

    patch.setattr(LeaderState, "_parting", blind)


def count_itself_after_its_removal(patch: pytest.MonkeyPatch) -> None:
    def selfish(self: ReplicaTracker, voters: VoterSet, synced_end: int) -> int:
        ends = [self._end_of(it, synced_end) for it in voters.by_id.values()]
        if self._me.node_id not in voters.ids:
            ends.append(synced_end)
        reached = sorted(ends, reverse=True)[voters.majority - 1]
        return reached if reached > self.epoch_start_offset else -1

    patch.setattr(ReplicaTracker, "committed_offset", selfish)


def commit_older_epochs_by_counting(patch: pytest.MonkeyPatch) -> None:
    def eager(self: ReplicaTracker, voters: VoterSet, synced_end: int) -> int:
        ends = [self._end_of(it, synced_end) for it in voters.by_id.values()]
        return sorted(ends, reverse=True)[voters.majority - 1]

    patch.setattr(ReplicaTracker, "committed_offset", eager)


def forget_the_vote_at_restart(patch: pytest.MonkeyPatch) -> None:
    start = Host.start

    def forgetful(self: Host) -> None:
        self.forgets_votes = True
        start(self)

    patch.setattr(Host, "start", forgetful)


def count_votes_of_any_folder(patch: pytest.MonkeyPatch) -> None:
    def votes(self: Candidacy, voters: VoterSet) -> set[NodeId]:
        return {key.node_id for key in self._granted} & voters.ids

    patch.setattr(Candidacy, "_votes", votes)


def change_voters_before_the_epoch_is_committed(patch: pytest.MonkeyPatch) -> None:
    def rash(self: RaftNode, *, voters_offset: int = -1) -> str | None:
        return None if self._leader_state is not None else "not the leader"

    patch.setattr(RaftNode, "change_voters_refusal", rash)


def found_a_quorum_by_a_majority(patch: pytest.MonkeyPatch) -> None:
    """Of voters whose folders are not known: those that have lost theirs are enough."""
    patch.setattr(VoterSet, "majority", property(lambda self: len(self.by_id) // 2 + 1))
    patch.setattr(RaftNode, "_check_first_voters", lambda *_: None)


def replace_a_folder_in_one_step(patch: pytest.MonkeyPatch) -> None:
    """Remove the old one and add the new one in one record."""

    def tended(self: Trouble, host: Host) -> Payload:
        return voters_payload(recorded(host.voters, *host.raft.replaced_voters()))

    patch.setattr(Trouble, "tended", tended)
    patch.setattr(RaftNode, "_check_majorities", lambda *_: None)


def trust_epochs_that_the_log_does_not_know(patch: pytest.MonkeyPatch) -> None:
    def trusting(self: LeaderState, epoch: int) -> EpochEnd:
        return self._log.epoch_end(epoch)

    patch.setattr(LeaderState, "_epoch_end", trusting)


def count_what_a_replica_once_had(patch: pytest.MonkeyPatch) -> None:
    fetched = ReplicaTracker.fetched

    def trusting(
        self: ReplicaTracker, key: ReplicaKey, voters: VoterSet, offset: int, **more: int
    ) -> int | None:
        known = self._replicas[key].end_offset if key in self._replicas else -1
        return fetched(self, key, voters, max(offset, known), **more)

    patch.setattr(ReplicaTracker, "fetched", trusting)


# What chance finds


@pytest.mark.parametrize(
    "plant",
    [
        acknowledge_before_syncing,
        count_own_records_before_syncing,
        answer_before_saving_the_vote,
        vote_for_any_log,
        vote_for_all,
        never_look_where_histories_part,
        count_itself_after_its_removal,
        found_a_quorum_by_a_majority,
        count_votes_of_any_folder,
    ],
)
def test_random_trouble_finds(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(40):
            voters = 2 + seed % 4
            Trouble(World(seed, hosts=voters + seed % 2, voters=voters)).run(40_000)


# Stories


def lives(world: World, node_id: int, epoch: int, *payloads: tuple[int, Payload]) -> None:
    """The node has heard of ``epoch``, and has these records, each of an epoch of its own."""
    disk = world.hosts[NodeId(node_id)].disk
    disk.log = MemoryLog.of(*(Entry(*it) for it in payloads))
    disk.epoch = epoch


def leader_of(world: World) -> Host:
    """At the very moment at which there is one."""

    def leading() -> list[Host]:
        return [host for host in world.up() if host.raft.epoch_start_offset >= 0]

    assert world.run_until(lambda: leading() != [], 10_000)
    return leading()[0]


def replaced_although_on_a_majority(seed: int) -> None:
    """Figure 8 of the paper: node 1 leads again, and spreads a record of epoch 2 to a majority
    before its own; node 5, whose last record is of epoch 3, may still replace it.
    """
    world = World(seed, hosts=5, voters=5, starts=False, knows_folders=True)
    world.fetch_entries = 1
    for node_id in (1, 2):
        lives(world, node_id, 3, (1, "a"), (2, "b"))
    for node_id in (3, 4):
        lives(world, node_id, 3, (1, "a"))
    lives(world, 5, 3, (1, "a"), (3, "c"))
    world.start(1, 2, 3, 4)
    assert world.run_until(lambda: len(world.checkers.committed_entries) >= 2, 10_000)
    world.crash(1, 2)
    world.start(5)
    world.run(10_000)


def asked_again_after_a_restart(seed: int) -> None:
    """Who elected a leader comes back, and meets one that has not heard of the election."""
    world = World(seed, knows_folders=True)
    world.cut_off(2)
    leader = leader_of(world)
    voter = NodeId(4 - leader.node_id)
    world.cut.clear()
    world.cut_off(leader.node_id)
    world.crash(voter)
    world.run(50)  # what was under way is lost
    world.start(voter)
    world.run(5_000)


def asked_again_with_an_empty_disk(seed: int) -> None:
    """The same, but it was the disk that forgot."""
    world = World(seed, starts=False)
    known = recorded(configured(1, 2, 3), *(host.key for host in world.hosts.values()))
    for node_id in world.hosts:
        lives(world, node_id, 1, (1, voters_payload(known)))
    world.cut_off(2)
    world.start(1, 2, 3)
    leader = leader_of(world)
    voter = world.hosts[NodeId(4 - leader.node_id)]
    world.cut.clear()
    world.cut_off(leader.node_id)
    voter.crash()
    voter.wipe()
    world.run(50)
    voter.start()
    world.run(5_000)


def two_changes_of_the_voters(seed: int) -> None:
    """Ongaro's of 2015: node 1 had begun to add node 5 when others removed node 1; with 4 and 5 it
    makes a majority that knows nothing of that.
    """
    world = World(seed, hosts=5, voters=4, starts=False)
    keys = [host.key for host in world.hosts.values()]
    four, five = recorded(configured(1, 2, 3, 4), *keys), recorded(configured(1, 2, 3, 4, 5), *keys)
    for node_id in (2, 3, 4):
        lives(world, node_id, 2, (1, voters_payload(four)))
    for node_id in (1, 5):
        lives(world, node_id, 2, (1, voters_payload(four)), (2, voters_payload(five)))
    world.start(2, 3, 4)
    leader = leader_of(world)
    cut_off, *_ = (it for it in (2, 3, 4) if it != leader.node_id)
    world.cut_off(cut_off)
    without_1 = VoterSet.of(it for it in four.by_id.values() if it.node_id != 1)

    def change() -> Payload:
        refusal = leader.raft.change_voters_refusal()
        return "refused" if refusal else voters_payload(without_1)

    leader.propose(change)
    world.run(500)
    world.crash(*(it for it in (2, 3, 4) if it != cut_off))
    world.cut.clear()
    world.start(1, 5)
    world.run(10_000)


def an_old_folder_comes_back(seed: int) -> None:
    """Node 5 starts on an empty folder, for its volume was not mounted. The leader, 1, and 2 have
    its new folder vote; then they go, and 5 has the old one back. With 3 and 4, which have heard
    nothing of it, that is a majority of the voters of before.
    """
    world = World(seed, hosts=5, voters=5)
    assert world.run_until(world.is_well, 5_000)
    trouble, five = Trouble(world), world.hosts[NodeId(5)]
    leader = hand_over(world, 1)
    old = five.disk
    five.crash()
    five.mount()
    five.start()
    assert world.run_until(lambda: bool(leader.raft.replaced_voters()), 10_000)
    for one in (3, 4):
        for other in (1, 2, 5):
            world.cut |= {(NodeId(one), NodeId(other)), (NodeId(other), NodeId(one))}
    for number in range(20):
        leader.propose(lambda: trouble.tended(leader))
        leader.propose(number)
        world.run(50)
    world.crash(1, 2, 5)
    five.mount(old)
    five.start()
    world.cut.clear()
    world.run(10_000)


def a_majority_comes_with_empty_folders(seed: int) -> None:
    """Two of three know nothing, and are configured as they were at the very first start."""
    world = World(seed)
    assert world.run_until(world.is_well, 5_000)
    for node_id in (1, 2):
        host = world.hosts[NodeId(node_id)]
        host.crash()
        host.mount()
    world.cut_off(3)
    world.start(1, 2)
    world.run(5_000)
    world.cut.clear()
    world.run(5_000)


def an_older_copy_of_a_folder(seed: int) -> None:
    """Node 2 acknowledges records, and starts on a copy of its folder that lacks them. The leader,
    1, hears of that before 3 has them; then 1 and 3 go, two of five.
    """
    world = World(seed, hosts=5, voters=5)
    assert world.run_until(world.is_well, 5_000)
    leader, two, three = hand_over(world, 1), world.hosts[NodeId(2)], world.hosts[NodeId(3)]
    assert world.run_until(world.is_well, 5_000)
    copied, wanted = deepcopy(two.disk), leader.disk.log.end_offset + 5
    world.crash(3)
    world.cut_off(4, 5)
    for number in range(5):
        leader.propose(number)
    assert world.run_until(lambda: two.disk.log.durable_end >= wanted, 1_000)
    world.run(20)  # it has said so
    two.crash()
    two.disk = copied
    two.start()
    if not world.run_until(lambda: two.raft.leader == 1, 1_000):
        return
    world.cut.add((NodeId(1), NodeId(2)))
    world.run(5)  # it fetches, and is not answered
    three.start()
    world.run_until(lambda: three.disk.log.durable_end >= wanted, 1_000)
    world.run(20)
    world.crash(1, 3)
    world.cut.clear()
    world.run(10_000)


def hand_over(world: World, node_id: int) -> Host:
    """To a node that is to lead."""
    wanted = world.hosts[NodeId(node_id)]
    for host in world.active():
        if host is not wanted:
            host.resign(wanted.node_id)
    assert world.run_until(lambda: world.active() == [wanted], 5_000)
    return wanted


def a_snapshot_hides_where_histories_part(seed: int) -> None:
    """Node 2 has records of epoch 1 where the others, in their snapshot, have such of epoch 3."""
    world = World(seed, starts=False, knows_folders=True)
    common = (1, "a"), (1, "b")
    for node_id in (1, 3):
        lives(world, node_id, 3, *common, (3, "c"), (3, "d"), (5, "e"))
        world.hosts[NodeId(node_id)].disk.log.take_snapshot(4, keep_log=False)
    lives(world, 2, 3, *common, (1, "x"), (1, "y"))
    world.start(1, 3)
    leader_of(world)
    world.start(2)
    world.run(5_000)


STORIES_OF = [
    (commit_older_epochs_by_counting, replaced_although_on_a_majority),
    (forget_the_vote_at_restart, asked_again_after_a_restart),
    (count_votes_of_any_folder, asked_again_with_an_empty_disk),
    (replace_a_folder_in_one_step, an_old_folder_comes_back),
    (found_a_quorum_by_a_majority, a_majority_comes_with_empty_folders),
    (count_what_a_replica_once_had, an_older_copy_of_a_folder),
    (change_voters_before_the_epoch_is_committed, two_changes_of_the_voters),
    (trust_epochs_that_the_log_does_not_know, a_snapshot_hides_where_histories_part),
]


@pytest.mark.parametrize(("plant", "story"), STORIES_OF)
def test_the_story_finds(
    plant: Plant, story: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(STORIES):
        story(seed)  # all is well without the bug
    plant(monkeypatch)
    with pytest.raises(Violation):
        for seed in range(STORIES):
            story(seed)
