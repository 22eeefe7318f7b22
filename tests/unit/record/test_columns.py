from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any

import pytest

from streamlog.errors import CorruptBatch
from streamlog.record import columns, compression
from streamlog.record.batch import ENCRYPTED
from streamlog.record.columns import arrow_batch, arrow_batches, arrow_schema
from streamlog.record.compiled import columns as _columns
from streamlog.record.compression import Compression, compress
from tests.oracles import columns as oracle
from tests.record_batches import HandRecord, hand_batch, record_bytes, sized, varint

TWINS: list[Any] = [
    pytest.param(oracle, id="plain"),
    pytest.param(_columns, id="compiled"),
]

SUBJECT = (b"subject", b"orders.eu")
LOG_APPEND_TIME = 0x08
CONTROL = 0x20
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module: ModuleType = request.param
    monkeypatch.setattr(columns, "ColumnDecoder", module.ColumnDecoder)
    return module


def rows(data: bytes, *names: str, **options: Any) -> list[dict[str, Any]]:
    wanted = names or columns.COLUMNS
    return [row for batch in arrow_batches(data, wanted, **options) for row in batch.to_pylist()]


def column(data: bytes, name: str, **options: Any) -> list[Any]:
    return [row[name] for row in rows(data, name, **options)]


def test_a_record_becomes_a_row_with_all_columns(twin: ModuleType) -> None:
    headers = [SUBJECT, (b"trace", None), (b"empty", b"")]
    data = hand_batch([HandRecord(b"v", b"k", headers, timestamp_delta=5)], base_offset=7)
    assert rows(data, topic="orders", partition=3) == [
        {
            "key": b"k",
            "value": b"v",
            "topic": "orders",
            "partition": 3,
            "offset": 7,
            "timestamp": EPOCH + timedelta(milliseconds=1_005),
            "timestampType": 0,
            "subject": "orders.eu",
            "headers": [
                {"key": "subject", "value": b"orders.eu"},
                {"key": "trace", "value": None},
                {"key": "empty", "value": b""},
            ],
        }
    ]


def test_the_schema_is_kept_in_the_order_asked_for(twin: ModuleType) -> None:
    (batch,) = arrow_batches(hand_batch([HandRecord(b"v")]), ("value", "topic", "offset"))
    assert batch.schema == arrow_schema(("value", "topic", "offset"))
    batch.validate(full=True)


def test_nulls_are_kept_apart_from_empty_bytes(twin: ModuleType) -> None:
    records = [HandRecord(None, b""), HandRecord(b"", None), HandRecord(b"v", b"k")] * 5
    data = hand_batch(records)
    assert column(data, "key") == [b"", None, b"k"] * 5
    assert column(data, "value") == [None, b"", b"v"] * 5


def test_a_record_without_headers_has_null_headers_and_no_subject(twin: ModuleType) -> None:
    data = hand_batch([HandRecord(b"a"), HandRecord(b"b", headers=[SUBJECT]), HandRecord(b"c")])
    assert column(data, "subject") == [None, "orders.eu", None]
    assert [headers is None for headers in column(data, "headers")] == [True, False, True]


def test_the_first_subject_header_counts(twin: ModuleType) -> None:
    headers = [(b"other", b"1"), (b"subject", None), SUBJECT]
    assert column(hand_batch([HandRecord(headers=headers)]), "subject") == [None]
    assert column(hand_batch([HandRecord(headers=headers[2:] + headers)]), "subject") == [
        "orders.eu"
    ]


def test_text_that_is_not_utf8_is_replaced(twin: ModuleType) -> None:
    data = hand_batch([HandRecord(headers=[(b"subject", b"a.\xff.\xc3\xa9"), (b"\xfe", b"\xfe")])])
    assert column(data, "subject") == ["a.\ufffd.é"]
    assert column(data, "headers")[0][1] == {"key": "\ufffd", "value": b"\xfe"}


