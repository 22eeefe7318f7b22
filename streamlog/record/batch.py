"""The header of a record batch v2, and the walk over batches that lie back to back.

This is the one description of the layout (Kafka protocol guide, "Record Batch"; all numbers are
big-endian). Compiled code takes the same numbers from ``compiled/batch_header.pxd``.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from streamlog.errors import CorruptBatch
from streamlog.record.compression import Buffer, Compression

FIELDS: Final = {
    "base_offset": "q",
    "batch_length": "i",
    "leader_epoch": "i",
    "magic": "b",
    "crc": "I",
    "attributes": "h",
    "last_offset_delta": "i",
    "base_timestamp_ms": "q",
    "max_timestamp_ms": "q",
    "producer_id": "q",
    "producer_epoch": "h",
    "base_sequence": "i",
    "record_count": "i",
}
"""Of the header, in the order of their bytes, in the letters of ``struct``."""


def header_fields(*names: str) -> struct.Struct:
    """Unpacks these fields of a header, in the order of their bytes, and skips others between."""
    layout, skipped = ">", 0
    for name, code in FIELDS.items():
        if name in names:
            layout += (f"{skipped}x" if skipped else "") + code
            skipped = 0
        else:
            skipped += struct.calcsize(">" + code)
    return struct.Struct(layout)


HEADER: Final = header_fields(*FIELDS)
TO_CRC: Final = header_fields(*list(FIELDS)[:5])
"""The fields up to the checksum, and it."""
CHECKED: Final = struct.Struct(">" + "".join(list(FIELDS.values())[5:]))
"""Those that it covers."""
HEADER_BYTES: Final = 61
LENGTH_POSITION: Final = 8
LENGTH_PREFIX_BYTES: Final = 12
"""A batch's length counts what comes after itself."""
LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
CRC_START: Final = 21
"""The checksum covers what comes after itself: attributes first."""
LAST_OFFSET_DELTA_POSITION: Final = 23
BASE_TIMESTAMP_POSITION: Final = 27
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_ID_POSITION: Final = 43
PRODUCER_EPOCH_POSITION: Final = 51
BASE_SEQUENCE_POSITION: Final = 53
RECORD_COUNT_POSITION: Final = 57

MAGIC: Final = 2
OFFSET_MAX: Final = 2**63 - 1

LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
PUBLISHED: Final = 0x2000
"""A bit that Kafka has no use for: the records came over NATS, and what their headers ask for
counts. No Kafka producer may set it. It stays with the batch wherever its records go: to followers
and consumers, through compaction and erasure, into a backup and out of it."""
ENCRYPTED: Final = 0x4000
"""A bit that Kafka has no use for. On the disk alone: no client sends it, and none is sent it."""


class BatchHeader(NamedTuple):
    """The fixed part of a batch, in the order of its bytes."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return LENGTH_PREFIX_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        return Compression.of_attributes(self.attributes)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Of a transaction: its records, or the marker that ends it."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_published(self) -> bool:
        """Its records came over NATS."""
        return bool(self.attributes & PUBLISHED)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)


class Record(NamedTuple):
    """One record of a batch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at ``position``. Raises CorruptBatch if it is cut or cannot be one.

    It may announce more bytes than the buffer has; ``batches`` and ``check_batch`` look at that.
    """
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise CorruptBatch(f"header is cut after {max(0, len(buffer) - position)} bytes")
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        raise CorruptBatch(f"magic is {header.magic}, not {MAGIC}")
    if header.batch_length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
        raise CorruptBatch(f"length {header.batch_length} is less than a header's")
    if header.base_offset < 0 or header.last_offset_delta < 0 or header.record_count < 0:
        raise CorruptBatch(
            f"offset {header.base_offset}, delta {header.last_offset_delta} or "
            f"count {header.record_count} is negative"
        )
    if header.next_offset > OFFSET_MAX:
        raise CorruptBatch(f"offset {header.base_offset} leaves no room for the records")
    return header


def check_batch(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of a batch that is whole and whose CRC-32C is right, else CorruptBatch."""
    header = read_header(buffer, position)
    check_bytes(header, buffer, position)
    return header


def check_bytes(header: BatchHeader, buffer: Buffer, position: int = 0) -> None:
    """Raises CorruptBatch if the batch of this header is cut, or its CRC-32C is wrong."""
    end = position + header.size_bytes
    if end > len(buffer):
        raise CorruptBatch(f"batch is cut: {len(buffer) - position} of {header.size_bytes} bytes")
    crc = crc32c(memoryview(buffer)[position + CRC_START : end])
    if crc != header.crc:
        raise CorruptBatch(f"checksum is {crc:08x}, header says {header.crc:08x}")


def dense_batches(buffer: Buffer, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each whole batch, its checksum right, the first of ``offset``, each next one where that
    before it ends; stops before a cut last one. Raises CorruptBatch.

    Written for many tiny ones: what is right is not looked at twice.
    """
    view, unpack, new = memoryview(buffer), HEADER.unpack_from, tuple.__new__
    position, end = 0, len(view)
    while end - position >= HEADER_BYTES:
        header: BatchHeader = new(BatchHeader, unpack(view, position))
        stop = position + LENGTH_PREFIX_BYTES + header[1]
        if stop > end and header[1] > 0:
            return
        batch = view[position:stop]
        if header[0] != offset or stop < position + HEADER_BYTES or header[6] < 0:
            raise CorruptBatch(f"base offset {header[0]} where {offset} should be")
        crc = crc32c(batch[CRC_START:])
        if crc != header[4] or header[3] != MAGIC:
            raise CorruptBatch(f"checksum is {crc:08x}, header says {header[4]:08x}")
        yield header, batch
        position = stop
        offset += header[6] + 1


def batches(buffer: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Each whole batch; stops before a cut last one. Checksums are not looked at."""
    view = memoryview(buffer)
    position = 0
    while len(view) - position >= HEADER_BYTES:
        header = read_header(view, position)
        end = position + header.size_bytes
        if end > len(view):
            return
        yield header, view[position:end]
        position = end
