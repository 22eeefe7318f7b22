import uuid
from itertools import pairwise

from streamlog.model import NodeId
from streamlog.raft import events as raft
from streamlog.raft.candidate import Candidacy, CandidateState
from streamlog.raft.events import Role
from streamlog.raft.messages import BeginEpochRequest, VoteAnswer, VoteRequest
from streamlog.raft.settings import RaftSettings
from tests.quorum_log import MemoryLog
from tests.unit.lone_member import (
    TIMEOUT_MS,
    LoneMember,
    entries,
    grant,
    key,
    only,
    refusal,
    sent,
    vote_request,
    voters,
)


def asked(effects: list[raft.Effect]) -> dict[int, VoteRequest]:
    """Whom, and what for."""
    found = {}
    for send in sent(effects, VoteRequest):
        assert isinstance(send.request, VoteRequest)
        found[int(send.peer)] = send.request
    return found


def test_it_asks_beforehand_without_leaving_its_epoch() -> None:
    member = LoneMember(log=entries(1, 2))
    effects = member.tick(3 * TIMEOUT_MS)
    request = vote_request(3, 1, last_epoch=2, end_offset=2, pre_vote=True)
    assert asked(effects) == {2: request, 3: request}
    assert only(effects, raft.SaveVote) == []
    assert (member.raft.role, member.raft.epoch) == (Role.PROSPECTIVE, 2)


def test_it_stands_when_a_majority_would_vote_for_it() -> None:
    member = LoneMember()
    effects = member.stand()
    assert effects[:2] == [raft.SaveVote(1, key(1)), raft.RoleChanged(Role.CANDIDATE, 1, None)]
    assert asked(effects) == {2: vote_request(1, 1), 3: vote_request(1, 1)}


def test_it_leads_with_a_majority_and_says_so_to_all() -> None:
    member = LoneMember()
    effects = member.lead()
    assert only(effects, raft.RoleChanged) == [raft.RoleChanged(Role.LEADER, 1, key(1).node_id)]
    told = sent(effects, BeginEpochRequest)
    assert [send.peer for send in told] == [2, 3]
    assert told[0].request == BeginEpochRequest(1, key(1).node_id)


def test_a_majority_of_five_is_three() -> None:
    member = LoneMember(among=voters(1, 2, 3, 4, 5))
    request = asked(member.tick(3 * TIMEOUT_MS))[2]
    member.answered(2, request, grant(2, request))
    assert member.raft.role is Role.PROSPECTIVE
    member.answered(2, request, grant(2, request))
    assert member.raft.role is Role.PROSPECTIVE, "each counts once"
    request = asked(member.answered(3, request, grant(3, request)))[2]
    member.answered(4, request, grant(4, request))
    assert member.raft.role is Role.CANDIDATE
    member.answered(5, request, grant(5, request))
    assert member.raft.role is Role.LEADER


def test_a_vote_of_another_folder_does_not_count() -> None:
    """The disk of node 2 was wiped: what votes there has forgotten what it voted before."""
    member = LoneMember()
    request = asked(member.tick(3 * TIMEOUT_MS))[2]
    member.answered(2, request, grant(key(2, directory=22), request))
    assert member.raft.role is Role.PROSPECTIVE
    member.answered(3, request, grant(3, request))
    assert member.raft.role is Role.CANDIDATE


def test_while_folders_are_not_recorded_any_folder_may_vote_but_once() -> None:
    member = LoneMember(among=voters(1, 2, 3, 4, 5, recorded=False))
    request = asked(member.tick(3 * TIMEOUT_MS))[2]
    member.answered(2, request, grant(2, request))
    member.answered(2, request, grant(key(2, directory=22), request))
    assert member.raft.role is Role.PROSPECTIVE
    for other in (3, 4):
        member.answered(other, request, grant(other, request))
        assert member.raft.role is Role.PROSPECTIVE
    member.answered(5, request, grant(5, request))
    assert member.raft.role is Role.CANDIDATE


