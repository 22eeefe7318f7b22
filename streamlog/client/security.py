"""TLS and the login that a connection to a node begins with."""

import secrets
import ssl
from base64 import b64encode
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from streamlog.authn import bearer, plain
from streamlog.authn.scram import ClientExchange, Scram
from streamlog.errors import AuthenticationFailed, ConfigError, UnsupportedMechanism
from streamlog.model import MECHANISMS
from streamlog.wire import registry
from streamlog.wire.api_messages import Message
from streamlog.wire.errors import check

NONCE_BYTES: Final = 24
SECRET_BYTES_MAX: Final = 32 * 1024
LoginSteps = Generator[tuple[int, Message], dict[str, Any], int]
"""Requests to be sent, each for its answer; in the end for how many milliseconds the session is
good, 0: for as long as the connection.
"""


@dataclass(frozen=True)
class ClientLogin:
    """As whom to log in. ``secret`` is asked for the password, or token, at each login again."""

    mechanism: str
    user: str
    secret: Callable[[], str]

    def __post_init__(self) -> None:
        if self.mechanism not in MECHANISMS:
            remedy = f"set one of {', '.join(MECHANISMS)}"
            raise ConfigError("mechanism", f"there is no {self.mechanism!r}", remedy)

    def steps(self, address: str, *, permissive: bool = False) -> LoginSteps:
        """``permissive``: a node that knows no login is used without one. Raises AuthenticationFailed,
        UnsupportedMechanism.
        """
        answer = yield registry.SASL_HANDSHAKE, {"mechanism": self.mechanism}
        if permissive and answer["error_code"] and not answer["mechanisms"]:
            return 0
        if answer["error_code"]:
            raise self._not_offered(address, answer)
        exchange = self._exchange()
        message: bytes | None = exchange.first()
        lifetime_ms = 0
        while message is not None:
            answer = yield registry.SASL_AUTHENTICATE, {"auth_bytes": message}
            _check(answer, address)
            lifetime_ms = int(answer.get("session_lifetime", 0))
            message = exchange.step(bytes(answer["auth_bytes"]))
        return lifetime_ms

    def _exchange(self) -> "ClientExchange | _OneMessage":
        secret = self.secret()
        match self.mechanism:
            case "PLAIN":
                return _OneMessage(plain.encode_message(self.user, secret))
            case "OAUTHBEARER":
                return _OneMessage(bearer.encode_message(secret), refused=bearer.GIVEN_UP)
            case mechanism:
                nonce = b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
                return ClientExchange(Scram(mechanism), self.user, secret, nonce)

    def _not_offered(self, address: str, answer: Message) -> UnsupportedMechanism:
        offered = ", ".join(answer["mechanisms"]) or "no login at all"
        return UnsupportedMechanism(
            f"{address}: does not offer {self.mechanism} here, but {offered}"
        )


class _OneMessage:
    """All is said at once; a server that asks for more has refused."""

    def __init__(self, message: bytes, *, refused: bytes = b"") -> None:
        self._message = message
        self._refused = refused

    def first(self) -> bytes:
        return self._message

    def step(self, message: bytes) -> bytes | None:
        return self._refused if message else None


def _check(answer: Message, address: str) -> None:
    if answer["error_code"] and answer.get("error_message"):
        raise AuthenticationFailed(f"{address}: {answer['error_message']}")
    check(answer["error_code"], address)


def secret_in(path: Path, key: str) -> Callable[[], str]:
    """Reads the first line of the file whenever it is asked; ``key``: who named the file.

    Raises ConfigError then.
    """

    def read() -> str:
        return lines_of(path, key)[0]

    return read


def lines_of(path: Path, key: str) -> list[str]:
    """What is in a file of secrets, one a line; none of it is ever shown. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            data = file.read(SECRET_BYTES_MAX + 1)
        lines = [line for line in data.decode().splitlines() if line]
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror})"
        raise ConfigError(key, problem, "name a file that this process may read") from None
    except UnicodeDecodeError:
        raise ConfigError(key, f"{path} is not text", "write the secret as UTF-8") from None
    if not lines or len(data) > SECRET_BYTES_MAX:
        problem = f"{path} is empty" if not lines else f"{path} is too long"
        raise ConfigError(key, problem, "write the secret on its first line")
    return lines


def _in_the_clear() -> ssl.SSLContext | None:
    return None


@dataclass(frozen=True, slots=True)
class Security:
    """Both are asked for at each connection: certificates and passwords change while a program runs."""

    tls: Callable[[], ssl.SSLContext | None] = _in_the_clear
    """None: in the clear."""
    login: ClientLogin | None = None
    """None: no login but by a certificate."""
    permissive: bool = False
    """A node that has no TLS, or no login, is used without: both are turned on node by node."""


NO_SECURITY: Final = Security()
