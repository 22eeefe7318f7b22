"""Who asks over NATS: signed requests."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from streamlog.acl.rules import RuleBook
from streamlog.authn import nonces
from streamlog.authz.audit import Audit
from streamlog.authz.service import AuthorizationService
from streamlog.authz.signature import KEY, sign
from streamlog.config import AuthorizationSection
from streamlog.errors import AuthenticationFailed
from streamlog.jetstream.auth.identity import RequestIdentities
from tests.restricted import rule
from tests.secured_nats import KeyPair, user_key


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
        authorization = AuthorizationService(section, lambda: book, Audit(), enforced=True)
        self.identity = RequestIdentities(authorization, section)

    def message(self, key: KeyPair) -> Any:
        signed = sign({KEY: key.public}, "s", b"d", key.sign, now_ms=time.time_ns() // 1_000_000)
        return SimpleNamespace(subject="s", data=b"d", headers=signed, reply="", session=None)


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
