import random
import struct

import cramjam
import pytest

from streamlog.errors import CorruptBatch
from streamlog.record.compression import Compression, compress, decompress

CODECS = list(Compression)
SQUEEZED = CODECS[1:]
DATA = {
    "nothing": b"",
    "a byte": b"a",
    "noise": random.Random(7).randbytes(100_000),
    "a hundred blocks": b"one and the same, " * 200_000,
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
def test_round_trip(codec: Compression, data: bytes) -> None:
    for given in (data, bytearray(data), memoryview(data)):
        assert decompress(codec, compress(codec, given), bytes_max=len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_exact(codec: Compression) -> None:
    for data in (b"a", b"ab" * 500_000):
        with pytest.raises(CorruptBatch):
            decompress(codec, compress(codec, data), bytes_max=len(data) - 1)


@pytest.mark.parametrize("codec", SQUEEZED)
@pytest.mark.parametrize("data", [b"ab" * 50_000, DATA["noise"]], ids=["text", "noise"])
def test_cut_data(codec: Compression, data: bytes) -> None:
    whole = compress(codec, data)
    for size in (0, 1, 3, 7, 15, len(whole) // 2, len(whole) - 1):
        with pytest.raises(CorruptBatch):
            decompress(codec, whole[:size], bytes_max=1 << 20)


@pytest.mark.parametrize("codec", SQUEEZED)
def test_garbage(codec: Compression) -> None:
    noise = random.Random(3)
    for size in (1, 20, 500):
        with pytest.raises(CorruptBatch):
            decompress(codec, b"\xfe" + noise.randbytes(size), bytes_max=1 << 20)


def test_a_snappy_bomb_is_seen_before_it_is_opened() -> None:
    claims_four_gigabytes = b"\xff\xff\xff\xff\x0f"
    with pytest.raises(CorruptBatch, match="4294967295"):
        decompress(Compression.SNAPPY, claims_four_gigabytes, bytes_max=1 << 20)


def test_bare_snappy_is_read() -> None:
    block = bytes(cramjam.snappy.compress_raw(b"librdkafka" * 9))
    assert decompress(Compression.SNAPPY, block, bytes_max=90) == b"librdkafka" * 9


@pytest.mark.parametrize("size", [-1, 100, 2**31 - 1])
def test_a_xerial_block_past_the_end(size: int) -> None:
    data = compress(Compression.SNAPPY, b"")
    with pytest.raises(CorruptBatch):
        decompress(Compression.SNAPPY, data + struct.pack(">i", size) + b"ab", bytes_max=100)


def test_xerial_blocks_add_up_to_the_limit() -> None:
    data = b"x" * 100_000
    squeezed = compress(Compression.SNAPPY, data)
    assert decompress(Compression.SNAPPY, squeezed, bytes_max=100_000) == data
    with pytest.raises(CorruptBatch):
        decompress(Compression.SNAPPY, squeezed, bytes_max=99_999)


def test_lz4_blocks_stand_alone() -> None:
    """Kafka's Java client refuses a frame with linked blocks."""
    frame = compress(Compression.LZ4, b"one " * 100_000)
    assert frame[:4] == bytes.fromhex("04224d18")
    assert frame[4] & 0x20


def test_names() -> None:
    assert Compression.named("lz4") is Compression.LZ4
    assert [codec.name.lower() for codec in CODECS] == ["none", "gzip", "snappy", "lz4", "zstd"]
    with pytest.raises(KeyError):
        Compression.named("brotli")


def test_unknown_numbers() -> None:
    with pytest.raises(ValueError, match="5"):
        compress(5, b"")
    with pytest.raises(CorruptBatch, match="codec 7"):
        decompress(7, b"", bytes_max=1)
