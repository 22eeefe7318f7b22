from collections.abc import Callable

import pytest

from streamlog.model import NodeId
from streamlog.replication.isr import ReplicaStanding
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


def standings(one: int, two: int, three: int) -> Callable[[NodeId], ReplicaStanding]:
    """By their node epochs; below 0: fenced."""
    epochs = {ONE: one, TWO: two, THREE: three}
    return lambda node: ReplicaStanding(abs(epochs[node]), epochs[node] > 0)


ALIVE = standings(11, 12, 13)


def leading(isr: tuple[NodeId, ...], *, log_end: int = 10, **more: int) -> LeaderProgress:
    return LeaderProgress(
        ONE, isr, start_offset=0, log_end=log_end, leader_epoch=4, partition_epoch=7, **more
    )


def test_the_high_watermark_stands_still_while_too_few_are_in_sync() -> None:
    progress = leading((ONE, TWO), min_isr=2)
    progress.local(10, 10)
    assert progress.follower(TWO, 6) == 6
    assert progress.set_isr((ONE,)) == 6
    assert progress.is_short
    assert progress.local(12, 12) == 6
    assert progress.set_isr((ONE, TWO)) == 6
    assert progress.follower(TWO, 11) == 11
    assert progress.set_isr((ONE,), min_isr=1) == 12


def test_who_lags_is_proposed_to_leave_and_counts_until_that_is_granted() -> None:
    progress = leading((ONE, TWO, THREE), now_ms=1_000)
    progress.local(20, 20)
    progress.follower(THREE, 20, node_epoch=13, now_ms=1_500)
    assert progress.isr_proposal(1_999, lag_time_ms=999, standings=ALIVE) is None
    proposal = progress.isr_proposal(2_000, lag_time_ms=999, standings=ALIVE)
    assert proposal == (4, 7, ((ONE, 11), (THREE, 13)))
    assert progress.high_watermark == 0
    assert progress.set_isr((ONE, THREE), partition_epoch=8) == 20


def test_who_joins_holds_back_the_high_watermark_from_the_proposal_on() -> None:
    progress = leading((ONE, TWO))
    progress.local(10, 10)
    progress.follower(TWO, 10, node_epoch=12, now_ms=5)
    progress.follower(THREE, 10, node_epoch=13, now_ms=5)
    assert progress.may_join(THREE)
    proposal = progress.isr_proposal(6, lag_time_ms=100, standings=ALIVE)
    assert proposal is not None
    assert proposal.isr == {ONE, TWO, THREE}
    assert not progress.may_join(THREE)
    progress.local(15, 15)
    assert progress.follower(TWO, 15, node_epoch=12, now_ms=7) == 10, "three may be elected"
    assert progress.isr_proposal(999, lag_time_ms=100, standings=ALIVE) is proposal
    assert progress.refused(proposal, 8) == 15


def test_nobody_joins_below_the_high_watermark_or_the_epochs_start() -> None:
    progress = leading((ONE, TWO), log_end=10)
    progress.local(10, 10)
    progress.follower(TWO, 4, node_epoch=12, now_ms=5)
    for offset, joins in ((3, False), (4, False), (9, False), (10, True)):
        progress.follower(THREE, offset, node_epoch=13, now_ms=5)
        assert progress.may_join(THREE) is joins, "what others led may be cut off"
    progress.local(12, 12)
    progress.follower(TWO, 12, node_epoch=12, now_ms=6)
    assert progress.high_watermark == 12
    assert not progress.may_join(THREE)


def test_nobody_joins_as_another_process_or_while_fenced() -> None:
    progress = leading((ONE, TWO))
    progress.local(10, 10)
    progress.follower(TWO, 10, node_epoch=12, now_ms=5)
    progress.follower(THREE, 10, node_epoch=13, now_ms=5)
    for three in (14, 12, -13):
        known = standings(11, 12, three)
        assert progress.isr_proposal(6, lag_time_ms=100, standings=known) is None


def test_a_proposal_is_void_once_a_member_has_registered_anew() -> None:
    progress = leading((ONE, TWO))
    progress.local(10, 10)
    progress.follower(TWO, 10, node_epoch=12, now_ms=5)
    progress.follower(THREE, 10, node_epoch=13, now_ms=5)
    assert progress.isr_proposal(6, lag_time_ms=100, standings=ALIVE) is not None
    progress.local(15, 15)
    assert progress.follower(TWO, 15, node_epoch=12, now_ms=6) == 10
    assert progress.isr_proposal(6, lag_time_ms=100, standings=standings(11, 12, -13)) is not None
    assert progress.isr_proposal(6, lag_time_ms=100, standings=standings(11, 12, 14)) is None
    assert progress.follower(TWO, 15, node_epoch=12, now_ms=7) == 15


def test_nobody_joins_who_has_gone_silent_or_cannot_keep_up() -> None:
    progress = leading((ONE, TWO))
    progress.local(10, 10)
    progress.follower(TWO, 10, node_epoch=12, now_ms=5)
    progress.follower(THREE, 10, node_epoch=13, now_ms=5)
    progress.follower(TWO, 10, node_epoch=12, now_ms=500)
    assert progress.isr_proposal(500, lag_time_ms=100, standings=ALIVE) is None
    progress.local(20, 20)
    progress.follower(TWO, 10, node_epoch=12, now_ms=500)
    progress.follower(THREE, 11, node_epoch=13, now_ms=500)
    assert progress.may_join(THREE)
    assert progress.isr_proposal(500, lag_time_ms=100, standings=ALIVE) is None


