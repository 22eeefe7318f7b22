"""Small files that are written whole, and that show whether they are as they were written. Pure.

Big-endian: a magic number of eight bytes, the CRC-32C of the rest, the rest. A file that must not be taken from one
folder into another begins, after these, with whose folder it is in: the length of that, then that.
"""

import struct
from typing import Final

from crc32c import crc32c

from streamlog.errors import CorruptFile

_MAGIC_BYTES: Final = 8
_CRC: Final = struct.Struct(">I")
_START: Final = _MAGIC_BYTES + _CRC.size
_OWNER: Final = struct.Struct(">H")


def checked(magic: bytes, body: bytes) -> bytes:
    return b"".join((magic, _CRC.pack(crc32c(body)), body))


def body_of(data: bytes, magic: bytes, path: str, kind: str) -> memoryview:
    """Raises CorruptFile where it is not ``kind``, or was changed."""
    if len(data) < _START or not data.startswith(magic):
        raise CorruptFile(f"{path}: not {kind}")
    body = memoryview(data)[_START:]
    if crc32c(body) != _CRC.unpack_from(data, _MAGIC_BYTES)[0]:
        raise CorruptFile(f"{path}: the checksum does not fit")
    return body


def owner_of(directory: str) -> bytes:
    """Stream and partition, by the folder's name."""
    return "/".join(directory.split("/")[-2:]).encode()


def owned(magic: bytes, owner: bytes, body: bytes) -> bytes:
    """``owner``: see ``owner_of``."""
    return checked(magic, b"".join((_OWNER.pack(len(owner)), owner, body)))


def owned_body(data: bytes, magic: bytes, owner: bytes, path: str, kind: str) -> memoryview:
    """Raises CorruptFile where it is not ``kind``, was changed, or is of another folder."""
    body = body_of(data, magic, path, kind)
    prefix = _OWNER.pack(len(owner)) + owner
    if body[: len(prefix)] != prefix:
        raise CorruptFile(f"{path}: it is of another folder")
    return body[len(prefix) :]
