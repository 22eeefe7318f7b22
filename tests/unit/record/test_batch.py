import struct

import pytest

from streamlog.errors import CorruptBatch
from streamlog.record.batch import HEADER_BYTES, batches, check_batch, read_header
from streamlog.record.compression import Compression
from tests.record_batches import HandRecord, hand_batch

BATCH = hand_batch([HandRecord(b"one"), HandRecord(b"two")], 7, leader_epoch=3, attributes=0x08)


def patched(layout: str, position: int, value: int, batch: bytes = BATCH) -> bytes:
    data = bytearray(batch)
    struct.pack_into(layout, data, position, value)
    return bytes(data)


def test_header_fields() -> None:
    header = read_header(BATCH)
    assert header.base_offset == 7
    assert header.leader_epoch == 3
    assert header.last_offset == 8
    assert header.next_offset == 9
    assert header.record_count == 2
    assert header.size_bytes == len(BATCH)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (1_000, 2_000)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.compression is Compression.NONE
    assert header.is_log_append_time
    assert not header.is_control


def test_flags() -> None:
    header = read_header(hand_batch([HandRecord()], attributes=0x20 | 4))
    assert header.is_control
    assert not header.is_log_append_time
    assert header.compression is Compression.ZSTD


def test_a_header_anywhere_in_a_buffer() -> None:
    buffer = bytearray(b"xyz" + BATCH + b"more")
    assert read_header(memoryview(buffer), 3) == read_header(BATCH)
    assert check_batch(buffer, 3) == read_header(BATCH)


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        (BATCH[: HEADER_BYTES - 1], "cut after 60"),
        (b"", "cut after 0"),
        (patched(">b", 16, 1), "magic is 1"),
        (patched(">i", 8, 48), "length 48"),
        (patched(">i", 8, -1), "length -1"),
        (patched(">q", 0, -1), "negative"),
        (patched(">i", 23, -1), "negative"),
        (patched(">i", 57, -1), "negative"),
        (patched(">q", 0, 2**63 - 2), "no room"),
    ],
)
def test_what_cannot_be_a_header(batch: bytes, problem: str) -> None:
    with pytest.raises(CorruptBatch, match=problem):
        read_header(batch)


@pytest.mark.parametrize("position", [-1, len(BATCH), len(BATCH) + 5])
def test_a_position_outside_the_buffer(position: int) -> None:
    with pytest.raises(CorruptBatch, match="cut"):
        read_header(BATCH, position)


def test_an_unknown_codec_is_corrupt_when_it_is_asked_for() -> None:
    header = read_header(hand_batch([HandRecord()], attributes=5))
    with pytest.raises(CorruptBatch, match="codec 5"):
        _ = header.compression


@pytest.mark.parametrize("position", [*range(17, 21), 21, 40, len(BATCH) - 1])
def test_a_flipped_byte_is_seen(position: int) -> None:
    data = bytearray(BATCH)
    data[position] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        check_batch(data)


def test_a_cut_batch_is_seen() -> None:
    with pytest.raises(CorruptBatch, match="is cut"):
        check_batch(BATCH[:-1])


def test_a_walk_stops_before_a_cut_batch() -> None:
    second = hand_batch([HandRecord(b"three")], 9)
    for cut in (1, HEADER_BYTES - 1, HEADER_BYTES, len(second) - 1):
        assert [bytes(data) for _, data in batches(BATCH + second[:cut])] == [BATCH]
    walked = list(batches(memoryview(BATCH + second)))
    assert [header.base_offset for header, _ in walked] == [7, 9]
    assert [bytes(data) for _, data in walked] == [BATCH, second]


def test_a_walk_over_garbage_is_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        list(batches(BATCH + bytes(HEADER_BYTES)))
