import uuid
from collections.abc import Sequence

import pytest

from streamlog.raft import events as raft
from streamlog.raft.events import Role
from streamlog.raft.messages import EndEpochRequest, Fault, VoteAnswer, VoteRequest
from tests.unit.lone_member import (
    LoneMember,
    entries,
    key,
    only,
    records,
    refusal,
    sent,
    vote_request,
    voters,
)


def _vote(effects: Sequence[raft.Effect]) -> VoteAnswer:
    answer = only(effects, raft.Reply)[0].answer
    assert isinstance(answer, VoteAnswer)
    return answer


def following(leader: int = 2, *, log: tuple[int, ...] = ()) -> LoneMember:
    """Node 1, that has heard of its leader a moment ago."""
    member = LoneMember(log=entries(*log))
    request = member.follow(leader, epoch=5)
    member.answered(leader, request, records(request, leader))
    return member


def test_a_vote_is_saved_before_it_is_given() -> None:
    member = LoneMember()
    effects = member.step(raft.Received("token", vote_request(3, 2)))
    assert effects[0] == raft.SaveVote(3, key(2))
    (reply,) = only(effects, raft.Reply)
    assert effects.index(reply) > 0
    assert _vote(effects).granted
    assert reply.answer.epoch == 3


def test_one_vote_in_an_epoch() -> None:
    member = LoneMember()
    assert member.vote(vote_request(3, 2)).granted
    assert not member.vote(vote_request(3, 3)).granted
    assert member.vote(vote_request(3, 2)).granted, "the answer may have been lost"
    assert member.vote(vote_request(4, 3)).granted


def test_a_vote_is_not_taken_back_after_a_restart() -> None:
    member = LoneMember(epoch=3, voted_for=key(2))
    assert not member.vote(vote_request(3, 3)).granted
    assert member.vote(vote_request(3, 2)).granted


def test_a_vote_is_for_a_replica_not_for_its_node() -> None:
    member = LoneMember()
    assert member.vote(vote_request(3, key(2))).granted
    assert not member.vote(vote_request(3, key(2, directory=22))).granted


def test_a_vote_for_itself_counts_as_given() -> None:
    member = LoneMember()
    member.stand()
    assert (member.raft.role, member.raft.epoch) == (Role.CANDIDATE, 1)
    assert not member.vote(vote_request(1, 2)).granted


def test_an_older_epoch_is_told_of_the_newer() -> None:
    answer = LoneMember(epoch=4).vote(vote_request(3, 2))
    assert (answer.granted, answer.epoch, answer.fault) == (False, 4, Fault.FENCED_EPOCH)


@pytest.mark.parametrize(
    ("last_epoch", "end_offset", "granted"),
    [(1, 9, False), (2, 2, False), (2, 3, True), (2, 4, True), (3, 1, True), (-1, 0, False)],
)
@pytest.mark.parametrize("pre_vote", [False, True])
def test_only_for_a_log_that_has_as_much(
    last_epoch: int, end_offset: int, granted: bool, pre_vote: bool
) -> None:
    """Raft 5.4.1: the later epoch, and in the same epoch the longer log."""
    member = LoneMember(log=entries(1, 2, 2))
    request = vote_request(7, 2, last_epoch=last_epoch, end_offset=end_offset, pre_vote=pre_vote)
    assert member.vote(request).granted is granted


def test_who_refuses_a_shorter_log_stands_soon() -> None:
    member = LoneMember(log=entries(1))
    member.vote(vote_request(7, 2))
    assert member.raft.deadline_ms - member.now_ms <= 50


def test_a_higher_epoch_is_taken_also_without_a_vote() -> None:
    member = LoneMember(log=entries(1))
    effects = member.step(raft.Received("token", vote_request(7, 2)))
    assert effects[0] == raft.SaveVote(7, None)


def test_asking_beforehand_binds_to_nothing() -> None:
    member = LoneMember(epoch=4)
    effects = member.step(raft.Received("token", vote_request(5, 2, pre_vote=True)))
    assert only(effects, raft.SaveVote) == []
    assert _vote(effects).granted
    assert member.raft.epoch == 4
    assert member.vote(vote_request(5, 3, pre_vote=True)).granted, "any number of them"


