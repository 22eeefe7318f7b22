"""The column decoders are equal on any bytes, and on whole ones give what a plain list gives."""

import struct
from collections.abc import Iterator
from functools import partial
from typing import Any

import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import CorruptBatch
from streamlog.record.columns import COLUMNS
from streamlog.record.compiled import columns as _columns
from streamlog.record.compression import Compression, compress
from tests.oracles import columns as columns_oracle
from tests.record_batches import HandRecord, hand_batch

DECODED = [name for name in COLUMNS if name not in ("topic", "partition")]

maybe_bytes = st.none() | st.binary(max_size=12)
names = st.sampled_from([b"subject", b"trace", b"", b"\xff\xfe", "é".encode()])
records = st.builds(
    HandRecord,
    value=maybe_bytes,
    key=maybe_bytes,
    headers=st.lists(st.tuples(names, maybe_bytes), max_size=3),
    offset_delta=st.none(),
    timestamp_delta=st.integers(-(2**40), 2**40),
)
gaps = st.integers(0, 3)
attributes = st.sampled_from([0, 0x08, 0x10, 0x20, 0x40])
columns = st.sets(st.sampled_from(DECODED))


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[bytes, list[tuple[int, HandRecord]]]]:
    """A few batches, with gaps between and inside, and the records that a reader should see."""
    offset = draw(st.integers(0, 5))
    log = []
    for _ in range(draw(st.integers(1, 4))):
        delta = -1
        batch: list[HandRecord] = []
        for record in draw(st.lists(records, max_size=6)):
            delta += 1 + draw(gaps)
            batch.append(record._replace(offset_delta=delta))
        flags = draw(attributes)
        codec = draw(st.sampled_from(Compression))
        data = hand_batch(
            batch,
            offset,
            attributes=flags | codec,
            last_offset_delta=max(delta, 0),
            compress=partial(compress, codec),
        )
        seen = [(offset + (r.offset_delta or 0), r) for r in batch if not flags & 0x20]
        log.append((data, seen))
        offset += max(delta, 0) + 1 + draw(gaps)
    return log


def outputs(module: Any, pieces: list[bytes], wanted: set[str], options: dict[str, int]) -> Any:
    """All that a decoder says, as values that can be compared; an error is its text."""
    decoder = module.ColumnDecoder(wanted, **options)
    said: list[Any] = []
    carried = b""
    try:
        for piece in pieces:
            carried = carried[decoder.position :] + piece if said else piece
            decoder.feed(carried)
            said.append(("fed", len(carried)))
            while decoder.decode():
                said.append(plain(decoder.take()))
            said.append((decoder.position, decoder.bytes_needed, decoder.next_offset))
        said.append((decoder.finished, decoder.row_count, plain(decoder.take())))
    except CorruptBatch as error:
        said.append(str(error))
    return said


def plain(taken: tuple[int, dict[str, Any]]) -> Any:
    count, parts = taken
    return count, {
        name: tuple(p if p is None or isinstance(p, int) else bytes(memoryview(p)) for p in part)
        for name, part in parts.items()
    }


def rows(taken: tuple[int, dict[str, Any]]) -> Iterator[tuple[int, bytes | None]]:
    count, parts = taken
    _, validity, ends, data = (
        bytes(memoryview(p)) if i else p for i, p in enumerate(parts["value"])
    )
    bounds = struct.unpack(f"={count + 1}i", ends)
    offsets = struct.unpack(f"={count}q", bytes(memoryview(parts["offset"][3])))
    for i in range(count):
        valid = validity[i >> 3] >> (i & 7) & 1
        yield offsets[i], data[bounds[i] : bounds[i + 1]] if valid else None


options = st.fixed_dictionaries(
    {
        "start_offset": st.integers(0, 30),
        "end_offset": st.integers(0, 60),
        "rows_max": st.integers(1, 5),
        "bytes_max": st.integers(1, 200),
    }
)


@settings(max_examples=150, deadline=None)
@given(logs(), options, st.sampled_from([_columns, columns_oracle]))
def test_a_decoder_gives_the_records_of_the_range(
    log: Any, options: dict[str, int], module: Any
) -> None:
    decoder = module.ColumnDecoder({"offset", "value"}, **options)
    decoder.feed(b"".join(data for data, _ in log))
    seen: list[tuple[int, bytes | None]] = []
    while decoder.decode():
        seen += rows(decoder.take())
    seen += rows(decoder.take())
    start, end = options["start_offset"], options["end_offset"]
    records = [(offset, r.value) for _, batch in log for offset, r in batch]
    assert seen == [pair for pair in records if start <= pair[0] < end]


@settings(max_examples=150, deadline=None)
@given(logs(), columns, options, st.data())
def test_the_twins_are_equal_however_the_bytes_come(
    log: Any, wanted: set[str], options: dict[str, int], data: st.DataObject
) -> None:
    whole = b"".join(piece for piece, _ in log)
    cut = data.draw(st.integers(0, len(whole)))
    pieces = [whole[:cut], whole[cut:]]
    assert outputs(_columns, pieces, wanted, options) == outputs(
        columns_oracle, pieces, wanted, options
    )


@settings(max_examples=400, deadline=None)
@given(
    st.lists(records, min_size=1, max_size=4),
    columns,
    st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=3)), max_size=3),
    st.booleans(),
)
def test_the_twins_are_equal_on_damaged_bytes(
    batch: list[HandRecord], wanted: set[str], damages: list[tuple[int, bytes]], mend: bool
) -> None:
    """With the checksum mended, as an enemy would, so that the damage reaches the parser."""
    data = bytearray(hand_batch(batch))
    for place, patch in damages:
        where = place % len(data)
        data[where : where + len(patch)] = patch
    if mend:
        data[17:21] = struct.pack(">I", crc32c.crc32c(bytes(data[21:])))
    pieces = [bytes(data)]
    assert outputs(_columns, pieces, wanted, {}) == outputs(columns_oracle, pieces, wanted, {})


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80), columns)
def test_the_twins_are_equal_on_records_that_are_garbage(body: bytes, wanted: set[str]) -> None:
    data = hand_batch([HandRecord()] * 3, compress=lambda _: body)
    assert outputs(_columns, [data], wanted, {}) == outputs(columns_oracle, [data], wanted, {})
