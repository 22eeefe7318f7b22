import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.model import NodeId
from streamlog.raft.replica_tracker import FORGOTTEN_MS, ReplicaTracker
from streamlog.raft.voters import ReplicaKey, VoterSet
from tests.unit.lone_member import key, voters


def leadership(*, start: int = 0, now_ms: int = 0) -> ReplicaTracker:
    return ReplicaTracker(key(1), epoch_start_offset=start, now_ms=now_ms)


def fetch(
    leading: ReplicaTracker,
    replica: ReplicaKey,
    offset: int,
    *,
    among: VoterSet | None = None,
    log_end: int = 100,
    now_ms: int = 0,
) -> int | None:
    return leading.fetched(
        replica, among or voters(1, 2, 3), offset, log_end=log_end, now_ms=now_ms
    )


@given(
    st.dictionaries(st.integers(2, 7), st.integers(0, 100)),
    st.sets(st.integers(1, 7), min_size=1),
    st.integers(0, 100),
    st.integers(0, 50),
)
def test_committed_is_what_a_majority_has(
    fetched: dict[int, int], ids: set[int], synced_end: int, start: int
) -> None:
    leading, among = leadership(start=start), voters(*ids)
    for node_id, offset in fetched.items():
        fetch(leading, key(node_id), offset, among=among)
    ends = {**fetched, 1: synced_end}
    reached = max(
        offset
        for offset in range(-1, 101)
        if 2 * sum(ends.get(it, -1) >= offset for it in ids) > len(ids)
    )
    expected = reached if reached > start else -1
    assert leading.committed_offset(among, synced_end) == expected


def test_older_epochs_commit_only_together_with_its_own() -> None:
    """Figure 8 of the paper: what is on a majority may still be replaced."""
    leading = leadership(start=5)
    fetch(leading, key(2), 5)
    assert leading.committed_offset(voters(1, 2, 3), 6) == -1
    fetch(leading, key(2), 6)
    assert leading.committed_offset(voters(1, 2, 3), 6) == 6


def test_the_leader_counts_itself_by_what_it_has_synced() -> None:
    leading = leadership()
    fetch(leading, key(2), 9)
    assert leading.committed_offset(voters(1, 2, 3), 4) == 4


def test_a_leader_that_does_not_vote_does_not_count_itself() -> None:
    leading = leadership()
    fetch(leading, key(2), 4, among=voters(2, 3))
    assert leading.committed_offset(voters(2, 3), 9) == -1
    fetch(leading, key(3), 7, among=voters(2, 3))
    assert leading.committed_offset(voters(2, 3), 9) == 4


def test_what_a_replica_has_no_more_is_not_counted() -> None:
    """Its folder is an older copy, or requests have overtaken each other."""
    among = voters(1, 2, 3, 4, 5)
    leading = leadership()
    assert fetch(leading, key(2), 9, among=among) is None
    assert fetch(leading, key(2), 4, among=among) == 9
    fetch(leading, key(3), 9, among=among)
    assert leading.committed_offset(among, 9) == 4
    assert fetch(leading, key(2), 9, among=among) is None
    assert leading.committed_offset(among, 9) == 9


def test_nothing_is_counted_of_a_replica_whose_log_is_another_one_now() -> None:
    among = voters(1, 2, 3)
    leading = leadership()
    fetch(leading, key(2), 9)
    assert leading.heard(key(2), among, 0, at_most=4) == 9
    assert leading.end_of(NodeId(2), among) == 4
    assert leading.heard(key(2), among, 0) == 4
    assert leading.heard(key(2), among, 0) is None
    assert leading.committed_offset(among, 9) == -1


def test_another_folder_acknowledges_for_itself() -> None:
    leading, wiped = leadership(), key(2, directory=22)
    fetch(leading, wiped, 9)
    assert leading.committed_offset(voters(1, 2, 3), 9) == -1
    fetch(leading, key(2), 9)
    assert leading.committed_offset(voters(1, 2, 3), 9) == 9
    fetch(leading, wiped, 9)
    assert leading.committed_offset(voters(1, 2, 3), 9) == 9


def test_before_folders_are_recorded_all_must_have_it() -> None:
    among = voters(1, 2, 3, recorded=False)
    leading = leadership()
    fetch(leading, key(2), 9, among=among)
    assert leading.committed_offset(among, 9) == -1
    fetch(leading, key(3), 9, among=among)
    assert leading.committed_offset(among, 9) == 9


@pytest.mark.parametrize(
    ("heard_ms", "contact_ms"),
    [({}, 1_000), ({2: 3_000}, 3_000), ({2: 3_000, 3: 2_000}, 3_000)],
)
def test_contact_with_a_majority_of_three(heard_ms: dict[int, int], contact_ms: int) -> None:
    leading = leadership(now_ms=1_000)
    for node_id, now_ms in heard_ms.items():
        leading.heard(key(node_id), voters(1, 2, 3), now_ms)
    assert leading.contact_ms(voters(1, 2, 3), 4_000) == contact_ms


def test_contact_with_a_majority_of_others_and_with_oneself() -> None:
    leading = leadership(now_ms=1_000)
    leading.heard(key(2), voters(2, 3), 2_000)
    leading.heard(key(3), voters(2, 3), 3_000)
    assert leading.contact_ms(voters(2, 3), 4_000) == 2_000
    assert leading.contact_ms(voters(1), 4_000) == 4_000


def test_a_new_voter_is_given_time() -> None:
    leading = leadership(now_ms=1_000)
    leading.voters_since_ms = 5_000
    assert leading.contact_ms(voters(1, 2), 5_100) == 5_000


def test_voters_by_how_much_they_have() -> None:
    leading = leadership()
    fetch(leading, key(3), 4)
    assert leading.by_progress(voters(1, 2, 3)) == [3, 2]


