"""The record codec in plain Python, which the compiled one is held to.

A varint is Kafka's: zigzag, seven bits a byte, the lowest first.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from crc32c import crc32c

from streamlog.errors import CorruptBatch, RecordTooLarge
from streamlog.record.batch import (
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    Record,
    batches,
)
from streamlog.record.compression import UNCOMPRESSED_BYTES_MAX, Buffer, compress

RUN_BYTES_MAX: Final = UNCOMPRESSED_BYTES_MAX
"""Of a run's records: whoever reads the batch has to be able to open it."""

HEADERS_MAX: Final = 65_536
"""Of a record that a producer sends. A header takes two bytes in a batch, and a hundred times as
much once it is decoded."""

TIMESTAMP_MS_END: Final = 2**63
VARINT_BYTES_MAX: Final = 10

_BEFORE_CRC: Final = struct.Struct(">qiib")
_AFTER_CRC: Final = struct.Struct(">hiqqqhii")
NO_PRODUCER: Final = (-1, -1, -1)
"""Id, epoch and sequence of a batch that no producer has numbered."""


class RecordRun:
    """Records gathered until they are sealed into one batch. Not thread-safe; one owner."""

    def __init__(self, *, bytes_max: int = RUN_BYTES_MAX, attributes: int = 0) -> None:
        """``attributes``: of its batches, beside those that ``seal`` says."""
        if not 0 <= bytes_max <= RUN_BYTES_MAX:
            raise ValueError(f"limit of {bytes_max} bytes is outside [0, {RUN_BYTES_MAX}]")
        self.bytes_max = bytes_max
        self.attributes = attributes
        self.count = 0
        self._body = bytearray()
        """The ``count`` records, back to back; at most ``bytes_max`` bytes."""

    @property
    def size_bytes(self) -> int:
        """What the records take so far, uncompressed."""
        return len(self._body)

    def body_from(self, position: int) -> bytes:
        """The records that begin at that byte and after it."""
        if not 0 <= position <= len(self._body):
            raise ValueError(f"{position} is outside of {len(self._body)} bytes")
        return bytes(self._body[position:])

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[bytes, bytes | None]] = (),
        timestamp_delta_ms: int = 0,
    ) -> int:
        """Add a record; its offset delta. Raises RecordTooLarge where there is no room for it.

        Its time is the batch's, and so much more.
        """
        record = bytearray(b"\x00")  # no attributes
        put_varint(record, timestamp_delta_ms)
        put_varint(record, self.count)
        _put_bytes(record, key)
        _put_bytes(record, value)
        put_varint(record, len(headers))
        for name, content in headers:
            put_varint(record, len(name))
            record += name
            _put_bytes(record, content)
        length = bytearray()
        put_varint(length, len(record))
        if len(self._body) + len(length) + len(record) > self.bytes_max:
            raise RecordTooLarge(f"run of {len(self._body)} bytes has no room for {len(record)}")
        self._body += length
        self._body += record
        self.count += 1
        return self.count - 1

    def seal(
        self,
        *,
        base_offset: int,
        leader_epoch: int,
        timestamp_ms: int,
        compression: int = 0,
        max_timestamp_ms: int | None = None,
        producer: tuple[int, int, int] = NO_PRODUCER,
    ) -> bytes:
        """The whole batch; the run is empty afterwards, but as it was where this raises.

        ``timestamp_ms`` is the time of append of all records; with ``max_timestamp_ms``, which is
        the latest of them, they have times of their own. ``producer``: id, epoch and sequence.
        """
        if not self.count:
            raise ValueError("there is no record to seal")
        body = compress(compression, bytes(self._body))
        attributes = compression | self.attributes
        if max_timestamp_ms is None:
            attributes |= LOG_APPEND_TIME
            max_timestamp_ms = timestamp_ms
        times = (timestamp_ms, max_timestamp_ms)
        rest = _AFTER_CRC.pack(attributes, self.count - 1, *times, *producer, self.count)
        crc = crc32c(body, crc32c(rest))
        length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(body)
        head = _BEFORE_CRC.pack(base_offset, length, leader_epoch, MAGIC)
        self.clear()
        return b"".join((head, struct.pack(">I", crc), rest, body))

    def clear(self) -> None:
        """Forget the records."""
        self.count = 0
        self._body.clear()


