"""A node's certificates, and what becomes of new ones."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from streamlog.config import Settings
from streamlog.errors import ConfigError
from streamlog.tls.certificates import Certificates
from tests.certificate_authority import CertificateAuthority


def settings_of(tmp_path: Path, **sections: dict[str, Any]) -> Settings:
    return Settings(node={"data_dir": str(tmp_path / "data")}, **sections)  # type: ignore[arg-type]


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path)


async def test_without_certificates_all_is_in_the_clear(tmp_path: Path) -> None:
    certificates = Certificates(settings_of(tmp_path))
    assert (certificates.kafka(), certificates.http(), certificates.outgoing()) == (None,) * 3
    assert not await certificates.have_changed()
    assert not certificates.are_shown


def test_each_listener_may_have_its_own(tmp_path: Path, authority: CertificateAuthority) -> None:
    node, page = authority.issue("node"), authority.issue("page")
    http = {"tls_cert": str(page.cert), "tls_key": str(page.key), "tls_client_auth": "none"}
    tls = {**node.settings(), "client_ca": str(authority.ca), "client_auth": "required"}
    certificates = Certificates(settings_of(tmp_path, tls=tls, http=http))
    assert {d: it.subject[:7] for d, it in certificates.shown.items()} == {
        "kafka": "CN=node",
        "http": "CN=page",
    }
    kafka, https = certificates.kafka(), certificates.http()
    assert kafka is not None
    assert https is not None
    assert (kafka.verify_mode, https.verify_mode) == (ssl.CERT_REQUIRED, ssl.CERT_NONE)
    off = settings_of(tmp_path, tls=node.settings(), http={"tls": False})
    assert Certificates(off).http() is None
    assert Certificates(off).kafka() is not None


@pytest.mark.parametrize(
    ("sections", "key"),
    [
        ({"kafka": {"tls": True}}, "kafka.tls"),
        ({"http": {"tls": True}}, "http.tls"),
        ({"http": {"tls_client_auth": "optional"}}, "http.tls_client_auth"),
    ],
)
def test_what_contradicts_itself_is_told(
    tmp_path: Path, sections: dict[str, dict[str, Any]], key: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Certificates(settings_of(tmp_path, **sections))
    assert caught.value.key == key


def test_a_listener_in_the_clear_asks_for_no_certificates(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    tls = {**authority.issue("node").settings(), "client_ca": str(authority.ca)}
    tls["client_auth"] = "required"
    with pytest.raises(ConfigError, match=r"tls.client_auth: is 'required', and .* no TLS"):
        Certificates(settings_of(tmp_path, tls=tls, kafka={"tls": False}))


async def test_new_files_are_noticed_and_loaded(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    certificates = Certificates(settings_of(tmp_path, tls=authority.issue("node").settings()))
    before, until = certificates.kafka(), certificates.shown["kafka"].not_after
    assert not await certificates.have_changed()
    authority.issue("node", days=90)
    assert await certificates.have_changed()
    certificates.reload()
    assert not await certificates.have_changed()
    assert certificates.kafka() is not before
    assert certificates.shown["kafka"].not_after > until


async def test_bad_new_files_keep_the_old_ones_and_are_told_once(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    issued = authority.issue("node")
    certificates = Certificates(settings_of(tmp_path, tls=issued.settings()))
    before = certificates.kafka()
    for spoil in (
        lambda: issued.cert.write_text("nothing"),
        issued.key.unlink,
        lambda: authority.issue("node", days=-1),
    ):
        spoil()
        assert await certificates.have_changed()
        with pytest.raises(ConfigError):
            certificates.reload()
        assert not await certificates.have_changed()
        assert certificates.kafka() is before
    authority.issue("node")
    certificates.reload()
    assert certificates.kafka() is not before
