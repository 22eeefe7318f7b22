"""A batch under a segment's data key.

Its header stays, but for length, checksum and one bit of the attributes. Behind it come a nonce of
12 random bytes, and the ciphertext of the checksum that the batch had and of its records, with the
tag of 16 bytes. The tag covers the header as well, so that no batch passes for another: a changed
offset, time or producer is found like a changed record. Batches without records stay as they are.

AES-256-GCM: NIST SP 800-38D; a data key is used for one segment, far from the 2**32 random nonces
that it allows.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from typing import Final

from crc32c import crc32c
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from streamlog.errors import BrokenInvariant, CorruptBatch
from streamlog.record.batch import (
    CRC_POSITION,
    CRC_START,
    ENCRYPTED,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_POSITION,
    LEADER_EPOCH_POSITION,
    LENGTH_POSITION,
    LENGTH_PREFIX_BYTES,
    batches,
)
from streamlog.record.compression import Buffer

NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
_CRC_BYTES: Final = CRC_START - CRC_POSITION
OVERHEAD_BYTES: Final = NONCE_BYTES + _CRC_BYTES + TAG_BYTES
"""So much longer is an encrypted batch."""

_LENGTH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">H")
_BODY_POSITION: Final = HEADER_BYTES + NONCE_BYTES


class BatchCipher:
    """By one data key. From any thread."""

    __slots__ = ("_gcm", "_since")

    def __init__(self, data_key: bytes, since: int = 0) -> None:
        """``data_key``: 32 bytes. ``since``: all batches with records from that offset on are
        encrypted, so one in the clear was put there by another.
        """
        self._gcm = AESGCM(data_key)
        self._since = since

    @property
    def since(self) -> int:
        return self._since

    def encrypted(self, batch: Buffer) -> bytes:
        """One whole batch, as it goes to the disk."""
        view = memoryview(batch)
        if len(view) == HEADER_BYTES:
            return bytes(view)
        (attributes,) = _ATTRIBUTES.unpack_from(view, CRC_START)
        if attributes & ENCRYPTED:
            raise BrokenInvariant("the batch is encrypted already")
        rest = _marked(view, attributes | ENCRYPTED)
        start = bytes(view[:LENGTH_POSITION])
        epoch = bytes(view[LEADER_EPOCH_POSITION:CRC_POSITION])
        nonce = os.urandom(NONCE_BYTES)
        clear = b"".join((view[CRC_POSITION:CRC_START], view[HEADER_BYTES:]))
        body = self._gcm.encrypt(nonce, clear, b"".join((start, epoch, rest)))
        length = _LENGTH.pack(len(view) - LENGTH_PREFIX_BYTES + OVERHEAD_BYTES)
        crc = _CRC.pack(crc32c(body, crc32c(nonce, crc32c(rest))))
        return b"".join((start, length, epoch, crc, rest, nonce, body))

    def encrypted_all(self, records: Buffer, ends: Iterable[int]) -> list[bytes]:
        """Each batch of ``records``, in which they end there."""
        view, start, found = memoryview(records), 0, []
        for end in ends:
            found.append(self.encrypted(view[start:end]))
            start = end
        return found

    def decrypted(self, batch: Buffer) -> bytes:
        """One whole batch, as it was appended; one from before encryption began as it is.

        Raises CorruptBatch if it was changed, or is another key's, or is in the clear where
        encryption had begun.
        """
        return b"".join(self._opened(memoryview(batch)))

    def decrypted_all(self, records: Buffer) -> bytes:
        """Whole batches back to back. Raises CorruptBatch, also where the last one is cut."""
        return b"".join(self._each(records))

    def _each(self, records: Buffer) -> Iterator[Buffer]:
        end = 0
        for _, batch in batches(records):
            end += len(batch)
            yield from self._opened(batch)
        if end != len(records):
            raise CorruptBatch(f"a batch is cut after {len(records) - end} bytes")

    def _opened(self, view: memoryview) -> tuple[Buffer, ...]:
        """The batch in pieces: who has many of them joins all at once."""
        (attributes,) = _ATTRIBUTES.unpack_from(view, CRC_START)
        start = bytes(view[:LENGTH_POSITION])
        if not attributes & ENCRYPTED:
            offset = int.from_bytes(start, "big")
            if offset >= self._since and len(view) > HEADER_BYTES:
                raise CorruptBatch(
                    f"the batch at offset {offset} is in the clear, and all from offset"
                    f" {self._since} on was encrypted"
                )
            return (view,)
        epoch = bytes(view[LEADER_EPOCH_POSITION:CRC_POSITION])
        bound = b"".join((start, epoch, view[CRC_START:HEADER_BYTES]))
        try:
            nonce = bytes(view[HEADER_BYTES:_BODY_POSITION])
            clear = memoryview(self._gcm.decrypt(nonce, view[_BODY_POSITION:], bound))
        except (InvalidTag, ValueError):
            offset = int.from_bytes(start, "big")
            raise CorruptBatch(
                f"the batch at offset {offset} does not decrypt: it was changed, or its segment's"
                " key is another one's"
            ) from None
        length = _LENGTH.pack(len(view) - LENGTH_PREFIX_BYTES - OVERHEAD_BYTES)
        rest = _marked(view, attributes & ~ENCRYPTED)
        return start, length, epoch, clear[:_CRC_BYTES], rest, clear[_CRC_BYTES:]


def _marked(batch: memoryview, attributes: int) -> bytes:
    """The header behind the checksum, with these attributes."""
    return b"".join((_ATTRIBUTES.pack(attributes), batch[LAST_OFFSET_DELTA_POSITION:HEADER_BYTES]))


def is_encrypted(batch: Buffer) -> bool:
    """Of a whole header."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, CRC_START)
    return bool(attributes & ENCRYPTED)
