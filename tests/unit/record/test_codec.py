import struct
from types import ModuleType
from typing import Any

import pytest

from streamlog.errors import CorruptBatch, RecordTooLarge, UncompressedTooLarge
from streamlog.record import codec
from streamlog.record.batch import check_batch, read_header
from streamlog.record.codec import RUN_BYTES_MAX, Record, iter_records, opened
from streamlog.record.compiled import codec as _codec
from streamlog.record.compression import Compression, compress
from tests.oracles import codec as oracle
from tests.record_batches import HandRecord, hand_batch, record_bytes, varint

TWINS: list[Any] = [
    pytest.param(oracle, id="plain"),
    pytest.param(_codec, id="compiled"),
]

WHOLE = record_bytes(HandRecord(b"v", b"k", [(b"n", b"c")]), 0)
HEADERS = [(b"subject", b"orders"), (b"none", None), (b"", b"")]


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module: ModuleType = request.param
    monkeypatch.setattr(codec, "decode_records", module.decode_records)
    return module


def read(batch: bytes) -> list[Record]:
    return list(iter_records(batch))


def corrupt(batch: bytes, problem: str) -> None:
    with pytest.raises(CorruptBatch, match=problem):
        read(batch)


def raw_batch(body: bytes, **options: Any) -> bytes:
    """A batch of one record with this body."""
    return hand_batch([HandRecord()], compress=lambda _: varint(len(body)) + body, **options)


