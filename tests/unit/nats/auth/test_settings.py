"""What the settings of the port say, and what of them is refused before a node starts."""

from typing import Any

import pytest
from pydantic import ValidationError

from streamlog.app.listen_check import nats_listen_address
from streamlog.app.start_checks import nats_listen_refusals
from streamlog.config import ClientAuth, NatsListenAuthSection, Settings
from streamlog.config.description import described_fields
from streamlog.config.node_settings import Section
from streamlog.config.settings_loader import _nearest
from tests.nats_jwts import operator_key
from tests.secured_nats import user_key

LISTED = {"nkeys": {user_key().public: "alice"}}
SCRAM = {"mechanisms": ["SCRAM-SHA-256"]}
OUT = "0.0.0.0"


def settings(**sections: Any) -> Settings:
    return Settings(node={"data_dir": "data"}, **sections)


@pytest.mark.parametrize(
    ("section", "client_auth", "sections", "authenticates"),
    [
        ({}, "none", {}, False),
        ({}, "optional", {}, False),
        ({}, "required", {}, True),
        ({"token_file": "/tokens"}, "none", {}, True),
        ({"operator": "O", "account_jwts": ["a"]}, "none", {}, True),
        ({}, "none", {"authorization": LISTED}, True),
        ({"nkey_auth": False}, "none", {"authorization": LISTED}, False),
        ({}, "none", {"sasl": SCRAM}, True),
        ({}, "required", {"sasl": SCRAM, "security": {"permissive": True}}, False),
    ],
)
def test_the_port_authenticates_if_there_is_a_way_to_log_in(
    section: dict[str, Any], client_auth: ClientAuth, sections: dict[str, Any], authenticates: bool
) -> None:
    auth = NatsListenAuthSection.model_validate(section)
    found = nats_listen_address(OUT, auth, client_auth, settings(**sections))
    assert found.section == "nats_listen"
    assert found.authenticates == authenticates


def refusals(host: str = "127.0.0.1", *, section: Any = None, **sections: Any) -> list[str]:
    auth = NatsListenAuthSection.model_validate(section or {})
    return [str(it) for it in nats_listen_refusals(host, auth, "none", settings(**sections))]


def test_an_open_port_is_for_this_machine() -> None:
    assert refusals() == []
    (said,) = refusals(OUT)
    assert said.startswith("nats_listen.host: 0.0.0.0 can be reached from other machines")
    assert refusals(OUT, security={"allow_unauthenticated": True}) == []
    assert refusals(OUT, sasl=SCRAM) == []


def test_a_start_needs_the_files_of_the_port() -> None:
    section = {"operator": operator_key().public, "account_jwts": ["/no/such.jwt"]}
    (said,) = refusals(section=section)
    assert said.startswith("nats_listen.account_jwts: /no/such.jwt cannot be read")
    (said,) = refusals(section={"password_auth": True})
    assert said.startswith("nats_listen.password_auth: there are no users without a login")


@pytest.mark.parametrize(
    "section",
    [
        {"account_jwts": ["a"]},
        {"operator_signing_keys": ["O"]},
        {"account_users": {"A": "x"}},
        {"operator": "O"},
        {"permissions": {"alice": {"publish": {"alow": ["a"]}}}},
        {"permissions": {"alice": {"replies_max": -1}}},
    ],
)
def test_contradictions_are_refused(section: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        NatsListenAuthSection.model_validate(section)


class Listener(NatsListenAuthSection):
    """A listener with logins."""


class Further(Section):
    """Without them."""


def test_a_section_describes_the_settings_that_it_inherits() -> None:
    meanings = {it.key: it.meaning for it in described_fields(Listener)}
    assert set(meanings) == set(NatsListenAuthSection.model_fields)
    assert all(meanings.values())
    assert meanings["nkey_auth"].startswith("Accept the NKeys")
    assert not list(described_fields(Further))


def test_a_key_inside_of_a_value_has_no_near_names() -> None:
    """A table by user has keys of its own."""
    assert not _nearest(["encryption", "keys", "a"])
    assert _nearest(["encryption", "keyz"]) == ["encryption", "keys"]