def test_log_append_time_is_one_time_for_a_whole_batch(twin: ModuleType) -> None:
    records = [HandRecord(timestamp_delta=1), HandRecord(timestamp_delta=2)]
    data = hand_batch(records, attributes=LOG_APPEND_TIME, max_timestamp_ms=9_000)
    assert column(data, "timestamp") == [EPOCH + timedelta(seconds=9)] * 2
    assert column(data, "timestampType") == [1, 1]


@pytest.mark.parametrize(
    ("start", "end", "offsets"),
    [
        (0, 100, [10, 11, 12, 20, 21, 22]),
        (11, 21, [11, 12, 20]),
        (12, 13, [12]),
        (13, 20, []),
        (15, 22, [20, 21]),
        (23, 99, []),
        (5, 5, []),
        (9, 3, []),
    ],
)
def test_an_offset_range_may_begin_and_end_inside_a_batch(
    twin: ModuleType, start: int, end: int, offsets: list[int]
) -> None:
    data = hand_batch([HandRecord()] * 3, 10) + hand_batch([HandRecord()] * 3, 20)
    assert column(data, "offset", start_offset=start, end_offset=end) == offsets


def test_offsets_that_compaction_left_are_kept(twin: ModuleType) -> None:
    records = [HandRecord(offset_delta=2), HandRecord(offset_delta=7)]
    data = hand_batch(records, 100, last_offset_delta=9) + hand_batch([HandRecord()], 110)
    assert column(data, "offset") == [102, 107, 110]


def test_an_emptied_batch_and_a_control_batch_have_no_rows(twin: ModuleType) -> None:
    data = hand_batch([HandRecord()], 0) + hand_batch([], 1, last_offset_delta=4)
    data += hand_batch([HandRecord()], 6, attributes=CONTROL) + hand_batch([HandRecord()], 7)
    assert column(data, "offset") == [0, 7]


