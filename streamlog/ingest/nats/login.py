"""Who this side is at NATS: a user, a token, an NKey or credentials, in the fields of CONNECT.

Files are read at each connection, so that what is put in their place is used from the next one on.
What is secret stays in here: no text of an error, no ``repr`` has any of it.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import unquote

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

    def signed(self, make: Callable[[str, Callable[[bytes], bytes]], T]) -> T | None:
        """What ``make`` makes of a public key and its signatures; None where the way in is none.

        Raises ConfigError.
        """
        if self.credentials is not None:
            key, path, seed = (
                "nats.credentials",
                self.credentials,
                _credentials(self.credentials)[1],
            )
        elif self.nkey_seed is not None:
            key, path = "nats.nkey_seed", self.nkey_seed
            seed = bytearray(_content(key, path).strip())
        else:
            return None
        pair = _key_pair(key, path, seed)
        try:
            return make(pair.public_key.decode(), pair.sign)
        finally:
            pair.wipe()

    def check(self) -> None:
        """Raises ConfigError for files that cannot be used."""
        self.fields("")

    def __str__(self) -> str:
        """For whoever looks for what NATS has refused."""
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
