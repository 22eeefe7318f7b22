"""The chain operator, account, user: what the comparison with nats-server cannot wait for or reach."""

import json
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import AuthenticationFailed
from streamlog.nats.auth import operator_jwt
from streamlog.nats.auth.operator_jwt import (
    TrustedOperator,
    UserVerdict,
    check_signature,
    judged,
    plain_token,
    read_account,
    read_user,
)
from streamlog.nats.auth.subject_permissions import PermissionRules, ReplyLimit
from tests.nats_jwts import (
    HEADER,
    UNLIMITED,
    AccountJwt,
    account_key,
    base64url,
    operator_key,
    signed_jwt,
    user_jwt,
)
from tests.nats_jwts import operator_jwt as signed_operator
from tests.secured_nats import KeyPair, user_key

OPERATOR = operator_key()
TRUSTED = TrustedOperator.of_keys(OPERATOR.public)
USER = user_key()
NOON = datetime(2026, 6, 15, 12, tzinfo=UTC).timestamp()


def verdict(
    nats: dict[str, Any] | None = None,
    account: AccountJwt | None = None,
    *,
    signer: KeyPair | None = None,
    operator: TrustedOperator = TRUSTED,
    host: str = "192.0.2.7",
    now_s: float = NOON,
    **claims: Any,
) -> UserVerdict:
    account = account or AccountJwt()
    token = user_jwt(signer or account.key, USER, {**UNLIMITED, **(nats or {})}, **claims)
    known = read_account(account.jwt(OPERATOR))
    return judged(read_user(token), operator, known, host=host, now_s=now_s)


def template(nats: dict[str, Any], tags: list[str], **claims: Any) -> PermissionRules | None:
    """The rules of a user that a scoped key with this template has signed."""
    key = account_key()
    scope = {"kind": "user_scope", "key": key.public, "template": nats}
    account = AccountJwt(
        {"signing_keys": [scope], "tags": ["zone:eu", "zone:us"]}, {"name": "acme"}
    )
    own = {"issuer_account": account.key.public, "tags": tags}
    token = user_jwt(key, USER, own, **claims)
    known = read_account(account.jwt(OPERATOR))
    return judged(read_user(token), TRUSTED, known, host="", now_s=NOON).rules


def refusal(*arguments: Any, **more: Any) -> str:
    with pytest.raises(AuthenticationFailed) as caught:
        verdict(*arguments, **more)
    return str(caught.value)


def test_a_user_without_permissions_has_no_rules_and_no_limits() -> None:
    found = verdict()
    assert found.user == USER.public
    assert found.rules is None
    assert (found.subscriptions_max, found.payload_bytes_max, found.expires_s) == (None,) * 3
    assert not found.is_bearer


def test_an_account_that_is_not_the_users_is_none() -> None:
    account, other = AccountJwt(), AccountJwt()
    claims = read_user(user_jwt(account.key, USER))
    for known in (None, read_account(other.jwt(OPERATOR))):
        with pytest.raises(AuthenticationFailed, match="not known"):
            judged(claims, TRUSTED, known, host="", now_s=NOON)


@pytest.mark.parametrize(("exp", "nbf"), [(NOON, 0), (NOON - 1, 0), (0, NOON + 1)])
def test_a_user_holds_from_its_start_and_not_at_its_end(exp: int, nbf: int) -> None:
    assert "user JWT" in refusal(exp=int(exp), nbf=int(nbf))
    assert verdict(exp=int(NOON + 1), nbf=int(NOON)).expires_s == NOON + 1


def test_the_first_end_of_user_account_and_times_counts() -> None:
    account = AccountJwt(claims={"exp": int(NOON) + 500})
    assert verdict(account=account, exp=int(NOON) + 600).expires_s == NOON + 500
    assert verdict(account=account, exp=int(NOON) + 400).expires_s == NOON + 400
    times = {"times": [{"start": "11:00:00", "end": "12:05:00"}], "times_location": "UTC"}
    assert verdict(times, account).expires_s == NOON + 300


def test_a_verdict_says_whether_it_is_the_account_that_ends() -> None:
    account = AccountJwt(claims={"exp": int(NOON) + 500})
    assert verdict(account=account).ends_with_account
    assert verdict(account=account, exp=int(NOON) + 600).ends_with_account
    assert not verdict(account=account, exp=int(NOON) + 400).ends_with_account
    assert not verdict(exp=int(NOON) + 400).ends_with_account
    assert not verdict().ends_with_account


@pytest.mark.parametrize(
    ("hour", "spans", "ends"),
    [
        (12, [("11:00:00", "13:00:00")], 13),
        (12, [("12:00:00", "13:00:00")], None),
        (12, [("11:00:00", "12:00:00")], None),
        (23, [("22:00:00", "06:00:00")], 30),
        (5, [("22:00:00", "06:00:00")], 6),
        (7, [("22:00:00", "06:00:00")], None),
        (12, [("1:00:00", "13:00:00"), ("11:00:00", "15:00:00")], 15),
    ],
)
def test_times_of_the_day(hour: int, spans: list[tuple[str, str]], ends: int | None) -> None:
    day = datetime(2026, 6, 15, tzinfo=UTC).timestamp()
    times = [{"start": start, "end": end} for start, end in spans]
    nats = {"times": times, "times_location": "UTC"}
    if ends is None:
        assert "time of the day" in refusal(nats, now_s=day + hour * 3_600)
    else:
        assert verdict(nats, now_s=day + hour * 3_600).expires_s == day + ends * 3_600


