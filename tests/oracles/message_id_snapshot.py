"""A snapshot of message ids, version 1, in plain Python: what nodes have on their disks."""

import struct
from typing import Final

from crc32c import crc32c

from tests.oracles.duplicate_window import Slot

_MAGIC: Final = b"SLMI\x00\x00\x00\x01"


def encode(
    topic_id: bytes,
    known_offset: int,
    epoch: int,
    since_ms: int,
    last: tuple[bytes, int] | None,
    slots: list[Slot],
) -> bytes:
    """Big-endian."""
    last_id, last_offset = last or (b"", -1)
    numbers = known_offset, epoch, since_ms, len(slots), last_offset, len(last_id)
    body = struct.pack(">16sqiqIqI", topic_id, *numbers) + last_id
    for end_ms, ids in slots:
        body += struct.pack(">qI", end_ms, len(ids))
        body += struct.pack(f">{len(ids)}q", *ids.values())
        body += struct.pack(f">{len(ids)}I", *map(len, ids)) + b"".join(ids)
    return _MAGIC + struct.pack(">I", crc32c(body)) + body
