"""Values as text: of each format, and of bytes that are not what was asked for."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.errors import InvalidRequest
from streamlog.http.console.messages import decode
from streamlog.http.console.messages.decode import DECODED_BYTES_MAX, Decoding, Schemas, shown
from streamlog.record.codec import Record

AVRO = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"}, {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "at", "type": {"type": "int", "logicalType": "date"}}, {"name": "raw", "type": "bytes"},
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "data", "expected"),
    [
        ("auto", b'{"a": 1}', ("json", '{"a": 1}')),
        ("auto", b"plain", ("text", "plain")),
        ("auto", b"\xff\x00", ("hex", "ff 00")),
        ("json", b"plain", ("text", "plain")),
        ("text", b'{"a": 1}', ("text", '{"a": 1}')),
        ("hex", b"ab", ("hex", "61 62")),
        ("auto", b"", ("text", "")),
    ],
)
def test_without_a_library(form: str, data: bytes, expected: tuple[str, str]) -> None:
    found = Decoding(form).decode(data)
    assert (found.form, found.text) == expected


def test_message_pack() -> None:
    msgpack = pytest.importorskip("msgpack")
    data = msgpack.packb({"a": [1, b"\xff"], 7: "seven", "t": msgpack.Timestamp(0)})
    found = Decoding("msgpack").decode(data)
    assert found.value == {"a": [1, "/w=="], "7": "seven", "t": "1970-01-01T00:00:00+00:00"}
    wrong = Decoding("msgpack").decode(b"\xc1")
    assert (wrong.form, wrong.text) == ("hex", "c1")
    assert wrong.problem.startswith("not msgpack: ")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "order.avsc").write_text(json.dumps(AVRO))
    return tmp_path


def test_avro_with_and_without_confluents_frame(folder: Path) -> None:
    fastavro = pytest.importorskip("fastavro")
    out = BytesIO()
    order = {"id": 7, "tags": ["new"], "at": 0, "raw": b"ab"}
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), order)
    schemas = Schemas(folder)
    for frame in (b"", b"\0\0\0\0\x2a"):
        found = schemas.decoding("avro", "order").decode(frame + out.getvalue())
        assert found.value == {"id": 7, "tags": ["new"], "at": "1970-01-01", "raw": "ab"}
    left = schemas.decoding("avro", "order").decode(out.getvalue() + b"\x01")
    assert left.problem == "not avro: there are bytes left"
    (folder / "order.avsc").write_text('{"type": "long", "name": "x"}')
    assert schemas.decoding("avro", "order").decode(b"\x0e").value == 7, "a new file counts at once"


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "record", "name": "R", "fields": []},
        {"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]},
    ],
)
def test_a_schema_by_which_a_few_bytes_are_very_many_items_is_refused(
    folder: Path, items: Any
) -> None:
    pytest.importorskip("fastavro")
    schema = {"type": "record", "name": "B", "fields": [
        {"name": "bomb", "type": ["string", {"type": "array", "items": items}]}]}  # fmt: skip
    (folder / "bomb.avsc").write_text(json.dumps(schema))
    with pytest.raises(InvalidRequest, match="take no bytes"):
        Schemas(folder).decoding("avro", "bomb")


def test_protobuf_by_a_set_of_descriptors(folder: Path) -> None:
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="order_id", number=1, type=5, label=1)
    message.field.add(name="name", number=2, type=9, label=1)
    (folder / "shop.desc").write_bytes(files.SerializeToString())
    schemas = Schemas(folder)
    assert schemas.names() == {"avro": ["order"], "protobuf": ["shop:shop.Order"]}
    for frame in (b"", b"\0\0\0\0\x2a\0"):
        found = schemas.decoding("protobuf", "shop:shop.Order").decode(frame + b"\x08\x07\x12\x01x")
        assert found.value == {"order_id": 7, "name": "x"}
    assert schemas.decoding("protobuf", "shop:shop.Order").decode(b"\xff").form == "hex"
    with pytest.raises(InvalidRequest, match="no message 'shop\\.None'"):
        schemas.decoding("protobuf", "shop:shop.None")


@pytest.mark.parametrize("name", ["", "../order", "none", ".hidden", "order\0"])
def test_no_file_but_a_schema_of_the_folder_is_read(folder: Path, name: str) -> None:
    pytest.importorskip("fastavro")
    with pytest.raises(InvalidRequest, match=r"^schema: "):
        Schemas(folder).decoding("avro", name)


def test_a_folder_has_to_be_named_and_a_format_known(folder: Path) -> None:
    pytest.importorskip("fastavro")
    with pytest.raises(InvalidRequest, match=r"http\.schemas_dir"):
        Schemas(None).decoding("avro", "order")
    assert Schemas(None).names() == Schemas(folder / "none").names() == {"avro": [], "protobuf": []}
    with pytest.raises(InvalidRequest, match="decode: one of"):
        Schemas(None).decoding("xml")
    (folder / "broken.avsc").write_text("{")
    with pytest.raises(InvalidRequest, match=r"broken\.avsc cannot be used"):
        Schemas(folder).decoding("avro", "broken")


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(decode._LIBRARIES, "msgpack", "no_such_library")
    with pytest.raises(InvalidRequest, match=r"pip install 'streamlog\[console\]'"):
        Decoding("msgpack")


@given(st.binary(max_size=300))
def test_whatever_the_bytes_are_they_can_be_shown(data: bytes) -> None:
    for form in ("auto", "text", "json", "hex"):
        told = shown(Record(0, 0, None, data, ()), Decoding(form))
        assert json.loads(json.dumps(told)) == told
        assert told["value"]["size_bytes"] == len(data)


def test_what_is_nested_deeply_or_very_large_is_not_decoded() -> None:
    assert Decoding().decode(b"[" * 100_000).form == "text"
    assert Decoding().decode(b"1" * 100_000).form == "text", "no number has so many digits"
    large = Decoding().decode(b"x" * (DECODED_BYTES_MAX + 1))
    assert (large.form, large.problem) == ("hex", "too large to be decoded")
    told = shown(Record(0, 0, None, b'"' + b"x" * 99 + b'"', ()), Decoding(), most=10)
    assert (told["value"]["cut"], len(told["value"]["text"])) == (True, 10)
