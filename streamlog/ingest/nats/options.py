"""The way to NATS: which servers, who we are there, and how the connection is encrypted.

``NatsLogin`` is a user, a token, an NKey or credentials, in the fields of CONNECT; ``NatsTls`` whom we
trust, who we are, and whether to speak without it. Files are read at each connection, so that what is
put in their place is used from the next one on. What is secret stays in here: no text of an error, no
``repr`` has any of it.
"""

import base64
import binascii
import json
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from streamlog.config import NatsSection
from streamlog.errors import ConfigError

if TYPE_CHECKING:
    import nkeys

Fields = dict[str, str]
T = TypeVar("T")

_BLOCK: Final = re.compile(rb"-{3,} *BEGIN ([A-Z ]+?) *-{3,}\s+([\w\-.=]+)\s+-{3,} *END")
"""One of the two parts of a credentials file; dashes are not counted, as in NATS's own clients."""
_JWT, _SEED = b"NATS USER JWT", b"USER NKEY SEED"
_USER_SEED: Final = b"SU"
"""How the seeds of users begin; those of accounts and operators sign other things."""

LEAF: Final = "nats-leaf"
"""The scheme of servers whose leafnode the node is."""
PING_INTERVAL_S: Final = 10
PINGS_OUTSTANDING_MAX: Final = 2
"""A server that answers none of these is taken for dead: after 20 to 30 s."""


class NatsOptions:
    """Of the settings. Raises ConfigError for what contradicts itself or cannot be read.

    A login that stands in an address is taken out of it: it counts for every server, also for those
    that NATS tells of later, and is never shown.
    """

    def __init__(self, nats: NatsSection) -> None:
        places = [_Place(server) for server in nats.servers]
        logins = {place.userinfo for place in places}
        kinds = {place.scheme == LEAF for place in places}
        if len(kinds) > 1:
            problem = "mixes nats-leaf:// with other schemes"
            raise ConfigError("nats.servers", problem, "be a client or a leafnode of all of them")
        if len(logins) > 1:
            problem = "have different logins, or some have none"
            raise ConfigError("nats.servers", problem, "set nats.user and nats.password instead")
        self.servers: Final = tuple(place.address for place in places)
        self.login: Final = login_of(nats, logins.pop() if logins else None)
        self.tls: Final = tls_of(nats, {place.scheme for place in places})
        self.reconnect_wait_s: Final = nats.reconnect_backoff_ms / 1000
        self.refused_wait_max_s: Final = (
            max(nats.reconnect_backoff_max_ms, nats.reconnect_backoff_ms) / 1000
        )
        self._inbox_prefix = f"_INBOX.{nats.domain}"
        self.login.check()
        self.tls.check()

    def pause_s(self, refusals: int) -> float:
        """After so many in a row by a server; 0: it could not be reached."""
        doubled = self.reconnect_wait_s * (1 << min(max(refusals - 1, 0), 16))
        return min(doubled, self.refused_wait_max_s)

    def options(self, name: str) -> dict[str, Any]:
        """Keyword arguments of nats-py's connect, for a client that never gives up."""
        return self._common(name) | {
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": self.reconnect_wait_s,
            "ping_interval": PING_INTERVAL_S,
            "max_outstanding_pings": PINGS_OUTSTANDING_MAX,
            "inbox_prefix": self._inbox_prefix,
        }

    def options_once(self, name: str, timeout_s: float) -> dict[str, Any]:
        """The same, for a client that does not retry to connect."""
        return self._common(name) | {
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0,
            "connect_timeout": timeout_s,
        }

    def _common(self, name: str) -> dict[str, Any]:
        return {
            "servers": list(self.servers),
            "name": name,
            "tls_handshake_first": self.tls.first,
            "tls_hostname": self.tls.server_name,
        }


class _Place:
    """One of ``nats.servers``, taken apart. What is wrong with it is said without its login."""

    def __init__(self, server: str) -> None:
        before, at, rest = server.rpartition("@")
        scheme, found, userinfo = before.rpartition("://") if at else ("", "", "")
        if not found:
            scheme, found, rest = rest.rpartition("://")
        self.userinfo = userinfo if at else None
        self.scheme = scheme or "nats"
        self.address = f"{scheme}{found}{rest}"
        if self.scheme not in ("nats", "tls", LEAF):
            problem = f"{self.address!r} is not supported"
            raise ConfigError("nats.servers", problem, "use nats://, tls:// or nats-leaf://")
        try:
            parts = urlsplit(f"{self.scheme}://{rest}")
            usable = bool(parts.hostname) and (parts.port is None or parts.port > 0)
        except ValueError:
            usable = False
        if not usable:
            problem = f"{self.address!r} is no address"
            raise ConfigError("nats.servers", problem, "write nats://host:port")


