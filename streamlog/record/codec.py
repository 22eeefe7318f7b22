"""The record codec: compiled where it was built, else its plain twin."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamlog.errors import CorruptBatch
from streamlog.record import fallback
from streamlog.record._codec_plain import RUN_BYTES_MAX, Record
from streamlog.record.batch import HEADER_BYTES, read_header
from streamlog.record.compression import Buffer, Compression, decompress

if TYPE_CHECKING:
    from streamlog.record._codec_plain import (
        RecordRun,
        decode_records,
        sequenced_batches,
        survey_records,
    )
else:
    try:
        from streamlog.record._codec import (
            RecordRun,
            decode_records,
            sequenced_batches,
            survey_records,
        )
    except ImportError:
        fallback.warn()
        from streamlog.record._codec_plain import (
            RecordRun,
            decode_records,
            sequenced_batches,
            survey_records,
        )

__all__ = [
    "RUN_BYTES_MAX",
    "Record",
    "RecordRun",
    "iter_records",
    "sequenced_batches",
    "survey_records",
]


def iter_records(batch: Buffer) -> Iterator[Record]:
    """Each record of one whole batch, of any codec. Raises CorruptBatch for what is not one.

    The checksum is not looked at; that is ``check_batch``.
    """
    header = read_header(batch)
    if header.size_bytes > len(batch):
        raise CorruptBatch(f"batch is cut: {len(batch)} of {header.size_bytes} bytes")
    body: Buffer = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    if header.compression is not Compression.NONE:
        body = decompress(header.compression, body, bytes_max=RUN_BYTES_MAX)
    return iter(decode_records(body, header))
