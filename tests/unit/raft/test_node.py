from dataclasses import replace

import pytest

from streamlog.errors import InvalidRequest, NoController
from streamlog.model import NodeId
from streamlog.raft import events as raft
from streamlog.raft.events import Role
from streamlog.raft.messages import (
    BeginEpochRequest,
    EndEpochRequest,
    EpochAnswer,
    Fault,
    FetchAnswer,
    RaftFetchRequest,
    VoteRequest,
)
from streamlog.raft.voters import VoterSet
from tests.quorum_log import Entry, recorded, voters_payload
from tests.unit.lone_member import (
    TIMEOUT_MS,
    LoneMember,
    entries,
    grant,
    key,
    only,
    records,
    sent,
    vote_request,
    voters,
)


def begin(epoch: int, leader: int) -> BeginEpochRequest:
    return BeginEpochRequest(epoch, NodeId(leader))


def end(epoch: int, leader: int, *successors: int) -> EndEpochRequest:
    return EndEpochRequest(epoch, NodeId(leader), tuple(NodeId(it) for it in successors))


def change(member: LoneMember, among: VoterSet) -> list[raft.Effect]:
    """The leader writes that these vote from now on."""
    member.log.append([Entry(member.raft.epoch, voters_payload(among))])
    end_offset = member.log.end_offset
    effects = member.step(raft.VotersCommitted(among, end_offset - 1))
    effects += member.step(raft.Appended(end_offset))
    member.log.sync()
    return effects + member.step(raft.Synced(end_offset))


def active(among: VoterSet | None = None) -> LoneMember:
    """Leader of voters 1, 2 and 3, with its first record committed."""
    member = LoneMember(among=among)
    member.lead()
    member.append()
    member.fetched_by(2)
    assert member.raft.is_active
    return member


# The leader's first record


def test_a_leader_is_active_when_a_record_of_its_epoch_is_committed() -> None:
    member = LoneMember(log=entries(1, 1))
    member.lead()
    assert member.raft.epoch_start_offset == 2
    member.fetched_by(2)
    assert (member.raft.high_watermark, member.raft.is_active) == (0, False)
    member.append()
    assert not member.raft.is_active
    effects = member.fetched_by(2)
    assert raft.Committed(3) in effects
    assert member.raft.is_active
    member.step(raft.Resign())
    assert not member.raft.is_active
    assert member.raft.epoch_start_offset == -1


def test_having_all_that_is_committed_is_not_enough_to_be_active() -> None:
    """It does not know whether there is more of it."""
    member = LoneMember(log=entries(1, 1), high_watermark=2)
    member.lead()
    assert member.raft.high_watermark == member.raft.epoch_start_offset
    assert not member.raft.is_active


def test_what_is_not_synced_here_does_not_count_here() -> None:
    member = LoneMember()
    member.lead()
    member.append(sync=False)
    assert only(member.fetched_by(2), raft.Committed) == []
    member.log.sync()
    assert raft.Committed(1) in member.step(raft.Synced(1))


def test_a_majority_of_others_is_one_too() -> None:
    member = LoneMember()
    member.lead()
    member.append(sync=False)
    member.fetched_by(2)
    assert raft.Committed(1) in member.fetched_by(3)


def test_a_leader_by_itself_commits_what_it_syncs() -> None:
    member = LoneMember(among=voters(1))
    member.tick()
    assert only(member.append(sync=False), raft.Committed) == []
    member.log.sync()
    assert raft.Committed(1) in member.step(raft.Synced(1))


# Beginning and end of an epoch


def test_who_hears_of_a_leader_follows_it() -> None:
    member = LoneMember()
    effects = member.step(raft.Received("token", begin(3, 2)))
    assert effects[:3] == [
        raft.SaveVote(3, None),
        raft.RoleChanged(Role.FOLLOWER, 3, NodeId(2)),
        raft.Reply("token", EpochAnswer(3, NodeId(2))),
    ]
    assert [send.peer for send in sent(effects, RaftFetchRequest)] == [2]


