"""An ordering node's HTTP port is closed by default, as a node's own is."""

import logging
from pathlib import Path

import pytest

from streamlog.cli.ledger.serve import http_listener
from streamlog.errors import ConfigError
from tests.certificate_authority import CertificateAuthority

TOKEN = "a-token-of-an-ordering-node"
ELSEWHERE = "0.0.0.0"


class Files:
    def __init__(self, folder: Path) -> None:
        authority = CertificateAuthority(folder / "ca")
        own = authority.issue("ledger")
        self.ca, self.cert, self.key = authority.ca, own.cert, own.key
        self.tokens = folder / "tokens"
        self.tokens.write_text(TOKEN)
        self.empty = folder / "empty"
        self.empty.write_text("short")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_nothing_is_served_unasked(files: Files) -> None:
    assert http_listener(("127.0.0.1", None), None, (None, None, None), False) is None
    with pytest.raises(ConfigError, match="--http-port: is missing"):
        http_listener(("127.0.0.1", None), files.tokens, (None, None, None), False)


def test_on_this_machine_all_are_let_in(files: Files) -> None:
    listener = http_listener(("127.0.0.1", 0), None, (None, None, None), False)
    assert listener is not None
    assert listener.tls() is None


@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize("tls", [False, True])
def test_elsewhere_it_takes_tls_and_a_proof(files: Files, tls: bool, tokens: bool) -> None:
    own = (files.cert, files.key, None) if tls else (None, None, None)
    asked = (ELSEWHERE, 0), files.tokens if tokens else None, own
    if tls and tokens:
        listener = http_listener(*asked, False)
        assert listener is not None
        assert listener.tls() is not None
        return
    with pytest.raises(ConfigError, match="clients need not authenticate") as caught:
        http_listener(*asked, False)
    assert caught.value.key == "--http-host"


def test_a_certificate_of_who_comes_is_a_proof(files: Files) -> None:
    assert http_listener((ELSEWHERE, 0), None, (files.cert, files.key, files.ca), False) is not None


def test_what_is_meant_is_warned_of(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert http_listener((ELSEWHERE, 0), None, (None, None, None), True) is not None
    assert "insecure" in caplog.text


def test_files_that_are_of_no_use_are_named(files: Files) -> None:
    with pytest.raises(ConfigError, match=r"--http-token-file.* has no token"):
        http_listener(("127.0.0.1", 0), files.empty, (None, None, None), False)
    with pytest.raises(ConfigError, match="--http-tls-cert: a certificate and its key"):
        http_listener(("127.0.0.1", 0), None, (None, None, files.ca), False)
    with pytest.raises(ConfigError, match="--http-client-ca"):
        http_listener(("127.0.0.1", 0), None, (files.cert, files.key, files.empty), False)
