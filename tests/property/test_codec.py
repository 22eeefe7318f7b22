"""The record codecs are equal, keep what they are given, and are understood by foreign clients."""

import random
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import CorruptBatch
from streamlog.record import codec
from streamlog.record.batch import check_batch
from streamlog.record.codec import Record, iter_records
from streamlog.record.compiled import codec as _codec
from streamlog.record.compression import Compression, compress
from tests.oracles import codec as codec_oracle
from tests.record_batches import HandRecord, hand_batch

maybe_bytes = st.none() | st.binary(max_size=200)
names = st.text(max_size=10).map(lambda name: name.encode("utf-8", "ignore"))
appended = st.tuples(maybe_bytes, maybe_bytes, st.lists(st.tuples(names, maybe_bytes), max_size=4))
codecs = st.sampled_from(Compression)
offsets = st.integers(0, 2**62)
epochs = st.integers(0, 2**31 - 1)
timestamps = st.integers(0, 2**62)


def seal(twin: ModuleType, records: list[Any], **numbers: int) -> bytes:
    run = twin.RecordRun()
    for delta, (key, value, headers) in enumerate(records):
        assert run.append(key, value, headers) == delta
    batch: bytes = run.seal(**numbers)
    return batch


def read(twin: ModuleType, batch: bytes) -> list[Record]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "decode_records", twin.decode_records)
        return list(iter_records(batch))


def read_or_error(twin: ModuleType, batch: bytes) -> object:
    try:
        return read(twin, batch)
    except CorruptBatch:
        return CorruptBatch


@given(st.lists(appended, min_size=1, max_size=20), offsets, epochs, timestamps, codecs)
@settings(max_examples=150, deadline=None)
def test_twins_write_the_same_and_read_what_was_written(
    records: list[Any], offset: int, epoch: int, timestamp_ms: int, compression: Compression
) -> None:
    numbers = {
        "base_offset": offset,
        "leader_epoch": epoch,
        "timestamp_ms": timestamp_ms,
        "compression": compression,
    }
    batch = seal(_codec, records, **numbers)
    assert batch == seal(codec_oracle, records, **numbers)
    assert check_batch(batch).next_offset == offset + len(records)
    expected = [
        Record(
            offset + delta,
            timestamp_ms,
            key,
            value,
            tuple((name.decode(), content) for name, content in headers),
        )
        for delta, (key, value, headers) in enumerate(records)
    ]
    assert read(_codec, batch) == read(codec_oracle, batch) == expected


produced = st.lists(st.tuples(appended, st.integers(0, 2**40)), min_size=1, max_size=20)
producers = st.tuples(
    st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1)
)


@given(produced, timestamps, codecs, producers)
@settings(max_examples=150, deadline=None)
def test_twins_write_the_same_as_a_producer_with_times(
    records: list[Any], base_ms: int, compression: Compression, producer: tuple[int, int, int]
) -> None:
    times = [base_ms + shift for _, shift in records]
    sealed = []
    for twin in (_codec, codec_oracle):
        run = twin.RecordRun()
        for (key, value, headers), shift in records:
            run.append(key, value, headers, shift - records[0][1])
        batch = run.seal(
            base_offset=0,
            leader_epoch=-1,
            timestamp_ms=times[0],
            max_timestamp_ms=max(times),
            compression=compression,
            producer=producer,
        )
        sealed.append(batch)
    assert sealed[0] == sealed[1]
    header = check_batch(sealed[0])
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
    assert (header.max_timestamp_ms, header.is_log_append_time) == (max(times), False)
    assert [it.timestamp_ms for it in read(_codec, sealed[0])] == times


hand_records = st.builds(
    HandRecord,
    value=st.none() | st.binary(max_size=8),
    key=st.none() | st.binary(max_size=8),
    headers=st.lists(st.tuples(st.binary(max_size=3), maybe_bytes), max_size=3),
    offset_delta=st.integers(-2, 10),
    timestamp_delta=st.integers(-(2**63), 2**63 - 1),
)