def test_an_older_leader_is_told_of_the_newer() -> None:
    member = LoneMember(epoch=4)
    assert member.ask(begin(3, 2)) == EpochAnswer(4, None, Fault.FENCED_EPOCH)
    assert member.ask(end(3, 2, 1)) == EpochAnswer(4, None, Fault.FENCED_EPOCH)


def test_an_epoch_has_one_leader() -> None:
    member = LoneMember()
    member.follow(2, epoch=3)
    assert member.ask(begin(3, 3)) == EpochAnswer(3, NodeId(2), Fault.NOT_LEADER)
    assert member.raft.leader == 2


def test_nobody_takes_it_for_the_leader_that_it_was() -> None:
    """It has restarted, and is none in that epoch, whatever the others think."""
    member = LoneMember(epoch=3, voted_for=key(1))
    request = RaftFetchRequest(3, key(1), 0)
    member.step(raft.Answered(NodeId(2), request, FetchAnswer(3, NodeId(1), Fault.NOT_LEADER)))
    assert member.raft.leader is None
    assert member.ask(begin(3, 1)) == EpochAnswer(3, None, Fault.NOT_LEADER)
    assert member.raft.role is Role.UNATTACHED


def test_the_first_successor_stands_at_once() -> None:
    member = LoneMember()
    member.follow(2, epoch=3)
    effects = member.step(raft.Received("token", end(3, 2, 1, 3)))
    assert effects[0] == raft.SaveVote(4, key(1))
    asked = sent(effects, VoteRequest)
    assert [send.peer for send in asked] == [2, 3]
    assert {send.request for send in asked} == {vote_request(4, 1)}


def test_the_next_one_after_it() -> None:
    member = LoneMember()
    member.follow(2, epoch=3)
    member.ask(end(3, 2, 3, 1))
    assert member.raft.role is Role.UNATTACHED
    assert 100 <= member.raft.deadline_ms - member.now_ms <= 150


def test_the_end_of_an_epoch_that_another_leads_says_nothing() -> None:
    member = LoneMember()
    member.follow(2, epoch=3)
    member.ask(end(3, 3, 1))
    assert member.raft.leader == 2


def test_an_epoch_that_ended_before_it_was_heard_of() -> None:
    member = LoneMember()
    effects = member.step(raft.Received("token", end(3, 2, 1)))
    assert effects[0] == raft.SaveVote(4, key(1))


# Changing the voters


def test_voters_may_not_change_before_a_record_of_the_epoch_is_committed() -> None:
    """Else two leaders could change them differently (Ongaro, 2015)."""
    member = LoneMember(log=entries(1))
    assert member.raft.change_voters_refusal() is not None
    member.lead()
    assert member.raft.change_voters_refusal() is not None
    member.append()
    assert member.raft.change_voters_refusal() is not None
    member.fetched_by(2)
    assert member.raft.change_voters_refusal() is None


def test_voters_change_one_at_a_time() -> None:
    member = active()
    change(member, voters(1, 2, 3, 4))
    member.fetched_by(2)
    assert member.raft.change_voters_refusal() is not None
    member.fetched_by(3)
    assert member.raft.change_voters_refusal() is None
    with pytest.raises(InvalidRequest, match="one replica at a time"):
        change(member, voters(1))


def test_records_that_are_not_written_yet_count() -> None:
    """Of the image that is decided upon."""
    member = active()
    assert member.raft.change_voters_refusal(voters_offset=0) is None
    assert member.raft.change_voters_refusal(voters_offset=1) is not None


def test_what_a_leader_is_about_to_write_is_checked() -> None:
    member = active()
    member.raft.check_voters_change(voters(1, 2, 3, 4))
    member.raft.check_voters_change(voters(1, 2))
    replaced = recorded(voters(1, 2, 3), key(3, directory=33))
    for unsafe in (replaced, voters(1), voters(2, 3, 4), voters(1, 2, 3, recorded=False)):
        with pytest.raises(InvalidRequest):
            member.raft.check_voters_change(unsafe)
    change(member, voters(1, 2, 3, 4))
    with pytest.raises(NoController):
        member.raft.check_voters_change(voters(1, 2, 3))


