import pytest

from streamlog.raft.settings import RaftSettings
from streamlog.raft.voters import VoterSet
from tests.lone_member import key, voters


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majority(count: int, majority: int) -> None:
    assert voters(*range(1, count + 1)).majority == majority


def test_nobody_is_no_majority() -> None:
    assert VoterSet().majority == 1


def test_a_voter_is_known_by_its_folder_once_that_is_recorded() -> None:
    wiped = key(2, directory=22)
    assert key(2) in voters(1, 2)
    assert wiped not in voters(1, 2)
    assert wiped in voters(1, 2, recorded=False)
    assert key(3) not in voters(1, 2, recorded=False)


def test_ids_are_in_order() -> None:
    assert list(voters(3, 1, 2).by_id) == [1, 2, 3]
    assert voters(3, 1).ids == {1, 3}


def test_a_fetch_is_answered_before_its_leader_is_given_up() -> None:
    assert RaftSettings(election_timeout_ms=100, fetch_wait_ms=500).wait_ms == 50
    assert RaftSettings(election_timeout_ms=2_000, fetch_wait_ms=500).wait_ms == 500


def test_times_are_never_zero() -> None:
    assert RaftSettings(election_timeout_ms=1).moment_ms == 1
