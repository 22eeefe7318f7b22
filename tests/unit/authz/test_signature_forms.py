"""One signature has one form, and a key that signs everything signs nothing.

Ed25519 as its first implementations checked it leaves room: S and S + L are one number, eight
points make any equation true whose hash fits, and some points have two encodings. Each of these is
tried, made so well that a verifier without the checks takes it, on what clients sign over NATS and
on records and blocks of the ledger.
"""

import base64
import hashlib
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import pytest

from streamlog.authn.nkey import raw_key
from streamlog.authz.signature import (
    KEY,
    NONCE,
    SIGNATURE,
    TIME,
    RequestVerifier,
    sign,
    signed_text,
)
from streamlog.errors import AuthenticationFailed
from streamlog.ledger.core.channel_config import Identity
from streamlog.ledger.core.signing import BlockSignature, Keyring
from tests.secured_nats import user_key

P: Final = 2**255 - 19
L: Final = 2**252 + 27742317777372353535851937790883648493
D: Final = -121665 * pow(121666, -1, P) % P
NOW_MS: Final = 1_700_000_000_000
SUBJECT: Final = "$JS.API.STREAM.CREATE.orders"

Point = tuple[int, int]
IDENTITY: Final[Point] = (0, 1)


def added(a: Point, b: Point) -> Point:
    (x, y), (u, v) = a, b
    product = D * x * u * y * v % P
    return (
        (x * v + y * u) * pow(1 + product, -1, P) % P,
        (y * v + x * u) * pow(1 - product, -1, P) % P,
    )


def times(number: int, point: Point) -> Point:
    result = IDENTITY
    while number:
        if number & 1:
            result = added(result, point)
        point = added(point, point)
        number >>= 1
    return result


def decoded(text: bytes) -> Point:
    """Of any encoding, whether there is a shorter one or not. Raises ValueError."""
    number = int.from_bytes(text, "little")
    y = number % 2**255 % P
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - square) % P:
        raise ValueError("no point")
    return (-x % P if x & 1 != number >> 255 else x), y


def encoded(point: Point, *, more: bool = False, sign: int | None = None) -> bytes:
    """``more``: y + P, which is the same number; ``sign``: of x, whatever it is."""
    x, y = point
    number = (y + P if more else y) | (x & 1 if sign is None else sign) << 255
    return number.to_bytes(32, "little")