def test_a_member_that_has_not_fetched_yet_goes_by_the_metadata() -> None:
    progress = leading((ONE, TWO, THREE), now_ms=0)
    progress.local(20, 20)
    progress.follower(TWO, 20, node_epoch=12, now_ms=90)
    proposal = progress.isr_proposal(100, lag_time_ms=50, standings=ALIVE)
    assert proposal == (4, 7, ((ONE, 11), (TWO, 12)))


def test_who_is_no_replica_is_forgotten() -> None:
    progress = leading((ONE, TWO))
    progress.local(10, 10)
    progress.follower(THREE, 10, node_epoch=13)
    progress.keep_only((ONE, TWO))
    assert set(progress.followers) == {TWO}


def test_what_a_follower_had_before_it_left_the_isr_does_not_bring_it_back() -> None:
    """It may have left because of damage, and has cut it off since."""
    progress = LeaderProgress(ONE, (ONE, TWO), start_offset=0)
    progress.local(10, 10)
    progress.follower(TWO, 10, node_epoch=4, now_ms=100)
    progress.set_isr((ONE,), partition_epoch=1, now_ms=100)

    def standings(node_id: NodeId) -> ReplicaStanding:
        return ReplicaStanding(4, is_live=True)

    assert not progress.may_join(TWO)
    assert progress.isr_proposal(101, lag_time_ms=1_000, standings=standings) is None
    progress.follower(TWO, 10, node_epoch=4, now_ms=101, partition_epoch=0)
    assert not progress.may_join(TWO), "what was on its way tells of the log before the cut"
    progress.follower(TWO, 5, node_epoch=4, now_ms=102, partition_epoch=1)
    assert progress.isr_proposal(102, lag_time_ms=1_000, standings=standings) is None
    progress.follower(TWO, 10, node_epoch=4, now_ms=103, partition_epoch=1)
    proposal = progress.isr_proposal(103, lag_time_ms=1_000, standings=standings)
    assert proposal is not None and proposal.isr == {ONE, TWO}


def test_a_follower_that_has_less_than_it_told_must_keep_it_while_it_may_join() -> None:
    progress = LeaderProgress(ONE, (ONE,), start_offset=0)
    progress.set_isr((ONE,), partition_epoch=5)
    progress.local(20, 20)

    def fetch(offset: int, node_epoch: int = 1, partition_epoch: int = 5) -> bool:
        has_gone_back = progress.went_back(
            TWO, offset, node_epoch=node_epoch, partition_epoch=partition_epoch
        )
        progress.follower(TWO, offset, node_epoch=node_epoch, partition_epoch=partition_epoch)
        return has_gone_back

    assert not fetch(20)
    assert not fetch(12), "it is not in sync, and nobody has proposed it"
    assert not fetch(20)
    live = dict.fromkeys((ONE, TWO), ReplicaStanding(1, is_live=True))
    proposal = progress.isr_proposal(0, lag_time_ms=1_000, standings=live.__getitem__)
    assert proposal is not None
    for _ in range(2):
        assert fetch(12), "the controller may add it by what it had told"
    assert progress.local(30, 30) == 20
    assert not fetch(30)
    assert progress.local(30, 30) == 30
    assert not fetch(12, node_epoch=2), "another process says nothing of that one"
    progress.refused(proposal, 20_000)
    assert not fetch(12, node_epoch=2)
    progress.set_isr((ONE, TWO), partition_epoch=6)
    progress.set_isr((ONE,), partition_epoch=7)
    progress.follower(TWO, 30, node_epoch=2, partition_epoch=7)
    assert not fetch(12, node_epoch=2, partition_epoch=6)
    assert progress.followers[TWO].end_offset == 30, "that was on its way when it left"


def test_no_start_is_acknowledged_while_too_few_are_in_sync() -> None:
    progress = LeaderProgress(ONE, (ONE,), start_offset=5, min_isr=2)
    assert not progress.acknowledge_start(3)
    progress.set_isr((ONE, TWO))
    assert not progress.acknowledge_start(3), "it has not told where it begins"
    progress.follower(TWO, 5, log_start=3)
    assert progress.acknowledge_start(3)
    assert progress.acknowledged_start == 3


def test_what_a_forgotten_replica_had_does_not_count() -> None:
    progress = LeaderProgress(ONE, (ONE, TWO), start_offset=0, partition_epoch=4)
    progress.local(10, 10)
    progress.follower(TWO, 3)
    progress.local(20, 20)
    progress.follower(TWO, 20)
    progress.local(30, 30)
    progress.follower(THREE, 30)
    progress.forget((THREE,))
    assert progress.set_isr((ONE, TWO, THREE)) == 20
    assert progress.in_sync.partition_epoch == 5
    progress.follower(TWO, 30)
    assert progress.high_watermark == 20, "the new replica of THREE has told nothing"


@pytest.mark.parametrize("seen", [0, 5])
def test_a_proposal_names_the_process_that_has_fetched(seen: int) -> None:
    """And the registered one of a member that has not fetched from this leader yet."""
    progress = LeaderProgress(ONE, (ONE, TWO, THREE), start_offset=0, now_ms=0)
    progress.local(10, 10)
    progress.follower(TWO, 10, node_epoch=seen, now_ms=5_000)
    proposal = progress.isr_proposal(
        5_000, lag_time_ms=1_000, standings=lambda node_id: ReplicaStanding(seen + node_id, True)
    )
    assert proposal is not None
    assert proposal.members == ((ONE, seen + 1), (TWO, seen))
