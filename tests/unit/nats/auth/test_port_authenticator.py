"""Logins at the NATS port: by which proof, as whom, for how long, and what is refused."""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from streamlog.acl.rules import RuleBook
from streamlog.authn.principal import ANONYMOUS, Principal
from streamlog.errors import AuthenticationFailed, ConfigError
from streamlog.nats.auth import err, port_authenticator
from tests.nats_jwts import (
    UNLIMITED,
    AccountJwt,
    JwtLogin,
    base64url,
    operator_key,
    user_jwt,
)
from tests.port_world import NONCE, PortWorld
from tests.restricted import rule
from tests.secured_nats import KeyPair, user_key

SCRAM: dict[str, Any] = {"mechanisms": ["SCRAM-SHA-256"]}
ELSEWHERE = "192.0.2.7"
TOKEN = "a-token-of-some-length"


def password(user: str = "alice", secret: str = "secret") -> dict[str, Any]:
    return {"user": user, "pass": secret, "name": "app"}


def nkey(key: KeyPair, nonce: str = NONCE) -> dict[str, Any]:
    return {"nkey": key.public, "sig": base64url(key.sign(nonce.encode()))}


@pytest.fixture
def users() -> PortWorld:
    world = PortWorld(sasl=SCRAM)
    world.add_user("alice", "secret")
    return world


@pytest.fixture(autouse=True)
def _tokens_are_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_authenticator, "TOKEN_CHECK_S", -1.0)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"{TOKEN} alice\nanother-token-without-a-user\n")
    return path


def write(path: Path, text: str) -> None:
    made = path.with_suffix(".new")
    made.write_text(text)
    made.replace(path)


class Jwts:
    """A node that trusts an operator with one account."""

    def __init__(self, path: Path, **port: Any) -> None:
        self.operator = operator_key()
        self.account = AccountJwt()
        self.path = path / f"{self.account.key.public}.jwt"
        self.write()
        self.settings = {"operator": self.operator.public, "account_jwts": [str(path)], **port}

    def write(self) -> None:
        write(self.path, self.account.jwt(self.operator))

    def login(self, key: KeyPair, nats: dict[str, Any] | None = None, **claims: Any) -> Any:
        content = {**UNLIMITED, **(nats or {})}
        return JwtLogin(user_jwt(self.account.key, key, content, **claims), key).connect(NONCE)


# Who has to log in


async def test_a_client_is_anonymous_where_nothing_is_configured() -> None:
    world = PortWorld()
    assert not world.port.required
    assert not world.port.nonce_wanted
    for connect in ({}, password(), {"auth_token": "x"}, {"jwt": 5}, nkey(user_key())):
        login = await world.log_in(connect)
        assert login.session.principal == ANONYMOUS
        assert not login.is_tolerated
        assert login.may_write("orders")
        assert login.may_read("orders")
        assert not login.permissions.may_publish(b"$SYS.x")


@pytest.mark.parametrize(
    ("port", "sections"),
    [
        ({}, {"sasl": SCRAM}),
        ({}, {"authorization": {"nkeys": {user_key().public: "alice"}}}),
        (
            {"operator": operator_key().public, "account_jwts": [AccountJwt().jwt(operator_key())]},
            {},
        ),
    ],
)
async def test_each_way_to_log_in_makes_it_a_must(
    port: dict[str, Any], sections: dict[str, Any]
) -> None:
    world = PortWorld(port, **sections)
    assert world.port.required
    assert world.port.nonce_wanted
    assert await world.refusal({}) == "no credentials"
    assert world.refused() == 1


async def test_tokens_and_certificates_make_it_a_must(tokens: Path) -> None:
    assert PortWorld({"token_file": str(tokens)}).port.required
    assert PortWorld(client_auth="required").port.required
    assert not PortWorld(client_auth="optional").port.required


async def test_nkeys_may_be_turned_off() -> None:
    key = user_key()
    listed = {"nkeys": {key.public: "alice"}}
    world = PortWorld({"nkey_auth": False}, authorization=listed)
    assert not world.port.required
    world = PortWorld({"nkey_auth": False}, authorization=listed, sasl=SCRAM)
    assert not world.port.nonce_wanted
    assert "nkey_auth" in await world.refusal(nkey(key))


