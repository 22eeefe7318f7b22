import itertools

import pytest

from streamlog.model import NodeId
from streamlog.raft.settings import RaftSettings
from streamlog.raft.voters import Voter, VoterSet
from tests.quorum_log import recorded
from tests.unit.lone_member import key, voters


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_majority(count: int, majority: int) -> None:
    assert voters(*range(1, count + 1)).majority == majority


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_all_must_agree_while_a_folder_is_not_known(count: int) -> None:
    assert voters(*range(1, count + 1), recorded=False).majority == count


SETS = [
    VoterSet.of(Voter(it.node_id, "n", 1, it.directory_id) for it in replicas)
    for count in range(1, 5)
    for replicas in itertools.combinations(
        [key(1), key(2), key(2, directory=22), key(3), key(4), key(4, directory=44)], count
    )
    if len({it.node_id for it in replicas}) == count
]


@pytest.mark.parametrize("before", SETS)
def test_majorities_share_a_replica(before: VoterSet) -> None:
    """As counting all of them tells."""
    for after in SETS:
        shares = all(
            set(one) & set(other)
            for one in itertools.combinations(before.replicas, before.majority)
            for other in itertools.combinations(after.replicas, after.majority)
        )
        assert before.shares_majorities(after) == shares


def test_one_more_or_one_less_shares_and_another_folder_does_not() -> None:
    for count in range(2, 8):
        before = voters(*range(1, count + 1))
        assert before.shares_majorities(voters(*range(1, count)))
        assert before.shares_majorities(voters(*range(1, count + 2)))
        replaced = recorded(before, key(count, directory=99))
        assert before.shares_majorities(replaced) == (count % 2 == 0)


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
    assert RaftSettings(election_timeout_ms=100, fetch_wait_max_ms=500).wait_ms == 50
    assert RaftSettings(election_timeout_ms=2_000, fetch_wait_max_ms=500).wait_ms == 500


def test_times_are_never_zero() -> None:
    assert RaftSettings(election_timeout_ms=1).moment_ms == 1


def test_only_known_folders_are_replicas() -> None:
    among = VoterSet.of([Voter(NodeId(1), "n", 1, key(1).directory_id), Voter(NodeId(2), "n", 1)])
    assert among.replicas == {key(1)}
    assert not among.is_recorded
