"""What the headers of batches in a partition's segment files say."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""By the number in a batch's attributes."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""Record batch v2, down to the count of records."""
_LENGTH_FROM: Final = 12
"""The length counts what comes after itself."""


class Batch(NamedTuple):
    """One batch on disk."""

    base_offset: int
    codec: str
    producer_id: int


def batches(folder: Path) -> Iterator[Batch]:
    """All batches of the partition that is kept in ``folder``."""
    for path in sorted(folder.glob("*.log")):
        data, position = path.read_bytes(), 0
        while position + _HEADER.size <= len(data):
            fields = _HEADER.unpack_from(data, position)
            base_offset, length, attributes, producer_id = (
                fields[0],
                fields[1],
                fields[5],
                fields[9],
            )
            if length <= 0:
                break
            yield Batch(base_offset, CODECS[attributes & 7], producer_id)
            position += _LENGTH_FROM + length
