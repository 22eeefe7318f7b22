"""A CA in a folder: certificates for nodes and clients, good and bad, and what it revokes."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from streamlog.tls.contexts import File, KeyPair, Trust, client_context, server_context

LOCAL = ("localhost", "127.0.0.1", "::1")


BY_NAME: dict[str, object] = {
    "principal_mapping_rules": "RULE:^CN=([^,]+),.*$/$1/",
    "node_principals": ["node"],
}
"""The section ``sasl``: who shows a certificate is known by its common name."""


class Issued(NamedTuple):
    cert: Path
    key: Path

    @property
    def pair(self) -> KeyPair:
        return KeyPair(File("tls.cert", self.cert), File("tls.key", self.key))

    def settings(self) -> dict[str, str]:
        return {"cert": str(self.cert), "key": str(self.key)}


class CertificateAuthority:
    """Everything it issues lies in its folder, by name."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._ca = trustme.CA()
        self.ca = directory / f"{name}.pem"
        self._ca.cert_pem.write_to_path(self.ca)

    def issue(
        self,
        name: str,
        *hosts: str,
        days: float = 30,
        organization: str | None = None,
        password: bytes | None = None,
    ) -> Issued:
        """For these hosts, by default this machine; ``days`` below 0: expired. Again: a new one."""
        now = datetime.now(UTC)
        issued = self._ca.issue_cert(
            *(hosts or LOCAL),
            common_name=name,
            organization_name=organization,
            not_before=now - timedelta(days=60),
            not_after=now + timedelta(days=days),
        )
        cert, key = self.directory / f"{name}.pem", self.directory / f"{name}-key.pem"
        pem = issued.private_key_pem.bytes()
        if password is not None:
            pem = serialization.load_pem_private_key(pem, None).private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(password),
            )
        write(cert, b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        write(key, pem)
        return Issued(cert, key)

    def revoke(self, *issued: Issued) -> Path:
        """The list of what is revoked: these."""
        ca = x509.load_pem_x509_certificate(self._ca.cert_pem.bytes())
        key = serialization.load_pem_private_key(self._ca.private_key_pem.bytes(), None)
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(ca.subject)
            .last_update(now - timedelta(days=1))
            .next_update(now + timedelta(days=1))
        )
        for each in issued:
            serial = x509.load_pem_x509_certificate(each.cert.read_bytes()).serial_number
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            builder = builder.add_revoked_certificate(revoked.build())
        crl = self.directory / "crl.pem"
        write(crl, builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))  # type: ignore[arg-type]
        return crl

    def trust(self, crl: Path | None = None) -> Trust:
        return Trust(File("tls.ca", self.ca), File("tls.crl", crl) if crl else None)

    def server(
        self,
        own: Issued,
        client_auth: Literal["none", "optional", "required"] = "none",
        crl: Path | None = None,
    ) -> ssl.SSLContext:
        return server_context(own.pair, self.trust(crl), client_auth)

    def client(self, own: Issued | None = None, crl: Path | None = None) -> ssl.SSLContext:
        return client_context(own and own.pair, self.trust(crl))


def write(path: Path, content: bytes) -> None:
    """As a whole, as who renews certificates does."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(content)
    new.replace(path)
