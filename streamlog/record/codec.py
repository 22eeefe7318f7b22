"""The record codec: a batch opened, and its records one by one, with the compiled loops of ``compiled.codec``.

A few bytes may decompress to very many. So this is the one place where the records of a batch are
decompressed, whether that is done on an event loop is decided by what comes out of it, and
decompression ends at a limit.
"""

from collections.abc import Iterator
from typing import Final

from streamlog.errors import CorruptBatch, UncompressedTooLarge
from streamlog.record.batch import HEADER_BYTES, BatchHeader, Record, read_header
from streamlog.record.compiled.codec import (
    RUN_BYTES_MAX,
    RecordRun,
    decode_records,
    marked_batches,
    record_sizes,
    survey_plain,
    survey_records,
)
from streamlog.record.compiled.keys import place_of
from streamlog.record.compression import UNCOMPRESSED_BYTES_MAX, Buffer, Compression, decompress

__all__ = [
    "AT_ONCE_BYTES",
    "AT_ONCE_COMPRESSED_BYTES",
    "RUN_BYTES_MAX",
    "Record",
    "RecordRun",
    "control_record",
    "decode_records",
    "iter_records",
    "marked_batches",
    "may_have",
    "opened",
    "opened_at_once",
    "record_at",
    "record_in",
    "record_sizes",
    "survey_plain",
    "survey_records",
]

AT_ONCE_BYTES: Final = 64 * 1024
"""A batch that decompresses to more is opened in a thread."""
AT_ONCE_COMPRESSED_BYTES: Final = 16 * 1024
"""The same for one that is larger as it is: a codec may take long over bytes that come to nothing."""


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


def iter_records(batch: Buffer) -> Iterator[Record]:
    """Each record of one whole batch, of any codec. Raises CorruptBatch for what is not one.

    None of a control batch, which is the log's own. The checksum is not looked at; that is
    ``check_batch``. Decompresses: on an event loop, open the batch there and ``decode_records``.
    """
    header = read_header(batch)
    return iter(()) if header.is_control else _decoded(batch, header)


def control_record(batch: Buffer) -> Record:
    """The first record of a control batch. Raises CorruptBatch."""
    header = read_header(batch)
    record = next(_decoded(batch, header), None)
    if record is None or not header.is_control:
        raise CorruptBatch("no control batch, or an empty one")
    return record


def _decoded(batch: Buffer, header: BatchHeader) -> Iterator[Record]:
    return iter(decode_records(opened(header, batch), header))


def record_at(batch: Buffer, offset: int) -> Record | None:
    """None if the whole batch has none of that offset, or is a control batch. Raises CorruptBatch
    for what is not one; the checksum is not looked at.
    """
    header = read_header(batch)
    if not may_have(header, offset):
        return None
    return record_in(opened(header, batch), header, offset)


def may_have(header: BatchHeader, offset: int) -> bool:
    """A record of users, by what the header says."""
    return not header.is_control and header.base_offset <= offset < header.next_offset


def record_in(body: Buffer, header: BatchHeader, offset: int) -> Record | None:
    """The same out of an opened batch that ``may_have`` it."""
    place = place_of(body, header.record_count, offset - header.base_offset)
    if place is None:
        return None
    alone = memoryview(body)[place[0] : place[1]]
    return next(iter(decode_records(alone, header._replace(record_count=1))))
