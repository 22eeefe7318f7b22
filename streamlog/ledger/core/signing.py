"""Ed25519 signatures (RFC 8032), as libsodium makes and checks them. Pure.

What is signed begins with what it is, so that a signature of one kind never stands for another. A
record's signature covers channel, kind, key and value; headers are left out, for nodes and brokers
on the way may add some. A block's covers the header hash, and with it everything; it lies beside
the block, never in it, so that the blocks of two nodes are the same bytes.
"""

import base64
import binascii
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from streamlog.ledger.core.channel_config import Identity

SEED_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64

_RECORD: Final = b"streamlog ledger record 1\0"
_BLOCK: Final = b"streamlog ledger block 1\0"
_LENGTHS: Final = struct.Struct(">IIii")


class BlockSignature(NamedTuple):
    """That a node vouches for the block of a header hash."""

    node: str
    signature: bytes


class Signer:
    """A name, and the key that speaks for it. Raises ValueError unless the seed has 32 bytes."""

    def __init__(self, name: str, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes, not {len(seed)}")
        self.name = name
        self._key = SigningKey(seed)

    @property
    def identity(self) -> Identity:
        """What others have to know."""
        return Identity(name=self.name, public_key=self._key.verify_key.encode().hex())

    def sign(self, message: bytes) -> bytes:
        """64 bytes; the same for the same message."""
        return self._key.sign(message).signature

    def sign_block(self, header_hash: bytes) -> BlockSignature:
        return BlockSignature(self.name, self.sign(_BLOCK + header_hash))


class Keyring:
    """The keys of some identities, by their names."""

    def __init__(self, identities: Iterable[Identity]) -> None:
        self._keys = {
            entry.name: VerifyKey(bytes.fromhex(entry.public_key)) for entry in identities
        }

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def is_signed(self, name: str, message: bytes, signature: bytes) -> bool:
        """By the one of that name; False where it is not on the ring."""
        key = self._keys.get(name)
        if key is None or len(signature) != SIGNATURE_BYTES:
            return False
        try:
            key.verify(message, signature)
        except BadSignatureError:
            return False
        return True

    def is_block_signed(self, signature: BlockSignature, header_hash: bytes) -> bool:
        return self.is_signed(signature.node, _BLOCK + header_hash, signature.signature)


def record_message(channel: str, kind: bytes, key: bytes | None, value: bytes | None) -> bytes:
    """The bytes that a record's signature covers; ``kind`` is empty for an ordinary one."""
    name = channel.encode()
    lengths = _LENGTHS.pack(
        len(name), len(kind), -1 if key is None else len(key), -1 if value is None else len(value)
    )
    return b"".join((_RECORD, lengths, name, kind, key or b"", value or b""))


def signature_text(signature: bytes) -> bytes:
    """As it stands in a header: base64."""
    return base64.b64encode(signature)


def signature_of(text: bytes) -> bytes:
    """Raises ValueError."""
    try:
        signature = base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("the signature is not base64") from None
    if len(signature) != SIGNATURE_BYTES:
        raise ValueError(f"a signature has {SIGNATURE_BYTES} bytes, not {len(signature)}")
    return signature