def test_when_a_replica_was_caught_up() -> None:
    """Kafka's rule: it need not have the end of now, only what was the end when it last asked."""
    leading = leadership(now_ms=1_000)

    def caught_up_ms(now_ms: int) -> int:
        (replica,) = leading.replicas(now_ms)
        return replica.caught_up_ms

    fetch(leading, key(2), 5, log_end=10, now_ms=2_000)
    assert caught_up_ms(2_000) == 1_000, "never yet: since the leader began"
    fetch(leading, key(2), 9, log_end=20, now_ms=3_000)
    assert caught_up_ms(3_000) == 2_000
    fetch(leading, key(2), 20, log_end=30, now_ms=4_000)
    assert caught_up_ms(4_000) == 1_000, "it had at 4 s what was there at 3 s"
    fetch(leading, key(2), 30, log_end=30, now_ms=5_000)
    assert caught_up_ms(5_500) == 500


def test_a_folder_that_takes_the_place_of_a_silent_one() -> None:
    leading, among, wiped = leadership(), voters(1, 2, 3), key(2, directory=22)
    fetch(leading, wiped, 7, now_ms=2_000)

    def replaced(high_watermark: int, silent_since_ms: int) -> list[ReplicaKey]:
        return leading.replaced(
            among, high_watermark=high_watermark, silent_since_ms=silent_since_ms
        )

    assert replaced(7, 1_500) == [wiped]
    assert replaced(8, 1_500) == [], "it lacks something that is committed"
    assert replaced(7, 2_001) == [], "it is silent itself"
    assert replaced(7, 0) == [], "the other has not been missed for long enough"
    fetch(leading, key(2), 7, now_ms=1_800)
    assert replaced(7, 1_500) == [], "the other is there"


def test_who_never_voted_and_is_gone_is_forgotten() -> None:
    leading = leadership()
    fetch(leading, key(9), 4, now_ms=0)
    fetch(leading, key(2), 4, now_ms=0)
    fetch(leading, key(8), 4, now_ms=FORGOTTEN_MS + 1)
    assert {it.key.node_id for it in leading.replicas(FORGOTTEN_MS + 1)} == {2, 8}
    fetch(leading, key(8, directory=88), 4, now_ms=FORGOTTEN_MS + 2)
    assert {it.key for it in leading.replicas(FORGOTTEN_MS + 2)} == {
        key(2),
        key(8, directory=88),
    }


def test_a_majority_confirms_a_leader_by_fetching_after_an_answer() -> None:
    """A fetch that merely arrives may be old: its sender may have voted for another since."""
    leading, among = leadership(now_ms=1_000), voters(1, 2, 3)
    assert leading.confirmed_ms(among, 2_000) == 1_000
    fetch(leading, key(2), 5, now_ms=2_000)
    fetch(leading, key(2), 5, now_ms=2_500)
    assert leading.confirmed_ms(among, 3_000) == 1_000, "none was answered"
    leading.answered(key(2), 3_000)
    assert leading.confirmed_ms(among, 3_500) == 1_000
    fetch(leading, key(2), 5, now_ms=4_000)
    assert leading.confirmed_ms(among, 4_500) == 3_000
    leading.answered(key(3), 4_600)
    leading.heard(key(3), among, 4_700)
    leading.answered(key(3), 4_800)
    leading.heard(key(3), among, 4_900)
    assert leading.confirmed_ms(among, 5_000) == 4_800
    assert leading.confirmed_ms(voters(1, 2, 3, 4, 5), 5_000) == 3_000
    assert leading.confirmed_ms(voters(1), 5_000) == 5_000


def test_a_replica_catches_up_from_nothing_like_others() -> None:
    leading = leadership()
    fetch(leading, key(2), 0, log_end=5, now_ms=10)
    fetch(leading, key(2), 5, log_end=9, now_ms=20)
    (replica,) = leading.replicas(30)
    assert replica.caught_up_ms == 20, "it has what there was at 10, when it fetched before"


def test_without_voters_nothing_is_confirmed_and_no_node_is_known() -> None:
    leading = leadership(now_ms=7)
    assert leading.confirmed_ms(voters(), 50) == 7
    assert leading.contact_ms(voters(), 50) == 7
    assert leading.committed_offset(voters(), 50) == -1
    assert leading.end_of(NodeId(9), voters(1, 2)) == -1


def test_only_a_silent_folder_is_replaced_by_one_that_follows() -> None:
    among = voters(1, 2, 3)
    leading = leadership()
    new = key(3, directory=33)
    for replica in (key(2), key(3), new, key(4)):
        fetch(leading, replica, 9, among=among, now_ms=10)

    def replaced(silent_since_ms: int, high_watermark: int = 9) -> list[ReplicaKey]:
        return leading.replaced(
            among, high_watermark=high_watermark, silent_since_ms=silent_since_ms
        )

    assert replaced(10) == []
    fetch(leading, new, 9, among=among, now_ms=20)
    fetch(leading, key(2, directory=22), 8, among=among, now_ms=20)
    assert replaced(11) == [new]
    assert replaced(10) == [], "the recorded one fetched then"
    assert replaced(21) == [], "neither is heard of any more"
    assert replaced(11, high_watermark=10) == []
    assert replaced(11, high_watermark=8) == [new, key(2, directory=22)]


def test_a_new_folder_takes_the_place_of_another_one_but_not_of_the_recorded_one() -> None:
    among = voters(1, 2, 3)
    leading = leadership()
    for replica in (key(2), key(2, directory=22), key(2, directory=222)):
        fetch(leading, replica, 9, among=among, now_ms=10)
    assert {it.key for it in leading.replicas(10)} == {key(2), key(2, directory=222)}
