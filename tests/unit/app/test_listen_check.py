"""Nobody gets in from elsewhere without being asked who they are, unless that is said."""

import logging
from typing import Any

import pytest

from streamlog.app.listen_check import check_exposure, is_local
from streamlog.config import Settings
from streamlog.errors import ConfigError

CERT = {"cert": "/c.pem", "key": "/k.pem", "client_ca": "/ca.pem"}
MUTUAL = {**CERT, "client_auth": "required"}
OUT = {"host": "0.0.0.0"}


def settings(**sections: dict[str, Any]) -> Settings:
    return Settings(node={"data_dir": "data"}, **sections)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("192.0.2.1", False),
        ("no such host.invalid", True),
    ],
)
def test_what_is_local(host: str, local: bool) -> None:
    assert is_local(host) == local


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"kafka": OUT}, "kafka.host"),
        ({"http": OUT}, "http.host"),
        ({"kafka": OUT, "tls": CERT}, "kafka.host"),
        ({"kafka": OUT, "tls": {**CERT, "client_auth": "optional"}}, "kafka.host"),
        ({"kafka": OUT, "http": {**OUT, "allow_unauthenticated": True}}, "kafka.host"),
        ({"http": {**OUT, "tls_client_auth": "none"}, "tls": MUTUAL}, "http.host"),
        ({"http": {**OUT, "tls": False}, "tls": MUTUAL}, "http.host"),
        ({"http": {**OUT, "tls": False, "token_file": "/t"}, "tls": MUTUAL}, "http.host"),
    ],
)
def test_an_open_listener_is_refused(sections: dict[str, dict[str, Any]], key: str) -> None:
    with pytest.raises(ConfigError, match="clients need not authenticate") as caught:
        check_exposure(settings(**sections))
    assert caught.value.key == key
    assert "security.allow_unauthenticated" in caught.value.remedy


SCRAM = {"mechanisms": ["SCRAM-SHA-512"]}


@pytest.mark.parametrize("sections", [{"sasl": SCRAM}, {"tls": MUTUAL}, {"tls": CERT}])
def test_optional_security_is_none_and_is_warned_of(
    sections: dict[str, dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    optional = settings(**sections, security={"permissive": True})
    assert not optional.authentication_on
    with caplog.at_level(logging.WARNING):
        check_exposure(optional)
    assert [it.message for it in caplog.records] == ["permissive: any client may do anything"]
    with pytest.raises(ConfigError, match="clients need not authenticate"):
        check_exposure(settings(**sections, security={"permissive": True}, kafka=OUT))


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({}, "neither TLS nor a login is set up"),
        ({"tls": CERT, "kafka": {"tls": False}}, "neither TLS nor a login is set up"),
        ({"tls": CERT, "kafka": {"request_bytes_max": 400 << 20}}, "begins as TLS does"),
    ],
)
def test_what_cannot_be_optional_is_told(sections: dict[str, dict[str, Any]], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        check_exposure(settings(**sections, security={"permissive": True}))
    assert caught.value.key == "security.permissive"


@pytest.mark.parametrize(
    ("sections", "warned"),
    [
        ({}, []),
        ({"kafka": OUT, "http": OUT, "tls": MUTUAL}, []),
        ({"http": {**OUT, "token_file": "/t"}, "tls": {**MUTUAL, "client_auth": "none"}}, []),
        (
            {"kafka": OUT, "http": OUT, "security": {"allow_unauthenticated": True}},
            ["kafka", "http"],
        ),
        (
            {
                "kafka": OUT,
                "tls": MUTUAL,
                "http": {**OUT, "tls": False, "allow_unauthenticated": True},
            },
            ["http"],
        ),
    ],
)
def test_what_is_meant_is_warned_of(
    sections: dict[str, dict[str, Any]], warned: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        check_exposure(settings(**sections))
    assert [it.__dict__["listener"] for it in caplog.records] == warned
