"""A block as bytes: the canonical encoding, one for each block. Pure.

All numbers are big-endian. ``docs/ledger-format.md`` has this for authors of verifiers::

    block    := header data
    header   := magic "SLBK" | format u8 = 1 | channel length u8 | number u64
                | previous hash 32 bytes | data hash 32 bytes
                | first offset i64 | end offset i64 | next offset i64 | last configuration u64
                | record count u32 | data length u64 | channel
    data     := record*
    record   := offset i64 | timestamp i64 ms | key length i32 | value length i32
                | headers length u32 | key | value | headers
    headers  := (name length u32 | value length i32 | name | value)*

A length of -1 stands for null, which is not the same as empty. Names are UTF-8. The data hash is
SHA-256 over data, the header hash SHA-256 over header.
"""

import struct
from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from streamlog.errors import CorruptBlock
from streamlog.ledger.core.block import Block, BlockHeader, BlockMetadata
from streamlog.ledger.core.entry import Headers, Message
from streamlog.record.codec import Record

MAGIC: Final = b"SLBK"
FORMAT: Final = 1
_HEADER: Final = struct.Struct(">4sBBQ32s32sqqqQIQ")
_RECORD: Final = struct.Struct(">qqiiI")
_LENGTHS: Final = struct.Struct(">Ii")
HEADER_BYTES: Final = _HEADER.size
"""Without the channel's name."""
RECORD_BYTES: Final = _RECORD.size
"""Of a record that has nothing in it."""


def encode_record(record: Record) -> bytes:
    """For the data of a block."""
    offset, timestamp_ms, key, value, headers = record
    tail = encode_headers(headers) if headers else b""
    if key is None:
        if value is None:
            return _RECORD.pack(offset, timestamp_ms, -1, -1, len(tail)) + tail
        return _RECORD.pack(offset, timestamp_ms, -1, len(value), len(tail)) + value + tail
    if value is None:
        return _RECORD.pack(offset, timestamp_ms, len(key), -1, len(tail)) + key + tail
    head = _RECORD.pack(offset, timestamp_ms, len(key), len(value), len(tail))
    return b"".join((head, key, value, tail))


def encode_headers(headers: Headers) -> bytes:
    parts = []
    for name, value in headers:
        text = name.encode()
        parts.append(_LENGTHS.pack(len(text), -1 if value is None else len(value)))
        parts.append(text)
        parts.append(value or b"")
    return b"".join(parts)


def record_bytes(message: Message) -> int:
    """What a record of this takes in a block; the limits of a channel mean this size."""
    tail = len(encode_headers(message.headers))
    return _RECORD.size + len(message.key or b"") + len(message.value or b"") + tail


def decode_records(data: bytes) -> Iterator[Record]:
    """The records in a block's data, one by one. Raises CorruptBlock."""
    position, end = 0, len(data)
    while position < end:
        if end - position < _RECORD.size:
            raise CorruptBlock(f"a record is cut after {end - position} bytes")
        offset, timestamp_ms, key_length, value_length, tail = _RECORD.unpack_from(data, position)
        position += _RECORD.size
        key, position = _field(data, position, key_length)
        value, position = _field(data, position, value_length)
        if tail > end - position:
            raise CorruptBlock(f"headers of {tail} bytes where {end - position} are left")
        headers = _decode_headers(data[position : position + tail]) if tail else ()
        position += tail
        yield Record(offset, timestamp_ms, key, value, headers)


def _field(data: bytes, position: int, length: int) -> tuple[bytes | None, int]:
    if length == -1:
        return None, position
    end = position + length
    if length < 0 or end > len(data):
        raise CorruptBlock(f"a field of {length} bytes where {len(data) - position} are left")
    return data[position:end], end


def _decode_headers(tail: bytes) -> Headers:
    headers, position = [], 0
    while position < len(tail):
        if len(tail) - position < _LENGTHS.size:
            raise CorruptBlock("a record's headers are cut")
        name_length, value_length = _LENGTHS.unpack_from(tail, position)
        text, position = _field(tail, position + _LENGTHS.size, name_length)
        value, position = _field(tail, position, value_length)
        try:
            headers.append(((text or b"").decode(), value))
        except UnicodeDecodeError:
            raise CorruptBlock("the name of a record's header is not UTF-8") from None
    return tuple(headers)


def encode_header(header: BlockHeader) -> bytes:
    """What the header hash covers."""
    channel, metadata = header.channel.encode(), header.metadata
    return (
        _HEADER.pack(
            MAGIC,
            FORMAT,
            len(channel),
            header.number,
            header.previous_hash,
            header.data_hash,
            metadata.first_offset,
            metadata.end_offset,
            metadata.next_offset,
            metadata.last_configuration,
            header.record_count,
            header.data_bytes,
        )
        + channel
    )


def encode_block(block: Block) -> bytes:
    return encode_header(block.header) + block.data


def decode_block(encoded: bytes) -> Block:
    """A block whose data are those of its header. Raises CorruptBlock.

    That it fits on the one before it is for ``chain.check_next`` to see, and that its data are
    records for ``decode_records``.
    """
    header, position = decode_header(encoded)
    data = bytes(encoded[position:])
    if len(data) != header.data_bytes:
        raise CorruptBlock(
            f"block {header.number} has {len(data)} bytes of data, its header says"
            f" {header.data_bytes}"
        )
    if sha256(data).digest() != header.data_hash:
        raise CorruptBlock(f"block {header.number}: the data hash is not that of its records")
    return Block(header, sha256(encoded[:position]).digest(), data)


def decode_header(encoded: bytes) -> tuple[BlockHeader, int]:
    """The header of a block, and where its data begin. Raises CorruptBlock."""
    if len(encoded) < HEADER_BYTES:
        raise CorruptBlock(f"a block's header is cut after {len(encoded)} bytes")
    magic, version, length, number, previous, data_hash, *rest = _HEADER.unpack_from(encoded)
    if magic != MAGIC or version != FORMAT:
        raise CorruptBlock(f"not a block of format {FORMAT}: it begins with {encoded[:5].hex()}")
    end = HEADER_BYTES + length
    channel = bytes(encoded[HEADER_BYTES:end])
    if len(channel) != length or not channel.isascii():
        raise CorruptBlock(f"block {number}: the channel's name is cut, or not ASCII")
    first, end_offset, next_offset, last_configuration, count, size = rest
    metadata = BlockMetadata(first, end_offset, next_offset, last_configuration)
    header = BlockHeader(channel.decode(), number, previous, data_hash, size, count, metadata)
    return header, end