def test_what_is_encrypted_is_refused_where_it_would_be_decoded(twin: ModuleType) -> None:
    """Behind its rows so far; and not where nobody wants its records, or it has none."""
    data = hand_batch([HandRecord(b"a")]) + hand_batch([HandRecord(b"b")], 1, attributes=ENCRYPTED)
    decoder = twin.ColumnDecoder({"value"})
    decoder.feed(data)
    with pytest.raises(CorruptBatch, match=r"at offset 1: it is encrypted"):
        decoder.decode()
    assert (decoder.position, decoder.row_count) == (len(data) // 2, 1)
    decoder.feed(hand_batch([HandRecord(b"b")], 1))
    assert not decoder.decode()
    assert decoder.row_count == 2
    assert column(data, "value", end_offset=1) == [b"a"]
    assert column(data[len(data) // 2 :], "value", start_offset=2) == []
    assert column(hand_batch([HandRecord()], attributes=ENCRYPTED | CONTROL), "value") == []


@pytest.mark.parametrize("codec", list(Compression))
def test_compressed_batches_are_opened(twin: ModuleType, codec: Compression) -> None:
    records = [HandRecord(b"value %d" % i, headers=[SUBJECT]) for i in range(50)]
    data = hand_batch(records, attributes=codec, compress=lambda body: compress(codec, body))
    assert column(data + hand_batch([HandRecord(b"last")], 50), "value") == [
        *(record.value for record in records),
        b"last",
    ]


def test_outputs_are_cut_by_rows_also_inside_a_batch(twin: ModuleType) -> None:
    data = hand_batch([HandRecord(b"v")] * 25) + hand_batch([HandRecord(b"v")] * 5, 25)
    batches = list(arrow_batches(data, ("offset",), rows_max=10))
    assert [batch.num_rows for batch in batches] == [10, 10, 10]
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == list(range(30))


def test_outputs_are_cut_by_bytes(twin: ModuleType) -> None:
    data = hand_batch([HandRecord(bytes(1_000))] * 40)
    assert [b.num_rows for b in arrow_batches(data, ("value",), bytes_max=10_000)] == [10] * 4
    assert [b.num_rows for b in arrow_batches(data, ("offset",), bytes_max=10_000)] == [40]


def test_no_output_passes_the_limit_that_keeps_int32_offsets_right(
    twin: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = hand_batch([HandRecord(bytes(30 << 20))] * 3)
    batches = list(arrow_batches(big, ("value",), bytes_max=1 << 40))
    assert [batch.num_rows for batch in batches] == [2, 1]


def test_a_cut_last_batch_waits_for_the_rest(twin: ModuleType) -> None:
    data = hand_batch([HandRecord(b"a")], 0) + hand_batch([HandRecord(b"b" * 100)], 1)
    first = len(hand_batch([HandRecord(b"a")], 0))
    for cut in range(first, len(data)):
        decoder = twin.ColumnDecoder({"offset"})
        decoder.feed(data[:cut])
        assert not decoder.decode()
        assert (decoder.position, decoder.row_count, decoder.next_offset) == (first, 1, 1)
        assert decoder.bytes_needed == (len(data) - first if cut - first >= 12 else 61)
        decoder.feed(data[first:])
        assert not decoder.decode()
        assert decoder.row_count == 2


def test_feeding_before_all_is_decoded_is_refused(twin: ModuleType) -> None:
    decoder = twin.ColumnDecoder({"offset"}, rows_max=1)
    decoder.feed(hand_batch([HandRecord()] * 2))
    assert decoder.decode()
    with pytest.raises(ValueError, match="not decoded yet"):
        decoder.feed(b"")


def test_nothing_past_the_end_offset_is_looked_at(twin: ModuleType) -> None:
    decoder = twin.ColumnDecoder({"offset"}, end_offset=2)
    decoder.feed(hand_batch([HandRecord()] * 2) + b"\xff" * 200)
    assert not decoder.decode()
    assert decoder.finished
    assert decoder.row_count == 2


def test_the_buffers_outlive_the_decoder(twin: ModuleType) -> None:
    decoder = twin.ColumnDecoder({"value"})
    decoder.feed(hand_batch([HandRecord(b"v%d" % i) for i in range(100)]))
    decoder.decode()
    batch = arrow_batch(decoder.take(), arrow_schema(("value",)), "t", 0)
    del decoder
    assert batch.column(0).to_pylist() == [b"v%d" % i for i in range(100)]


RECORD = record_bytes(HandRecord(b"value", b"key", [SUBJECT]), 0)
TIME_AND_OFFSET = bytes(3)  # attributes, timestamp delta, offset delta


def framed(body: bytes) -> bytes:
    return varint(len(body)) + body


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        (b"", "a record runs past its end"),
        (RECORD[:-1], "a record runs past its end"),
        (b"\xff" * 5 + b"\x0f" + RECORD, "a record runs past its end"),
        (b"\x80" * 11 + RECORD, "a record runs past its end"),
        (varint(-5) + RECORD, "a record runs past its end"),
        (varint(0) + RECORD, "a record runs past its end"),
        (varint(1) + bytes(1), "a record is cut"),
        (framed(b"\0" + b"\xff" * 9 + b"\x02"), "a record is cut"),
        (framed(b"\0\0" + b"\xff" * 5), "a record is cut"),
        (framed(b"\0\0" + varint(1)), "a record's offset is impossible"),
        (framed(b"\0\0" + varint(-1)), "a record's offset is impossible"),
        (framed(TIME_AND_OFFSET + varint(-2)), "a record is cut"),
        (framed(TIME_AND_OFFSET + varint(9) + b"key"), "a record is cut"),
        (framed(TIME_AND_OFFSET + varint(2**31 - 1) + b"key"), "a record is cut"),
        (framed(TIME_AND_OFFSET + sized(None) + varint(4) + b"val"), "a record is cut"),
        (framed(TIME_AND_OFFSET + sized(None) * 2), "a record is cut"),
        (framed(TIME_AND_OFFSET + sized(None) * 2 + varint(-1)), "a record is cut"),
        (framed(TIME_AND_OFFSET + sized(None) * 2 + varint(2**30)), "a record is cut"),
        (framed(TIME_AND_OFFSET + sized(None) * 3 + varint(1)), "a record is cut"),
        (framed(TIME_AND_OFFSET + sized(None) * 2 + varint(1) + sized(None)), "a header is cut"),
        (framed(TIME_AND_OFFSET + sized(None) * 2 + varint(1) + varint(9)), "a header is cut"),
        (framed(TIME_AND_OFFSET + sized(None) * 2 + varint(1) + sized(b"n")), "a header is cut"),
        (RECORD + b"\0", "bytes follow its last record"),
    ],
)
def test_records_that_do_not_decode_are_named(
    twin: ModuleType, records: bytes, problem: str
) -> None:
    data = hand_batch([HandRecord()], 5, compress=lambda _: records)
    with pytest.raises(CorruptBatch, match=f"^record batch at offset 5: {problem}$"):
        rows(data)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"magic": 1}, "its magic is not 2"),
        ({"last_offset_delta": -1}, "its offsets are impossible"),
        ({"record_count": -1}, "its record count is impossible"),
        ({"record_count": 3}, "its record count is impossible"),
        ({"base_offset": 2**63 - 5}, "its offsets are impossible"),
        ({"base_offset": -1}, "its offset is below that of the batch before it"),
        ({"max_timestamp_ms": 2**62, "attributes": 8}, "a timestamp is impossible"),
        ({"base_timestamp_ms": -(2**62)}, "a timestamp is impossible"),
    ],
)
def test_a_header_that_cannot_be_is_named(
    twin: ModuleType, options: dict[str, Any], problem: str
) -> None:
    with pytest.raises(CorruptBatch, match=problem):
        rows(hand_batch([HandRecord()] * 2, **options))