def test_the_first_voters_are_those_that_have_elected_the_first_leader() -> None:
    """By the folders that they have voted with, and all of them."""
    among = voters(1, 2, 3, recorded=False)
    member = LoneMember(among=among)
    with pytest.raises(NoController):
        member.raft.check_voters_change(voters(1, 2, 3))
    asked = sent(member.tick(3 * TIMEOUT_MS), VoteRequest)
    for role in (Role.PROSPECTIVE, Role.CANDIDATE):
        effects: list[raft.Effect] = []
        for send in asked:
            assert member.raft.role is role, "a majority is not enough"
            assert isinstance(send.request, VoteRequest)
            effects = member.answered(send.peer, send.request, grant(send.peer, send.request))
        asked = sent(effects, VoteRequest)
    assert member.raft.role is Role.LEADER
    assert member.raft.electors == (key(1), key(2), key(3))
    for unsafe in (recorded(voters(1, 2, 3), key(3, directory=33)), voters(1, 2), among):
        with pytest.raises(InvalidRequest, match="first voters"):
            member.raft.check_voters_change(unsafe)
    member.raft.check_voters_change(voters(1, 2, 3))


def test_voters_count_from_the_record_that_names_them() -> None:
    member = active()
    change(member, voters(1, 2, 3, 4))
    committed = member.raft.high_watermark
    member.fetched_by(2)
    assert member.raft.high_watermark == committed, "two of four are no majority"
    member.fetched_by(4)
    assert member.raft.high_watermark == committed + 1


def test_fewer_voters_may_commit_what_waits() -> None:
    member = active()
    member.append()
    change(member, voters(1, 2))
    assert raft.Committed(3) in member.fetched_by(2)


def test_a_leader_that_is_removed_goes_when_that_is_committed() -> None:
    member = active()
    change(member, voters(2, 3))
    member.fetched_by(2)
    assert member.raft.role is Role.LEADER, "one of two is no majority; it does not count itself"
    effects = member.fetched_by(3)
    committed, role = raft.Committed(2), raft.RoleChanged(Role.RESIGNED, 1, None)
    assert effects.index(committed) < effects.index(role)
    assert {send.peer for send in sent(effects, EndEpochRequest)} == {2, 3}
    for _ in range(10):
        assert sent(member.tick(TIMEOUT_MS), VoteRequest) == []


def test_who_is_left_out_may_have_to_lead_until_that_is_committed() -> None:
    """Thesis 4.2.2: nobody else's log may be long enough."""
    member = LoneMember(among=voters(2), log=entries(1, 1), voters_offset=1, high_watermark=1)
    assert member.raft.role is Role.OBSERVER
    asked = sent(member.tick(3 * TIMEOUT_MS), VoteRequest)
    assert [send.peer for send in asked] == [2], "its own vote does not count"
    request = asked[0].request
    assert isinstance(request, VoteRequest)
    (send,) = sent(member.answered(2, request, grant(2, request)), VoteRequest)
    assert isinstance(send.request, VoteRequest)
    member.answered(2, send.request, grant(2, send.request))
    assert member.raft.role is Role.LEADER
    member.append()
    effects = member.fetched_by(2)
    assert raft.Committed(3) in effects
    assert raft.RoleChanged(Role.RESIGNED, 2, None) in effects


def test_a_removed_voter_observes() -> None:
    member = LoneMember(log=entries(1, 1))
    request = member.follow(2, epoch=3)
    effects = member.answered(2, request, records(request, 2, Entry(3, "x"), committed=2))
    member.log.append([Entry(3, "x")])
    member.log.sync()
    assert only(effects, raft.Append) != []
    effects = member.step(raft.VotersCommitted(voters(2, 3), 2))
    assert raft.RoleChanged(Role.OBSERVER, 3, NodeId(2)) in effects
    effects = member.step(raft.VotersCommitted(voters(1, 2, 3), -1))
    assert raft.RoleChanged(Role.FOLLOWER, 3, NodeId(2)) in effects, "it was cut off again"


def test_a_voter_in_a_new_folder_is_to_be_replaced_when_it_has_caught_up() -> None:
    member, wiped = active(), key(3, directory=33)
    for _ in range(4):
        member.fetched_by(2, after_ms=500)
        member.fetched_by(wiped, 0)
    assert member.raft.replaced_voters() == []
    member.fetched_by(wiped)
    assert member.raft.replaced_voters() == [wiped]
    change(member, voters(1, 2))
    assert member.raft.replaced_voters() == []


