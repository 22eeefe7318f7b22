"""Record batches made by hand, so that a test does not lean on the encoder it may be testing."""

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import crc32c


class HandRecord(NamedTuple):
    """A record as a test thinks of it."""

    value: bytes | None = b""
    key: bytes | None = None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    offset_delta: int | None = None
    timestamp_delta: int = 0


def varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def sized(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def record_bytes(record: HandRecord, offset_delta: int) -> bytes:
    body = bytes(1) + varint(record.timestamp_delta) + varint(offset_delta)
    body += sized(record.key) + sized(record.value) + varint(len(record.headers))
    body += b"".join(sized(name) + sized(value) for name, value in record.headers)
    return varint(len(body)) + body


def hand_batch(
    records: Sequence[HandRecord],
    base_offset: int = 0,
    *,
    attributes: int = 0,
    base_timestamp_ms: int = 1_000,
    max_timestamp_ms: int = 2_000,
    leader_epoch: int = 0,
    last_offset_delta: int | None = None,
    record_count: int | None = None,
    magic: int = 2,
    producer: tuple[int, int, int] = (-1, -1, -1),
    compress: Callable[[bytes], bytes] = bytes,
) -> bytes:
    """A whole batch, its checksum right whatever else may be wrong with it.

    ``producer``: id, epoch, first sequence.
    """
    deltas = [
        index if record.offset_delta is None else record.offset_delta
        for index, record in enumerate(records)
    ]
    body = compress(b"".join(record_bytes(*pair) for pair in zip(records, deltas, strict=True)))
    if last_offset_delta is None:
        last_offset_delta = deltas[-1] if deltas else 0
    checked = struct.pack(
        ">hiqqqhii",
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        *producer,
        len(records) if record_count is None else record_count,
    )
    checked += body
    head = struct.pack(
        ">qiibI", base_offset, len(checked) + 9, leader_epoch, magic, crc32c.crc32c(checked)
    )
    return head + checked