@dataclass(frozen=True, slots=True)
class NatsLogin:
    """One way in, or none at all."""

    user: str | None = None
    password: SecretStr | None = None
    token: SecretStr | None = None
    nkey_seed: Path | None = None
    credentials: Path | None = None

    def fields(self, nonce: str) -> Fields:
        """Of CONNECT, for a server that greets with this nonce. Raises ConfigError."""
        if self.credentials is not None:
            jwt, seed = _credentials(self.credentials)
            return {
                "jwt": jwt.decode(),
                **_signed("nats.credentials", self.credentials, seed, nonce),
            }
        if self.nkey_seed is not None:
            seed = bytearray(_content("nats.nkey_seed", self.nkey_seed).strip())
            return _signed("nats.nkey_seed", self.nkey_seed, seed, nonce, named=True)
        if self.token is not None:
            return {"auth_token": self.token.get_secret_value()}
        if self.user is not None:
            password = self.password.get_secret_value() if self.password else ""
            return {"user": self.user, "pass": password}
        return {}

    def check(self) -> None:
        """Raises ConfigError for files that cannot be used."""
        self.fields("")

    def __str__(self) -> str:
        """For an operator who looks for what NATS has refused."""
        if self.credentials is not None:
            return f"the credentials in {self.credentials}{_expiry(self.credentials)}"
        if self.nkey_seed is not None:
            return f"the NKey in {self.nkey_seed}"
        if self.token is not None:
            return "a token"
        return f"user {self.user!r}" if self.user is not None else "no login"


def login_of(nats: NatsSection, userinfo: str | None) -> NatsLogin:
    """The one way in that the settings tell, or that stands in the addresses of the servers.

    Raises ConfigError where they tell of several, or of half a one.
    """
    ways = {
        "nats.user": nats.user,
        "nats.token": nats.token,
        "nats.nkey_seed": nats.nkey_seed,
        "nats.credentials": nats.credentials,
        "the login in nats.servers": userinfo,
    }
    given = [key for key, value in ways.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(given[0], f"contradicts {given[1]}", "keep one way to log in")
    if (nats.user is None) != (nats.password is None):
        lone, other = ("user", "password") if nats.password is None else ("password", "user")
        raise ConfigError(f"nats.{lone}", f"needs nats.{other}", "set both or neither")
    if userinfo is None:
        return NatsLogin(nats.user, nats.password, nats.token, nats.nkey_seed, nats.credentials)
    user, colon, password = userinfo.partition(":")
    if not colon:
        return NatsLogin(token=SecretStr(unquote(user)))
    return NatsLogin(user=unquote(user), password=SecretStr(unquote(password)))


def _credentials(path: Path) -> tuple[bytes, bytearray]:
    """The JWT and the seed. Raises ConfigError."""
    parts = dict(_BLOCK.findall(_content("nats.credentials", path)))
    if _JWT not in parts or _SEED not in parts:
        problem = f"{path} has not both a user JWT and a seed"
        raise ConfigError("nats.credentials", problem, "name the .creds file that nsc wrote")
    return parts[_JWT], bytearray(parts[_SEED])


def _signed(key: str, path: Path, seed: bytearray, nonce: str, *, named: bool = False) -> Fields:
    """The answer to a nonce, and with ``named`` who gives it."""
    pair = _key_pair(key, path, seed)
    try:
        fields = {"sig": base64.b64encode(pair.sign(nonce.encode())).decode()}
        return fields | ({"nkey": pair.public_key.decode()} if named else {})
    finally:
        pair.wipe()


def _key_pair(key: str, path: Path, seed: bytearray) -> "nkeys.KeyPair":
    import nkeys  # its library of ciphers is for those who need it

    try:
        if seed.startswith(_USER_SEED):
            return nkeys.from_seed(seed)
    except (nkeys.NkeysError, binascii.Error, ValueError):
        pass
    remedy = "name the file with the user's seed, which begins with SU"
    raise ConfigError(key, f"{path} holds no seed of a user", remedy)


def _content(key: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror})"
        raise ConfigError(key, problem, "name a file that this user may read") from None


def _expiry(credentials: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> str:
    """That a JWT has expired is what a server does not tell."""
    try:
        body = _credentials(credentials)[0].split(b".")[1]
        expires = json.loads(base64.urlsafe_b64decode(body + b"=" * (-len(body) % 4))).get("exp")
        time = datetime.fromtimestamp(int(expires), UTC)
    except (ConfigError, IndexError, ValueError, TypeError, AttributeError, OverflowError):
        return ""
    return f", which expired at {time:%Y-%m-%d %H:%M:%S} UTC" if time <= now() else ""


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
