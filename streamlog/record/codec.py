"""The record codec: compiled where it was built, else its plain twin."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamlog.errors import CorruptBatch
from streamlog.record import fallback
from streamlog.record._codec_plain import RUN_BYTES_MAX, Record
from streamlog.record.batch import BatchHeader, read_header
from streamlog.record.compression import Buffer
from streamlog.record.opening import opened

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
