"""Avro: both ways of decoding give the same rows, and what does not fit is told."""

import io
import json
from datetime import UTC, date, datetime
from typing import Any

import pytest

pytest.importorskip("fastavro", reason="the extra `console` is not installed")
pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

import fastavro
import pyarrow as pa

from streamlog.lake.columns.avro_values import AvroValues
from streamlog.lake.columns.schema_columns import SchemaColumns
from tests.unit.lake.test_schema_columns import records

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "prices", "type": {"type": "array", "items": "double"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
    ],
}
PARSED = fastavro.parse_schema(SCHEMA)
FORMAT = AvroValues.parse(json.dumps(SCHEMA).encode())


def encoded(number: int) -> bytes:
    sink = io.BytesIO()
    row = {
        "id": number,
        "note": None if number % 3 else f"note {number}",
        "at": datetime(2026, 1, 2, 3, 4, number % 60, tzinfo=UTC),
        "day": date(2026, 1, 1 + number % 28),
        "prices": [number / 7] * (number % 4),
        "counts": {"x": number},
    }
    fastavro.schemaless_writer(sink, PARSED, row)
    return sink.getvalue()


def values() -> list[bytes]:
    """With Confluent's bytes and without them; the one of 0 begins with a zero itself."""
    return [b"\0\0\0\0\7" + encoded(i) if i % 2 else encoded(i) for i in range(100)]


def test_all_at_once_is_as_one_by_one() -> None:
    batch = FORMAT.decode_all(pa.array(values(), pa.binary()))
    assert batch is not None
    rows = FORMAT.decoder()(values())
    slower = [
        pa.array([it[name] for it in rows if isinstance(it, dict)], batch.schema.field(name).type)
        for name in FORMAT.schema().names
    ]
    assert batch.columns == slower
    assert batch.column("id").to_pylist() == list(range(100))


@pytest.mark.parametrize("change", [lambda it: it + b"\1", lambda it: it[:-1], lambda _: b"\xff"])
def test_one_that_does_not_fit_is_alone(change: Any) -> None:
    some = values()
    some[50] = change(some[50])
    assert FORMAT.decode_all(pa.array(some, pa.binary())) is None
    good, bad = SchemaColumns(FORMAT).converter().rows_of(records([*some]))
    assert good.column("id").to_pylist() == [*range(50), *range(51, 100)]
    assert bad is not None
    assert bad.column("offset").to_pylist() == [50]
