"""Contexts of files. What is wrong with one is a ConfigError that names its setting."""

import base64
import re
import ssl
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple

from streamlog.errors import ConfigError
from streamlog.tls.certificate import Certificate, read_certificate, read_next_update

CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: ephemeral keys and AEAD. TLS 1.3 has nothing else."""
KTLS: Final = 1 << 3
"""OpenSSL's ``SSL_OP_ENABLE_KTLS``, which Python knows by name from 3.12 on."""
_CERTIFICATE: Final = re.compile(
    "-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL
)
_CRL: Final = re.compile("-----BEGIN X509 CRL-----(.+?)-----END X509 CRL-----", re.DOTALL)
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

Version = Literal["1.2", "1.3"]


class File(NamedTuple):
    """And the setting that names it."""

    setting: str
    path: Path

    def read(self) -> bytes:
        """Raises ConfigError."""
        try:
            return self.path.read_bytes()
        except OSError as error:
            problem = f"{self.path} cannot be read ({error.strerror})"
            remedy = "name a file that this user may read"
            raise ConfigError(self.setting, problem, remedy) from None


class KeyPair(NamedTuple):
    """A certificate with its chain, and its key."""

    cert: File
    key: File
    password: File | None = None

    @property
    def files(self) -> tuple[File, ...]:
        return tuple(it for it in self if it is not None)

    def certificate(self) -> Certificate:
        """The first one, which is one's own. Raises ConfigError."""
        return next(certificates(self.cert))


def certificates(file: File) -> Iterator[Certificate]:
    """All of a PEM file, of which there is one at least. Raises ConfigError."""
    found = _CERTIFICATE.findall(file.read().decode("ascii", "replace"))
    try:
        if not found:
            raise ValueError("there is none")
        for pem in found:
            yield read_certificate(ssl.PEM_cert_to_DER_cert(pem))
    except ValueError:
        raise _no_pem(file, "a certificate") from None


def next_updates(file: File) -> Iterator[datetime | None]:
    """Of all lists of revocations in a PEM file, until when they hold. Raises ConfigError."""
    found = _CRL.findall(file.read().decode("ascii", "replace"))
    try:
        if not found:
            raise ValueError("there is none")
        for base64_text in found:
            yield read_next_update(base64.b64decode(base64_text))
    except ValueError:
        raise _no_pem(file, "lists of what CAs have revoked") from None


class Trust(NamedTuple):
    """Who vouches for others, and what they have revoked."""

    ca: File | None
    crl: File | None = None

    @property
    def files(self) -> tuple[File, ...]:
        return tuple(it for it in self if it is not None)


def server_context(
    own: KeyPair,
    clients: Trust,
    client_auth: Literal["none", "optional", "required"],
    *,
    min_version: Version = "1.2",
    kernel: bool = False,
) -> ssl.SSLContext:
    """For those who come. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context, min_version)
    if kernel:
        context.options |= KTLS
    _load_own(context, own)
    if client_auth != "none":
        context.verify_mode = ssl.CERT_REQUIRED if client_auth == "required" else ssl.CERT_OPTIONAL
        _load_trust(context, clients)
        # Who resumes a session does not show a certificate again, which may be revoked since.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    return context


def client_context(
    own: KeyPair | None, servers: Trust, *, min_version: Version = "1.2"
) -> ssl.SSLContext:
    """For where one goes to; the other side's certificate must be for its host. Raises ConfigError.

    ``own``: shown to a peer that asks for one.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _harden(context, min_version)
    if servers.ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    _load_trust(context, servers)
    if own is not None:
        _load_own(context, own)
    return context


def _harden(context: ssl.SSLContext, min_version: Version) -> None:
    context.minimum_version = _VERSIONS[min_version]
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION


def _load_trust(context: ssl.SSLContext, trust: Trust) -> None:
    if trust.ca is not None:
        pem = trust.ca.read()
        try:
            if b"-----BEGIN" not in pem:
                raise _no_pem(trust.ca, "certificates of CAs")
            context.load_verify_locations(trust.ca.path)
        except ssl.SSLError:
            raise _no_pem(trust.ca, "certificates of CAs") from None
    if trust.crl is not None:
        if b"-----BEGIN X509 CRL" not in trust.crl.read():
            raise _no_pem(trust.crl, "lists of what CAs have revoked")
        try:
            context.load_verify_locations(trust.crl.path)
        except ssl.SSLError:
            raise _no_pem(trust.crl, "lists of what CAs have revoked") from None
        # Of the whole chain: the owner of the key of a revoked intermediate CA can issue certificates.
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_CHAIN


def _load_own(context: ssl.SSLContext, own: KeyPair) -> None:
    own.cert.read()
    encrypted = b"ENCRYPTED" in own.key.read()
    if encrypted and own.password is None:
        remedy = f"name a file with its password as {_password_setting(own.key.setting)}"
        raise ConfigError(own.key.setting, f"{own.key.path} is encrypted", remedy)
    password = own.password.read().rstrip(b"\r\n") if own.password is not None else b""
    try:
        # A function, or OpenSSL would ask at a terminal where there is no password.
        context.load_cert_chain(own.cert.path, own.key.path, password=lambda: password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            problem = f"{own.key.path} is not the key of {own.cert.path}"
            remedy = "name the two that belong together"
            raise ConfigError(own.key.setting, problem, remedy) from None
        if encrypted and own.password is not None:
            problem = f"{own.password.path} does not open {own.key.path}, or that is no key"
            remedy = "put the key's password into it"
            raise ConfigError(own.password.setting, problem, remedy) from None
        raise _no_pem(own.cert, f"a certificate, or {own.key.path} no key") from None


def _password_setting(key_setting: str) -> str:
    dash = "-" if key_setting.startswith("--") else "_"
    return f"{key_setting}{dash}password{dash}file"


def _no_pem(file: File, what: str) -> ConfigError:
    return ConfigError(file.setting, f"{file.path} does not hold {what}", "name a PEM file")