def test_a_vote_counts_for_what_was_asked() -> None:
    member = LoneMember()
    before = asked(member.tick(3 * TIMEOUT_MS))[2]
    member.answered(2, before, grant(2, before))
    member.answered(3, before, grant(3, before))
    assert member.raft.role is Role.CANDIDATE, "a promise is no vote"


def test_an_answer_in_the_name_of_another_does_not_count() -> None:
    member = LoneMember()
    request = asked(member.tick(3 * TIMEOUT_MS))[2]
    member.answered(2, request, grant(3, request))
    assert member.raft.role is Role.PROSPECTIVE


def test_the_voter_of_a_quorum_of_one_leads_at_the_first_tick() -> None:
    member = LoneMember(among=voters(1), log=entries(4))
    assert member.raft.deadline_ms <= member.now_ms
    effects = member.tick()
    assert effects[:2] == [raft.SaveVote(5, key(1)), raft.RoleChanged(Role.LEADER, 5, NodeId(1))]
    assert only(effects, raft.Send) == []


def test_refusals_beforehand_are_asked_again_at_growing_intervals() -> None:
    member = LoneMember()
    effects, times = member.tick(3 * TIMEOUT_MS), []
    for _ in range(8):
        for peer, request in asked(effects).items():
            member.answered(peer, request, refusal(peer, request))
        times.append(member.now_ms)
        effects = member.wait()
        assert asked(effects).keys() == {2, 3}
    pauses = [after - before for before, after in pairwise(times)]
    assert pauses[0] <= 100
    assert pauses == sorted(pauses)
    assert pauses[-1] <= 2 * TIMEOUT_MS
    assert member.raft.role is Role.PROSPECTIVE
    assert member.raft.epoch == 0, "nobody is disturbed"


def test_a_candidate_that_cannot_win_tries_again_soon() -> None:
    member = LoneMember()
    request = asked(member.stand())[2]
    member.answered(2, request, refusal(2, request))
    assert member.raft.role is Role.CANDIDATE
    member.step(raft.Failed(key(3).node_id, request))
    assert member.raft.role is Role.UNATTACHED
    assert member.raft.deadline_ms - member.now_ms <= 101
    assert asked(member.wait())[2].pre_vote


def test_whoever_does_not_answer_a_candidate_is_asked_again() -> None:
    member = LoneMember()
    request = asked(member.stand())[2]
    member.answered(2, request, refusal(2, request))
    assert asked(member.wait()) == {3: request}, "a vote that is refused is refused for good"


def test_a_candidate_gives_up_after_a_while() -> None:
    member = LoneMember()
    member.stand()
    began_ms = member.now_ms
    while member.raft.role is Role.CANDIDATE:
        member.wait()
    assert TIMEOUT_MS // 2 <= member.now_ms - began_ms <= TIMEOUT_MS
    assert member.raft.epoch == 1


def test_another_leader_of_the_same_epoch_ends_a_candidacy() -> None:
    member = LoneMember()
    member.stand()
    effects = member.step(raft.Received("token", BeginEpochRequest(1, key(3).node_id)))
    assert raft.RoleChanged(Role.FOLLOWER, 1, key(3).node_id) in effects


def test_a_higher_epoch_ends_a_candidacy() -> None:
    member = LoneMember()
    request = asked(member.stand())[2]
    effects = member.answered(2, request, VoteAnswer(9, None, False, key(2)))
    assert effects[:2] == [raft.SaveVote(9, None), raft.RoleChanged(Role.UNATTACHED, 9, None)]


def test_a_refusal_that_names_a_leader_is_followed() -> None:
    """So one who was cut off, or restarts, finds its way back without an election."""
    member = LoneMember(epoch=4)
    request = asked(member.tick(3 * TIMEOUT_MS))[2]
    member.answered(2, request, refusal(2, request, leader=3))
    assert (member.raft.role, member.raft.leader, member.raft.epoch) == (Role.FOLLOWER, 3, 4)