# What its driver relies on


def test_effects_come_in_an_order_that_can_be_carried_out() -> None:
    """The vote first: nothing else may be known before it is durable."""
    member = LoneMember(log=entries(1))
    request = member.follow(2, epoch=3)
    member.answered(2, request, records(request, 2, committed=1))
    kinds = [type(it) for it in member.step(raft.Received("token", begin(5, 3)))]
    assert kinds == [raft.SaveVote, raft.RoleChanged, raft.Reply, raft.Send]


def test_replicas_are_known_to_the_leader_alone() -> None:
    member = active()
    member.fetched_by(9, 0, after_ms=100)
    now_ms = member.now_ms + 50
    found = {it.key: it for it in member.raft.replicas(now_ms)}
    assert found.keys() == {key(1), key(2), key(9)}
    assert (found[key(2)].end_offset, found[key(2)].last_fetch_ms) == (1, 150)
    assert found[key(2)].is_caught_up
    assert found[key(1)].is_caught_up
    member.step(raft.Resign())
    assert member.raft.replicas(now_ms) == []


def test_an_early_tick_does_no_harm() -> None:
    for member in (LoneMember(), active()):
        member.tick(1)
        before = member.raft.deadline_ms
        assert member.tick() == []
        assert member.raft.deadline_ms == before


def test_time_does_not_go_back() -> None:
    member = active()
    deadline_ms = member.raft.deadline_ms
    member.raft.step(raft.Tick(), 0)
    assert member.raft.deadline_ms == deadline_ms


def test_a_clock_is_looked_at_with_every_event() -> None:
    """Ticks may be starved by a flood of requests."""
    member = active()
    member.step(raft.Received("token", begin(0, 2)), after_ms=2 * TIMEOUT_MS)
    assert member.raft.role is Role.RESIGNED


def test_nobody_takes_the_place_of_a_voter_but_by_the_leaders_word() -> None:
    assert LoneMember().raft.replaced_voters() == []
    assert LoneMember().raft.replicas(0) == []


def test_the_first_voters_are_recorded_one_and_all() -> None:
    """Beside those that have elected the first leader there is none without a folder."""
    member = LoneMember(among=voters(1, 2, 3, recorded=False))
    request = sent(member.stand_with(2, 3), VoteRequest)[0].request
    assert isinstance(request, VoteRequest)
    for peer in (2, 3):
        member.answered(peer, request, grant(peer, request))
    assert member.raft.role is Role.LEADER
    first = {key(1), key(2), key(3)}
    assert set(member.raft.electors) == first
    with pytest.raises(InvalidRequest):
        member.raft.check_voters_change(recorded(voters(1, 2, 3, 4, recorded=False), *first))
    member.raft.check_voters_change(voters(1, 2, 3))


def test_a_member_that_stood_still_first_hears_what_came_meanwhile() -> None:
    member = LoneMember()
    member.follow(2, epoch=3)
    member.step(raft.StoodStill(5 * TIMEOUT_MS), after_ms=5 * TIMEOUT_MS)
    assert member.raft.role is Role.FOLLOWER
    member.tick(3 * TIMEOUT_MS)
    assert member.raft.role is Role.PROSPECTIVE


def test_a_leader_knows_for_how_long_its_electors_have_heard_of_none() -> None:
    member = LoneMember()
    request = member.follow(2, epoch=3)
    member.answered(2, request, records(request, 2))
    asked = sent(member.tick(3 * TIMEOUT_MS), VoteRequest)[1]
    assert isinstance(asked.request, VoteRequest)
    stands = member.answered(asked.peer, asked.request, grant(asked.peer, asked.request))
    (vote,) = (it for it in sent(stands, VoteRequest) if it.peer == asked.peer)
    assert isinstance(vote.request, VoteRequest)
    answer = replace(grant(vote.peer, vote.request), silence_ms=1_234)
    member.answered(vote.peer, vote.request, answer)
    assert member.raft.role is Role.LEADER
    assert member.raft.electors_silence_ms == 1_234
    assert member.raft.predecessor == 2