async def test_a_permissive_node_lets_in_who_proves_nothing_but_not_who_fails() -> None:
    world = PortWorld(sasl=SCRAM, security={"permissive": True})
    world.add_user("alice", "secret")
    assert not world.port.required
    login = await world.log_in({})
    assert login.is_tolerated
    assert login.session.principal == ANONYMOUS
    assert (await world.log_in(password())).session.principal == Principal.user("alice")
    assert await world.refusal(password("alice", "wrong"))


# Passwords


async def test_users_of_the_cluster_log_in_with_their_passwords(users: PortWorld) -> None:
    login = await users.log_in(password())
    assert login.session.principal == Principal.user("alice")
    assert login.session.host == "127.0.0.1"
    assert login.session.client_id == "app"
    assert login.expires_s is None
    for connect in (
        password("alice", "wrong"), password("bob"), password("", "secret"), password("alice", ""),
        password("ANONYMOUS"), {"user": "alice"}, {"user": ["alice"], "pass": "secret"},
        {"user": "alice", "pass": 5}, {"user": "\ud800", "pass": "x"}, {"user": "a", "pass": "\ud800"},
        password("a" * 256, "x"), password("alice", "x" * 256),
    ):  # fmt: skip
        assert await users.refusal(connect)
    assert users.refused() == 12


async def test_passwords_are_not_sent_in_the_clear(users: PortWorld) -> None:
    assert "without TLS" in await users.refusal(password(), host=ELSEWHERE)
    assert await users.refusal(password(), host=ELSEWHERE, is_encrypted=True) == ""
    assert await users.refusal(password(), host="::1") == ""
    assert await users.refusal(password(), host="::ffff:127.0.0.1") == ""
    assert "without TLS" in await users.refusal(password(), host="not an address")


async def test_passwords_in_the_clear_may_be_allowed() -> None:
    world = PortWorld({"allow_plain_without_tls": True}, sasl=SCRAM)
    world.add_user("alice", "secret")
    assert await world.refusal(password(), host=ELSEWHERE) == ""


async def test_the_user_of_the_nodes_has_no_password_here(tmp_path: Path) -> None:
    file = tmp_path / "node-password"
    file.write_text("the nodes'\n")
    node = {"node_user": "node", "node_password_file": file, "node_mechanism": "SCRAM-SHA-256"}
    world = PortWorld(sasl={**SCRAM, **node})
    assert await world.refusal(password("node", "the nodes'"))


async def test_passwords_may_be_turned_off() -> None:
    world = PortWorld({"password_auth": False}, sasl=SCRAM)
    world.add_user("alice", "secret")
    assert world.port.required
    assert await world.refusal(password())


def test_passwords_need_users() -> None:
    with pytest.raises(ConfigError, match=r"^nats_listen\.password_auth: there are no users"):
        PortWorld({"password_auth": True})


async def test_no_more_guesses_are_examined_than_may_be_wrong() -> None:
    world = PortWorld(sasl={**SCRAM, "failures_per_address_max": 3})
    world.add_user("alice", "secret")
    refusals = await asyncio.gather(*(world.refusal(password("alice", "no")) for _ in range(6)))
    assert sum("too many" in it for it in refusals) == 3
    assert "too many" in await world.refusal(password())
    assert await world.refusal(password(), host="127.0.0.2") == ""


async def test_a_failure_is_told_late() -> None:
    world = PortWorld(sasl={**SCRAM, "failure_delay_ms": 80})
    key = user_key()
    for connect in (password(), nkey(key)):
        start_s = time.monotonic()
        assert await world.refusal(connect)
        assert time.monotonic() - start_s >= 0.08


