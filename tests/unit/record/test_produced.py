"""What a producer may send, and what the leader makes of it."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import CorruptBatch, InvalidRecord, NoTransactions, StreamlogError
from streamlog.record.batch import check_batch
from streamlog.record.codec import iter_records
from streamlog.record.compression import Compression, compress
from streamlog.record.produced import (
    ProducedBatch,
    check_inside,
    check_outside,
    check_plain,
    stamp,
)
from tests.record_batches import HandRecord, hand_batch

RECORDS = [
    HandRecord(b"one", key=b"k", headers=[(b"h", None), (b"i", b"")], timestamp_delta=5),
    HandRecord(None),
    HandRecord(b"three" * 100, timestamp_delta=-7),
]


def checked(data: bytes) -> ProducedBatch:
    return check_inside(check_outside(data), data)


@pytest.mark.parametrize("codec", Compression)
def test_a_batch_stays_what_it_was_but_for_its_place(codec: Compression) -> None:
    data = hand_batch(
        RECORDS,
        -1 if codec else 77,  # which is the leader's to say
        attributes=codec,
        max_timestamp_ms=1_005,
        producer=(5, 6, 7),
        compress=lambda body: compress(codec, body),
    )
    batch = checked(data)
    stored = stamp(batch, base_offset=1 << 40, leader_epoch=9)
    assert stored[8:12] + stored[16:] == data[8:12] + data[16:]
    header = check_batch(stored)
    assert (header.base_offset, header.leader_epoch) == (1 << 40, 9)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    found = list(iter_records(stored))
    assert [(it.key, it.value) for it in found] == [(it.key, it.value) for it in RECORDS]
    assert [it.timestamp_ms for it in found] == [1_005, 1_000, 993]
    assert (batch.record_count, batch.max_timestamp_ms, batch.is_sequenced) == (3, 1_005, True)
    assert 500 < batch.largest_bytes < 520


def test_the_leaders_time_and_a_latest_time_that_is_wrong_are_written_with_a_new_checksum() -> None:
    batch = checked(hand_batch(RECORDS, max_timestamp_ms=999_999))
    header = check_batch(stamp(batch, base_offset=3, leader_epoch=1))
    assert (header.max_timestamp_ms, header.is_log_append_time) == (1_005, False)
    stored = stamp(batch, base_offset=3, leader_epoch=1, append_time_ms=50_000)
    header = check_batch(stored)
    assert (header.max_timestamp_ms, header.is_log_append_time) == (50_000, True)
    assert {it.timestamp_ms for it in iter_records(stored)} == {50_000}


def test_a_claim_of_append_time_is_not_believed() -> None:
    batch = checked(hand_batch(RECORDS, attributes=8, max_timestamp_ms=1_005))
    header = check_batch(stamp(batch, base_offset=0, leader_epoch=0))
    assert not header.is_log_append_time


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", CorruptBatch),
        (bytes(16), CorruptBatch),
        (hand_batch(RECORDS)[:-1], CorruptBatch),
        (hand_batch(RECORDS)[:-1] + b"?", CorruptBatch),
        (hand_batch(RECORDS) + b"?", InvalidRecord),
        (hand_batch(RECORDS, magic=1), InvalidRecord),
        (hand_batch(RECORDS, attributes=0x10), NoTransactions),
        (hand_batch(RECORDS, attributes=0x20), InvalidRecord),
        (hand_batch([], last_offset_delta=0), InvalidRecord),
        (hand_batch(RECORDS, record_count=2), InvalidRecord),
        (hand_batch(RECORDS, record_count=2, last_offset_delta=1), InvalidRecord),
        (hand_batch(RECORDS, record_count=4, last_offset_delta=3), InvalidRecord),
        (hand_batch(RECORDS, producer=(1, 0, -1)), InvalidRecord),
        (
            hand_batch([HandRecord(offset_delta=1), HandRecord()], last_offset_delta=1),
            InvalidRecord,
        ),
        (hand_batch(RECORDS, attributes=Compression.ZSTD), InvalidRecord),
        (hand_batch(RECORDS, attributes=5), InvalidRecord),
    ],
)
def test_what_is_refused(data: bytes, error: type[StreamlogError]) -> None:
    with pytest.raises(error):
        checked(data)


@pytest.mark.parametrize("producer", [(-1, -1, -1), (5, 6, 7)])
@pytest.mark.parametrize("attributes", [0, 8])
@pytest.mark.parametrize("max_timestamp_ms", [1_005, 999_999])
def test_a_plain_batch_is_checked_at_once(
    producer: tuple[int, int, int], attributes: int, max_timestamp_ms: int
) -> None:
    data = hand_batch(
        RECORDS, -1, attributes=attributes, max_timestamp_ms=max_timestamp_ms, producer=producer
    )
    assert check_plain(memoryview(data)) == checked(data)


@pytest.mark.parametrize("codec", [it for it in Compression if it])
def test_a_compressed_batch_is_none_of_them(codec: Compression) -> None:
    data = hand_batch(RECORDS, attributes=codec, compress=lambda body: compress(codec, body))
    assert check_plain(memoryview(data)) is None


@pytest.mark.parametrize("attributes", [0x10, 0x20, 0x40, 0x2000, 0x4000])
def test_nor_is_one_with_other_attributes(attributes: int) -> None:
    data = hand_batch(RECORDS, attributes=attributes, producer=(1, 1, 1))
    assert check_plain(memoryview(data)) is None


@given(
    changes=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 400),
    is_summed=st.booleans(),
)
def test_what_is_damaged_is_checked_as_in_two_steps_or_not_at_all(
    changes: list[tuple[int, int]], cut: int, is_summed: bool
) -> None:
    """Also where the checksum has been made to fit."""
    damaged = bytearray(hand_batch(RECORDS, max_timestamp_ms=1_005))
    for place, byte in changes:
        damaged[place % len(damaged)] = byte
    if cut < 100:
        del damaged[cut:]
    if is_summed and len(damaged) > 21:
        damaged[17:21] = crc32c(damaged[21:]).to_bytes(4, "big")
    data = memoryview(bytes(damaged))
    found = check_plain(data)
    if found is not None:
        assert found == checked(bytes(data))
    elif not changes and cut >= 100:
        raise AssertionError("a whole one is not taken")
