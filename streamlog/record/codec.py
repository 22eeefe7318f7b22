"""The record codec: compiled where it was built, else its plain twin."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamlog.errors import CorruptBatch
from streamlog.record import fallback
from streamlog.record._codec_plain import RUN_BYTES_MAX, Record
from streamlog.record.batch import HEADER_BYTES, BatchHeader, read_header
from streamlog.record.compression import Buffer, Compression, decompress

if TYPE_CHECKING:
    from streamlog.record._codec_plain import (
        RecordRun,
        decode_records,
        marked_batches,
        survey_records,
    )
else:
    try:
        from streamlog.record._codec import (
            RecordRun,
            decode_records,
            marked_batches,
            survey_records,
        )
    except ImportError:
        fallback.warn()
        from streamlog.record._codec_plain import (
            RecordRun,
            decode_records,
            marked_batches,
            survey_records,
        )

__all__ = [
    "RUN_BYTES_MAX",
    "Record",
    "RecordRun",
    "control_record",
    "decode_records",
    "iter_records",
    "marked_batches",
    "survey_records",
]


def iter_records(batch: Buffer) -> Iterator[Record]:
    """Each record of one whole batch, of any codec. Raises CorruptBatch for what is not one.

    None of a control batch, which is the log's own. The checksum is not looked at; that is
    ``check_batch``.
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
    if header.size_bytes > len(batch):
        raise CorruptBatch(f"batch is cut: {len(batch)} of {header.size_bytes} bytes")
    body: Buffer = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    if header.compression is not Compression.NONE:
        body = decompress(header.compression, body, bytes_max=RUN_BYTES_MAX)
    return iter(decode_records(body, header))
