import logging
from pathlib import Path

import pytest

from streamlog.errors import ConfigError
from streamlog.tls.contexts import File, Trust, client_context
from streamlog.tls.watched_context import WatchedContext
from tests.certificate_authority import CertificateAuthority, write


def watched(ca: Path) -> WatchedContext:
    return WatchedContext([ca], lambda: client_context(None, Trust(File("--tls-ca", ca))))


def test_other_files_make_another_context(tmp_path: Path) -> None:
    ca = CertificateAuthority(tmp_path / "one").ca
    context = watched(ca)
    first = context.current()
    assert context.current() is first
    write(ca, CertificateAuthority(tmp_path / "two").ca.read_bytes())
    second = context.current()
    assert second is not first
    assert second.get_ca_certs() != first.get_ca_certs()
    assert context.current() is second


def test_bad_ones_leave_what_there_was_and_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ca = CertificateAuthority(tmp_path / "one").ca
    context = watched(ca)
    first = context.current()
    write(ca, b"no certificate")
    with caplog.at_level(logging.WARNING):
        assert context.current() is first
        assert context.current() is first
    assert [it.message for it in caplog.records] == [
        "certificates not reloaded: those loaded before stay in use"
    ]
    ca.unlink()
    assert context.current() is first


def test_without_files_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--tls-ca"):
        watched(tmp_path / "missing")