class TestRecordRun:
    def test_a_run_becomes_the_batch_that_a_hand_would_make(self, twin: ModuleType) -> None:
        run = twin.RecordRun()
        assert run.append(b"k", b"v", HEADERS) == 0
        assert run.append(None, None) == 1
        assert run.append(b"", b"") == 2
        by_hand = hand_batch(
            [HandRecord(b"v", b"k", HEADERS), HandRecord(None), HandRecord(b"", b"")],
            40,
            attributes=0x08,
            base_timestamp_ms=99,
            max_timestamp_ms=99,
            leader_epoch=6,
        )
        assert run.count == 3
        assert run.size_bytes == len(by_hand) - 61
        assert run.seal(base_offset=40, leader_epoch=6, timestamp_ms=99) == by_hand
        assert (run.count, run.size_bytes) == (0, 0)

    def test_a_sealed_run_starts_anew(self, twin: ModuleType) -> None:
        run = twin.RecordRun()
        batches = []
        for _ in range(2):
            assert run.append(None, b"again") == 0
            batches.append(run.seal(base_offset=1, leader_epoch=2, timestamp_ms=3))
        assert batches[0] == batches[1]

    @pytest.mark.parametrize("compression", Compression)
    def test_every_codec(self, twin: ModuleType, compression: Compression) -> None:
        run = twin.RecordRun()
        for _ in range(500):
            run.append(b"key", b"value " * 40)
        batch = run.seal(base_offset=10, leader_epoch=0, timestamp_ms=5, compression=compression)
        header = check_batch(batch)
        assert header.compression is compression
        assert header.next_offset == 510
        assert read(batch) == [Record(10 + i, 5, b"key", b"value " * 40, ()) for i in range(500)]

    @pytest.mark.parametrize("size", [0, 63, 64, 8191, 8192, 100_000, 3_000_000])
    def test_sizes_at_the_steps_of_a_varint(self, twin: ModuleType, size: int) -> None:
        run = twin.RecordRun()
        run.append(b"k" * size, b"v" * size, [(b"n" * size, b"c" * size)])
        run.append(None, b"after")
        first, second = read(run.seal(base_offset=0, leader_epoch=0, timestamp_ms=0))
        assert first == Record(0, 0, b"k" * size, b"v" * size, (("n" * size, b"c" * size),))
        assert second.value == b"after"

    def test_clear(self, twin: ModuleType) -> None:
        run = twin.RecordRun()
        for value in (b"small", b"large" * 100_000):
            run.append(None, value)
            run.clear()
            assert (run.count, run.size_bytes) == (0, 0)
        assert run.append(None, b"x") == 0

    def test_numbers_at_their_ends(self, twin: ModuleType) -> None:
        run = twin.RecordRun()
        run.append(None, b"")
        batch = run.seal(base_offset=2**62, leader_epoch=2**31 - 1, timestamp_ms=2**63 - 1)
        header = check_batch(batch)
        assert (header.base_offset, header.leader_epoch) == (2**62, 2**31 - 1)
        assert (header.base_timestamp_ms, header.max_timestamp_ms) == (2**63 - 1, 2**63 - 1)

    def test_nothing_cannot_be_sealed(self, twin: ModuleType) -> None:
        with pytest.raises(ValueError, match="no record"):
            twin.RecordRun().seal(base_offset=0, leader_epoch=0, timestamp_ms=0)

    def test_what_cannot_be_sealed_is_kept(self, twin: ModuleType) -> None:
        run = twin.RecordRun()
        run.append(None, b"kept")
        for wrong in ({"compression": 5}, {"base_offset": 2**63}, {"leader_epoch": 2**31}):
            numbers = {"base_offset": 0, "leader_epoch": 0, "timestamp_ms": 0} | wrong
            with pytest.raises((ValueError, OverflowError, struct.error)):
                run.seal(**numbers)
        assert run.count == 1
        batch = run.seal(base_offset=0, leader_epoch=0, timestamp_ms=0)
        assert [record.value for record in read(batch)] == [b"kept"]

    def test_a_full_run_takes_what_fits(self, twin: ModuleType) -> None:
        run = twin.RecordRun(bytes_max=20)
        run.append(None, b"12345")
        assert run.size_bytes == 12
        with pytest.raises(RecordTooLarge):
            run.append(None, b"12")
        with pytest.raises(RecordTooLarge):
            run.append(None, b"", [(b"1", b"")])
        assert (run.count, run.size_bytes) == (1, 12)
        run.append(None, b"1")
        assert run.size_bytes == 20

    @pytest.mark.parametrize("bytes_max", [-1, RUN_BYTES_MAX + 1])
    def test_limits_have_a_limit(self, twin: ModuleType, bytes_max: int) -> None:
        with pytest.raises(ValueError, match="limit"):
            twin.RecordRun(bytes_max=bytes_max)

    @pytest.mark.parametrize(
        "arguments",
        [
            ("text", b""),
            (None, 5),
            (None, b"", [(None, b"")]),
            (None, b"", [("name", b"")]),
            (None, b"", [(b"name", "text")]),
            (None, b"", [None]),
            (None, b"", 7),
        ],
    )
    def test_what_is_not_bytes(self, twin: ModuleType, arguments: tuple[Any, ...]) -> None:
        run = twin.RecordRun()
        with pytest.raises(TypeError):
            run.append(*arguments)
        assert (run.count, run.size_bytes) == (0, 0)

    def test_headers_may_be_any_sequence(self, twin: ModuleType) -> None:
        run = twin.RecordRun()
        run.append(None, b"", tuple(HEADERS))
        run.append(None, b"", list(HEADERS))
        first, second = read(run.seal(base_offset=0, leader_epoch=0, timestamp_ms=0))
        assert first.headers == second.headers
        assert first.headers == (("subject", b"orders"), ("none", None), ("", b""))


