"""Settings of the way to NATS: what they come to, what contradicts itself, what cannot be read."""

from pathlib import Path
from typing import Any

import pytest

from streamlog.config import NatsSection
from streamlog.errors import ConfigError
from streamlog.ingest.nats.options import NatsOptions
from tests.secured_nats import Certificates, KeyPair, Operator, user_key


def refusal(**settings: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        NatsOptions(NatsSection.model_validate(settings))
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_a_login_in_the_address_counts_everywhere_and_is_shown_nowhere() -> None:
    servers = ["nats://me:pa%3Ass@a:1", "me:pa%3Ass@b:2"]
    access = NatsOptions(NatsSection.model_validate({"servers": servers}))
    assert access.servers == ("nats://a:1", "b:2")
    assert access.login.fields("") == {"user": "me", "pass": "pa:ss"}
    assert "pa:ss" not in f"{access.login} {access.login!r}"
    token = NatsOptions(NatsSection(servers=("nats://s3cret@[::1]:1",)))
    assert token.servers == ("nats://[::1]:1",)
    assert token.login.fields("") == {"auth_token": "s3cret"}


@pytest.mark.parametrize(
    ("servers", "problem"),
    [
        (("ws://a",), "'ws://a' is not supported"),
        (("http://u:p@a",), "'http://a' is not supported"),
        (("nats://",), "is no address"),
        (("nats://u:p@a:x",), "'nats://a:x' is no address"),
        (("nats://a:70000",), "is no address"),
        (("nats://u:p@a", "nats://b"), "have different logins, or some have none"),
        (("nats://u:p@a", "nats://u:q@b"), "have different logins"),
    ],
)
def test_addresses_that_cannot_be_used(servers: tuple[str, ...], problem: str) -> None:
    line = refusal(servers=servers)
    assert line.startswith("nats.servers: ")
    assert problem in line
    assert "u:" not in line


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"user": "u"}, "nats.user: needs nats.password"),
        ({"password": "s3cret"}, "nats.password: needs nats.user"),
        ({"user": "u", "password": "s3cret", "token": "s3cret"}, "nats.user: contradicts nats.tok"),
        ({"token": "s3cret", "credentials": "/x"}, "nats.token: contradicts nats.credentials"),
        ({"nkey_seed": "/x", "credentials": "/x"}, "nats.nkey_seed: contradicts nats.credentials"),
        (
            {"token": "s3cret", "servers": ("nats://u:p@a",)},
            "nats.token: contradicts the login in nats.servers",
        ),
        ({"tls_cert": "/x"}, "nats.tls_cert: needs nats.tls_key"),
        ({"tls_key": "/x"}, "nats.tls_key: needs nats.tls_cert"),
    ],
)
def test_contradictions(settings: dict[str, Any], problem: str) -> None:
    line = refusal(**settings)
    assert line.startswith(problem)
    assert "s3cret" not in line


@pytest.mark.parametrize("key", ["nkey_seed", "credentials", "tls_ca"])
def test_files_that_cannot_be_used(tmp_path: Path, key: str) -> None:
    assert f"nats.{key}: {tmp_path / 'none'} cannot be read" in refusal(**{key: tmp_path / "none"})
    assert f"nats.{key}: {tmp_path} cannot be read" in refusal(**{key: tmp_path})
    wrong = tmp_path / "wrong"
    for content in (b"", b"s3cret\n", b"\xff" * 100, b"-----BEGIN CERTIFICATE-----\n"):
        wrong.write_bytes(content)
        line = refusal(**{key: wrong})
        assert line.startswith(f"nats.{key}: {wrong} ")
        assert "s3cret" not in line


def test_seeds_of_others_than_users(tmp_path: Path) -> None:
    import nkeys

    account = KeyPair(nkeys.PREFIX_BYTE_ACCOUNT)
    line = refusal(nkey_seed=account.write(tmp_path / "account.nk"))
    assert "holds no seed of a user" in line
    assert account.seed not in line


def test_a_signature_and_who_gives_it(tmp_path: Path) -> None:
    key = user_key()
    access = NatsOptions(NatsSection(nkey_seed=key.write(tmp_path / "user.nk")))
    fields = access.login.fields("nonce")
    assert fields["nkey"] == key.public
    assert key.seed not in str(fields)
    user = Operator().write_credentials(tmp_path / "user.creds")
    fields = NatsOptions(NatsSection(credentials=tmp_path / "user.creds")).login.fields("nonce")
    assert fields.keys() == {"jwt", "sig"}
    assert user.seed not in str(fields)


def test_only_an_expired_jwt_is_said_to_be(tmp_path: Path) -> None:
    file = tmp_path / "user.creds"
    for expires_s, said in ((None, False), (100, False), (-100, True)):
        Operator().write_credentials(file, expires_s=expires_s)
        assert ("expired at" in str(NatsOptions(NatsSection(credentials=file)).login)) is said


def test_certificates(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    (cert, key), (_, other) = made.issue("one", "a.example"), made.issue("two", "b.example")
    context = NatsOptions(NatsSection(tls_ca=made.ca, tls_cert=cert, tls_key=key)).tls.context()
    assert [ca["serialNumber"] for ca in context.get_ca_certs()] != []
    assert f"nats.tls_key: {other} is not the key of {cert}" in refusal(
        tls_cert=cert, tls_key=other
    )
    assert "nats.tls_cert: " in refusal(tls_cert=key, tls_key=key)
    assert "nats.tls_key: /none cannot be read" in refusal(tls_cert=cert, tls_key="/none")
    locked = tmp_path / "locked.pem"
    locked.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n")
    assert f"nats.tls_key: {locked} is encrypted" in refusal(tls_cert=cert, tls_key=locked)


@pytest.mark.parametrize(
    ("settings", "required"),
    [
        ({}, False),
        ({"servers": ("nats://a", "tls://b")}, True),
        ({"tls_server_name": "a"}, True),
        ({"tls_first": True}, True),
    ],
)
def test_when_nothing_is_said_in_the_clear(settings: dict[str, Any], required: bool) -> None:
    assert NatsOptions(NatsSection(**settings)).tls.required is required


def test_pauses_double_after_refusals_up_to_a_limit() -> None:
    access = NatsOptions(NatsSection(reconnect_backoff_ms=250, reconnect_backoff_max_ms=1_500))
    assert [access.pause_s(n) for n in (0, 1, 2, 3, 4, 99)] == [0.25, 0.25, 0.5, 1, 1.5, 1.5]
    patient = NatsOptions(NatsSection(reconnect_backoff_ms=9_000, reconnect_backoff_max_ms=1_500))
    assert patient.pause_s(1) == 9


def test_a_node_may_have_no_server() -> None:
    options = NatsOptions(NatsSection(servers=()))
    assert (options.servers, options.login.fields("")) == ((), {})


def test_a_node_is_a_client_or_a_leafnode() -> None:
    leaf = NatsSection(servers=("nats-leaf://u:p@a:7422", "nats-leaf://u:p@b"))
    assert leaf.is_leaf
    assert NatsOptions(leaf).servers == ("nats-leaf://a:7422", "nats-leaf://b")
    assert not NatsSection().is_leaf
    with pytest.raises(ConfigError, match="mixes nats-leaf:// with other schemes"):
        NatsOptions(NatsSection(servers=("nats-leaf://a", "nats://b")))
