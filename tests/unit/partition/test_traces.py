"""Which batches are traced: by share, by second, and not without bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.model import TopicPartition
from streamlog.partition.tracing import OPEN_MAX, SECOND_NS, BatchTrace, Traces

TP = TopicPartition("s", 0)


class Clock:
    def __init__(self) -> None:
        self.ns = 5 * SECOND_NS

    def __call__(self) -> int:
        return self.ns


def traces(ratio: float, per_s: int = 1_000, clock: Clock | None = None) -> Traces:
    return Traces(
        lambda _: None, sample_ratio=ratio, batches_per_s_max=per_s, now_ns=clock or Clock()
    )


@given(st.sampled_from([1.0, 0.5, 0.25, 0.1]), st.integers(1, 200))
def test_a_share_of_all(ratio: float, count: int) -> None:
    it, begun = traces(ratio), 0
    for _ in range(count):
        trace = it.begin(TP, 0)
        if trace is not None:
            begun += 1
            it.end(trace)
    assert abs(begun - count * ratio) <= 1


def test_so_many_a_second() -> None:
    clock = Clock()
    it = traces(1.0, 3, clock)
    assert sum(it.begin(TP, 0) is not None for _ in range(10)) == 3
    clock.ns += SECOND_NS
    assert it.begin(TP, 0) is not None


def test_so_many_at_a_time() -> None:
    it = traces(1.0, 10_000)
    begun = [it.begin(TP, 0) for _ in range(OPEN_MAX + 1)]
    assert begun[-1] is None and begun[-2] is not None
    it.end(begun[-2])
    assert it.begin(TP, 0) is not None


def test_a_read_is_where_it_begins() -> None:
    clock = Clock()
    it = traces(1.0, clock=clock)
    with it.reading():
        clock.ns += 7
        within = it.begin(TP, 3)
    outside = it.begin(TP, 3)
    assert isinstance(within, BatchTrace) and isinstance(outside, BatchTrace)
    assert within.append_began_ns - within.received_ns == 7
    assert outside.append_began_ns == outside.received_ns
    assert within.leader_epoch == 3


def test_a_read_that_fails_is_over() -> None:
    it = traces(1.0)
    with pytest.raises(ValueError, match="x"), it.reading():
        raise ValueError("x")
    trace = it.begin(TP, 0)
    assert trace is not None and trace.received_ns == trace.append_began_ns
