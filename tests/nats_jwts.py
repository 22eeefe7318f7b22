"""JWTs of NATS as ``nsc`` signs them, good and bad, and logins with them at a real nats-server and here."""

import base64
import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import TracebackType
from typing import Any, Final, Self

import nkeys

from tests.secured_nats import KeyPair, user_key

UNLIMITED: Final = {"subs": -1, "data": -1, "payload": -1}
ACCOUNT_LIMITS: Final = {
    **UNLIMITED, "imports": -1, "exports": -1, "conn": -1, "leaf": -1, "wildcards": True,
}  # fmt: skip
HEADER: Final = {"typ": "JWT", "alg": "ed25519-nkey"}


def operator_key() -> KeyPair:
    return KeyPair(nkeys.PREFIX_BYTE_OPERATOR)


def account_key() -> KeyPair:
    return KeyPair(nkeys.PREFIX_BYTE_ACCOUNT)


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed_jwt(
    signer: KeyPair,
    subject: str,
    nats: Mapping[str, Any],
    *,
    header: Mapping[str, Any] = HEADER,
    issuer: str = "",
    **claims: Any,
) -> str:
    """``issuer``: named instead of the signer."""
    content = {
        "jti": base64.b32encode(os.urandom(20)).decode(),
        "iat": int(time.time()),
        "iss": issuer or signer.public,
        "name": "test",
        "sub": subject,
        **claims,
        "nats": {"version": 2, **nats},
    }
    signed = ".".join(base64url(json.dumps(it).encode()) for it in (header, content))
    return f"{signed}.{base64url(signer.sign(signed.encode()))}"


def operator_jwt(key: KeyPair, **nats: Any) -> str:
    return signed_jwt(key, key.public, {"type": "operator", **nats})


@dataclass
class AccountJwt:
    """An account, and what its JWT says."""

    nats: dict[str, Any] = field(default_factory=dict)
    claims: dict[str, Any] = field(default_factory=dict)
    key: KeyPair = field(default_factory=account_key)

    def jwt(self, operator: KeyPair) -> str:
        content = {"type": "account", "limits": ACCOUNT_LIMITS, **self.nats}
        return signed_jwt(operator, self.key.public, content, **self.claims)


def user_jwt(
    signer: KeyPair, user: KeyPair, nats: Mapping[str, Any] = UNLIMITED, **claims: Any
) -> str:
    return signed_jwt(signer, user.public, {"type": "user", **nats}, **claims)


@dataclass
class JwtLogin:
    """What a client sends."""

    jwt: str
    key: KeyPair | None = field(default_factory=user_key)
    """Signs the nonce; None: nothing does."""
    more: dict[str, Any] = field(default_factory=dict)
    """Of the CONNECT."""

    def connect(self, nonce: str) -> dict[str, Any]:
        sig = {} if self.key is None else {"sig": base64url(self.key.sign(nonce.encode()))}
        return {"verbose": False, "pedantic": False, "jwt": self.jwt, **sig, **self.more}

    @cached_property
    def claims(self) -> dict[str, Any]:
        payload = self.jwt.split(".")[1]
        return dict(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))))


class PlainConnection:
    """To a NATS server, line by line. Blocking."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), 10)
        self._lines = self._socket.makefile("rb")
        self.received: list[bytes] = []
        """Subjects of messages."""
        self.info = json.loads(self._line().removeprefix(b"INFO "))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lines.close()
        self._socket.close()

    @property
    def nonce(self) -> str:
        return str(self.info.get("nonce", ""))

    def log_in(self, connect: Mapping[str, Any]) -> bytes | None:
        """The text of the error; None: it is let in."""
        errors = self.ask(b"CONNECT %b\r\n" % json.dumps(connect).encode())
        return errors[0] if errors else None

    def ask(self, *lines: bytes) -> Sequence[bytes]:
        """The errors that come before the next PONG, or the end."""
        errors = []
        try:
            self._socket.sendall(b"".join(lines) + b"PING\r\n")
            while (line := self._line()) != b"PONG":
                if line.startswith(b"-ERR "):
                    errors.append(line.removeprefix(b"-ERR "))
                elif line.startswith(b"MSG "):
                    self.received.append(line.split()[1])
                    self._line()
        except (ConnectionError, EOFError):
            if not errors:
                errors.append(b"closed")
        return errors

    def _line(self) -> bytes:
        line = self._lines.readline()
        if not line:
            raise EOFError
        return line.rstrip(b"\r\n")