async def test_a_changed_password_ends_the_connections_with_it(users: PortWorld) -> None:
    login = await users.log_in(password())
    users.add_user("bob", "secret")
    assert await login.ending() is None
    users.add_user("alice", "another")
    assert await login.ending() == err.AUTHENTICATION_REVOKED
    login = await users.log_in(password("alice", "another"))
    users.remove_user("alice")
    assert await login.ending() == err.AUTHENTICATION_REVOKED


async def test_a_session_ends_as_those_of_kafka_do() -> None:
    world = PortWorld(sasl={**SCRAM, "session_lifetime_ms": 60_000})
    world.add_user("alice", "secret")
    login = await world.log_in(password())
    assert login.expires_s is not None
    assert 59 < login.expires_s - time.monotonic() <= 60
    assert login.session.ends_s == login.expires_s


# Tokens


async def test_tokens_are_those_of_the_file(tokens: Path) -> None:
    world = PortWorld({"token_file": str(tokens)})
    login = await world.log_in({"auth_token": TOKEN})
    assert login.session.principal == Principal.user("alice")
    nameless = await world.log_in({"auth_token": "another-token-without-a-user"})
    assert nameless.session.principal == ANONYMOUS
    for given in ("a-token-of-some-lengtH", "alice", f"{TOKEN} alice", 5, "\ud800"):
        assert await world.refusal({"auth_token": given})
    assert "without TLS" in await world.refusal({"auth_token": TOKEN}, host=ELSEWHERE)
    assert await login.ending() is None
    write(tokens, "a-token-of-another-kind alice\n")
    assert await login.ending() == err.AUTHENTICATION_REVOKED
    assert await world.refusal({"auth_token": TOKEN})


async def test_a_token_that_is_given_to_another_user_ends_the_connection(tokens: Path) -> None:
    world = PortWorld({"token_file": str(tokens)})
    login = await world.log_in({"auth_token": TOKEN})
    write(tokens, f"{TOKEN} bob\n")
    assert await login.ending() == err.AUTHENTICATION_REVOKED


async def test_connections_with_a_token_read_its_file_together(
    tokens: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_authenticator, "TOKEN_CHECK_S", 1_000.0)
    world = PortWorld({"token_file": str(tokens)})
    logins = [await world.log_in({"auth_token": TOKEN}) for _ in range(3)]
    assert [await it.ending() for it in logins] == [None] * 3
    write(tokens, "a-token-of-another-kind alice\n")
    assert [await it.ending() for it in logins] == [None] * 3
    assert await world.refusal({"auth_token": TOKEN})
    monkeypatch.setattr(port_authenticator, "TOKEN_CHECK_S", -1.0)
    assert [await it.ending() for it in logins] == [err.AUTHENTICATION_REVOKED] * 3


async def test_tokens_need_a_file(users: PortWorld, tmp_path: Path) -> None:
    assert "token_file" in await users.refusal({"auth_token": TOKEN})
    with pytest.raises(ConfigError, match=r"^nats_listen\.token_file"):
        PortWorld({"token_file": str(tmp_path / "none")})


# NKeys


async def test_a_listed_nkey_is_a_user() -> None:
    key = user_key()
    world = PortWorld(authorization={"nkeys": {key.public: "alice"}})
    login = await world.log_in(nkey(key))
    assert login.session.principal == Principal.user("alice")
    assert await world.refusal(nkey(key), host=ELSEWHERE) == ""
    for connect in (
        nkey(key, "another nonce"), nkey(user_key()), {"nkey": key.public}, {**nkey(key), "sig": 5},
        {"nkey": key.public, "sig": base64url(user_key().sign(NONCE.encode()))},
        {"nkey": "U123", "sig": "x"}, {**nkey(key), "nkey": key.public.lower()},
    ):  # fmt: skip
        assert await world.refusal(connect)
    assert await world.refusal(nkey(key, ""), nonce="")


async def test_an_nkey_that_a_rule_names_is_known() -> None:
    key = user_key()
    world = PortWorld(sasl=SCRAM)
    assert "nor a rule" in await world.refusal(nkey(key))
    world.rules = RuleBook.of(
        rule("write topic orders").model_copy(update={"principal": f"User:{key.public}"})
    )
    login = await world.log_in(nkey(key))
    assert login.session.principal == Principal.user(key.public)
    assert login.may_write("orders")
    world.rules = RuleBook()
    assert await login.ending() == err.AUTHENTICATION_REVOKED


