"""Files of records: what is written is read again, and what is no record is refused with its line."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.arrow.formats.export_file import exported_file
from streamlog.arrow.formats.file_format import FORMATS, FileFormat, format_of
from streamlog.arrow.formats.text_bytes import of_cell, of_json, to_cell, to_json
from streamlog.errors import ConfigError, InvalidRecord
from streamlog.record.columns import COLUMNS, arrow_schema

BYTES = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.text(max_size=12).map(str.encode),
    st.sampled_from([b"", rb"\N", b"base64:", b"base64:AA==", b'"', b"a,b", b"\r\n", b"\0", b"\xef\xbb\xbf"]),
)  # fmt: skip
HEADERS = st.lists(st.fixed_dictionaries({"key": st.text(max_size=4), "value": BYTES}), max_size=3)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": BYTES,
            "value": BYTES,
            "topic": st.just("orders"),
            "partition": st.integers(0, 2**31 - 1),
            "offset": st.integers(0, 2**63 - 1),
            "timestamp": st.integers(-(2**40), 2**52).map(lambda ms: ms * 1_000),
            "timestampType": st.integers(0, 1),
            "subject": st.one_of(st.none(), st.text(max_size=8), st.just(r"\N")),
            "headers": HEADERS,
        }
    ),
    min_size=1,
    max_size=8,
)
COLUMN_LISTS = st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True)


def batch_of(rows: list[dict[str, Any]], columns: list[str]) -> pa.RecordBatch:
    arrays = []
    for field in arrow_schema(columns):
        values = [
            row[field.name] or None if field.name == "headers" else row[field.name] for row in rows
        ]
        if field.name == "timestamp":
            arrays.append(pa.array(values, pa.int64()).cast(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def compared(rows: pa.Table) -> list[dict[str, Any]]:
    """No headers and null are the same; times as numbers, for Python knows none after the year 9999."""
    if "timestamp" in rows.column_names:
        index = rows.column_names.index("timestamp")
        times = rows["timestamp"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        rows = rows.set_column(index, "timestamp", times)
    found: list[dict[str, Any]] = rows.to_pylist()
    for row in found:
        if row.get("headers") == []:
            row["headers"] = None
    return found


@pytest.mark.parametrize("file_format", FORMATS, ids=lambda it: it.name)
@given(rows=ROWS, columns=COLUMN_LISTS, cut=st.integers(0, 8))
def test_what_is_written_is_read_again(
    file_format: FileFormat, rows: list[dict[str, Any]], columns: list[str], cut: int
) -> None:
    batch = batch_of(rows, columns)
    file = io.BytesIO()
    writer = file_format.writer(file, batch.schema)
    for piece in (batch.slice(0, cut), batch.slice(cut)):
        writer.write(piece)
    writer.close()
    file.seek(0)
    found = pa.Table.from_batches(list(file_format.read(file, "file")))
    assert sorted(found.column_names) == sorted(columns)
    assert compared(found.select(columns)) == compared(pa.Table.from_batches([batch]))


@given(data=BYTES, other=BYTES)
def test_bytes_as_text_are_reversible_and_never_the_same_for_two(
    data: bytes | None, other: bytes | None
) -> None:
    assert of_json(to_json(data)) == data
    assert of_cell(to_cell(data)) == data
    assert (to_cell(data) == to_cell(other)) == (data == other)


def test_text_is_text_where_it_can_be() -> None:
    assert to_json("größer".encode()) == to_cell("größer".encode()) == "größer"
    assert to_json(b"\xff") == {"base64": "/w=="}
    assert [to_cell(it) for it in (b"\xff", None, rb"\N", b"base64:")] == [
        "base64:/w==", r"\N", "base64:XE4=", "base64:YmFzZTY0Og==",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("jsonl", b'{"value": "a"}\n{"value": 7}\n', "file, line 2: '7' is neither text nor null"),
        ("jsonl", b'{"value": {"base64": "*"}}\n', "file, line 1: .* is not base64"),
        ("jsonl", b"[1]\n", "file, line 1: a record is an object"),
        ("jsonl", b'{"value"', "file, line 1: unexpected end of data"),
        ("jsonl", b'{"valeu": "a"}\n', "file: no record has a column 'valeu'; there are key, value"),
        ("jsonl", b'{"timestamp_ms": "now"}\n', "file, line 1: timestamp_ms is 'now'"),
        ("jsonl", b'{"partition": "x"}\n', "file: partition: "),
        ("jsonl", b'{"headers": [["a"]]}\n', "file, line 1: a header is a pair"),
        ("jsonl", b'{"value": "\xff"}\n', "file, line 1: "),
        ("csv", b"key,value\na\n", "file, line 2: 1 cells, where there are 2 columns"),
        ("csv", b"value\na\n\xff\n", "file, line .*utf-8"),
        ("csv", b"partition\nx\n", "file, line 2: partition is 'x', no number"),
        ("csv", b"headers\n[[\n", "file, line 2: .* is not JSON"),
        ("csv", b"walue\na\n", "no record has a column 'walue'"),
        ("csv", b'value\n"a\n', "file, line .*: unexpected end of data"),
        ("parquet", b"PAR1", "file: "),
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused_with_its_line(name: str, text: bytes, problem: str) -> None:
    with pytest.raises(InvalidRecord, match=problem):
        list(format_of(name, "", "--format").read(io.BytesIO(text), "file"))


def test_lines_of_consume_are_read() -> None:
    line = b'{"partition":0,"offset":1,"timestamp_ms":5,"time":"x","key":null,"value":"v","headers":[]}'
    (batch,) = format_of(None, "a.jsonl", "--format").read(io.BytesIO(line), "file")
    assert batch.schema.names == ["partition", "offset", "timestamp", "key", "value", "headers"]


def test_a_long_file_comes_in_batches_of_bounded_size() -> None:
    line = b'{"value": "' + b"x" * (1 << 20) + b'"}\n'
    batches = list(format_of("jsonl", "", "--format").read(io.BytesIO(line * 40), "file"))
    assert [it.num_rows for it in batches] == [16, 16, 8]


def test_a_format_is_known_by_its_name_or_by_the_file() -> None:
    assert format_of(None, "x/a.parquet", "--format").name == "parquet"
    assert format_of("csv", "a.parquet", "--format").name == "csv"
    with pytest.raises(ConfigError, match=r"--format: the ending of a.txt does not say it"):
        format_of(None, "a.txt", "--format")
    with pytest.raises(ConfigError, match=r"--format: there is no format 'xml'"):
        format_of("xml", "a", "--format")


def test_a_file_has_its_name_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with exported_file(path, replace=False, option="--output") as file:
        file.write(b"abc")
        assert not path.exists()
    assert path.read_bytes() == b"abc"


def test_a_failed_export_leaves_nothing_and_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), exported_file(path, replace=True, option="-o") as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert [it.name for it in tmp_path.iterdir()] == ["a.csv"]
    assert path.read_bytes() == b"old"
    with (
        pytest.raises(ConfigError, match=r"^-o: .*a.csv is there already"),
        exported_file(path, replace=False, option="-o"),
    ):
        pass
