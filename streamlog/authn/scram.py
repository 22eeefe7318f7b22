"""SCRAM-SHA-256 and SCRAM-SHA-512: a password proved without being shown (RFC 5802, RFC 7677).

Without channel binding, as Kafka has it. Names and passwords are taken as the bytes of their UTF-8,
which is what Kafka's clients do as well: no SASLprep.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from streamlog.errors import AuthenticationFailed

ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 65_536
"""A check of a password of PLAIN does the work itself."""
ITERATIONS: Final = 8_192
"""Of credentials that are made here."""
SALT_BYTES: Final = 24
MESSAGE_BYTES_MAX: Final = 4_096
WRONG: Final = "wrong user or password"

_MESSAGE: Final = r"[\x20-\x2b\x2d-\x7e]"  # printable, without the comma
_FIRST: Final = re.compile(
    rf"(?P<gs2>[ny],(?:a=(?P<authzid>(?:[^,=\0]|=2C|=3D)+))?,)"
    rf"(?P<bare>n=(?P<user>(?:[^,=\0]|=2C|=3D)+),r=(?P<nonce>{_MESSAGE}+)(?P<more>(?:,.*)?))"
)
_FINAL: Final = re.compile(
    rf"(?P<bare>c=(?P<binding>[^,]+),r=(?P<nonce>{_MESSAGE}+)),p=(?P<proof>[^,]+)"
)
_CHALLENGE: Final = re.compile(
    rf"r=(?P<nonce>{_MESSAGE}+),s=(?P<salt>[^,]+),i=(?P<iterations>[1-9][0-9]{{0,9}})(?:,.*)?"
)


class Scram(Enum):
    """The mechanisms by name."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def digest(self) -> str:
        return "sha256" if self is Scram.SHA_256 else "sha512"

    @property
    def size_bytes(self) -> int:
        """Of every key and signature."""
        return 32 if self is Scram.SHA_256 else 64

    @property
    def number(self) -> int:
        """By which Kafka's requests about users name it (KIP-554)."""
        return 1 if self is Scram.SHA_256 else 2


class Credential(NamedTuple):
    """What is kept of a password. An attacker who reads it can try passwords, but log in with none of it.

    (With ``server_key`` they could pretend to be a node.)
    """

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"<credential of {self.iterations} iterations>"


def salted_password(scram: Scram, password: str, salt: bytes, iterations: int) -> bytes:
    """Takes milliseconds: ``Hi`` of the RFC."""
    return hashlib.pbkdf2_hmac(scram.digest, password.encode(), salt, iterations)