# Certificates


async def test_a_certificate_is_a_user() -> None:
    rules = {"principal_mapping_rules": "RULE:^CN=([^,]+)$/$1/"}
    world = PortWorld(client_auth="required", sasl=rules)
    login = await world.log_in({}, tls_subject="CN=alice", is_encrypted=True)
    assert login.session.principal == Principal.user("alice")
    assert not login.session.is_node
    assert "no rule" in await world.refusal({}, tls_subject="O=x", is_encrypted=True)


async def test_a_certificate_counts_where_nothing_is_demanded() -> None:
    world = PortWorld({"permissions": {"CN=alice": lists("a")}}, client_auth="optional")
    login = await world.log_in({}, tls_subject="CN=alice", is_encrypted=True)
    assert login.session.principal == Principal.user("CN=alice")
    assert not login.permissions.may_publish(b"b")


async def test_a_login_takes_the_place_of_the_certificate() -> None:
    world = PortWorld(client_auth="required", sasl={**SCRAM, "node_principals": ["CN=node"]})
    world.add_user("alice", "secret")
    login = await world.log_in(password(), tls_subject="CN=bob", is_encrypted=True)
    assert login.session.principal == Principal.user("alice")
    wrong = password("alice", "wrong")
    assert await world.refusal(wrong, tls_subject="CN=bob", is_encrypted=True)
    node = await world.log_in({}, tls_subject="CN=node", is_encrypted=True)
    assert node.session.is_node
    assert node.may_write("orders")


# JWTs


async def test_a_user_of_an_account_has_its_key_as_its_name(tmp_path: Path) -> None:
    jwts, key = Jwts(tmp_path), user_key()
    world = PortWorld(jwts.settings)
    login = await world.log_in(jwts.login(key), host=ELSEWHERE)
    assert login.session.principal == Principal.user(key.public)
    assert login.account == jwts.account.key.public
    assert await world.refusal({**jwts.login(key), "sig": base64url(b"x" * 64)})
    assert await world.refusal({"jwt": 5})
    assert "JWT" in await world.refusal({"jwt": "x"})


async def test_an_account_and_a_key_may_have_names(tmp_path: Path) -> None:
    jwts, known, other = Jwts(tmp_path), user_key(), user_key()
    named = {**jwts.settings, "account_users": {jwts.account.key.public: "billing"}}
    world = PortWorld(named, authorization={"nkeys": {known.public: "alice"}})
    assert (await world.log_in(jwts.login(known))).session.principal == Principal.user("alice")
    assert (await world.log_in(jwts.login(other))).session.principal == Principal.user("billing")


async def test_the_name_in_a_token_is_nobodys(tmp_path: Path) -> None:
    """An account chooses it."""
    jwts, key = Jwts(tmp_path), user_key()
    world = PortWorld(jwts.settings, authorization={"super_users": ["User:admin"]}, sasl=SCRAM)
    login = await world.log_in(jwts.login(key, name="admin"))
    assert not login.may_write("orders")


async def test_a_bearer_is_no_more_than_a_user_of_its_account(tmp_path: Path) -> None:
    """An account may sign for any key: it must not become the user of that key by that."""
    jwts, admin = Jwts(tmp_path), user_key()
    nkeys = {
        "nkeys": {admin.public: "admin"},
        "super_users": ["User:admin", f"User:{admin.public}"],
    }
    connect = {"jwt": jwts.login(admin, {"bearer_token": True})["jwt"]}
    account = jwts.account.key.public
    login = await PortWorld(jwts.settings, authorization=nkeys, sasl=SCRAM).log_in(connect)
    assert login.session.principal == Principal.user(account)
    assert not login.may_write("orders")
    named = {**jwts.settings, "account_users": {account: "billing"}}
    login = await PortWorld(named, authorization=nkeys, sasl=SCRAM).log_in(connect)
    assert login.session.principal == Principal.user("billing")
    signing = await PortWorld(named, authorization=nkeys, sasl=SCRAM).log_in(jwts.login(admin))
    assert signing.session.principal == Principal.user("admin")


