"""What the headers of batches in a partition's segment files say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from streamlog.record.batch import HEADER, HEADER_BYTES, BatchHeader

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""By the number in a batch's attributes."""


class Batch(NamedTuple):
    """One batch on disk."""

    base_offset: int
    codec: str
    producer_id: int
    record_count: int


def batches(folder: Path) -> Iterator[Batch]:
    """All batches of the partition that is kept in ``folder``."""
    for path in sorted(folder.glob("*.log")):
        data, position = path.read_bytes(), 0
        while position + HEADER_BYTES <= len(data):
            header = BatchHeader._make(HEADER.unpack_from(data, position))
            if header.batch_length <= 0:
                break
            codec = CODECS[header.compression]
            yield Batch(header.base_offset, codec, header.producer_id, header.record_count)
            position += header.size_bytes
