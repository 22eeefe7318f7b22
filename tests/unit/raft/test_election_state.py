import pytest

from streamlog.model import NodeId
from streamlog.raft.election_state import ElectionState
from streamlog.raft.events import Role
from streamlog.raft.settings import RaftSettings
from tests.unit.lone_member import key


def standing(*, epoch: int = 3, is_voter: bool = True, random: float = 0.5) -> ElectionState:
    made = ElectionState(
        key(1), epoch=epoch, voted_for=None, settings=RaftSettings(), random=lambda: random
    )
    made.begin(is_voter=is_voter, is_alone=False, now_ms=0)
    return made


def test_an_epoch_is_only_left_for_a_newer_one() -> None:
    with pytest.raises(AssertionError):
        standing().enter(3, 0)


def test_a_vote_is_not_given_to_another() -> None:
    made = standing()
    made.vote(key(2), 0)
    with pytest.raises(AssertionError):
        made.vote(key(3), 0)


def test_who_did_not_stand_does_not_lead() -> None:
    with pytest.raises(AssertionError):
        standing().lead()


def test_a_voter_asks_around_soon_after_it_has_started() -> None:
    assert standing(random=0.999).stands_ms < 250
    alone = standing()
    alone.begin(is_voter=True, is_alone=True, now_ms=7)
    assert alone.stands_ms == 7


def test_a_leader_known_by_hearsay_has_less_time_to_show_itself() -> None:
    made = standing(random=0.999)
    made.follow(NodeId(2), directly=False, now_ms=0)
    assert not made.hears(0)
    assert 250 <= made.stands_ms <= 500
    made.hear(100)
    assert made.hears(1_099)
    assert not made.hears(1_100)
    assert 1_100 <= made.stands_ms <= 2_100


def test_a_leader_is_not_exchanged_for_another() -> None:
    made = standing()
    made.follow(NodeId(2), directly=True, now_ms=0)
    assert not made.may_follow(NodeId(3), directly=True, now_ms=0)
    assert not made.may_follow(NodeId(1), directly=True, now_ms=0)


def test_a_leader_that_was_gone_is_believed_in_again_after_a_while() -> None:
    """Its port may have been refused by something in between."""
    made = standing()
    made.follow(NodeId(2), directly=True, now_ms=0)
    made.leader_gone(0)
    assert made.leader is None
    assert not made.may_follow(NodeId(2), directly=False, now_ms=999)
    assert made.may_follow(NodeId(2), directly=False, now_ms=1_000)
    assert made.may_follow(NodeId(2), directly=True, now_ms=0)
    made.enter(4, 0)
    assert made.may_follow(NodeId(2), directly=False, now_ms=0), "of another epoch"


@pytest.mark.parametrize(
    ("is_voter", "idle", "following"),
    [(True, Role.UNATTACHED, Role.FOLLOWER), (False, Role.OBSERVER, Role.OBSERVER)],
)
def test_roles_of_those_who_vote_and_of_those_who_do_not(
    is_voter: bool, idle: Role, following: Role
) -> None:
    made = standing(is_voter=not is_voter)
    made.voters_changed(is_voter=is_voter, now_ms=0)
    assert made.role is idle
    made.follow(NodeId(2), directly=True, now_ms=0)
    assert made.role is following
    made.voters_changed(is_voter=not is_voter, now_ms=0)
    made.voters_changed(is_voter=is_voter, now_ms=0)
    assert made.role is following


def test_a_leader_stays_one_while_the_voters_change() -> None:
    made = standing()
    made.stand(0)
    made.lead()
    made.voters_changed(is_voter=False, now_ms=0)
    assert made.role is Role.LEADER


def test_a_leader_hears_itself() -> None:
    made = standing()
    made.stand(0)
    made.lead()
    assert made.hears(1 << 40)


def test_those_who_do_not_vote_leave_it_to_those_who_do() -> None:
    made = standing(is_voter=False)
    assert made.stands_ms >= 1_000
    made.follow(NodeId(2), directly=True, now_ms=0)
    made.lose_leader(turn=0, now_ms=100)
    assert made.stands_ms >= 1_100


def test_no_other_role_resigns_or_loses_an_election() -> None:
    made = standing()
    with pytest.raises(AssertionError, match="cannot resign"):
        made.resign(0)
    with pytest.raises(AssertionError, match="takes no part"):
        made.lost_election(0)


def test_no_vote_in_an_epoch_that_has_a_leader() -> None:
    made = standing()
    made.follow(NodeId(2), directly=True, now_ms=0)
    with pytest.raises(AssertionError, match="has a leader already"):
        made.vote(key(2), 0)


def test_a_vote_ends_an_own_attempt() -> None:
    made = standing()
    made.ask()
    made.vote(key(2), 0)
    assert made.role is Role.UNATTACHED


SETTINGS = RaftSettings(pause_ms=300, fetch_wait_max_ms=30)


def state(*, random: float) -> ElectionState:
    election = ElectionState(
        key(1), epoch=5, voted_for=None, settings=SETTINGS, random=lambda: random
    )
    election.is_voter = True
    return election


def test_a_silent_leader_is_given_up_after_what_is_learned() -> None:
    election = state(random=0.0)
    election.follow(NodeId(2), directly=True, now_ms=1_000)
    now_ms = 1_000
    for pause_ms in [10, 60] * 50:
        now_ms += pause_ms
        election.hear(now_ms)
    assert election.stands_ms == now_ms + 300 + 35 + 6 * 25
    assert election.hears(election.stands_ms - 1)
    assert not election.hears(election.stands_ms)


def test_time_in_which_it_stood_still_is_no_silence() -> None:
    election = state(random=0.0)
    election.follow(NodeId(2), directly=True, now_ms=1_000)
    stands_ms = election.stands_ms
    election.stood_still(800, 1_900)
    assert election.stands_ms == stands_ms + 800
    assert election.hears(stands_ms)


def test_silence_counts_from_the_last_word_of_any_leader() -> None:
    election = state(random=0.0)
    election.follow(NodeId(2), directly=True, now_ms=1_000)
    election.hear(1_100)
    assert election.silence_ms(1_400) == 300
    election.enter(9, 1_500)
    assert election.silence_ms(1_600) == 500
    election.follow(NodeId(3), directly=False, now_ms=1_600)
    assert election.silence_ms(1_700) == 600, "what others say of a leader is not its word"


def test_a_leader_has_heard_from_one() -> None:
    election = state(random=0.0)
    election.begin(is_voter=True, is_alone=False, now_ms=1_000)
    election.ask()
    election.stand(1_500)
    election.lead()
    assert election.silence_ms(3_000) == 0
    election.enter(20, 3_000)
    assert election.silence_ms(3_010) == 10


def test_what_a_process_heard_before_its_start_is_not_known() -> None:
    election = ElectionState(
        key(1), epoch=5, voted_for=None, settings=SETTINGS, random=lambda: 0.0, now_ms=700
    )
    assert election.silence_ms(1_000) == 300