BASE: Final = decoded((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


def small() -> list[Point]:
    """The eight points whose order divides 8."""
    for y in range(2, 100):
        try:
            point = times(L, decoded(y.to_bytes(32, "little")))
        except ValueError:
            continue
        if times(4, point) != IDENTITY:
            return [times(number, point) for number in range(8)]
    raise ValueError("no point of order 8")


SMALL: Final = small()


def hashed(r: bytes, key: bytes, message: bytes) -> int:
    return int.from_bytes(hashlib.sha512(r + key + message).digest(), "little") % L


def is_taken_carelessly(key: bytes, message: bytes, signature: bytes) -> bool:
    """8 S B = 8 R + 8 h A (RFC 8032, 5.1.7), and no word of what S, R and A may be."""
    r, s = signature[:32], int.from_bytes(signature[32:], "little")
    right = added(decoded(r), times(hashed(r, key, message), decoded(key)))
    return times(8 * s, BASE) == times(8, right)


class Forged(NamedTuple):
    key: bytes
    signature: bytes


class Own(NamedTuple):
    """A key whose scalar the forger knows."""

    scalar: int
    key: bytes

    @classmethod
    def of(cls, number: int) -> "Own":
        return cls(number, encoded(times(number, BASE)))

    def signature(self, message: bytes, r: bytes, nonce: int) -> bytes:
        s = (nonce + hashed(r, self.key, message) * self.scalar) % L
        return r + s.to_bytes(32, "little")

    def sign(self, message: bytes, nonce: int = 4711) -> bytes:
        return self.signature(message, encoded(times(nonce, BASE)), nonce)


OWN: Final = Own.of(0x5EED)
Forge = Callable[[bytes], Iterator[Forged]]


def larger_s(message: bytes) -> Iterator[Forged]:
    """Anybody makes it of a signature that was seen: L added to S, as often as there is room."""
    good = OWN.sign(message)
    s = int.from_bytes(good[32:], "little") + L
    while s < 2**256:
        yield Forged(OWN.key, good[:32] + s.to_bytes(32, "little"))
        s += L


def keys_of_small_order(message: bytes) -> Iterator[Forged]:
    """Nobody has to know a secret: h A is nothing, or R is chosen so that it is made up for."""
    for point in SMALL:
        for key in forms(point):
            for nonce in range(1, 4):
                r = encoded(times(nonce, BASE))
                yield Forged(key, r + nonce.to_bytes(32, "little"))
                yield Forged(key, r + (nonce + L).to_bytes(32, "little"))


def all_of_small_order(message: bytes) -> Iterator[Forged]:
    """S is 0, and so may everything be."""
    for key in SMALL:
        for r in SMALL:
            for form in forms(r):
                yield Forged(encoded(key), form + bytes(32))


def r_of_small_order(message: bytes) -> Iterator[Forged]:
    """By the key's owner, who may deny later what other verifiers have taken."""
    for point in SMALL:
        for r in forms(point):
            yield Forged(OWN.key, OWN.signature(message, r, 0))


def r_beside_it(message: bytes) -> Iterator[Forged]:
    """By the owner, too: R and a point of small order. Two verifiers would not agree."""
    for point in SMALL[1:]:
        r = encoded(added(times(4711, BASE), point))
        yield Forged(OWN.key, OWN.signature(message, r, 4711))


def forms(point: Point) -> set[bytes]:
    """All 32 bytes that may be read as this point of small order."""
    x, y = point
    signs = (0, 1) if x == 0 else (x & 1,)
    larger = (False, True) if y + P < 2**255 else (False,)
    return {encoded(point, more=more, sign=sign) for more in larger for sign in signs}


FORGERIES: Final[dict[str, tuple[Forge, int]]] = {
    "S + L": (larger_s, 15),
    "a key of small order": (keys_of_small_order, 84),
    "all of small order": (all_of_small_order, 112),
    "R of small order": (r_of_small_order, 14),
    "R beside it": (r_beside_it, 7),
}
"""And how many there are."""


def public(key: bytes) -> str:
    """As an NKey user, which any 32 bytes may be."""
    data = bytes([20 << 3]) + key
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return base64.b32encode(data + crc.to_bytes(2, "little")).decode()


def url_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def test_the_arithmetic_is_that_of_rfc_8032() -> None:
    assert times(L, BASE) == IDENTITY
    assert len({encoded(it) for it in SMALL}) == 8
    assert len({form for it in SMALL for form in forms(it)}) == 14, "as libsodium lists them"
    assert Keyring([Identity(name="me", public_key=OWN.key.hex())]).is_signed(
        "me", b"m", OWN.sign(b"m")
    )
    assert is_taken_carelessly(OWN.key, b"m", OWN.sign(b"m"))
    assert not is_taken_carelessly(OWN.key, b"n", OWN.sign(b"m"))


@pytest.mark.parametrize("name", FORGERIES)
def test_a_request_over_nats_is_not_signed_so(name: str) -> None:
    forge, count = FORGERIES[name]
    time_ms, nonce = str(NOW_MS), "a-nonce-of-some-length"
    text = signed_text(SUBJECT, b"{}", time_ms, nonce)
    verifier = RequestVerifier(30_000, now_ms=lambda: NOW_MS)
    forged = list(forge(text))
    assert len(forged) == count
    for key, signature in forged:
        assert is_taken_carelessly(key, text, signature), "else it shows nothing"
        headers = {KEY: public(key), TIME: time_ms, NONCE: nonce, SIGNATURE: url_text(signature)}
        assert raw_key(headers[KEY]) == key
        with pytest.raises(AuthenticationFailed, match="not this key's"):
            verifier.user(SUBJECT, b"{}", headers)
    good = {KEY: public(OWN.key), TIME: time_ms, NONCE: nonce, SIGNATURE: url_text(OWN.sign(text))}
    assert verifier.user(SUBJECT, b"{}", good) == public(OWN.key), "what was forged spent nothing"


@pytest.mark.parametrize("name", FORGERIES)
def test_nothing_of_the_ledger_is_signed_so(name: str) -> None:
    forge, count = FORGERIES[name]
    header_hash = bytes(range(32))
    forged = list(forge(b"m"))
    assert len(forged) == count
    for key, signature in forged:
        ring = Keyring([Identity(name="me", public_key=key.hex())])
        assert not ring.is_signed("me", b"m", signature)
    for key, signature in forge(b"streamlog ledger block 1\0" + header_hash):
        ring = Keyring([Identity(name="me", public_key=key.hex())])
        assert not ring.is_block_signed(BlockSignature("me", signature), header_hash)


def test_another_spelling_is_no_second_use() -> None:
    """The key has one. Spellings of the signature do not matter: it is the nonce that counts."""
    user = user_key()
    verifier = RequestVerifier(30_000, now_ms=lambda: NOW_MS)
    headers = sign({KEY: user.public}, SUBJECT, b"{}", user.sign, now_ms=NOW_MS)
    for key in (
        user.public.lower(), user.public + "=", user.public + "=" * 8, user.public + " ",
        f" {user.public}", user.public + "\n", user.public[:-1], user.public + "A",
    ):  # fmt: skip
        with pytest.raises(AuthenticationFailed, match="not this key's"):
            verifier.user(SUBJECT, b"{}", headers | {KEY: key})
    assert verifier.user(SUBJECT, b"{}", headers) == user.public
    text = headers[SIGNATURE]
    for spelling in (text, text + "==", f"\n{text}", "!".join(text), text + "A"):
        with pytest.raises(AuthenticationFailed):
            verifier.user(SUBJECT, b"{}", headers | {SIGNATURE: spelling})