def test_what_others_say_of_a_leader_that_is_gone_is_outdated() -> None:
    member = LoneMember(epoch=4)
    member.follow(3, epoch=4)
    member.step(raft.PeerGone(key(3).node_id))
    request = asked(member.wait())[2]
    member.answered(2, request, refusal(2, request, leader=3))
    assert member.raft.role is Role.PROSPECTIVE
    effects = member.answered(3, request, refusal(3, request, leader=3))
    assert raft.RoleChanged(Role.FOLLOWER, 4, key(3).node_id) in effects, (
        "what it says itself is not"
    )


def test_others_than_voters_are_asked_for_a_leader_only() -> None:
    """The log may end before the record that makes them voters, and name only who is none now."""
    member = LoneMember(among=voters(1, 2, 3), acquaintances=(1, 4))
    request = asked(member.tick(3 * TIMEOUT_MS))
    assert request.keys() == {2, 3, 4}
    member.answered(4, request[4], grant(4, request[4]))
    assert member.raft.role is Role.PROSPECTIVE
    assert asked(member.answered(2, request[2], grant(2, request[2]))).keys() == {2, 3}


def test_elections_are_spread() -> None:
    times = set()
    for random in (0.0, 0.3, 0.6, 0.99):
        member = LoneMember(random=random)
        member.follow(2)
        member.step(raft.PeerGone(key(2).node_id))
        times.add(member.raft.deadline_ms - member.now_ms)
    assert len(times) == 4
    assert max(times) <= 50


def test_who_votes_for_another_asks_no_more_for_itself() -> None:
    member = LoneMember()
    request = asked(member.tick(3 * TIMEOUT_MS))[2]
    effects = member.step(raft.Received("token", vote_request(1, 2)))
    assert raft.RoleChanged(Role.UNATTACHED, 1, None) in effects
    member.answered(3, request, grant(3, request))
    assert member.raft.role is Role.UNATTACHED
    assert member.raft.deadline_ms >= member.now_ms + TIMEOUT_MS


def candidacy(*, pre_vote: bool = False) -> Candidacy:
    return Candidacy(vote_request(1, 1, pre_vote=pre_vote), round_ms=100, ends_ms=1_000)


def standing() -> CandidateState:
    return CandidateState(
        key(1),
        MemoryLog(),
        voters_id=uuid.UUID(int=99),
        settings=RaftSettings(),
        random=lambda: 0.5,
    )


def test_only_voters_elect() -> None:
    """A replica that has granted it may be no voter any more."""
    election = candidacy()
    for voter in (key(1), key(2), key(3, directory=33), key(4)):
        election.granted(voter, 0)
    assert election.electors(voters(1, 2, 3)) == [key(1), key(2)]


def test_voters_are_asked_in_the_order_of_their_ids() -> None:
    """A set of numbers has another one."""
    assert candidacy().begin_round(voters(1, 9, 16), 0, 0.5) == [9, 16]


def test_only_the_answers_to_its_request_count() -> None:
    candidate = standing()
    candidate.stand(2, 0, 0)
    older = vote_request(1, 1, voters_id=uuid.UUID(int=99))
    for peer in (2, 3):
        candidate.fail(NodeId(peer), older)
    assert not candidate.is_lost(voters(1, 2, 3), 1)
    for peer in (2, 3):
        candidate.fail(NodeId(peer))
    assert candidate.is_lost(voters(1, 2, 3), 1)


def test_pre_votes_elect_no_leader() -> None:
    candidate = standing()
    candidate.ask_beforehand(1, 0)
    request = vote_request(1, 1, pre_vote=True)
    candidate.count(NodeId(2), request, grant(2, request))
    assert candidate.has_support(voters(1, 2, 3))
    assert not candidate.is_won(voters(1, 2, 3))


def test_without_an_election_there_are_no_electors() -> None:
    assert standing().electors(voters(1, 2, 3)) == []


def test_a_candidate_looks_again_when_its_time_is_over() -> None:
    election = candidacy()
    election.begin_round(voters(1, 2, 3), 990, 0.5)
    assert election.next_round_ms > 1_000
    assert election.deadline_ms == 1_000