async def test_bearers_do_not_sign_and_are_not_sent_in_the_clear(tmp_path: Path) -> None:
    jwts, key = Jwts(tmp_path), user_key()
    world = PortWorld(jwts.settings)
    connect = {"jwt": jwts.login(key, {"bearer_token": True})["jwt"]}
    assert await world.refusal(connect) == ""
    assert "without TLS" in await world.refusal(connect, host=ELSEWHERE)
    assert await world.refusal(connect, host=ELSEWHERE, is_encrypted=True) == ""


async def test_a_jwt_ends_at_its_time(tmp_path: Path) -> None:
    jwts, key = Jwts(tmp_path), user_key()
    world = PortWorld(jwts.settings)
    login = await world.log_in(jwts.login(key, exp=int(time.time()) + 100))
    assert login.expires_s is not None
    assert 98 < login.expires_s - time.monotonic() <= 100
    assert login.expiry == err.AUTHENTICATION_EXPIRED


async def test_a_client_is_told_that_it_is_its_account_that_ends(tmp_path: Path) -> None:
    jwts, key = Jwts(tmp_path), user_key()
    jwts.account.claims["exp"] = int(time.time()) + 100
    jwts.write()
    login = await PortWorld(jwts.settings).log_in(jwts.login(key))
    assert login.expiry == err.ACCOUNT_AUTHENTICATION_EXPIRED


async def test_a_revoked_user_has_to_go(tmp_path: Path) -> None:
    jwts, key, other = Jwts(tmp_path), user_key(), user_key()
    world = PortWorld(jwts.settings)
    login, stays = await world.log_in(jwts.login(key)), await world.log_in(jwts.login(other))
    assert await login.ending() is None
    jwts.account.nats["revocations"] = {key.public: int(time.time()) + 1}
    jwts.write()
    assert await login.ending() == err.AUTHENTICATION_REVOKED
    assert await stays.ending() is None
    assert "revoked" in await world.refusal(jwts.login(key))
    jwts.path.unlink()
    assert await stays.ending() == err.AUTHENTICATION_REVOKED


async def test_a_user_whose_account_ends_sooner_has_to_come_again(tmp_path: Path) -> None:
    """The listener knows the end of before."""
    jwts, key = Jwts(tmp_path), user_key()
    world = PortWorld(jwts.settings)
    login = await world.log_in(jwts.login(key))
    jwts.account.claims["exp"] = int(time.time()) + 1_000
    jwts.write()
    assert await login.ending() == err.AUTHENTICATION_REVOKED
    login = await world.log_in(jwts.login(key))
    jwts.account.claims["exp"] += 1_000
    jwts.write()
    assert await login.ending() is None


async def test_a_user_whose_account_gives_other_permissions_has_to_come_again(
    tmp_path: Path,
) -> None:
    jwts, key = Jwts(tmp_path), user_key()
    world = PortWorld(jwts.settings)
    login = await world.log_in(jwts.login(key))
    jwts.account.nats["tags"] = ["x:y"]
    jwts.write()
    assert await login.ending() is None
    jwts.account.nats["default_permissions"] = {"pub": {"deny": ["secret"]}}
    jwts.write()
    assert await login.ending() == err.AUTHENTICATION_REVOKED
    assert not (await world.log_in(jwts.login(key))).permissions.may_publish(b"secret")


async def test_a_jwt_needs_an_operator(users: PortWorld, tmp_path: Path) -> None:
    assert "nats_listen.operator" in await users.refusal(Jwts(tmp_path).login(user_key()))


def test_the_key_of_an_account_begins_with_a(tmp_path: Path) -> None:
    jwts = Jwts(tmp_path)
    with pytest.raises(ConfigError, match=r"^nats_listen\.account_users"):
        PortWorld({**jwts.settings, "account_users": {user_key().public: "x"}})


