"""The record codec in plain Python: the twin that the compiled one is held to."""

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from streamlog.errors import CorruptBatch
from streamlog.record.batch import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    Buffer,
    read_header,
)
from streamlog.record.compression import Compression, compress, decompress

DECOMPRESSED_BYTES_MAX: Final = 2**31 - 1

_BEFORE_CRC: Final = struct.Struct(">qiib")
_AFTER_CRC: Final = struct.Struct(">hiqqqhii")


class Record(NamedTuple):
    """One record of a batch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class RecordRun:
    """Records gathered until they are sealed into one batch."""

    def __init__(self) -> None:
        self.count = 0
        self._body = bytearray()

    @property
    def size_bytes(self) -> int:
        return len(self._body)

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[bytes, bytes | None]] = (),
    ) -> int:
        """Add a record; its offset delta."""
        record = bytearray(b"\x00\x00")  # no attributes; the batch's time
        _put_varint(record, self.count)
        _put_bytes(record, key)
        _put_bytes(record, value)
        _put_varint(record, len(headers))
        for name, content in headers:
            _put_bytes(record, name)
            _put_bytes(record, content)
        _put_varint(self._body, len(record))
        self._body += record
        self.count += 1
        return self.count - 1

    def seal(
        self, *, base_offset: int, leader_epoch: int, timestamp_ms: int, compression: int = 0
    ) -> bytes:
        """The whole batch; the run is empty afterwards."""
        body = compress(compression, bytes(self._body))
        rest = _AFTER_CRC.pack(
            LOG_APPEND_TIME | compression,
            self.count - 1,
            timestamp_ms,
            timestamp_ms,
            -1,
            -1,
            -1,
            self.count,
        )
        crc = crc32c(body, crc32c(rest))
        length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(body)
        head = _BEFORE_CRC.pack(base_offset, length, leader_epoch, MAGIC)
        self.clear()
        return b"".join((head, struct.pack(">I", crc), rest, body))

    def clear(self) -> None:
        self.count = 0
        self._body.clear()


def iter_records(batch: Buffer) -> Iterator[Record]:
    """Each record of one whole batch, of any codec. Raises CorruptBatch for what is not one."""
    header = read_header(batch)
    if header.size_bytes > len(batch):
        raise CorruptBatch("batch is cut")
    body = memoryview(batch)[HEADER_BYTES : header.size_bytes]
    if header.compression != Compression.NONE:
        plain = decompress(header.compression, body, bytes_max=DECOMPRESSED_BYTES_MAX)
        body = memoryview(plain)
    position = 0
    for _ in range(header.record_count):
        length, position = _get_varint(body, position)
        end = position + length
        if length < 0 or end > len(body):
            raise CorruptBatch("record is cut")
        yield _record(
            body[position:end],
            header.base_offset,
            header.base_timestamp_ms,
            header.max_timestamp_ms if header.is_log_append_time else None,
        )
        position = end
    if position != len(body):
        raise CorruptBatch(f"{len(body) - position} bytes follow the last record")


def _record(
    data: memoryview, base_offset: int, base_timestamp_ms: int, append_time_ms: int | None
) -> Record:
    timestamp_delta, position = _get_varint(data, 1)
    offset_delta, position = _get_varint(data, position)
    key, position = _get_bytes(data, position)
    value, position = _get_bytes(data, position)
    header_count, position = _get_varint(data, position)
    if header_count < 0 or header_count > len(data):
        raise CorruptBatch(f"{header_count} headers in a record of {len(data)} bytes")
    headers = []
    for _ in range(header_count):
        name, position = _get_bytes(data, position)
        content, position = _get_bytes(data, position)
        if name is None:
            raise CorruptBatch("header without a name")
        headers.append((name.decode("utf-8", "replace"), content))
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes follow the last header")
    timestamp = base_timestamp_ms + timestamp_delta if append_time_ms is None else append_time_ms
    return Record(base_offset + offset_delta, timestamp, key, value, tuple(headers))


def _put_varint(out: bytearray, value: int) -> None:
    rest = value << 1 if value >= 0 else ((-value) << 1) - 1
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def _put_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # the varint -1
        return
    _put_varint(out, len(data))
    out += data


def _get_varint(data: memoryview, position: int) -> tuple[int, int]:
    rest = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise CorruptBatch("varint is cut or too long")
        byte = data[position]
        position += 1
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (rest >> 1) ^ -(rest & 1), position
        shift += 7


def _get_bytes(data: memoryview, position: int) -> tuple[bytes | None, int]:
    length, position = _get_varint(data, position)
    if length < 0:
        return None, position
    end = position + length
    if end > len(data):
        raise CorruptBatch("field is cut")
    return bytes(data[position:end]), end
