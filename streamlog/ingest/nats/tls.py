"""The TLS of connections to NATS: whom we trust, who we are, and whether to speak without it."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from streamlog.config import NatsSection
from streamlog.errors import ConfigError


@dataclass(frozen=True, slots=True)
class NatsTls:
    """As the settings have it. Files are read at each connection: a renewed certificate is used."""

    required: bool = False
    """Nothing is said in the clear, least of all a password; else TLS is spoken where NATS asks."""
    first: bool = False
    """Before NATS has greeted, as its ``handshake_first`` wants it."""
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str | None = None
    """What the server's certificate must be for, where that is not the host in its address."""

    def context(self) -> ssl.SSLContext:
        """Raises ConfigError for files that cannot be used."""
        if self.ca is None:
            context = ssl.create_default_context()
        else:
            _check_readable("nats.tls_ca", self.ca)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # and not the system's CAs
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            try:
                context.load_verify_locations(self.ca)
            except ssl.SSLError:
                raise _no_pem("nats.tls_ca", self.ca, "certificates of CAs") from None
        if self.cert is not None and self.key is not None:
            self._load_own(context, self.cert, self.key)
        return context

    def check(self) -> None:
        """Raises ConfigError for files that cannot be used."""
        if self.ca is not None or self.cert is not None:  # the system's CAs take 50 ms to load
            self.context()

    def _load_own(self, context: ssl.SSLContext, cert: Path, key: Path) -> None:
        _check_readable("nats.tls_cert", cert)
        _check_readable("nats.tls_key", key)
        if b"ENCRYPTED" in key.read_bytes():
            remedy = "decrypt it (openssl pkey -in KEY -out PLAIN) and keep it from others"
            raise ConfigError("nats.tls_key", f"{key} is encrypted", remedy)
        try:
            context.load_cert_chain(cert, key, password=lambda: b"")  # never ask at a terminal
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                problem = f"{key} is not the key of {cert}"
                raise ConfigError(
                    "nats.tls_key", problem, "name the two that belong together"
                ) from None
            raise _no_pem("nats.tls_cert", cert, f"a certificate, or {key} no key") from None


def tls_of(nats: NatsSection, schemes: set[str]) -> NatsTls:
    """Of the settings and of how the servers' addresses begin. Raises ConfigError."""
    if (nats.tls_cert is None) != (nats.tls_key is None):
        lone, other = ("cert", "key") if nats.tls_key is None else ("key", "cert")
        raise ConfigError(f"nats.tls_{lone}", f"needs nats.tls_{other}", "set both or neither")
    asked = nats.tls_ca or nats.tls_cert or nats.tls_server_name or nats.tls_first
    return NatsTls(
        required=bool(asked) or "tls" in schemes,
        first=nats.tls_first,
        ca=nats.tls_ca,
        cert=nats.tls_cert,
        key=nats.tls_key,
        server_name=nats.tls_server_name,
    )


def _check_readable(key: str, path: Path) -> None:
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror})"
        raise ConfigError(key, problem, "name a file that this user may read") from None


def _no_pem(key: str, path: Path, what: str) -> ConfigError:
    return ConfigError(key, f"{path} does not hold {what}", "name a PEM file")
