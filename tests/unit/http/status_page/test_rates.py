"""Records a second, from the ends of logs."""

from streamlog.http.status_page.live import (
    FRESH_MS,
    PARTITIONS_MAX,
    WatchedPartitions,
)
from streamlog.http.status_page.rates import LOOKS, Rates
from streamlog.model import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def test_a_rate_needs_two_looks() -> None:
    rates = Rates()
    assert rates.total() is None
    rates.look(1_000, {A: 5})
    assert (rates.of(A), rates.total()) == (None, None)
    rates.look(3_000, {A: 25, B: 7})
    assert rates.of(A) == 10
    assert rates.of(B) is None, "it was not there before"
    assert rates.total() == 10


def test_it_is_taken_over_the_last_looks() -> None:
    rates = Rates()
    for look in range(LOOKS + 5):
        rates.look(look * 1_000, {A: 0 if look < 5 else (look - 5) * 100})
    assert rates.of(A) == 100


def test_a_pause_begins_anew_and_a_cut_log_has_no_rate_below_zero() -> None:
    rates = Rates()
    rates.look(0, {A: 100})
    rates.look(Rates.GAP_MS + 1, {A: 200})
    assert rates.of(A) is None
    rates.look(Rates.GAP_MS + 1_001, {A: 50})
    assert rates.of(A) == 0


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
