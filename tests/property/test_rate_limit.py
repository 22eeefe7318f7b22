"""Whoever waits as it is told uses no more than it may, and whoever uses less never waits."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.rate_limit import DEBT_S_MAX, TokenBucket

EXAMPLES = 300
rates = st.floats(0.01, 1e9)
windows = st.floats(0.1, 30)
gaps = st.floats(0, 100)
TOLERANCE = 1e-6


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    rate=rates,
    window_s=windows,
    takes=st.lists(st.tuples(gaps, st.floats(0, DEBT_S_MAX)), max_size=50),
)
def test_an_obedient_client_uses_what_it_may(
    rate: float, window_s: float, takes: list[tuple[float, float]]
) -> None:
    """In any stretch of time: its length, what was saved up, and the one request that went over."""
    bucket = TokenBucket(rate, window_s, 0.0)
    now_s, used = 0.0, Fraction(0)
    for gap_s, seconds_worth in takes:
        now_s += gap_s
        used += Fraction(seconds_worth)
        wait_s = bucket.take(seconds_worth * rate, now_s)
        assert 0 <= wait_s <= DEBT_S_MAX * (1 + TOLERANCE)
        assert used <= now_s + window_s + wait_s + TOLERANCE * (1 + now_s)
        now_s += wait_s


@settings(max_examples=EXAMPLES, deadline=None)
@given(rate=rates, window_s=windows, gaps_s=st.lists(st.floats(0, 10), max_size=50))
def test_who_uses_less_never_waits(rate: float, window_s: float, gaps_s: list[float]) -> None:
    bucket = TokenBucket(rate, window_s, 0.0)
    now_s = 0.0
    for gap_s in gaps_s:
        now_s += gap_s
        assert bucket.take(min(gap_s, window_s) * rate * (1 - TOLERANCE), now_s) == 0


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    rate=rates,
    window_s=windows,
    takes=st.lists(st.tuples(gaps, st.floats(0, 1e12)), max_size=30),
    late_s=st.floats(0, 1),
)
def test_a_wait_is_over_when_it_was_said_to_be(
    rate: float, window_s: float, takes: list[tuple[float, float]], late_s: float
) -> None:
    """However little of it the client kept to before; and no wait is longer than the longest."""
    bucket = TokenBucket(rate, window_s, 5.0)
    now_s, wait_s = 5.0, 0.0
    for gap_s, amount in takes:
        now_s += gap_s
        before_s = bucket.debt_s(now_s)
        wait_s = bucket.take(amount, now_s)
        assert before_s <= wait_s + TOLERANCE
        assert wait_s <= DEBT_S_MAX * (1 + TOLERANCE)
    assert bucket.debt_s(now_s + wait_s + late_s) <= TOLERANCE


@settings(max_examples=EXAMPLES, deadline=None)
@given(rate=rates, other=rates, window_s=windows, amount=st.floats(0, 1e12))
def test_another_rate_keeps_the_time_to_wait(
    rate: float, other: float, window_s: float, amount: float
) -> None:
    bucket = TokenBucket(rate, window_s, 0.0)
    before_s = bucket.take(amount, 0.0)
    bucket.set_rate(other, 0.0)
    assert abs(bucket.debt_s(0.0) - before_s) <= TOLERANCE * (1 + before_s)
    assert bucket.capacity == other * window_s


def test_a_clock_that_stands_or_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(10, 1, 100.0)
    assert bucket.take(30, 100.0) == 2
    assert bucket.debt_s(99.0) == 2
    assert bucket.debt_s(100.5) == 1.5