def test_a_batch_length_below_the_header_is_refused(twin: ModuleType) -> None:
    data = bytearray(hand_batch([HandRecord()]))
    for length in (0, 48, -1, -(2**31)):
        data[8:12] = length.to_bytes(4, "big", signed=True)
        with pytest.raises(CorruptBatch, match="its length is too small"):
            rows(bytes(data))


def test_a_flipped_bit_anywhere_after_the_length_is_found(twin: ModuleType) -> None:
    data = hand_batch([HandRecord(b"value", b"key", [SUBJECT])])
    for place in range(16, len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 0x10
        with pytest.raises(CorruptBatch):
            rows(bytes(flipped))


def test_the_checksum_is_not_looked_at_where_that_is_asked_for(twin: ModuleType) -> None:
    data = bytearray(hand_batch([HandRecord(b"value")]))
    data[-2] ^= 1
    assert column(bytes(data), "offset", check_crc=False) == [0]


def test_a_batch_that_goes_back_in_offsets_is_refused(twin: ModuleType) -> None:
    data = hand_batch([HandRecord()] * 3, 10) + hand_batch([HandRecord()], 12)
    with pytest.raises(CorruptBatch, match="at offset 12: its offset is below that"):
        rows(data)


@pytest.mark.parametrize("codec", [1, 2, 3, 4, 5, 6, 7])
def test_compressed_garbage_is_refused(twin: ModuleType, codec: int) -> None:
    data = hand_batch([HandRecord()], 5, attributes=codec, compress=lambda _: b"\x07garbage" * 9)
    with pytest.raises(CorruptBatch, match=r"^record batch at offset 5: "):
        rows(data)


def test_a_codec_that_nobody_knows_is_not_taken_for_none(twin: ModuleType) -> None:
    with pytest.raises(CorruptBatch, match="codec 5 is unknown"):
        rows(hand_batch([HandRecord()], attributes=5))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_compressed_batch_that_opens_to_too_much_is_refused(
    twin: ModuleType, codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(twin, "UNCOMPRESSED_BYTES_MAX", 100_000)
    assert compression.UNCOMPRESSED_BYTES_MAX > 100_000
    data = hand_batch(
        [HandRecord(bytes(200_000))],
        attributes=codec,
        compress=lambda body: compress(Compression(codec), body),
    )
    with pytest.raises(CorruptBatch):
        rows(data)


def test_the_decoder_needs_no_pyarrow() -> None:
    import subprocess
    import sys

    check = "import sys, streamlog.record.columns; sys.exit('pyarrow' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
