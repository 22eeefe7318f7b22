"""An erasure: a control batch that says which earlier records of its log are to be gone.

Control batches (bit 5 of the attributes) are no data: Kafka's clients skip those of kinds that they
do not know. This one has a single record. Its key is Kafka's: a version and a type, of 16 bits
each; its value is a byte for the form of the rest, and an ``OffsetSet``.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from crc32c import crc32c

from streamlog.errors import CorruptBatch
from streamlog.record.batch import CONTROL, CRC_POSITION, CRC_START, BatchHeader
from streamlog.record.codec import RecordRun, control_record
from streamlog.record.compression import Buffer
from streamlog.record.offset_set import OffsetSet

ERASURE: Final = 0x5345
"""Far from the types that Kafka has given out, which count up from 0."""
CHUNKS_MAX: Final = 56
"""In one batch, so that it is at most about 450 KiB: no consumer's limit is less."""

_KEY: Final = struct.Struct(">hh")
_VERSION: Final = 0
_FORM: Final = b"\x01"
_ATTRIBUTES: Final = struct.Struct(">h")
_CRC: Final = struct.Struct(">I")


def erasure_batches(
    erased: OffsetSet,
    *,
    base_offset: int,
    leader_epoch: int,
    timestamp_ms: int,
    headers: Sequence[tuple[bytes, bytes | None]] = (),
) -> Iterator[bytes]:
    """Back to back from ``base_offset`` on; one but for millions of scattered offsets. Of nothing: one that only
    takes an offset, or is there for its ``headers``.
    """
    for place, part in enumerate(erased.parts(CHUNKS_MAX) if erased else (erased,)):
        run = RecordRun()
        run.append(_KEY.pack(_VERSION, ERASURE), _FORM + part.encode(), headers)
        batch = run.seal(
            base_offset=base_offset + place, leader_epoch=leader_epoch, timestamp_ms=timestamp_ms
        )
        yield _as_control(batch)


def erased_by(batch: Buffer, header: BatchHeader) -> OffsetSet | None:
    """What this batch erases; None if it is no erasure, or of a version to come.

    Raises CorruptBatch.
    """
    if not header.is_control or not header.record_count:
        return None
    record = control_record(batch)
    key = record.key or b""
    if key != _KEY.pack(_VERSION, ERASURE) or (record.value or b"")[:1] != _FORM:
        return None
    try:
        erased = OffsetSet.decode((record.value or b"")[1:])
    except ValueError as error:
        raise CorruptBatch(f"erasure at {header.base_offset}: {error}") from None
    if erased.count(header.base_offset, 2**63):
        raise CorruptBatch(f"erasure at {header.base_offset} erases what comes after it")
    return erased


def is_placeholder(batch: Buffer) -> bool:
    """Whether this erasure, of nothing, is there for its offset alone: it stands for a message of another log."""
    return not control_record(batch).headers


def _as_control(batch: bytes) -> bytes:
    data = bytearray(batch)
    (attributes,) = _ATTRIBUTES.unpack_from(data, CRC_START)
    _ATTRIBUTES.pack_into(data, CRC_START, attributes | CONTROL)
    _CRC.pack_into(data, CRC_POSITION, crc32c(memoryview(data)[CRC_START:]))
    return bytes(data)
