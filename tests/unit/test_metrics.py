from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from streamlog.metrics import LATENCY_SECONDS, Spread, Tallies, Tally


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    """Without the times of creation, as in a node."""
    from prometheus_client import disable_created_metrics, enable_created_metrics

    disable_created_metrics()  # type: ignore[no-untyped-call]
    yield
    enable_created_metrics()  # type: ignore[no-untyped-call]


def test_what_needs_no_lock_is_shown_as_what_does() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally, spread = Tally("s_acks", "Acks", ours), Spread("s_seconds", "Time", ours)
    counter = Counter("s_acks", "Acks", registry=theirs)
    histogram = Histogram("s_seconds", "Time", buckets=LATENCY_SECONDS, registry=theirs)
    assert generate_latest(ours) == generate_latest(theirs)
    tally.inc()
    tally.inc(4)
    counter.inc(5)
    for seconds in (0.0, 0.0001, 0.00011, 0.3, 10, 10.5):
        spread.observe(seconds)
        histogram.observe(seconds)
    assert generate_latest(ours) == generate_latest(theirs)


def test_tallies_of_a_label_are_shown_as_a_counter_with_it() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tallies = Tallies("s_sent", "Bytes", "path", ours)
    counter = Counter("s_sent", "Bytes", ["path"], registry=theirs)
    assert generate_latest(ours) == generate_latest(theirs)
    for path, amount in (("copy", 3), ("send file", 2**40), ("copy", 4)):
        tallies[path].inc(amount)
        counter.labels(path).inc(amount)
    assert generate_latest(ours) == generate_latest(theirs)
