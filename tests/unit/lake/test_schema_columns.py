"""Values that do not fit are found without the others going the slower way."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from streamlog.errors import ConfigError
from streamlog.lake.columns import schema_columns
from streamlog.lake.columns.json_values import JsonValues
from streamlog.lake.columns.schema_columns import SchemaColumns, SchemaConverter
from streamlog.lake.columns.table_columns import record_schema

pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

SCHEMA = {
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "kind": {"type": "string", "enum": ["a", "b"]},
        "at": {"type": "string", "format": "date-time"},
        "tags": {
            "type": "array",
            "items": {"type": "string", "pattern": "^[a-z]+$"},
            "maxItems": 2,
        },
    },
    "required": ["id"],
    "additionalProperties": False,
}


def records(values: list[bytes | None]) -> Any:
    rows: list[dict[str, object]] = [
        {"partition": 0, "offset": offset, "timestamp": 0, "subject": None, "key": None,
         "value": value, "headers": []}
        for offset, value in enumerate(values)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, record_schema())


def columns() -> SchemaColumns:
    return SchemaColumns(JsonValues.parse(json.dumps(SCHEMA).encode()))


@pytest.mark.parametrize(
    ("odd", "fast", "slow"),
    [
        ([], [4_096, 904], []),
        ([4_999], [4_096, 904, 512, 392], [392]),
        ([17, 18, 2_500], [4_096, *[512] * 8, 512, 392], [512, 512]),
        (range(0, 5_000, 7), [4_096, *[512] * 8], [*[512] * 8, 904]),
    ],
)
def test_pieces_without_an_odd_record_go_the_faster_way(
    odd: Sequence[int], fast: list[int], slow: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a chunk with a few odd records, the next is tried in pieces; after one with many, not at all."""
    values: list[bytes | None] = [b'{"id":%d}' % number for number in range(5_000)]
    for number in odd:
        values[number] = b'{"id":-1}'
    tried: list[int] = []
    one_by_one: list[int] = []
    decode_each, decode_all = SchemaConverter._one_by_one, JsonValues.decode_all

    def counted(self: SchemaConverter, batch: Any) -> Any:
        one_by_one.append(batch.num_rows)
        return decode_each(self, batch)

    def counted_all(self: JsonValues, values: Any) -> Any:
        tried.append(len(values))
        return decode_all(self, values)

    monkeypatch.setattr(SchemaConverter, "_one_by_one", counted)
    monkeypatch.setattr(JsonValues, "decode_all", counted_all)
    converter = columns().converter()
    good, bad = converter.rows_of(records(values))
    assert good.column("id").to_pylist() == [it for it in range(5_000) if it not in set(odd)]
    assert ([] if bad is None else bad.column("offset").to_pylist()) == list(odd)
    assert (tried, one_by_one) == (fast, slow)
    converter.rows_of(records([b'{"id":1}'] * 600))
    following = {0: [600], 1: [], 3: [600]}.get(len(odd), [])
    assert tried[len(fast) :] == following, "of the next batch"
    converter.rows_of(records([b'{"id":1}'] * 600))
    assert tried[-1] == 600, "when all have fitted once"


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"id":-1}', "id is less than 0: -1"),
        (b'{"id":1,"kind":"c"}', 'kind is none of ["a", "b"]: "c"'),
        (b'{"id":1,"more":1}', "more is none of its properties"),
        (
            b'{"id":1,"tags":["a","b","c"]}',
            'tags is 3 characters or items, more than 2: ["a", "b", "c"]',
        ),
        (b'{"id":1,"tags":["A"]}', "tags[] does not match '^[a-z]+$': 'A'"),
        (b'{"id":1,"at":"today"}', "at is no date-time: 'today'"),
        (b'{"kind":"a"}', "id is missing"),
        (None, "there is no value"),
    ],
)
def test_reasons_name_the_rule(value: bytes | None, reason: str) -> None:
    _, bad = columns().converter().rows_of(records([value]))
    assert bad is not None
    assert bad.column("reason").to_pylist() == [reason]


def test_patterns_are_looked_for_in_many_values_at_once() -> None:
    """Each misfit is that of its own value, whatever else does not fit."""
    values: list[bytes | None] = [
        b'{"id":0,"tags":["a","B"]}', None, b'{"id":2,"tags":["c"]}', b"no", b'{"id":4,"tags":["D"],"at":"x"}',
        b'{"id":5,"tags":["e","F","G"]}', b'{"id":6,"tags":["h","I1"],"at":"2026-01-01T00:00:00Z"}',
    ]  # fmt: skip
    for _ in range(2):
        good, bad = columns().converter().rows_of(records(values))
        assert good.column("id").to_pylist() == [2]
        assert bad is not None
        found = dict(
            zip(bad.column("offset").to_pylist(), bad.column("reason").to_pylist(), strict=True)
        )
        assert sorted(found) == [0, 1, 3, 4, 5, 6]
        assert found[0] == "tags[] does not match '^[a-z]+$': 'B'"
        assert found[4] == "at is no date-time: 'x'"
        assert found[5].startswith("tags is 3 characters or items, more than 2")
        assert found[6] == "tags[] does not match '^[a-z]+$': 'I1'"


def test_a_keyword_that_is_not_checked_is_refused_by_the_flag(tmp_path: Any) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"properties": {"a": {"type": "string", "format": "email"}}}))
    with pytest.raises(ConfigError, match="--schema: a has the format 'email'"):
        schema_columns.schema_columns(str(path))
    path.write_text(
        json.dumps({"properties": {"a": {"type": "string", "pattern": "(?P<x>a)(?P=x)"}}})
    )
    with pytest.raises(ConfigError, match="--schema: the pattern of a is none of RE2"):
        schema_columns.schema_columns(str(path))