@st.composite
def damaged_batches(draw: st.DrawFn) -> bytes:
    """Some broken before they were compressed, so that the checksum and the codec are content."""
    compression = draw(codecs)
    damage = draw(
        st.lists(st.tuples(st.integers(0, 2**16), st.sampled_from(b"\0\1\2\x7f\x80\xff")))
    )
    size = draw(st.none() | st.integers(0, 100))

    def damaged(body: bytes) -> bytes:
        data = bytearray(body)
        for position, byte in damage if data else ():
            data[position % len(data)] = byte
        return compress(compression, bytes(data[:size]))

    return hand_batch(
        draw(st.lists(hand_records, max_size=4)),
        attributes=compression | draw(st.sampled_from([0, 0x08])),
        last_offset_delta=draw(st.integers(0, 10)),
        base_timestamp_ms=draw(st.integers(-(2**63), 2**63 - 1)),
        compress=damaged,
    )


@given(damaged_batches())
@settings(max_examples=300, deadline=None)
def test_twins_read_the_same_out_of_damaged_batches(batch: bytes) -> None:
    assert read_or_error(_codec, batch) == read_or_error(codec_oracle, batch)


@given(st.binary(max_size=200), codecs)
@settings(max_examples=300, deadline=None)
def test_garbage_is_corrupt_and_nothing_else(garbage: bytes, compression: Compression) -> None:
    batch = hand_batch([HandRecord()], attributes=compression, compress=lambda _: garbage)
    assert read_or_error(_codec, batch) == read_or_error(codec_oracle, batch)


def aiokafka_records(reader: type) -> Callable[[bytes], Iterator[Any]]:
    def read_all(batch: bytes) -> Iterator[Any]:
        memory = reader(batch)
        while (found := memory.next_batch()) is not None:
            assert found.validate_crc()
            yield from found

    return read_all


def kafka_python_records(batch: bytes) -> Iterator[Any]:
    from kafka.record.memory_records import MemoryRecords

    memory = MemoryRecords(batch)
    while (found := memory.next_batch()) is not None:
        assert found.validate_crc()
        yield from found


def foreign_readers() -> dict[str, Callable[[bytes], Iterator[Any]]]:
    aiokafka = pytest.importorskip("aiokafka.record.memory_records")
    return {
        "aiokafka": aiokafka_records(aiokafka.MemoryRecords),
        "aiokafka without its compiled part": aiokafka_records(aiokafka._MemoryRecordsPy),
        "kafka-python": kafka_python_records,
    }


@pytest.mark.peers
@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize(
    "client", ["aiokafka", "aiokafka without its compiled part", "kafka-python"]
)
def test_foreign_clients_read_the_same(client: str, compression: Compression) -> None:
    if client == "kafka-python":
        kafka_codec = pytest.importorskip("kafka.codec")
        name = compression.name.lower()
        if compression and not getattr(kafka_codec, f"has_{name}")():
            pytest.skip(f"kafka-python has no library for {name}")
    chance = random.Random(11)
    records = [
        (
            chance.choice([None, b"", b"key"]),
            chance.choice([None, b"", chance.randbytes(300), b"text " * 50]),
            [(b"subject", b"a.b"), ("é".encode(), None)][: chance.randrange(3)],
        )
        for _ in range(1_000)
    ]
    batch = seal(
        _codec,
        records,
        base_offset=5_000_000_000,
        leader_epoch=3,
        timestamp_ms=1_700_000_000_000,
        compression=compression,
    )
    found = list(foreign_readers()[client](batch))
    assert [
        (
            record.offset,
            record.timestamp,
            None if record.key is None else bytes(record.key),
            None if record.value is None else bytes(record.value),
            tuple(record.headers),
        )
        for record in found
    ] == [tuple(record) for record in iter_records(batch)]
    assert found[0].timestamp_type == 1
