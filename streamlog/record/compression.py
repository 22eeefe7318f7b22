"""The codecs of record batches, by Kafka's numbers and in Kafka's framings."""

import struct
from enum import IntEnum
from typing import Final

import cramjam

from streamlog.errors import CorruptBatch

XERIAL_HEAD: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES: Final = 32 * 1024

CODEC_MASK: Final = 0x07


class Compression(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> "Compression":
        return cls[name.upper()]

    @classmethod
    def of_attributes(cls, attributes: int) -> "Compression":
        try:
            return cls(attributes & CODEC_MASK)
        except ValueError:
            raise CorruptBatch(f"codec {attributes & CODEC_MASK} is unknown") from None


def compress(codec: int, data: bytes | memoryview) -> bytes:
    """``data`` as one block in the framing that Kafka clients expect of ``codec``."""
    if codec == Compression.GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == Compression.SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec == Compression.LZ4:
        return bytes(cramjam.lz4.compress(data))
    if codec == Compression.ZSTD:
        return bytes(cramjam.zstd.compress(data))
    return bytes(data)


def decompress(codec: int, data: bytes | memoryview, *, bytes_max: int) -> bytes:
    """What ``compress`` was given. Raises CorruptBatch for garbage, or more than ``bytes_max``."""
    try:
        plain = _decompress(codec, memoryview(data))
    except (cramjam.DecompressionError, ValueError, struct.error) as error:
        raise CorruptBatch(f"codec {codec}: {error}") from None
    if len(plain) > bytes_max:
        raise CorruptBatch(f"codec {codec}: {len(plain)} bytes, limit {bytes_max}")
    return plain


def _decompress(codec: int, data: memoryview) -> bytes:
    if codec == Compression.GZIP:
        return bytes(cramjam.gzip.decompress(data))
    if codec == Compression.SNAPPY:
        return _decompress_snappy(data)
    if codec == Compression.LZ4:
        return bytes(cramjam.lz4.decompress(data))
    if codec == Compression.ZSTD:
        return bytes(cramjam.zstd.decompress(data))
    return bytes(data)


def _compress_xerial(data: memoryview) -> bytes:
    out = bytearray(XERIAL_HEAD)
    for start in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK_BYTES]))
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def _decompress_snappy(data: memoryview) -> bytes:
    if bytes(data[:8]) != XERIAL_HEAD[:8]:
        return bytes(cramjam.snappy.decompress_raw(data))
    out = bytearray()
    position = len(XERIAL_HEAD)
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        position += 4
        if size < 0 or position + size > len(data):
            raise CorruptBatch("snappy block is cut")
        out += bytes(cramjam.snappy.decompress_raw(data[position : position + size]))
        position += size
    return bytes(out)