# Permissions


def lists(*allow: str) -> dict[str, Any]:
    return {"publish": {"allow": list(allow)}}


async def test_permissions_are_by_user_and_default() -> None:
    world = PortWorld({"permissions": {"alice": lists("a"), "default": lists("d")}}, sasl=SCRAM)
    for user in ("alice", "bob", "default"):
        world.add_user(user, "secret")
    alice, bob, other = [
        (await world.log_in(password(it))).permissions for it in ("alice", "bob", "default")
    ]
    assert (alice.may_publish(b"a"), alice.may_publish(b"d")) == (True, False)
    for each in (bob, other):
        assert (each.may_publish(b"a"), each.may_publish(b"d")) == (False, True)


async def test_permissions_of_a_jwt_take_the_place_of_the_default_ones(tmp_path: Path) -> None:
    settings = {"permissions": {"default": lists("d"), "alice": lists("a.>")}}
    jwts, key, alice = Jwts(tmp_path, **settings), user_key(), user_key()
    world = PortWorld(jwts.settings, authorization={"nkeys": {alice.public: "alice"}})
    own = {"pub": {"allow": ["a.own", "o"]}}
    found = (await world.log_in(jwts.login(key, own))).permissions
    assert (found.may_publish(b"o"), found.may_publish(b"d")) == (True, False)
    found = (await world.log_in(jwts.login(key))).permissions
    assert (found.may_publish(b"o"), found.may_publish(b"d")) == (False, True)
    found = (await world.log_in(jwts.login(alice, own))).permissions
    subjects = (b"a.own", b"a.other", b"o", b"d")
    assert [found.may_publish(it) for it in subjects] == [True, False, False, False]


async def test_answers_are_permitted_by_settings() -> None:
    world = PortWorld({"permissions": {"default": {"replies_max": 1}}})
    found = (await world.log_in({})).permissions
    assert found.tracks_replies
    assert not found.may_publish(b"inbox")
    found.delivered(b"inbox")
    assert found.may_publish(b"inbox")
    assert not found.may_publish(b"inbox")


def test_a_permission_that_is_no_subject_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"^nats_listen\.permissions\.alice: 'a b'"):
        PortWorld({"permissions": {"alice": lists("a b")}})


# Rules


async def test_streams_are_written_and_read_by_the_rules(users: PortWorld) -> None:
    login = await users.log_in(password())
    assert not login.may_write("orders")
    assert not login.may_read("orders")
    users.rules = RuleBook.of(rule("write topic orders"), rule("read topic log"))
    assert login.may_write("orders")
    assert not login.may_read("orders")
    assert login.may_read_all(["log"])
    assert not login.may_read_all(["log", "orders"])
    assert login.may_read_all([])
    users.rules = RuleBook()
    assert not login.may_write("orders")


async def test_rules_are_asked_once_while_they_stay(
    users: PortWorld, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = await users.log_in(password())
    with caplog.at_level(logging.WARNING, "streamlog.audit"):
        assert not any(login.may_write("orders") for _ in range(100))
    assert len([it for it in caplog.records if it.message == "refused"]) == 1
    monkeypatch.setattr(port_authenticator, "STREAMS_MAX", 10)
    for number in range(100):
        login.may_write(f"s{number}")
        assert len(login._answers) <= 12


async def test_refusals_are_audited_without_secrets(
    users: PortWorld, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "streamlog.audit"):
        await users.refusal(password("alice", "hunter22"), host=ELSEWHERE, is_encrypted=True)
    (line,) = caplog.records
    assert line.message == "login refused"
    assert line.__dict__["host"] == ELSEWHERE
    assert line.__dict__["by"] == "NATS port"
    assert "hunter22" not in str(line.__dict__)


async def test_the_refusal_is_the_one_that_clients_may_see(users: PortWorld) -> None:
    with pytest.raises(AuthenticationFailed):
        await users.log_in(password("nobody"))


def test_nonces_are_never_the_same() -> None:
    port = PortWorld().port
    assert len({port.new_nonce() for _ in range(100)}) == 100