def test_times_are_of_their_place() -> None:
    nats = {"times": [{"start": "13:59:00", "end": "14:01:00"}], "times_location": "Europe/Berlin"}
    assert verdict(nats).expires_s == NOON + 60
    assert "time of the day" in refusal(nats, now_s=NOON + 60)


def test_times_without_a_place_are_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert verdict({"times": [{"start": "20:59:00", "end": "21:01:00"}]}).expires_s == NOON + 60
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("place", ["../../etc/passwd", "/etc/passwd", "Moon", "\0"])
def test_a_place_is_the_name_of_a_time_zone(place: str) -> None:
    nats = {"times": [{"start": "00:00:00", "end": "23:00:00"}], "times_location": place}
    assert "times_location" in refusal(nats)


@pytest.mark.parametrize(
    ("src", "host", "is_let_in"),
    [
        (["192.0.2.0/24"], "192.0.2.7", True),
        (["192.0.2.0/24"], "::ffff:192.0.2.7", True),
        (["2001:db8::/32"], "2001:db8::1", True),
        (["2001:db8::/32"], "2001:db8::1%eth0", True),
        (["192.0.2.0/24"], "192.0.3.7", False),
        (["192.0.2.0/24"], "2001:db8::1", False),
        (["192.0.2.0/24"], "", False),
        (["192.0.2.0/24"], "localhost", False),
    ],
)
def test_src_is_about_addresses(src: list[str], host: str, is_let_in: bool) -> None:
    if is_let_in:
        assert verdict({"src": src}, host=host).user == USER.public
    else:
        assert refusal({"src": src}, host=host)


def test_limits_are_the_lower_ones_of_user_and_account() -> None:
    account = AccountJwt({"limits": {"subs": 5, "payload": -1, "conn": 9}})
    found = verdict({"subs": 10, "payload": 7}, account)
    assert (found.subscriptions_max, found.payload_bytes_max) == (5, 7)
    assert found.account_connections_max == 9


def test_strict_accounts_sign_by_signing_keys_alone() -> None:
    signing, user_signer = operator_key(), account_key()
    token = signed_operator(OPERATOR, signing_keys=[signing.public], strict_signing_key_usage=True)
    strict = TrustedOperator.of_jwt(token)
    assert strict.keys == {signing.public}
    account = AccountJwt({"signing_keys": [user_signer.public]})
    known = read_account(account.jwt(signing))
    by_account = read_user(user_jwt(account.key, USER))
    issuer = {**UNLIMITED, "issuer_account": account.key.public}
    by_signer = read_user(user_jwt(user_signer, USER, issuer))
    assert judged(by_signer, strict, known, host="", now_s=NOON).user == USER.public
    with pytest.raises(AuthenticationFailed, match="none of its account's keys"):
        judged(by_account, strict, known, host="", now_s=NOON)
    with pytest.raises(AuthenticationFailed, match="not signed by the trusted operator"):
        judged(by_signer, strict, read_account(account.jwt(OPERATOR)), host="", now_s=NOON)


def test_an_operator_that_has_expired_is_not_believed() -> None:
    token = signed_jwt(OPERATOR, OPERATOR.public, {"type": "operator"}, exp=int(NOON))
    operator = TrustedOperator.of_jwt(token)
    assert verdict(operator=operator, now_s=NOON - 1).user == USER.public
    assert "operator JWT has expired" in refusal(operator=operator)


def test_an_operator_signs_itself() -> None:
    token = signed_jwt(operator_key(), OPERATOR.public, {"type": "operator"})
    with pytest.raises(AuthenticationFailed, match="another operator"):
        TrustedOperator.of_jwt(token)
    with pytest.raises(AuthenticationFailed, match="public key of an operator"):
        TrustedOperator.of_keys(account_key().public)


def test_users_that_others_have_to_examine_are_refused() -> None:
    helper = user_key()
    account = AccountJwt({"authorization": {"auth_users": [helper.public]}})
    assert "authorization service" in refusal(account=account)
    assert "proxy" in refusal({"proxy_required": True})
    account = AccountJwt({"authorization": {"auth_users": [USER.public]}})
    assert verdict(account=account).user == USER.public


def test_answers_have_the_defaults_of_nats_server() -> None:
    found = verdict({"resp": {"max": 0, "ttl": 0}}).rules
    assert found == PermissionRules(replies=ReplyLimit(1, 120.0))
    found = verdict({"resp": {"max": -1, "ttl": 5_000_000_000}, "pub": {"deny": ["a"]}}).rules
    assert found == PermissionRules(
        publish_allow=[], publish_deny=["a"], replies=ReplyLimit(-1, 5.0)
    )


