"""Each signer's nonces count once, and no signer takes the places of another one."""

import pytest

from streamlog.authn import nonces as module
from streamlog.authn.nonces import Nonces


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