def test_asking_beforehand_for_this_epoch_is_too_late() -> None:
    answer = LoneMember(epoch=5).vote(vote_request(5, 2, pre_vote=True))
    assert (answer.granted, answer.epoch, answer.fault) == (False, 5, Fault.FENCED_EPOCH)


def test_who_asks_from_a_higher_epoch_is_joined_there() -> None:
    """Else one that stood and lost could never again be led by the leader of an epoch before."""
    member = LoneMember(epoch=4)
    effects = member.step(raft.Received("token", vote_request(8, 2, pre_vote=True)))
    assert effects[0] == raft.SaveVote(7, None)
    assert _vote(effects).granted


def test_a_leader_that_is_there_is_kept() -> None:
    member = following()
    answer = member.vote(vote_request(6, 3, pre_vote=True), after_ms=900)
    assert (answer.granted, answer.leader, answer.epoch) == (False, 2, 5)


def test_a_leader_that_is_silent_is_not() -> None:
    member = following()
    answer = member.vote(vote_request(6, 3, pre_vote=True), after_ms=1_000)
    assert answer.granted
    assert answer.leader is None, "nor is it recommended"


def test_a_leader_that_is_gone_is_not() -> None:
    member = following()
    member.step(raft.PeerGone(key(2).node_id))
    assert member.vote(vote_request(6, 3, pre_vote=True)).granted


def test_a_leader_that_asks_itself_is_none_any_more() -> None:
    assert following().vote(vote_request(6, 2, pre_vote=True)).granted


def test_a_leader_known_by_hearsay_is_not_kept() -> None:
    """Those who lost sight of it would else keep each other from electing another."""
    member = LoneMember(epoch=5)
    asked = sent(member.tick(3_000), VoteRequest)[0].request
    assert isinstance(asked, VoteRequest)
    member.answered(2, asked, refusal(2, asked, leader=3))
    assert (member.raft.role, member.raft.leader) == (Role.FOLLOWER, 3)
    assert member.vote(vote_request(6, 2, pre_vote=True)).granted


def test_a_voter_that_knows_its_leader_votes_for_no_other_in_that_epoch() -> None:
    member = following()
    assert not member.vote(vote_request(5, 3)).granted


def test_a_vote_in_a_higher_epoch_is_given_although_there_is_a_leader() -> None:
    """A majority has been asked beforehand, or the leader wanted it so."""
    member = following()
    assert member.vote(vote_request(6, 3)).granted
    assert member.raft.leader is None


def test_whoever_is_asked_votes_though_it_does_not_know_that_it_may() -> None:
    """It may have been made a voter by a record that it has not got (KIP-853)."""
    member = LoneMember(4, among=voters(1, 2, 3))
    assert member.raft.role is Role.OBSERVER
    effects = member.step(raft.Received("token", vote_request(3, 2)))
    assert effects[0] == raft.SaveVote(3, key(2))
    assert _vote(effects).voter == key(4)


def test_with_an_empty_log_the_configured_voters_must_be_the_same() -> None:
    other = uuid.UUID(int=5)
    answer = LoneMember().vote(vote_request(3, 2, voters_id=other))
    assert (answer.granted, answer.fault, answer.epoch) == (False, Fault.WRONG_VOTERS, 0)
    member = LoneMember(log=entries(1))
    request = vote_request(3, 2, last_epoch=1, end_offset=1, voters_id=other)
    assert member.vote(request).granted, "the log says who votes"


def test_the_one_who_resigned_gives_no_second_vote_in_its_epoch() -> None:
    member = LoneMember()
    member.lead()
    member.append()
    member.step(raft.Resign())
    assert member.raft.role is Role.RESIGNED
    request = vote_request(1, 2, last_epoch=1, end_offset=1)
    assert not member.vote(request).granted
    assert member.vote(vote_request(2, 2, last_epoch=1, end_offset=1)).granted


def test_a_successor_is_voted_for_at_once() -> None:
    member = following()
    member.ask(EndEpochRequest(5, key(2).node_id, (key(3).node_id, key(1).node_id)))
    assert member.vote(vote_request(6, 3)).granted


def test_no_voter_hurries_because_its_own_leader_has_less() -> None:
    """It asks whether to stand again; this one hears it, and will go on to."""
    member = following(log=(5,))
    due_ms = member.raft.deadline_ms
    assert not member.vote(vote_request(6, 2, last_epoch=4, end_offset=1, pre_vote=True)).granted
    assert member.raft.deadline_ms == due_ms
