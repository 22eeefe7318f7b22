"""Records and bytes a second, from the partitions that have moved."""

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.http.console.cluster_snapshot import LocalReplicaState
from streamlog.http.console.live import (
    FRESH_MS,
    PARTITIONS_MAX,
    WatchedPartitions,
)
from streamlog.http.console.traffic import LOOKS, StreamSum, Traffic
from streamlog.model import TopicPartition

A, A1, B = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def held(end: int, start: int = 0) -> LocalReplicaState:
    return LocalReplicaState(start, end, 10 * (end - start))


def begun(**ends: int) -> Traffic:
    traffic = Traffic()
    traffic.begin(0, {TopicPartition(name, 0): held(end) for name, end in ends.items()})
    return traffic


def test_a_rate_is_known_after_the_first_look() -> None:
    traffic = begun(a=5, b=7)
    assert (traffic.of(A), traffic.of_stream("a"), traffic.last) == (None, None, None)
    assert traffic.look(2_000, [(A, held(25))]) == {"a"}
    assert (traffic.of(A), traffic.of_stream("a"), traffic.of(B)) == (10, 10, 0)
    assert traffic.last == (2_000, 10, 100)


def test_it_is_taken_over_the_last_looks_and_its_end_is_told() -> None:
    traffic = begun(a=0)
    for look in range(1, LOOKS + 1):
        assert traffic.look(look * 1_000, [(A, held(100 * look))]) == {"a"}
    assert traffic.of(A) == 100
    told = [traffic.look((LOOKS + look) * 1_000, []) for look in range(1, LOOKS + 2)]
    assert told == [{"a"}] * LOOKS + [set()], "each look at which it falls, and no other"
    assert traffic.of(A) == 0


def test_a_log_that_was_cut_has_no_rate_below_zero() -> None:
    traffic = begun(a=100)
    traffic.look(1_000, [(A, held(50))])
    assert (traffic.of(A), traffic.last) == (0, (1_000, 0, 0))


def test_after_a_pause_it_has_to_begin_again() -> None:
    traffic = begun(a=1)
    assert not traffic.is_behind(Traffic.GAP_MS)
    assert traffic.is_behind(Traffic.GAP_MS + 1)
    assert Traffic().is_behind(0)


def test_partitions_elsewhere_have_rates_and_do_not_count_here() -> None:
    traffic = begun()
    traffic.look(1_000, [], {B: 100})
    traffic.look(2_000, [], {B: 300})
    assert (traffic.of(B), traffic.last) == (100, (2_000, 0, 0))


@settings(max_examples=200)
@given(
    st.lists(
        st.lists(
            st.tuples(
                st.sampled_from((A, A1, B)),
                st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)),
            ),
            max_size=3,
        ),
        max_size=8,
    )
)
def test_sums_that_are_moved_along_are_what_adding_up_gives(
    looks: list[list[tuple[TopicPartition, tuple[int, int] | None]]],
) -> None:
    """Where a partition came or went it says that it has to be added up."""
    known = {A: held(3), B: held(4)}
    traffic = Traffic()
    traffic.begin(0, dict(known))
    for number, look in enumerate(looks, 1):
        moves = {tp: None if it is None else held(max(it), min(it)) for tp, it in look}
        for name in "ab":
            if traffic.sum_of(name) is None:
                kept = [it for tp, it in known.items() if tp.stream == name]
                total = StreamSum(sum(it.records for it in kept), sum(it.size_bytes for it in kept))
                traffic.keep_sum(name, total)
        traffic.look(number * 1_000, moves.items())
        for tp, it in moves.items():
            known.pop(tp, None)
            if it is not None:
                known[tp] = it
        for name in "ab":
            found = traffic.sum_of(name)
            kept = [it for tp, it in known.items() if tp.stream == name]
            records, size_bytes = sum(it.records for it in kept), sum(it.size_bytes for it in kept)
            assert found in (None, (records, size_bytes))


def test_interest_lasts_for_a_while_and_is_bounded() -> None:
    interest = WatchedPartitions()
    assert not interest.is_fresh(0)
    interest.note(1_000, [A])
    assert interest.is_fresh(1_000 + FRESH_MS - 1)
    assert interest.partitions(1_000 + FRESH_MS - 1) == {A}
    assert interest.partitions(1_000 + FRESH_MS) == set()
    assert not interest.is_fresh(1_000 + FRESH_MS)
    interest.note(0, [TopicPartition("s", number) for number in range(PARTITIONS_MAX + 5)])
    assert len(interest.partitions(0)) == PARTITIONS_MAX