def test_a_template_knows_user_account_and_tags() -> None:
    allow = [
        "n.{{name()}}", "s.{{subject()}}", "a.{{account-name()}}",
        "t.{{tag(team)}}.{{ account-tag(zone) }}", "plain",
    ]  # fmt: skip
    found = template({"pub": {"allow": allow}}, ["team:red", "team:blue", "x:y"], name="alice")
    assert found is not None
    assert found.publish_allow is not None
    assert set(found.publish_allow.entries) == {
        "n.alice", f"s.{USER.public}", "a.acme", "plain",
        "t.red.eu", "t.red.us", "t.blue.eu", "t.blue.us",
    }  # fmt: skip


def test_an_allowed_subject_that_cannot_be_made_is_left_out() -> None:
    found = template({"sub": {"allow": ["t.{{tag(none)}}", "n.{{name()}}"]}}, [], name="a b")
    assert found is not None
    assert not found.allows_subscription(b"t.x", None)
    assert not found.allows_subscription(b"anything", None)


@pytest.mark.parametrize("subject", ["t.{{tag(none)}}", "n.{{name()}}", "{{tea()}}"])
def test_a_denied_subject_that_cannot_be_made_refuses_the_user(subject: str) -> None:
    with pytest.raises(AuthenticationFailed, match="template"):
        template({"pub": {"deny": [subject]}}, [], name="a b")


def test_a_template_makes_no_more_subjects_than_a_limit() -> None:
    tags = [f"t:{number}" for number in range(65)]
    with pytest.raises(AuthenticationFailed, match="too many"):
        template({"pub": {"allow": ["{{tag(t)}}.{{tag(t)}}"]}}, tags)


def test_a_token_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    token = user_jwt(account_key(), USER, {**UNLIMITED, "tags": ["x" * 100_000]})
    with pytest.raises(AuthenticationFailed):
        read_user(token)


def test_numbers_that_go_has_no_room_for_are_refused() -> None:
    for exp in (2**63, 10**400, 1.5, "1", True):
        with pytest.raises(AuthenticationFailed):
            read_user(user_jwt(account_key(), USER, exp=exp))
    assert read_user(user_jwt(account_key(), USER, exp=2**63 - 1)).exp == 2**63 - 1
    assert verdict(exp=2**63 - 1).expires_s == float(2**63)


def test_what_nobody_set_may_be_null() -> None:
    nats = {"pub": None, "sub": {"allow": None}, "tags": None, "resp": None, "src": None}
    assert verdict(nats).rules is None


def test_deep_json_is_no_token() -> None:
    deep = b"[" * 20_000 + b"]" * 20_000
    parts = (base64url(json.dumps(HEADER).encode()), base64url(deep), base64url(b"x" * 64))
    with pytest.raises(AuthenticationFailed):
        read_user(".".join(parts))


def test_a_file_may_have_the_lines_of_nsc() -> None:
    token = user_jwt(account_key(), USER)
    text = f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n*** x ***\n"
    assert plain_token(text) == token
    assert plain_token(f"  {token}\n") == token


def test_a_signature_is_over_the_nonce_by_the_key() -> None:
    check_signature(USER.public, "nonce", base64url(USER.sign(b"nonce")))
    for key, nonce, sig in (
        (USER.public, "other", base64url(USER.sign(b"nonce"))),
        (USER.public, "", base64url(USER.sign(b""))),
        (USER.public, "nonce", ""),
        (USER.public, "nonce", "ü"),
        (account_key().public, "nonce", base64url(USER.sign(b"nonce"))),
        ("", "nonce", base64url(USER.sign(b"nonce"))),
    ):
        with pytest.raises(AuthenticationFailed):
            check_signature(key, nonce, sig)


GOOD = user_jwt(account_key(), USER, {**UNLIMITED, "pub": {"allow": ["a.>"]}})


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_a_changed_token_is_never_believed(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(GOOD) - 1))
    size = data.draw(st.integers(0, 3))
    put = data.draw(st.text(st.characters(codec="utf-8"), max_size=3))
    token = GOOD[:at] + put + GOOD[at + size :]
    if token == GOOD:
        return
    try:
        claims = read_user(token)
    except AuthenticationFailed:
        return
    # The last character of base64 has bits that say nothing.
    assert claims == read_user(GOOD)
    assert len(token) == len(GOOD)
    assert at >= len(GOOD) - 3


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
NAMES = sorted({*operator_jwt.UserGrant.model_fields, "issuer_account", "type", "version"})


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), json_values), st.booleans())
def test_whatever_is_signed_is_let_in_or_refused(nats: dict[str, Any], in_template: bool) -> None:
    """By no other error."""
    account = AccountJwt()
    if in_template:
        scope = {"kind": "user_scope", "key": account.key.public, "template": nats}
        account.nats, nats = {"signing_keys": [scope]}, {}
    with suppress(AuthenticationFailed):
        verdict(nats, account)
