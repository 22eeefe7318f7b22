"""NKeys: Ed25519 keys of NATS with their kind and a checksum, as texts in base32 (nats-io/nkeys)."""

import base64
import binascii
import re
from enum import Enum
from typing import Final

from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

_PUBLIC: Final = re.compile(r"[A-Z2-7]{56}")
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")


class NkeyKind(Enum):
    """Whose key it is. The value is the first byte of the decoded key; with it the text begins with
    O, A and U.
    """

    OPERATOR = 14 << 3
    ACCOUNT = 0
    USER = 20 << 3


def raw_key(public: str, kind: NkeyKind = NkeyKind.USER) -> bytes:
    """The 32 bytes of a public key. Raises ValueError for any other text."""
    data = base64.b32decode(public) if _PUBLIC.fullmatch(public) else b""
    if len(data) != 35 or data[0] != kind.value or _crc16(data[:-2]) != data[-2:]:
        raise ValueError(f"not the public key of an NKey {kind.name.lower()}")
    return data[1:-2]


def is_public_key(public: str, kind: NkeyKind) -> bool:
    try:
        raw_key(public, kind)
    except ValueError:
        return False
    return True


def is_signed_by(public: str, kind: NkeyKind, text: bytes, signature: bytes) -> bool:
    """False also for what is no key of that kind."""
    try:
        VerifyKey(raw_key(public, kind)).verify(text, signature)
    except (BadSignatureError, ValueError, TypeError):
        return False
    return True


def decoded_base64url(text: str) -> bytes:
    """Without padding, as JWTs and signatures have it. Raises ValueError."""
    if not _BASE64URL.fullmatch(text):
        raise ValueError("not base64url without padding")
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def decoded_signature(text: str) -> bytes:
    """Of a CONNECT: base64url, or base64 as some clients write it. Raises ValueError."""
    try:
        return decoded_base64url(text)
    except ValueError:
        return base64.b64decode(text, validate=True)


def _crc16(data: bytes) -> bytes:
    """CRC-16/XMODEM, little endian."""
    return binascii.crc_hqx(data, 0).to_bytes(2, "little")
