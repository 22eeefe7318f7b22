"""A transaction's end in one partition: a control batch of Kafka's kinds 0 (abort) and 1 (commit).

It names the producer in its header, as the batches of the transaction do. Its one record has Kafka's
key, a version and a kind of 16 bits each, and its value is a version and the epoch of the coordinator
that decided.
"""

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from streamlog.errors import CorruptBatch
from streamlog.record.batch import CONTROL, CRC_POSITION, CRC_START, TRANSACTIONAL, BatchHeader
from streamlog.record.codec import RecordRun, control_record
from streamlog.record.compression import Buffer

ABORT: Final = 0
COMMIT: Final = 1
NO_SEQUENCE: Final = -1
VERSION_2: Final = 2
"""Of transactions (KIP-890): each has a producer epoch of its own, and its marker has the next one's."""

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_FORM: Final = 0
_ATTRIBUTES: Final = struct.Struct(">h")
_CRC: Final = struct.Struct(">I")


class TransactionMarker(NamedTuple):
    """How a producer's transaction ends."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    """Of the leader of the coordinator's partition: an older one is fenced."""
    transaction_version: int = VERSION_2
    """Not stored. Below ``VERSION_2`` a marker has the epoch of the transaction itself."""


def marker_batch(
    marker: TransactionMarker, *, base_offset: int, leader_epoch: int, timestamp_ms: int
) -> bytes:
    run = RecordRun(attributes=CONTROL | TRANSACTIONAL)
    kind = COMMIT if marker.is_commit else ABORT
    run.append(_KEY.pack(_FORM, kind), _VALUE.pack(_FORM, marker.coordinator_epoch))
    return run.seal(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        timestamp_ms=timestamp_ms,
        producer=(marker.producer_id, marker.producer_epoch, NO_SEQUENCE),
    )


def as_transactional(batch: bytes) -> bytes:
    """The same batch, as one of its producer's transaction."""
    data = bytearray(batch)
    (attributes,) = _ATTRIBUTES.unpack_from(data, CRC_START)
    _ATTRIBUTES.pack_into(data, CRC_START, attributes | TRANSACTIONAL)
    _CRC.pack_into(data, CRC_POSITION, crc32c(memoryview(data)[CRC_START:]))
    return bytes(data)


def marker_of(batch: Buffer, header: BatchHeader) -> TransactionMarker | None:
    """The marker that this batch is; None: it is something else, or of a kind to come. Raises CorruptBatch."""
    if not (header.is_control and header.is_transactional and header.record_count):
        return None
    record = control_record(batch)
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size or len(value) < _VALUE.size:
        raise CorruptBatch(f"transaction marker at {header.base_offset} is cut")
    _, kind = _KEY.unpack_from(key)
    if kind not in (ABORT, COMMIT):
        return None
    _, coordinator_epoch = _VALUE.unpack_from(value)
    return TransactionMarker(
        header.producer_id, header.producer_epoch, kind == COMMIT, coordinator_epoch
    )
