"""The codecs of record batches, by Kafka's numbers and in Kafka's framings."""

import mmap
import struct
from enum import IntEnum
from typing import Final

import cramjam

from streamlog.errors import CorruptBatch, UncompressedTooLarge

Buffer = bytes | bytearray | memoryview

CODEC_MASK: Final = 0x07

UNCOMPRESSED_BYTES_MAX: Final = 128 << 20
"""No reader decompresses a batch to more: that is twice the largest message, and no writer here
makes larger ones. What producers may send is limited by ``log.uncompressed_bytes_max``."""

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEAD: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES: Final = 32 * 1024

FIRST_GUESS_BYTES: Final = 64 * 1024
GUESS_RATIO: Final = 4
GUESS_BYTES_MAX: Final = 1 << 20
OUTPUT_IS_FULL: Final = "failed to write whole buffer"


class Compression(IntEnum):
    """The number of a codec is also its bits in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> "Compression":
        """The codec that a setting calls ``name``, in small letters. Raises KeyError."""
        return _BY_NAME[name]

    @classmethod
    def of_attributes(cls, attributes: int) -> "Compression":
        codec = _BY_NUMBER.get(attributes & CODEC_MASK)
        if codec is None:
            raise CorruptBatch(f"codec {attributes & CODEC_MASK} is unknown")
        return codec


_BY_NUMBER: Final = {int(codec): codec for codec in Compression}
"""Each produced batch is looked at: a call of the enumeration costs ten times as much as this."""
_BY_NAME: Final = {codec.name.lower(): codec for codec in Compression} | {
    "uncompressed": Compression.NONE
}
_STREAMS: Final = {
    Compression.GZIP: cramjam.gzip,
    Compression.LZ4: cramjam.lz4,
    Compression.ZSTD: cramjam.zstd,
}


def compress(codec: int, data: Buffer) -> bytes:
    """``data`` as one block in the framing that Kafka clients expect of ``codec``."""
    codec = Compression(codec)
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec is Compression.LZ4:
        return _compress_lz4(data)
    return bytes(_STREAMS[codec].compress(data))


def snappy_block(data: Buffer) -> bytes:
    """In no framing."""
    return bytes(cramjam.snappy.compress_raw(data))


def decompress(codec: int, data: Buffer, *, bytes_max: int) -> Buffer:
    """What ``compress`` was given. Raises CorruptBatch for garbage, and UncompressedTooLarge for
    more than ``bytes_max``: decompression stops there, and no more than that is ever held.
    """
    codec = Compression.of_attributes(codec)
    view = memoryview(data)
    try:
        if codec is Compression.NONE:
            return _limited(bytes(view), bytes_max)
        if codec is Compression.SNAPPY:
            return _decompress_snappy(view, bytes_max)
        return _decompress_stream(codec, view, bytes_max)
    except (cramjam.DecompressionError, OSError) as error:
        raise CorruptBatch(f"{codec.name.lower()}: {error}") from None


def _limited(plain: bytes, bytes_max: int) -> bytes:
    if len(plain) > bytes_max:
        raise UncompressedTooLarge(f"more than {bytes_max} bytes")
    return plain


def _decompress_stream(codec: Compression, data: memoryview, bytes_max: int) -> Buffer:
    """The size is not known beforehand. A small buffer is tried first; a batch that does not fit
    gets address space up to the limit, of which the kernel gives memory only to what is written.
    So there is neither a buffer to clear nor a copy to make while the interpreter is locked.
    """
    size = min(bytes_max, max(FIRST_GUESS_BYTES, GUESS_RATIO * len(data)))
    if size <= GUESS_BYTES_MAX:
        output = bytearray(size)
        written = _decompress_into(codec, data, output)
        if written is not None:
            return bytes(memoryview(output)[:written])
    if size < bytes_max or size > GUESS_BYTES_MAX:
        space = _address_space(bytes_max)
        written = _decompress_into(codec, data, space)
        if written is not None:
            return memoryview(space)[:written]
    raise UncompressedTooLarge(f"{codec.name.lower()}: more than {bytes_max} bytes")


def _address_space(size: int) -> mmap.mmap:
    try:
        return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:  # which is no fault of the batch
        raise MemoryError(str(error)) from None


def _decompress_into(
    codec: Compression, data: memoryview, output: bytearray | mmap.mmap
) -> int | None:
    """How many bytes it came to; None: they do not fit."""
    try:
        return int(_STREAMS[codec].decompress_into(data, output))
    except cramjam.DecompressionError as error:
        if OUTPUT_IS_FULL not in str(error):
            raise
        return None


def _compress_lz4(data: Buffer) -> bytes:
    """Of blocks that stand alone: Kafka's Java client refuses linked ones. The level is liblz4's
    own default; above 2 it is ten times slower for a few percent."""
    compressor = cramjam.lz4.Compressor(level=1, block_linked=False, content_checksum=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_xerial(data: memoryview) -> bytes:
    out = bytearray(XERIAL_HEAD)
    for start in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + XERIAL_BLOCK_BYTES]))
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def _decompress_snappy(data: memoryview, bytes_max: int) -> Buffer:
    """Xerial's blocks, as Kafka's Java client writes them, or one bare block, as librdkafka may."""
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _decompress_block(data, bytes_max)
    if len(data) < len(XERIAL_HEAD):
        raise CorruptBatch("snappy: header is cut")
    out = bytearray()
    position = len(XERIAL_HEAD)
    while position < len(data):
        start = position + 4
        size = int.from_bytes(data[position:start], "big")
        position = start + size
        if position > len(data):
            raise CorruptBatch("snappy: block is cut")
        out += _decompress_block(data[start:position], bytes_max - len(out))
    return out


def _decompress_block(block: memoryview, bytes_max: int) -> bytes:
    """The size is told first, so a bomb is seen before it goes off."""
    size = cramjam.snappy.decompress_raw_len(block)
    if size > bytes_max:
        raise UncompressedTooLarge(f"snappy: block of {size} bytes where {bytes_max} are allowed")
    return bytes(cramjam.snappy.decompress_raw(block))
