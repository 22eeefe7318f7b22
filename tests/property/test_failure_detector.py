"""The failure detector beside one that remembers everything and computes the formula as the paper has it."""

from statistics import fmean, pstdev

from hypothesis import example, given
from hypothesis import strategies as st

from streamlog.raft.failure_detector import FLOOR_INTERVALS, SIGMAS, WINDOW, FailureDetector


class NaiveDetector:
    def __init__(self, pause_ms: int, interval_ms: int, limit_ms: int) -> None:
        self.pause_ms, self.interval_ms, self.limit_ms = pause_ms, interval_ms, limit_ms
        self.intervals: list[int] = []
        self.last: int | None = None

    def heard(self, now_ms: int) -> None:
        if self.last is not None and now_ms - self.last < int(self.timeout_ms()):
            self.intervals.append(now_ms - self.last)
        self.last = now_ms

    def timeout_ms(self) -> float:
        known = self.intervals[-WINDOW:]
        learned = fmean(known) + SIGMAS * pstdev(known) if known else 0.0
        calm = FLOOR_INTERVALS * self.interval_ms
        return min(self.pause_ms + max(calm, learned), self.limit_ms)


ROUNDED_MS = 1 + SIGMAS
"""The deviation is rounded down, by less than 1 ms, before it is multiplied."""
STEPS = st.lists(st.integers(0, 1_200) | st.none(), max_size=60)


@given(
    pause_ms=st.integers(0, 500),
    interval_ms=st.integers(1, 200),
    limit_ms=st.integers(1, 3_000),
    steps=STEPS,
    times=st.integers(1, 30),
)
@example(pause_ms=300, interval_ms=30, limit_ms=3_000, steps=[10, 90], times=WINDOW)
def test_it_waits_as_long_as_the_naive_one(
    pause_ms: int, interval_ms: int, limit_ms: int, steps: list[int | None], times: int
) -> None:
    """None: an interruption."""
    quick = FailureDetector(pause_ms=pause_ms, interval_ms=interval_ms, limit_ms=limit_ms)
    naive = NaiveDetector(pause_ms, interval_ms, limit_ms)
    now_ms = 0
    for step in steps * times:
        if step is None:
            quick.interrupted()
            naive.last = None
            continue
        now_ms += step
        near = (
            naive.last is not None and abs(now_ms - naive.last - naive.timeout_ms()) <= ROUNDED_MS
        )
        if near:  # on the edge between a sign of life and a failure both may be right
            continue
        quick.heard(now_ms)
        naive.heard(now_ms)
        assert abs(quick.timeout_ms - naive.timeout_ms()) <= ROUNDED_MS
        assert quick.timeout_ms <= limit_ms


@given(st.lists(st.integers(1, 330), min_size=1, max_size=400))
def test_no_pause_within_the_tolerance_is_a_failure(intervals_ms: list[int]) -> None:
    """Whatever was learned: a node that stands still for 300 ms is heard of in time."""
    known = FailureDetector(pause_ms=300, interval_ms=30, limit_ms=3_000)
    now_ms = 0
    known.heard(now_ms)
    for interval_ms in intervals_ms:
        assert interval_ms < known.timeout_ms
        now_ms += interval_ms
        known.heard(now_ms)
