import pytest

from streamlog.model import NodeId
from streamlog.replication.leader import LeaderProgress

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def test_alone_the_kept_end_is_committed() -> None:
    progress = LeaderProgress(ONE, (ONE,), start_offset=5)
    assert progress.high_watermark == 5
    assert progress.local(9, 5) == 5
    assert progress.local(9, 9) == 9


def test_every_member_of_the_isr_counts() -> None:
    progress = LeaderProgress(ONE, (ONE, TWO, THREE), start_offset=0)
    assert progress.local(10, 10) == 0
    assert progress.follower(TWO, 7) == 0
    assert progress.follower(THREE, 4) == 4
    assert progress.follower(THREE, 9) == 7
    assert progress.local(20, 20) == 7


def test_a_follower_outside_the_isr_does_not_count() -> None:
    progress = LeaderProgress(ONE, (ONE, TWO), start_offset=0)
    progress.local(10, 10)
    progress.follower(TWO, 10)
    assert progress.follower(THREE, 2) == 10


def test_the_leader_counts_by_what_it_has_synced() -> None:
    progress = LeaderProgress(ONE, (ONE, TWO), start_offset=0)
    progress.local(10, 3)
    assert progress.follower(TWO, 10) == 3


def test_a_smaller_isr_raises_and_a_larger_one_never_lowers() -> None:
    progress = LeaderProgress(ONE, (ONE, TWO), start_offset=0)
    progress.local(10, 10)
    progress.follower(TWO, 4)
    assert progress.set_isr((ONE,)) == 10
    assert progress.set_isr((ONE, TWO, THREE)) == 10


def test_a_follower_that_claims_more_than_there_is_does_not_count() -> None:
    progress = LeaderProgress(ONE, (ONE, TWO), start_offset=0)
    progress.local(10, 10)
    assert progress.follower(TWO, 11) == 0


def test_misuse_is_noticed() -> None:
    progress = LeaderProgress(ONE, (ONE,), start_offset=0)
    with pytest.raises(AssertionError):
        progress.local(3, 4)
    with pytest.raises(AssertionError):
        progress.set_isr((TWO,))
    with pytest.raises(AssertionError):
        progress.follower(ONE, 1)