def decode_records(body: Buffer, header: BatchHeader) -> Iterator[Record]:
    """The records of an opened batch, one by one."""
    view = memoryview(body)
    position = 0
    for _ in range(header.record_count):
        length, position = get_varint(view, position)
        end = position + length
        if length < 0 or end > len(view):
            raise CorruptBatch(f"record of {length} bytes where {len(view) - position} are left")
        record = _record(view[position:end])
        if not 0 <= record.offset <= header.last_offset_delta:
            raise CorruptBatch(f"offset delta {record.offset} is outside the batch")
        timestamp_ms = header.base_timestamp_ms + record.timestamp_ms
        if header.is_log_append_time:
            timestamp_ms = header.max_timestamp_ms
        if not -TIMESTAMP_MS_END <= timestamp_ms < TIMESTAMP_MS_END:
            raise CorruptBatch("timestamp is out of range")
        offset = header.base_offset + record.offset
        yield record._replace(offset=offset, timestamp_ms=timestamp_ms)
        position = end
    if position != len(view):
        raise CorruptBatch(f"{len(view) - position} bytes follow the last record")


def survey_records(body: Buffer, count: int, base_timestamp_ms: int) -> tuple[int, int]:
    """The size of the largest record of an opened batch, and the latest time of all.

    Raises CorruptBatch unless there are ``count`` whole records with the offsets 0, 1, 2, ... and
    no more than ``HEADERS_MAX`` headers each.
    """
    view = memoryview(body)
    position, largest, latest = 0, 0, -TIMESTAMP_MS_END
    for expected in range(count):
        length, position = get_varint(view, position)
        end = position + length
        if length <= 0 or end > len(view):
            raise CorruptBatch(f"record of {length} bytes where {len(view) - position} are left")
        record = _record(view[position:end])
        if len(record.headers) > HEADERS_MAX:
            count = len(record.headers)
            raise CorruptBatch(f"a record with {count} headers, {HEADERS_MAX} are allowed")
        if record.offset != expected:
            raise CorruptBatch(f"offset delta {record.offset} where {expected} should be")
        timestamp_ms = base_timestamp_ms + record.timestamp_ms
        if not -TIMESTAMP_MS_END <= timestamp_ms < TIMESTAMP_MS_END:
            raise CorruptBatch("timestamp is out of range")
        largest, latest = max(largest, length), max(latest, timestamp_ms)
        position = end
    if position != len(view):
        raise CorruptBatch(f"{len(view) - position} bytes follow the last record")
    return largest, latest


def record_sizes(body: Buffer) -> list[int]:
    """Of each record of an opened batch, with the length that it begins with."""
    view, position, sizes = memoryview(body), 0, []
    while position < len(view):
        length, start = get_varint(view, position)
        if length <= 0 or length > len(view) - start:
            raise CorruptBatch(f"record of {length} bytes where {len(view) - start} are left")
        sizes.append(start + length - position)
        position = start + length
    return sizes


def marked_batches(data: Buffer) -> tuple[list[int], int]:
    """Where in ``data`` those batches begin that have a producer's id, and control batches; and
    the offset after the last whole batch; -1: there is none. Checksums are not looked at.

    Raises CorruptBatch.
    """
    positions: list[int] = []
    position, next_offset = 0, -1
    for header, batch in batches(data):
        if header.producer_id >= 0 or header.is_control:
            positions.append(position)
        position += len(batch)
        next_offset = header.next_offset
    return positions, next_offset


def _record(data: memoryview) -> Record:
    """Offset and timestamp are still deltas."""
    timestamp_delta, position = get_varint(data, 1)
    offset_delta, position = get_varint(data, position)
    key, position = get_bytes(data, position)
    value, position = get_bytes(data, position)
    header_count, position = get_varint(data, position)
    if not 0 <= header_count <= len(data) - position:
        raise CorruptBatch(f"{header_count} headers in {len(data) - position} bytes")
    headers = []
    for _ in range(header_count):
        name, position = get_bytes(data, position)
        content, position = get_bytes(data, position)
        if name is None:
            raise CorruptBatch("header without a name")
        headers.append((name.decode("utf-8", "replace"), content))
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes follow the last header")
    return Record(offset_delta, timestamp_delta, key, value, tuple(headers))


def put_varint(out: bytearray, value: int) -> None:
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def _put_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        put_varint(out, -1)
        return
    put_varint(out, len(data))
    out += data


def get_varint(data: memoryview, position: int) -> tuple[int, int]:
    rest = 0
    for index in range(VARINT_BYTES_MAX):
        if position + index >= len(data):
            raise CorruptBatch("varint is cut")
        byte = data[position + index]
        rest |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if rest >= 2**64:
                break
            return (rest >> 1) ^ -(rest & 1), position + index + 1
    raise CorruptBatch("varint is too long")


def get_bytes(data: memoryview, position: int) -> tuple[bytes | None, int]:
    length, position = get_varint(data, position)
    if length == -1:
        return None, position
    end = position + length
    if length < 0 or end > len(data):
        raise CorruptBatch(f"field of {length} bytes where {len(data) - position} are left")
    return bytes(data[position:end]), end
