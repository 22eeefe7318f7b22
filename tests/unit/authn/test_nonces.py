"""Each signer's nonces count once, and no signer takes the places of another one."""

from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamlog.authn import nonces as module
from streamlog.authn.nonces import CountedRequests, Nonces


def spend(it: Nonces, signer: str, nonce: str, *, now_ms: int = 0) -> str:
    return it.spend(signer, nonce, until_ms=now_ms + 1_000, now_ms=now_ms)


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NONCES_MAX", 12)
    monkeypatch.setattr(module, "SHARE_MIN", 2)


def test_each_counts_once_for_its_signer() -> None:
    it = Nonces()
    assert spend(it, "a", "1") == ""
    assert "used" in spend(it, "a", "1")
    assert spend(it, "b", "1") == ""
    assert "used" in spend(it, "a", "1", now_ms=1_000)
    assert spend(it, "a", "1", now_ms=1_001) == ""


def test_who_fills_it_is_refused_and_others_are_not() -> None:
    it = Nonces()
    assert [spend(it, "a", str(n)) for n in range(12)] == [""] * 12
    assert "too many" in spend(it, "a", "more")
    assert [spend(it, "b", str(n)) for n in range(6)] == [""] * 6
    assert "too many" in spend(it, "b", "more")
    assert spend(it, "a", "more", now_ms=1_001) == ""
    assert len(it) == 1


def test_what_is_remembered_is_bounded_however_many_signers_there_are() -> None:
    it = Nonces()
    for signer in range(6):
        for nonce in range(20):
            spend(it, str(signer), str(nonce))
    assert len(it) == 12 + 6 + 4 + 3 + 2 + 2
    it.clear()
    assert len(it) == 0
    assert spend(it, "0", "0") == ""


def count(it: CountedRequests, number: int, *, sender: str = "a", now_ms: int = 0) -> str:
    return it.spend(sender, str(number), until_ms=now_ms + 1_000, now_ms=now_ms)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.integers(0, 40), max_size=60))
def test_each_number_counts_once_whatever_the_order(numbers: list[int]) -> None:
    """As a set does, but for those that are too far behind, which are refused."""
    with patch.multiple(module, REORDERED_MAX=8, _WINDOW_MASK=(1 << 8) - 1):
        it, taken, highest = CountedRequests(), set[int](), -1
        for number in numbers:
            refusal = count(it, number)
            assert (refusal == "") == (number > highest - 8 and number not in taken)
            if not refusal:
                taken.add(number)
                highest = max(highest, number)


def test_a_sender_is_remembered_as_long_as_its_requests_could_be_repeated() -> None:
    it = CountedRequests()
    assert count(it, 5) == ""
    assert count(it, 5, sender="b", now_ms=900) == ""
    assert "used" in count(it, 5, now_ms=1_000)
    assert count(it, 6, now_ms=1_000) == ""
    assert "used" in count(it, 5, now_ms=2_000), "the last request of it counts"
    assert len(it) == 1
    assert count(it, 5, now_ms=2_001) == ""


def test_more_senders_than_a_cluster_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SENDERS_MAX", 2)
    it = CountedRequests()
    assert [count(it, 1, sender=sender) for sender in "ab"] == ["", ""]
    assert "too many nodes" in count(it, 1, sender="c")
    assert count(it, 2, sender="a") == "", "who is known goes on"
    assert count(it, 1, sender="c", now_ms=1_001) == ""
