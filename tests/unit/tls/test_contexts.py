"""What is wrong with a file is one line that names its setting."""

from pathlib import Path

import pytest

from streamlog.errors import ConfigError
from streamlog.tls.contexts import File, KeyPair, Trust, client_context, server_context
from tests.certificate_authority import CertificateAuthority, Issued

PASSWORD = b"quite secret"


def pair(issued: Issued, password: Path | None = None) -> KeyPair:
    return issued.pair._replace(
        password=File("tls.key_password_file", password) if password else None
    )


NOBODY = Trust(None)


def refusal(own: KeyPair, trust: Trust = NOBODY) -> str:
    with pytest.raises(ConfigError) as caught:
        server_context(own, trust, "required" if trust.ca else "none")
    line = str(caught.value)
    assert "\n" not in line
    assert PASSWORD.decode() not in line
    return line


def test_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    issued = CertificateAuthority(tmp_path).issue("node", password=PASSWORD)
    assert refusal(pair(issued)).endswith(
        "is encrypted; name a file with its password as tls.key_password_file"
    )
    secret = tmp_path / "secret"
    secret.write_bytes(PASSWORD + b"\n")
    server_context(pair(issued, secret), Trust(None), "none")
    secret.write_bytes(b"another\n")
    assert refusal(pair(issued, secret)).startswith(
        f"tls.key_password_file: {secret} does not open"
    )
    secret.unlink()
    assert "cannot be read (No such file or directory)" in refusal(pair(issued, secret))


def test_what_does_not_belong_together_is_told(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    one, other = authority.issue("one"), authority.issue("other")
    mixed = KeyPair(one.pair.cert, other.pair.key)
    assert refusal(mixed) == (
        f"tls.key: {other.key} is not the key of {one.cert}; name the two that belong together"
    )
    assert refusal(KeyPair(one.pair.key, one.pair.key)).startswith(f"tls.key: {one.key} does not")
    one.key.write_text("no key")
    assert "or" in refusal(one.pair)


def test_trust_must_be_certificates(tmp_path: Path) -> None:
    issued = CertificateAuthority(tmp_path).issue("node")
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n")
    assert "does not hold certificates of CAs" in refusal(
        issued.pair, Trust(File("tls.client_ca", wrong))
    )
    good = Trust(File("tls.client_ca", tmp_path / "ca.pem"), File("tls.crl", issued.cert))
    assert refusal(issued.pair, good).startswith(f"tls.crl: {issued.cert} does not hold lists")


def test_only_ephemeral_keys_and_aead(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    for context in (authority.server(authority.issue("node")), client_context(None, Trust(None))):
        for cipher in context.get_ciphers():
            assert cipher["aead"], cipher
            assert cipher["protocol"] == "TLSv1.3" or cipher["name"].startswith("ECDHE")
