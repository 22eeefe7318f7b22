"""Opening a batch: the one place where the records of a batch are decompressed, with its limits.

A few bytes may decompress to very many. So whether a batch is opened on an event loop is decided by
what comes out of it, and decompression ends at a limit.
"""

from typing import Final

from streamlog.errors import CorruptBatch, UncompressedTooLarge
from streamlog.record.batch import HEADER_BYTES, BatchHeader
from streamlog.record.compression import (
    UNCOMPRESSED_BYTES_MAX,
    Buffer,
    Compression,
    decompress,
)

AT_ONCE_BYTES: Final = 64 * 1024
"""A batch that decompresses to more is opened in a thread."""
AT_ONCE_COMPRESSED_BYTES: Final = 16 * 1024
"""Likewise one that is larger as it is: a codec may take long over bytes that come to nothing."""


def opened(
    header: BatchHeader, batch: Buffer, *, bytes_max: int = UNCOMPRESSED_BYTES_MAX
) -> Buffer:
    """The records of a whole batch, back to back. Takes time: not for an event loop.

    Raises UncompressedTooLarge for more than ``bytes_max``, and CorruptBatch.
    """
    body = _body(header, batch)
    if header.compression is Compression.NONE:
        return body
    return decompress(header.compression, body, bytes_max=bytes_max)


def opened_at_once(header: BatchHeader, batch: Buffer) -> Buffer | None:
    """The same, on an event loop; None: it may come to so much that it is to be ``opened`` in a
    thread. Raises CorruptBatch.
    """
    body = _body(header, batch)
    if header.compression is Compression.NONE:
        return body
    if len(body) > AT_ONCE_COMPRESSED_BYTES:
        return None
    try:
        return decompress(header.compression, body, bytes_max=AT_ONCE_BYTES)
    except UncompressedTooLarge:
        return None


def _body(header: BatchHeader, batch: Buffer) -> memoryview:
    if header.size_bytes > len(batch):
        raise CorruptBatch(f"batch is cut: {len(batch)} of {header.size_bytes} bytes")
    return memoryview(batch)[HEADER_BYTES : header.size_bytes]
