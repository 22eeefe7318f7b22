"""A batch as a producer sent it: what may be wrong with it, and what the leader writes into it.

A producer leaves base offset and leader epoch to the leader, and the checksum does not cover them;
attributes and times it does. So a batch stays byte for byte what it was, its codec too, unless its
time is to be the leader's, or its header misstates the latest time of its records.
"""

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from streamlog.errors import (
    CorruptBatch,
    InvalidRecord,
    NoTransactions,
    RecordsWithoutKey,
    RecordTooLarge,
    UncompressedTooLarge,
)
from streamlog.record.batch import (
    CONTROL,
    CRC_POSITION,
    CRC_START,
    ENCRYPTED,
    HEADER_BYTES,
    LAST_OFFSET_DELTA_POSITION,
    LEADER_EPOCH_POSITION,
    LENGTH_POSITION,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_POSITION,
    MAX_TIMESTAMP_POSITION,
    PRODUCER_ID_POSITION,
    PUBLISHED,
    BatchHeader,
    check_bytes,
    read_header,
)
from streamlog.record.codec import opened, survey_plain, survey_records
from streamlog.record.compiled.keys import keyless_of
from streamlog.record.compression import CODEC_MASK, UNCOMPRESSED_BYTES_MAX, Buffer, Compression

CODEC_MAX: Final = max(Compression)

RECORDS_NAMED_MAX: Final = 1_000
"""Of a batch that is refused for them: it may have millions."""

_BASE_OFFSET: Final = struct.Struct(">q")
_NO_OFFSET: Final = bytes(8)
_LEADER_EPOCH: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES: Final = struct.Struct(">h")
_MAX_TIMESTAMP: Final = struct.Struct(">q")


class ProducedBatch(NamedTuple):
    """One that is checked. Its offsets are 0 and up, without a gap, until it is stamped."""

    header: BatchHeader
    data: bytes | memoryview
    largest_bytes: int
    """Of its largest record, uncompressed."""
    max_timestamp_ms: int
    """Of its records, whatever the header says."""

    @property
    def record_count(self) -> int:
        return self.header.record_count

    @property
    def is_sequenced(self) -> bool:
        """Of an idempotent producer."""
        return self.header.producer_id >= 0


def check_plain(data: memoryview) -> ProducedBatch | None:
    """``check_outside`` and ``check_inside`` at once, for an uncompressed batch outside transactions. None: it is
    another one, or something is wrong with it, which those two tell of.
    """
    found = survey_plain(data)
    if found is None:
        return None
    fields, (largest, latest) = found
    header = tuple.__new__(BatchHeader, fields)
    if crc32c(data[CRC_START:]) != header.crc:
        return None
    return ProducedBatch(header, data, largest, latest)


def check_outside(data: bytes | memoryview, *, transactional: bool = False) -> BatchHeader:
    """The header of the one batch that ``data`` is; quick, whatever its size. ``transactional``: it may be one of a
    transaction's.

    Raises CorruptBatch, InvalidRecord, NoTransactions.
    """
    if len(data) > MAGIC_POSITION and data[MAGIC_POSITION] != MAGIC:
        raise InvalidRecord(f"batches of version {data[MAGIC_POSITION]} are not taken, only 2")
    header = read_header(b"".join((_NO_OFFSET, data[LENGTH_POSITION:HEADER_BYTES])))
    check_bytes(header, data)
    if header.size_bytes != len(data):
        raise InvalidRecord(f"{len(data) - header.size_bytes} bytes follow the one batch")
    if header.is_transactional and not transactional:
        raise NoTransactions("a transaction's batch in a request without a transactional id")
    if header.is_transactional and header.producer_id < 0:
        raise InvalidRecord("a transaction's batch has a producer's id")
    if header.attributes & CONTROL:
        raise InvalidRecord("a producer must not write control batches")
    if header.attributes & ENCRYPTED:
        raise InvalidRecord("bit 14 of a batch's attributes is taken")
    if header.attributes & PUBLISHED:
        raise InvalidRecord("bit 13 of a batch's attributes is taken: it did not come over NATS")
    if header.attributes & CODEC_MASK > CODEC_MAX:
        raise InvalidRecord(f"codec {header.attributes & CODEC_MASK} is unknown")
    if not 0 < header.record_count == header.last_offset_delta + 1:
        raise InvalidRecord(
            f"{header.record_count} records with a last offset delta of {header.last_offset_delta}"
        )
    if header.producer_id >= 0 and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidRecord("a producer's id goes with an epoch and a sequence")
    return header


def check_inside(
    header: BatchHeader,
    data: bytes | memoryview,
    *,
    keyed: bool = False,
    body: Buffer | None = None,
    bytes_max: int = UNCOMPRESSED_BYTES_MAX,
) -> ProducedBatch:
    """Its records are as many as ``header`` says, and dense, and each has a key if they are to be
    ``keyed``. ``body`` has them, if the batch is opened already; else it may open to ``bytes_max``.

    Raises InvalidRecord, RecordsWithoutKey, and RecordTooLarge for what opens to more.
    """
    try:
        if body is None:
            body = opened(header, data, bytes_max=bytes_max)
        largest, latest = survey_records(body, header.record_count, header.base_timestamp_ms)
        keyless, places = (
            keyless_of(body, header.record_count, RECORDS_NAMED_MAX) if keyed else (0, [])
        )
    except UncompressedTooLarge as error:
        raise RecordTooLarge(f"a batch decompresses to too much: {error}") from None
    except CorruptBatch as error:
        raise InvalidRecord(str(error)) from None
    if keyless:
        raise RecordsWithoutKey(keyless, places)
    return ProducedBatch(header, data, largest, latest)


def stamp(
    batch: ProducedBatch, *, base_offset: int, leader_epoch: int, append_time_ms: int | None = None
) -> bytes:
    """The batch as it is stored; with ``append_time_ms`` all of its records have that time."""
    header, data = batch.header, batch.data
    place = _BASE_OFFSET.pack(base_offset)
    epoch = _LEADER_EPOCH.pack(leader_epoch)
    attributes, timestamp_ms = header.attributes & ~LOG_APPEND_TIME, batch.max_timestamp_ms
    if append_time_ms is not None:
        attributes, timestamp_ms = header.attributes | LOG_APPEND_TIME, append_time_ms
    length = data[LENGTH_POSITION:LEADER_EPOCH_POSITION]
    if (attributes, timestamp_ms) == (header.attributes, header.max_timestamp_ms):
        return b"".join((place, length, epoch, data[MAGIC_POSITION:]))
    checked = b"".join(
        (
            _ATTRIBUTES.pack(attributes),
            data[LAST_OFFSET_DELTA_POSITION:MAX_TIMESTAMP_POSITION],
            _MAX_TIMESTAMP.pack(timestamp_ms),
            data[PRODUCER_ID_POSITION:],
        )
    )
    crc = _CRC.pack(crc32c(checked))
    return b"".join((place, length, epoch, data[MAGIC_POSITION:CRC_POSITION], crc, checked))
