"""A segment's data key, encrypted, as a small text beside the segment. Pure.

::

    streamlog data key 1
    key 2026-11
    of 0123456789abcdef0123456789abcdef-0
    since 4711
    wrapped <60 bytes in base64: the nonce, then the data key under AES-256-GCM, with its tag>
    crc32c 0a1b2c3d

``key`` names the one that it is encrypted by; ``of`` is the partition, by its stream's id and its
number, see ``scope_of``; ``since`` is the offset from which on all batches of the segment that have
records are encrypted. The tag covers all three. The checksum, of all lines before, tells a file
that was torn or has rotted from one of another key.
"""

import base64
import binascii
import re
from typing import Final, NamedTuple
from uuid import UUID

from crc32c import crc32c

from streamlog.errors import CorruptFile
from streamlog.model import KEY_NAME

NO_SCOPE: Final = ""
"""Of what is no partition's: a backup's pieces."""
WRAPPED_BYTES: Final = 12 + 32 + 16
_FORM: Final = re.compile(
    rb"streamlog data key 1\nkey ([^\n]*)\nof ([0-9a-f]{32}-[0-9]{1,10}|)\nsince ([0-9]{1,19})\nwrapped ([^\n]*)\n"
    rb"crc32c ([0-9a-f]{8})\n"
)


class WrappedKey(NamedTuple):
    """A data key that only who has the key of that name can use."""

    key_name: str
    wrapped: bytes
    since: int = 0
    """All batches with records from that offset on are encrypted."""
    scope: str = NO_SCOPE
    """The partition that it is of."""


def scope_of(stream_id: UUID, partition: int) -> str:
    """What the data keys of a partition are bound to."""
    return f"{stream_id.hex}-{partition}"


def encode(key: WrappedKey) -> bytes:
    lines = (
        b"streamlog data key 1",
        b"key " + key.key_name.encode(),
        b"of " + key.scope.encode(),
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
    name, scope, since, wrapped, crc = found.groups()
    if crc32c(data[: found.start(5) - len(b"crc32c ")]) != int(crc, 16):
        raise CorruptFile(f"{path}: the checksum does not fit")
    try:
        sealed = base64.b64decode(wrapped, validate=True)
        key = WrappedKey(name.decode("ascii"), sealed, int(since), scope.decode())
    except (UnicodeDecodeError, binascii.Error) as error:
        raise CorruptFile(f"{path}: {error}") from None
    if len(key.wrapped) != WRAPPED_BYTES or not KEY_NAME.fullmatch(key.key_name):
        raise CorruptFile(f"{path}: not a data key")
    return key
