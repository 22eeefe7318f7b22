"""Pull requests that a node remembers, to tell their clients when the coordinator changes."""

import json

import pytest

from streamlog.jetstream.consumers import consumer_service
from streamlog.jetstream.consumers.consumer_service import PULL_S_MAX, ForwardedPulls, waiting_s


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ("", PULL_S_MAX),
        ("5", PULL_S_MAX),
        ("{}", PULL_S_MAX),
        ('{"no_wait": true}', 0.0),
        ('{"expires": 2000000000, "no_wait": true}', 2.0),
        ('{"expires": -5}', -5e-9),
        ('{"expires": 1%s}' % ("0" * 400), PULL_S_MAX),
        ('{"expires": "x"}', PULL_S_MAX),
        ("[" * 100_000, PULL_S_MAX),
        ("no JSON", PULL_S_MAX),
    ],
)
def test_request_waits_as_long_as_it_says(body: str, seconds: float) -> None:
    assert waiting_s(body) == seconds


def test_those_that_are_not_over_are_taken_once() -> None:
    pulls = ForwardedPulls()
    pulls.note(1, "a", json.dumps({"expires": 60_000_000_000}))
    pulls.note(1, "b", json.dumps({"expires": 1}))
    pulls.note(1, "c", json.dumps({"no_wait": True}))
    pulls.note(2, "d", "")
    assert pulls.take(1) == ["a"]
    assert pulls.take(1) == []
    assert pulls.take(2) == ["d"]


def test_no_more_are_remembered_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_service, "PULLS_MAX", 3)
    monkeypatch.setattr(consumer_service, "SWEPT_FROM", 2)
    monkeypatch.setattr(consumer_service, "SWEEP_S", 0.0)
    pulls = ForwardedPulls()
    for number in range(10):
        pulls.note(1, f"over{number}", json.dumps({"expires": 1}))
    for number in range(10):
        pulls.note(1, f"i{number}", "")
    assert pulls.take(1) == ["i0", "i1", "i2"]
