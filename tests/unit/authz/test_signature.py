"""Signed requests: for one subject, one body, one time, once."""

import pytest

from streamlog.authn import nonces
from streamlog.authn.nkey import raw_key
from streamlog.authz.signature import (
    KEY,
    REPLY,
    RequestVerifier,
    sign,
)
from streamlog.errors import AuthenticationFailed
from tests.secured_nats import KeyPair, user_key

NOW_MS = 1_700_000_000_000


class World:
    def __init__(self, window_ms: int = 30_000) -> None:
        self.now_ms = NOW_MS
        self.verifier = RequestVerifier(window_ms, lambda: self.now_ms)


def signed(
    key: KeyPair, subject: str = "s", data: bytes = b"d", at: int = NOW_MS
) -> dict[str, str]:
    return sign({KEY: key.public}, subject, data, key.sign, now_ms=at)


def test_a_key_is_known_by_what_it_signs() -> None:
    world, key = World(), user_key()
    assert world.verifier.user("s", b"d", signed(key)) == key.public
    assert len(raw_key(key.public)) == 32


def test_once_and_after_the_window_it_is_too_old() -> None:
    world, key = World(), user_key()
    headers = signed(key)
    world.verifier.user("s", b"d", headers)
    for _ in range(2):
        with pytest.raises(AuthenticationFailed, match="nonce"):
            world.verifier.user("s", b"d", headers)
        world.now_ms += 29_999
    world.now_ms = NOW_MS + 30_001
    with pytest.raises(AuthenticationFailed, match="look at clocks"):
        world.verifier.user("s", b"d", headers)


def test_a_request_from_the_future_is_remembered_until_it_is_old() -> None:
    world, key = World(), user_key()
    headers = signed(key, at=NOW_MS + 30_000)
    world.verifier.user("s", b"d", headers)
    world.now_ms = NOW_MS + 59_999
    world.verifier.user("s", b"d", signed(key, at=world.now_ms))  # lets go of what is old
    with pytest.raises(AuthenticationFailed, match="nonce"):
        world.verifier.user("s", b"d", headers)


def test_what_is_remembered_is_bounded_and_only_of_who_signs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nonces, "NONCES_MAX", 2)
    monkeypatch.setattr(nonces, "SHARE_MIN", 1)
    world, key = World(), user_key()
    for _ in range(5):
        with pytest.raises(AuthenticationFailed):
            world.verifier.user("other", b"d", signed(key))
    for _ in range(2):
        world.verifier.user("s", b"d", signed(key))
    with pytest.raises(AuthenticationFailed, match="too many"):
        world.verifier.user("s", b"d", signed(key))
    world.now_ms += 60_001
    world.verifier.user("s", b"d", signed(key, at=world.now_ms))


def test_an_unknown_key_takes_no_place_of_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nonces, "NONCES_MAX", 2)
    world, stranger, admin = World(), user_key(), user_key()
    for _ in range(10):
        headers = signed(stranger)
        for _ in range(2):  # it may do what anybody may, and repeating it gains nothing
            world.verifier.user("s", b"d", headers, admin.public.__eq__)
    headers = signed(admin)
    assert world.verifier.user("s", b"d", headers, admin.public.__eq__) == admin.public
    with pytest.raises(AuthenticationFailed, match="nonce has been used"):
        world.verifier.user("s", b"d", headers, admin.public.__eq__)


@pytest.mark.parametrize(
    "public", ["", "U", "UABC", "A" * 56, "U" + "A" * 55, "\N{SNOWMAN}", "u" * 56]
)
def test_what_is_no_key_of_a_user(public: str) -> None:
    with pytest.raises(ValueError):
        raw_key(public)
    world, key = World(), user_key()
    with pytest.raises(AuthenticationFailed):
        world.verifier.user("s", b"d", signed(key) | {KEY: public})


def test_a_request_counts_with_the_reply_subject_that_was_signed() -> None:
    world, key = World(), user_key()
    user = sign({KEY: key.public}, "s", b"d", key.sign, now_ms=NOW_MS, reply="_INBOX.mine")
    changes: tuple[dict[str, str], ...]
    for reply in ("_INBOX.theirs", "", "_INBOX.mine.x"):
        changes = ({}, {REPLY: reply})
        for changed in changes:
            with pytest.raises(AuthenticationFailed):
                world.verifier.user("s", b"d", user | changed, reply=reply)
    assert world.verifier.user("s", b"d", user, reply="_INBOX.mine") == key.public


def test_where_reply_subjects_change_on_their_way_what_was_signed_is_not_compared() -> None:
    key = user_key()
    verifier = RequestVerifier(30_000, now_ms=lambda: NOW_MS, checks_reply=False)
    user = sign({KEY: key.public}, "s", b"d", key.sign, now_ms=NOW_MS, reply="_INBOX.mine")
    with pytest.raises(AuthenticationFailed, match="not this key's"):
        verifier.user("s", b"d", user | {REPLY: "_R_.x"}, reply="_R_.x")
    assert verifier.user("s", b"d", user, reply="_R_.x") == key.public
