"""What is shown for a user that is not there, so that it looks like one that is (RFC 5802). Pure.

A node tells salt and iterations to anybody who names a user. Salts differ by the tool that made
the user: streamlog and kafka-python take 24 random bytes; Kafka's own tools take a random number of
130 bits, as a text in base 36 (``ScramFormatter.secureRandomString``). So a name without a user is
shown a salt of a *kind* that users of this cluster have, the more likely the more of them have it.

The kind is chosen by weighted rendezvous hashing: each name keeps its kind when users come and go,
but for as few as possible. A name whose kind changes has another salt from then on, as a user has
whose password was changed.
"""

import hmac
import math
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from streamlog.authn.scram import ITERATIONS, SALT_BYTES, Credential, Scram

KINDS_MAX: Final = 16
"""The most common ones; what a name costs is in proportion to them."""
KAFKA_BITS: Final = 130
KAFKA_CHARS_MIN: Final = 20
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_LETTERS: Final = _DIGITS + _DIGITS[10:].upper()
_TEXT: Final = "".join(map(chr, range(0x20, 0x7F)))
_BYTES: Final = "bytes"
_KAFKA: Final = "kafka"
_ALPHABETS: Final = {
    "hex": _DIGITS[:16],
    "base36": _DIGITS,
    "alphanumeric": _LETTERS,
    "base64": _LETTERS + "+/=-_",
    "text": _TEXT,
}
"""From the narrowest to the widest."""


class Kind(NamedTuple):
    """What can be seen of a credential without the password."""

    scram: Scram
    iterations: int = ITERATIONS
    salt: str = _BYTES
    """What it is made of."""
    salt_bytes: int = SALT_BYTES

    @classmethod
    def of(cls, scram: Scram, credential: Credential) -> "Kind":
        salt = credential.salt
        made_of = _made_of(salt)
        size = 0 if made_of == _KAFKA else len(salt)
        return cls(scram, credential.iterations, made_of, size)

    def made(self, user: str, secret: bytes) -> Credential:
        """The same each time; no password opens it."""
        seed = f"{self.scram.value}:{self.iterations}:{self.salt}:{self.salt_bytes}:{user}".encode()
        return Credential(
            salt=self._salt(seed, secret),
            iterations=self.iterations,
            stored_key=hmac.digest(secret, b"stored:" + seed, self.scram.digest),
            server_key=hmac.digest(secret, b"server:" + seed, self.scram.digest),
        )

    def _salt(self, seed: bytes, secret: bytes) -> bytes:
        if self.salt == _KAFKA:
            number = int.from_bytes(_chance(secret, seed, 17), "big") >> (17 * 8 - KAFKA_BITS)
            return _base36(number).encode()
        if self.salt == _BYTES:
            return _chance(secret, seed, self.salt_bytes)
        alphabet = _ALPHABETS[self.salt]
        drawn = _chance(secret, seed, 8 * self.salt_bytes)
        numbers = (int.from_bytes(drawn[at : at + 8], "big") for at in range(0, len(drawn), 8))
        return "".join(alphabet[it % len(alphabet)] for it in numbers).encode()


class Decoys:
    """Alike what some users have: for one mechanism, or for those by which a password is tried."""

    def __init__(self, default: Scram, known: Iterable[Kind]) -> None:
        """``default``: where no user is known."""
        counts = Counter(known)
        common = sorted(counts, key=lambda it: (-counts[it], it.scram.value, it[1:]))
        self._weights = {it: counts[it] for it in common[:KINDS_MAX]} or {Kind(default): 1}

    def of(self, user: str, secret: bytes) -> tuple[Scram, Credential]:
        kind = max(self._weights, key=lambda it: self._score(it, user, secret))
        return kind.scram, kind.made(user, secret)

    def _score(self, kind: Kind, user: str, secret: bytes) -> float:
        seed = f"kind:{kind.scram.value}:{kind[1:]}:{user}".encode()
        chance = (int.from_bytes(_chance(secret, seed, 7), "big") + 1) / (2**56 + 2)
        return self._weights[kind] / -math.log(chance)


def _made_of(salt: bytes) -> str:
    text = salt.decode("latin-1")
    is_number = bool(text) and text[0] != "0" and set(text).issubset(_DIGITS)
    if is_number and len(text) >= KAFKA_CHARS_MIN and int(text, 36) < 2**KAFKA_BITS:
        return _KAFKA
    return next((name for name, it in _ALPHABETS.items() if set(text) <= set(it)), _BYTES)


def _chance(secret: bytes, seed: bytes, size: int) -> bytes:
    """So many bytes that cannot be foretold without ``secret``."""
    blocks = -(-size // 64)
    return b"".join(
        hmac.digest(secret, b"chance:%d:" % block + seed, "sha512") for block in range(blocks)
    )[:size]


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"
