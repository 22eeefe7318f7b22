"""A segment's data key, encrypted, as a small text beside the segment. Pure.

::

    streamlog data key 1
    key 2026-11
    since 4711
    wrapped <60 bytes in base64: the nonce, then the data key under AES-256-GCM, with its tag>
    crc32c 0a1b2c3d

``key`` names the one that it is encrypted by; ``since`` is the offset from which on all batches of
the segment that have records are encrypted. The tag covers both. The checksum, of all lines before,
tells a file that was torn or has rotted from one of another key.
"""

import base64
import binascii
import re
from typing import Final, NamedTuple

from crc32c import crc32c

from streamlog.errors import CorruptFile
from streamlog.model import KEY_NAME

WRAPPED_BYTES: Final = 12 + 32 + 16
_FORM: Final = re.compile(
    rb"streamlog data key 1\nkey ([^\n]*)\nsince ([0-9]{1,19})\nwrapped ([^\n]*)\n"
    rb"crc32c ([0-9a-f]{8})\n"
)


class WrappedKey(NamedTuple):
    """A data key that only who has the key of that name can use."""

    key_name: str
    wrapped: bytes
    since: int = 0
    """All batches with records from that offset on are encrypted."""


def encode(key: WrappedKey) -> bytes:
    lines = (
        b"streamlog data key 1",
        b"key " + key.key_name.encode(),
        b"since %d" % key.since,
        b"wrapped " + base64.b64encode(key.wrapped),
        b"",
    )
    body = b"\n".join(lines)
    return body + b"crc32c %08x\n" % crc32c(body)


def decode(data: bytes, path: str) -> WrappedKey:
    """Raises CorruptFile for what ``encode`` has not written."""
    found = _FORM.fullmatch(data)
    if found is None:
        raise CorruptFile(f"{path}: not a file of a data key")
    name, since, wrapped, crc = found.groups()
    if crc32c(data[: found.start(4) - len(b"crc32c ")]) != int(crc, 16):
        raise CorruptFile(f"{path}: the checksum does not fit")
    try:
        sealed = base64.b64decode(wrapped, validate=True)
        key = WrappedKey(name.decode("ascii"), sealed, int(since))
    except (UnicodeDecodeError, binascii.Error) as error:
        raise CorruptFile(f"{path}: {error}") from None
    if len(key.wrapped) != WRAPPED_BYTES or not KEY_NAME.fullmatch(key.key_name):
        raise CorruptFile(f"{path}: not a data key")
    return key
