"""The record codec: batches into records, with the compiled loops of ``_codec``."""

from collections.abc import Iterator

from streamlog.errors import CorruptBatch
from streamlog.record._codec import (
    RUN_BYTES_MAX,
    RecordRun,
    decode_records,
    marked_batches,
    record_sizes,
    survey_records,
)
from streamlog.record.batch import BatchHeader, Record, read_header
from streamlog.record.compression import Buffer
from streamlog.record.opening import opened

__all__ = [
    "RUN_BYTES_MAX",
    "Record",
    "RecordRun",
    "control_record",
    "decode_records",
    "iter_records",
    "marked_batches",
    "record_sizes",
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