class TestIterRecords:
    def test_timestamps_of_creation_and_of_append(self, twin: ModuleType) -> None:
        records = [HandRecord(timestamp_delta=-5), HandRecord(timestamp_delta=7)]
        created = hand_batch(records, base_timestamp_ms=100, max_timestamp_ms=107)
        assert [record.timestamp_ms for record in read(created)] == [95, 107]
        appended = hand_batch(records, attributes=0x08, max_timestamp_ms=500)
        assert [record.timestamp_ms for record in read(appended)] == [500, 500]

    def test_gaps_of_a_compacted_batch(self, twin: ModuleType) -> None:
        records = [HandRecord(offset_delta=2), HandRecord(offset_delta=5)]
        batch = hand_batch(records, 10, last_offset_delta=9)
        assert [record.offset for record in read(batch)] == [12, 15]
        assert read(hand_batch([], 10, last_offset_delta=9)) == []

    def test_a_name_that_is_not_utf8_does_not_hide_the_record(self, twin: ModuleType) -> None:
        (record,) = read(hand_batch([HandRecord(headers=[(b"a\xff", b"1")])]))
        assert record.headers == (("a\N{REPLACEMENT CHARACTER}", b"1"),)

    def test_any_buffer(self, twin: ModuleType) -> None:
        batch = hand_batch([HandRecord(b"v")])
        for buffer in (bytearray(batch + b"next"), memoryview(batch)):
            assert [record.value for record in iter_records(buffer)] == [b"v"]

    def test_a_record_is_a_named_tuple(self, twin: ModuleType) -> None:
        (record,) = read(hand_batch([HandRecord(b"v", b"k")], 3))
        assert type(record) is Record
        assert record == (3, 1_000, b"k", b"v", ())

    def test_whole_batches_only(self, twin: ModuleType) -> None:
        corrupt(hand_batch([HandRecord(b"v")])[:-1], "is cut")
        corrupt(b"short", "header is cut")

    @pytest.mark.parametrize("size", range(len(WHOLE)))
    def test_a_record_cut_anywhere(self, twin: ModuleType, size: int) -> None:
        corrupt(hand_batch([HandRecord()], compress=lambda _: WHOLE[:size]), "is cut|are left")
        corrupt(raw_batch(WHOLE[1:size]), "is cut|are left|is empty| in 0 bytes")

    @pytest.mark.parametrize(
        ("body", "problem"),
        [
            (b"", "empty|cut"),
            (b"\0" + b"\x80" * 10 + b"\0", "too long"),
            (b"\0" + b"\xff" * 9 + b"\x02", "too long"),
            (b"\0\0\0" + varint(-2), "field of -2"),
            (b"\0\0\0" + varint(2**40), "field of"),
            (b"\0\0\0" + varint(-1) + varint(5) + b"1234", "field of 5"),
            (b"\0\0\0" + varint(-1) * 2 + varint(-1), "-1 headers"),
            (b"\0\0\0" + varint(-1) * 2 + varint(2**62), "headers in"),
            (b"\0\0\0" + varint(-1) * 2 + varint(1) + varint(-1) + varint(0), "without a name"),
            (b"\0\0\0" + varint(-1) * 2 + varint(0) + b"x", "1 bytes follow"),
            (b"\0\0" + varint(1) + varint(-1) * 2 + varint(0), "delta 1 is outside"),
            (b"\0\0" + varint(-1) + varint(-1) * 2 + varint(0), "delta -1 is outside"),
        ],
    )
    def test_lies_in_a_record(self, twin: ModuleType, body: bytes, problem: str) -> None:
        corrupt(raw_batch(body), problem)

    @pytest.mark.parametrize("length", [-1, -(2**63), 2**63 - 1, 100])
    def test_lies_about_a_records_length(self, twin: ModuleType, length: int) -> None:
        corrupt(hand_batch([HandRecord()], compress=lambda _: varint(length) + b"abc"), "record")

    @pytest.mark.parametrize("count", [0, 1, 3, 2**31 - 1])
    def test_lies_about_the_count(self, twin: ModuleType, count: int) -> None:
        two = [HandRecord(), HandRecord()]
        corrupt(hand_batch(two, record_count=count), "follow|cut")

    @pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 1), (-(2**63), -1)])
    def test_a_timestamp_out_of_range(self, twin: ModuleType, base: int, delta: int) -> None:
        record = HandRecord(timestamp_delta=delta)
        corrupt(hand_batch([record], base_timestamp_ms=base), "timestamp")
        edge = hand_batch([HandRecord()], base_timestamp_ms=base)
        assert read(edge)[0].timestamp_ms == base
        kept = hand_batch([record], base_timestamp_ms=base, attributes=0x08)
        assert read(kept)[0].timestamp_ms == 2_000

    def test_a_bomb(self, twin: ModuleType) -> None:
        packed = hand_batch(
            [HandRecord(bytes(1_000))],
            attributes=Compression.ZSTD,
            compress=lambda body: compress(Compression.ZSTD, body),
        )
        with pytest.raises(UncompressedTooLarge, match="more than 1000 bytes"):
            opened(read_header(packed), packed, bytes_max=1_000)

    def test_records_before_a_broken_one_are_given(self, twin: ModuleType) -> None:
        good = record_bytes(HandRecord(b"good"), 0)
        batch = hand_batch([HandRecord()], record_count=2, compress=lambda _: good + b"\x06bad")
        records = iter_records(batch)
        assert next(records).value == b"good"
        with pytest.raises(CorruptBatch):
            next(records)
