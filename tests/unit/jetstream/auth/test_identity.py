"""Who asks over NATS: signed requests, and the secrets by which nodes know each other."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamlog.acl.rulebook import RuleBook
from streamlog.authn import nonces
from streamlog.authz.audit import Audit
from streamlog.authz.authority import Authority
from streamlog.authz.signature import KEY, sign
from streamlog.config import AuthorizationSection, NodeSection, SaslSection, Settings
from streamlog.errors import AuthenticationFailed, ConfigError
from streamlog.jetstream.auth.identity import RequestIdentities, check_node_secrets, node_secrets_of
from streamlog.model import NodeId
from tests.restricted import rule
from tests.secured_nats import KeyPair, user_key

LONG = "a secret of many letters"


def settings(folder: Path, own: Path | None, passwords: Path | None = None) -> Settings:
    return Settings.model_construct(
        node=NodeSection(id=NodeId(1), data_dir=folder),
        authorization=AuthorizationSection(node_secret_file=own),
        sasl=SaslSection.model_construct(node_password_file=passwords),
    )


def test_whoever_signs_takes_the_first_line_and_knows_all(tmp_path: Path) -> None:
    own, passwords = tmp_path / "own", tmp_path / "passwords"
    own.write_text(f"{LONG} \n\n{LONG} of old\n")
    passwords.write_text("short\n")
    known = node_secrets_of(settings(tmp_path, own, passwords))
    assert list(known()) == [LONG.encode(), f"{LONG} of old".encode()]
    own.write_text(f"{LONG} of now\n")
    assert list(known()) == [f"{LONG} of now".encode()], "without a restart"
    (made,) = node_secrets_of(settings(tmp_path, None, passwords))()
    assert len(made) == 32
    assert made != b"short", "it is stretched: signatures made with it can be guessed by"
    assert [made] == list(node_secrets_of(settings(tmp_path, None, passwords))()), "on every node"
    assert list(node_secrets_of(settings(tmp_path, None))()) == []


@pytest.mark.parametrize("text", ["", "short\n", "fifteen-letters\n\n", None])
def test_a_file_without_a_secret_that_is_long_enough(tmp_path: Path, text: str | None) -> None:
    own = tmp_path / "own"
    if text is not None:
        own.write_text(text)
    told = settings(tmp_path, own)
    assert list(node_secrets_of(told)()) == []
    with pytest.raises(
        ConfigError, match=r"^authorization\.node_secret_file: .* 16 or more characters; "
    ):
        check_node_secrets(told)
    own.write_text("sixteen-letters!\n")
    check_node_secrets(told)
    assert list(node_secrets_of(told)()) == [b"sixteen-letters!"]


def test_without_a_file_nothing_is_wrong(tmp_path: Path) -> None:
    check_node_secrets(settings(tmp_path, None))


class World:
    """An identity with the rules of a node, and messages to it."""

    def __init__(self, *rules: str, **settings: object) -> None:
        self.key, self.stranger = user_key(), user_key()
        book = RuleBook.of(
            *(rule(it).model_copy(update={"principal": f"User:{self.key.public}"}) for it in rules)
        )
        section = AuthorizationSection.model_validate(
            {it: {self.key.public: value} if it == "nkeys" else value
             for it, value in settings.items()}
        )  # fmt: skip
        if settings.get("super_users"):
            section = section.model_copy(update={"super_users": (f"User:{self.key.public}",)})
        authority = Authority(section, lambda: book, Audit(), enforced=True)
        self.identity = RequestIdentities(authority, section)

    def message(self, key: KeyPair) -> Any:
        signed = sign({KEY: key.public}, "s", b"d", key.sign, now_ms=time.time_ns() // 1_000_000)
        return SimpleNamespace(subject="s", data=b"d", headers=signed, reply="")


@pytest.mark.parametrize(
    ("rules", "settings"),
    [
        (("read topic x",), {}),
        ((), {"nkeys": "alice"}),
        ((), {"super_users": ("User:x",)}),
    ],
    ids=["a rule", "nkeys", "super_users"],
)
def test_requests_of_keys_that_something_names_count_once(
    rules: tuple[str, ...], settings: dict[str, object]
) -> None:
    world = World(*rules, **settings)
    known, unknown = world.message(world.key), world.message(world.stranger)
    assert world.identity.of_client(known).counts_once
    with pytest.raises(AuthenticationFailed, match="has been used"):
        world.identity.of_client(known)
    for _ in range(2):
        asking = world.identity.of_client(unknown)
        assert not asking.counts_once
        assert asking.session.principal.name == world.stranger.public


def test_keys_that_nobody_knows_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nonces, "NONCES_MAX", 3)
    monkeypatch.setattr(nonces, "SHARE_MIN", 1)
    world = World("read topic x")
    for _ in range(20):
        world.identity.of_client(world.message(world.stranger))
    for _ in range(3):
        assert world.identity.of_client(world.message(world.key)).counts_once