def credential_of(scram: Scram, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """Of a salted password."""
    return Credential(
        salt=salt,
        iterations=iterations,
        stored_key=_hash(scram, _hmac(scram, salted, b"Client Key")),
        server_key=_hmac(scram, salted, b"Server Key"),
    )


def is_password(scram: Scram, password: str, credential: Credential) -> bool:
    """Whether the credential is this password's; takes milliseconds, and the same either way."""
    salted = salted_password(scram, password, credential.salt, credential.iterations)
    found = credential_of(scram, salted, credential.salt, credential.iterations)
    return hmac.compare_digest(found.stored_key, credential.stored_key)


class KnownCredential(NamedTuple):
    """What is kept of a user: several passwords, while one takes another's place.

    They have the salt and the iterations in common. ``is_decoy``: there is no such user.
    """

    credentials: Sequence[Credential]
    is_decoy: bool = False


class ServerExchange:
    """The node's side of one login. Raises AuthenticationFailed, and is over then."""

    def __init__(self, scram: Scram, known: Callable[[str], KnownCredential], nonce: str) -> None:
        """``nonce``: printable, never used before."""
        self.user: str | None = None
        """Proved, once the last message has been answered."""
        self._scram = scram
        self._find = known
        self._nonce = nonce
        self._theirs = ""  # of the nonce: the client's part, with which the whole begins
        self._claimed = ""
        self._known: KnownCredential | None = None
        self._said = self._header = ""  # by the client and by this side: what the proof is about

    def step(self, message: bytes) -> bytes:
        """The answer to the client's first message, then to its final one."""
        if self.user is not None:
            raise AuthenticationFailed("the exchange is over")
        if self._known is None:
            return self._challenge(message)
        known, self._known = self._known, KnownCredential(())  # no second try
        return self._verdict(message, known)

    def _challenge(self, message: bytes) -> bytes:
        first = _matched(_FIRST, message)
        if first["more"]:
            raise AuthenticationFailed("SCRAM extensions are not supported")
        self._claimed = _unescaped(first["user"])
        if first["authzid"] and _unescaped(first["authzid"]) != self._claimed:
            raise AuthenticationFailed("to act as another user is not supported")
        self._known = known = self._find(self._claimed)
        credential = known.credentials[0]
        self._header = first["gs2"]
        self._theirs = first["nonce"]
        self._nonce = self._theirs + self._nonce
        salt = b64encode(credential.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._said = f"{first['bare']},{challenge}"
        return challenge.encode()

    def _verdict(self, message: bytes, known: KnownCredential) -> bytes:
        final = _matched(_FINAL, message)
        if not self._is_ours(final["nonce"]):
            raise AuthenticationFailed("the nonce belongs to another exchange")
        if _decoded(final["binding"]) != self._header.encode():
            raise AuthenticationFailed("channel binding is not supported")
        proof = _decoded(final["proof"])
        about = f"{self._said},{final['bare']}".encode()
        proved: Credential | None = None
        for credential in known.credentials:
            if _is_proved(self._scram, credential, proof, about):
                proved = credential
        if proved is None or known.is_decoy:
            raise AuthenticationFailed(WRONG)
        self.user = self._claimed
        return b"v=" + b64encode(_hmac(self._scram, proved.server_key, about))

    def _is_ours(self, nonce: str) -> bool:
        """librdkafka before 2.6.1 puts its own part before the whole once more: Kafka takes that,
        too. Nothing is lost: all of ours is in it, and the proof is about what was sent.
        """
        known = (self._nonce, self._theirs + self._nonce)
        return sum(hmac.compare_digest(nonce.encode(), it.encode()) for it in known) > 0


class ClientExchange:
    """The client's side of one login. Raises AuthenticationFailed."""

    def __init__(self, scram: Scram, user: str, password: str, nonce: str) -> None:
        """``nonce``: printable, never used before."""
        self._scram = scram
        self._password = password
        self._nonce = nonce
        self._bare = f"n={_escaped(user)},r={nonce}"
        self._signature: bytes | None = None

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def step(self, message: bytes) -> bytes | None:
        """The answer to what the node says; None once it has proved to know the password, too."""
        if self._signature is None:
            return self._proof(message)
        if not message.startswith(b"v="):
            raise AuthenticationFailed("the node has not proved to know the password")
        if not hmac.compare_digest(_decoded(message[2:].decode("latin-1")), self._signature):
            raise AuthenticationFailed("the node does not know the password")
        return None

    def _proof(self, message: bytes) -> bytes:
        challenge = _matched(_CHALLENGE, message)
        nonce, iterations = challenge["nonce"], int(challenge["iterations"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationFailed("the nonce belongs to another exchange")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            text = f"the node wants {iterations} iterations, not {ITERATIONS_MIN} to"
            raise AuthenticationFailed(f"{text} {ITERATIONS_MAX}")
        salted = salted_password(
            self._scram, self._password, _decoded(challenge["salt"]), iterations
        )
        final = f"c={b64encode(b'n,,').decode()},r={nonce}"
        about = f"{self._bare},{message.decode()},{final}".encode()
        client_key = _hmac(self._scram, salted, b"Client Key")
        stored_key = _hash(self._scram, client_key)
        proof = _xor(client_key, _hmac(self._scram, stored_key, about))
        self._signature = _hmac(self._scram, _hmac(self._scram, salted, b"Server Key"), about)
        return f"{final},p={b64encode(proof).decode()}".encode()


def _is_proved(scram: Scram, credential: Credential, proof: bytes, about: bytes) -> bool:
    signature = _hmac(scram, credential.stored_key, about)
    if len(proof) != len(signature):
        return False
    client_key = _xor(proof, signature)
    return hmac.compare_digest(_hash(scram, client_key), credential.stored_key)


def _matched(form: re.Pattern[str], message: bytes) -> re.Match[str]:
    try:
        if len(message) <= MESSAGE_BYTES_MAX and (found := form.fullmatch(message.decode())):
            return found
    except UnicodeDecodeError:
        pass
    raise AuthenticationFailed("a malformed SCRAM message")


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise AuthenticationFailed("a malformed SCRAM message") from None


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _hash(scram: Scram, data: bytes) -> bytes:
    return hashlib.new(scram.digest, data).digest()


def _hmac(scram: Scram, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, scram.digest)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
