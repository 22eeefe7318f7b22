"""A small file whose content is encrypted by a data key of its own, which stands at its head.

::

    SLEV 00 00 00 01 | length of the key's text, 2 bytes | that text, see ``key_file``
    | nonce, 12 bytes | AES-256-GCM of the content, bound to all before

For what is kept beside an encrypted log and tells of its records. It is written again from time to
time, so it is never under an old key for long; who cannot open it reads the log instead.
"""

import os
import struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from streamlog.errors import CorruptFile
from streamlog.log.encryption import key_file
from streamlog.log.encryption.cipher import NONCE_BYTES
from streamlog.log.encryption.key_file import NO_SCOPE
from streamlog.log.encryption.key_ring import KeyRing

_MAGIC: Final = b"SLEV\x00\x00\x00\x01"
_LENGTH: Final = struct.Struct(">H")


def is_enveloped(data: bytes) -> bool:
    return data.startswith(_MAGIC)


def enveloped(content: bytes, keys: KeyRing, scope: str = NO_SCOPE) -> bytes:
    """``scope``: of the partition that it is about. Raises EncryptionKeyMissing."""
    data_key, wrapped = keys.new_data_key(scope=scope)
    text = key_file.encode(wrapped)
    head = b"".join((_MAGIC, _LENGTH.pack(len(text)), text))
    nonce = os.urandom(NONCE_BYTES)
    return b"".join((head, nonce, AESGCM(data_key).encrypt(nonce, content, head)))


def opened(data: bytes, keys: KeyRing, path: str, scope: str = NO_SCOPE) -> bytes:
    """Raises CorruptFile, EncryptionKeyMissing."""
    if not is_enveloped(data) or len(data) < len(_MAGIC) + _LENGTH.size:
        raise CorruptFile(f"{path}: not an encrypted file")
    (length,) = _LENGTH.unpack_from(data, len(_MAGIC))
    end = len(_MAGIC) + _LENGTH.size + length
    head, nonce, sealed = data[:end], data[end : end + NONCE_BYTES], data[end + NONCE_BYTES :]
    wrapped = key_file.decode(head[len(_MAGIC) + _LENGTH.size :], path)
    if wrapped.scope != scope:
        raise CorruptFile(f"{path}: it is of another partition ({wrapped.scope})")
    try:
        return AESGCM(keys.unwrapped(wrapped, path)).decrypt(nonce, sealed, head)
    except (InvalidTag, ValueError):
        raise CorruptFile(f"{path}: does not decrypt: it was changed") from None
