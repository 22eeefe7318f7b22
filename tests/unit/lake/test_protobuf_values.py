"""Protobuf: what the library writes comes out as columns, and what it could not have written is told."""

from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("google.protobuf", reason="the extra `console` is not installed")
pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

from streamlog.errors import ConfigError
from streamlog.lake.columns.protobuf_values import ProtobufValues
from streamlog.lake.columns.schema_columns import SchemaColumns, schema_columns
from streamlog.lake.schema import iceberg_schema
from tests.unit.lake.protobuf_schema import MESSAGE, descriptor_set, order
from tests.unit.lake.test_schema_columns import records

FULL = {
    "id": -5, "serial": 2**64 - 1, "kind": 1, "first": {"name": "a", "count": 2**32 - 1},
    "items": [{"name": "b", "prices": [1.5, 2.5]}, {}], "counts": {"x": 1}, "note": "",
    "raw": b"\xff\0", "kinds": [0, 1, 7], "ok": True, "ratio": 0.5, "by_id": {3: {"name": "c"}},
}  # fmt: skip
ITEM = {"name": "", "count": 0, "prices": []}


def columns() -> SchemaColumns:
    return SchemaColumns(ProtobufValues.parse(descriptor_set(), MESSAGE))


def rows_of(*values: bytes) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    good, bad = columns().converter().rows_of(records(list(values)))
    rows = [
        {key: it for key, it in row.items() if not key.startswith("_")} for row in good.to_pylist()
    ]
    dead = [] if bad is None else bad.to_pylist()
    return rows, [(it["offset"], it["reason"]) for it in dead]


def test_all_kinds_of_fields_are_columns() -> None:
    message = order(**FULL)
    message.at.FromDatetime(datetime(2026, 1, 2, 3, 4, 5, 6, UTC))
    (row,), dead = rows_of(message.SerializeToString())
    assert not dead
    assert row == {
        "id": -5, "serial": 2**64 - 1, "kind": "BOOK",
        "first": {**ITEM, "name": "a", "count": 2**32 - 1},
        "items": [{**ITEM, "name": "b", "prices": [1.5, 2.5]}, ITEM],
        "counts": [("x", 1)], "note": "", "raw": b"\xff\0",
        "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "kinds": ["NONE", "BOOK", "7"], "ok": True,
        "ratio": 0.5, "by_id": [(3, {**ITEM, "name": "c"})],
    }  # fmt: skip


def test_what_is_not_there_is_null_where_protobuf_tells_it_from_the_default() -> None:
    (row,), dead = rows_of(b"")
    assert not dead
    assert (row["first"], row["note"], row["at"]) == (None, None, None)
    assert (row["id"], row["kind"], row["items"], row["counts"]) == (0, "NONE", [], [])


def test_unknown_fields_are_passed_over() -> None:
    unknown = b"\xf8\x06\x01"  # field 111, a number
    rows, dead = rows_of(order(id=1).SerializeToString() + unknown)
    assert [it["id"] for it in rows] == [1] and not dead


def test_confluents_bytes_before_a_value_are_skipped() -> None:
    rows, dead = rows_of(b"\0\0\0\0\x07\0" + order(id=1).SerializeToString())
    assert [it["id"] for it in rows] == [1] and not dead


def test_other_bytes_are_dead_letters() -> None:
    good = order(id=9).SerializeToString()
    cut = order(first={"name": "a" * 50}).SerializeToString()[:-1]
    late = order(at={"seconds": 2**60}).SerializeToString()
    no_text = b"\x3a\x01\xff"  # note, of a byte that is no UTF-8
    rows, dead = rows_of(good, cut, b"\xff\xff", late, no_text, b"plain text", good)
    assert [it["id"] for it in rows] == [9, 9]
    assert [offset for offset, _ in dead] == [1, 2, 3, 4, 5]
    assert all(reason for _, reason in dead)


def test_the_columns_are_iceberg_s() -> None:
    pytest.importorskip("pyiceberg", reason="the extra `lake` is not installed")
    found = iceberg_schema(columns().schema())
    assert str(found.find_type("serial")) == "decimal(20, 0)"
    assert str(found.find_type("items.element.prices.element")) == "double"
    assert str(found.find_type("by_id.value.count")) == "long"


@pytest.mark.parametrize(
    ("data", "message", "told"),
    [
        (descriptor_set(), "shop.None", "has no message shop.None"),
        (descriptor_set(), "shop.Node", "contains itself"),
        (b"\xff" * 9, MESSAGE, "no set of descriptors"),
        (descriptor_set(), "", "no message is named"),
    ],
)
def test_what_cannot_be_columns_is_told(
    data: bytes, message: str, told: str, tmp_path: Any
) -> None:
    path = tmp_path / "s.desc"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=told):
        schema_columns(f"{path}:{message}")


def test_all_at_once_is_as_one_by_one() -> None:
    import pyarrow as pa

    values = [
        order(**FULL).SerializeToString(),
        b"",
        *(order(id=i).SerializeToString() for i in range(9)),
    ]
    formats = ProtobufValues.parse(descriptor_set(), MESSAGE)
    batch = formats.decode_all(pa.array(values, pa.binary()))
    assert batch is not None
    rows = formats.decoder()(values)
    for field in formats.schema():
        slower = [it[field.name] for it in rows if isinstance(it, dict)]
        assert batch.column(field.name) == pa.array(slower, field.type)
    assert formats.decode_all(pa.array([*values, b"\xff"], pa.binary())) is None
