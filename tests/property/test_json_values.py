"""The faster way to decode JSON agrees with the slower one: on what fits, and on what it is."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.lake.columns.json_values import JsonValues
from streamlog.lake.columns.value_format import Misfit

pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

INNER = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": -1, "exclusiveMaximum": 3}},
    "required": ["a"],
}
PROPERTIES = {
    "id": {"type": "integer", "maximum": 2**40},
    "name": {"type": ["string", "null"], "minLength": 1, "maxLength": 3},
    "x": {"type": "number", "exclusiveMinimum": -2, "maximum": 1.5},
    "ok": {"type": "boolean", "const": True},
    "at": {"type": "string", "format": "date-time"},
    "kind": {"type": "string", "enum": ["a", "b", None]},
    "code": {"type": "string", "pattern": "^a?b"},
    "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
    "n": {"type": "array", "items": {"type": "integer", "enum": [0, 1]}},
    "o": INNER,
    "many": {"type": "array", "items": INNER},
}
CLOSED_INNER = INNER | {"additionalProperties": False}
SCHEMAS: dict[str, dict[str, Any]] = {
    "open": {"properties": PROPERTIES, "required": ["id"]},
    "closed": {
        "properties": PROPERTIES
        | {"o": CLOSED_INNER, "many": {"type": "array", "items": CLOSED_INNER}},
        "additionalProperties": False,
    },
    "mixed": {"properties": PROPERTIES | {"many": {"type": "array", "items": CLOSED_INNER}}},
    "mixed the other way": {"properties": PROPERTIES, "additionalProperties": False},
}
VALUES = {name: JsonValues.parse(json.dumps(it).encode()) for name, it in SCHEMAS.items()}
ORACLES = {name: jsonschema.Draft202012Validator(it) for name, it in SCHEMAS.items()}
SMALL = st.integers(-3, 4)
ANY = st.recursive(
    st.none() | st.booleans() | SMALL | st.integers() | st.floats(allow_nan=False)
    | st.text("abé", max_size=4)
    | st.sampled_from(["2026-01-01T00:00:00Z", "2026-13-01T00:00:00Z"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
OBJECTS = st.dictionaries(st.sampled_from(["a", "b"]), SMALL, max_size=2)
FITTING = {
    "name": st.text("aé", max_size=4),
    "x": st.floats(-3, 2),
    "ok": st.booleans(),
    "kind": st.sampled_from(["a", "b", "c", ""]),
    "code": st.sampled_from(["b", "ab", "cb", "a"]),
    "tags": st.lists(st.text("a", max_size=1), max_size=3),
    "n": st.lists(st.integers(-1, 2) | st.none(), max_size=2),
    "o": OBJECTS,
    "many": st.lists(OBJECTS | st.none(), max_size=2),
}
ROWS = st.dictionaries(st.sampled_from([*PROPERTIES, "more"]), ANY, max_size=5) | (
    st.fixed_dictionaries({"id": SMALL}, optional=FITTING)
)
TEXTS = ROWS.map(lambda row: json.dumps(row).encode()) | st.sampled_from(
    [b"", b"{}", b"{}{}", b'{"id":1}{"id":2}', b'{"id":1}\n{"id":2}', b"{]}", b'{"id":1,"id":2}',
     b'{"id":1,"name":"\xff"}', b'{"id":1,"x":NaN}', b' {"id":1}', b'{"id":1.0}', b'{"id":1e2}']
)  # fmt: skip


def slowly(text: bytes, schema: str) -> dict[str, Any] | None:
    (found,) = VALUES[schema].decoder()([text])
    return found if isinstance(found, dict) else None


@given(st.sampled_from(sorted(SCHEMAS)), st.lists(TEXTS, min_size=1, max_size=4))
def test_both_ways_agree(schema: str, texts: list[bytes]) -> None:
    fast = VALUES[schema].decode_all(pa.array(texts, pa.binary()))
    if fast is None:
        return
    assert fast.to_pylist() == [slowly(it, schema) for it in texts]


TIMES = st.sampled_from(["2026", "0000", "9999", "-001", "+2026"]).flatmap(
    lambda year: st.tuples(
        st.just(year),
        st.sampled_from(["-01-01", "-02-29", "-02-30", "-12-31", "-13-01", "0101", "-1-1", ""]),
        st.sampled_from(["T", "t", " ", ""]),
        st.sampled_from(["00:00:00", "23:59:59", "24:00:00", "23:59:60", "00:00", "000000", "", "\u0660\u0660:00:00"]),
        st.sampled_from(["", ".1", ".123456", ".1234567", ",5", "."]),
        st.sampled_from(["Z", "z", "+00:00", "-23:59", "+0130", "", " Z", "Z\n"]),
    ).map("".join)
)  # fmt: skip


@given(TIMES, st.sampled_from(["date-time", "date"]))
def test_a_time_is_what_arrow_takes_it_for(text: str, form: str) -> None:
    values = JsonValues.parse(
        json.dumps({"properties": {"at": {"type": "string", "format": form}}}).encode()
    )
    kind = values.schema().field("at").type
    data = json.dumps({"at": text}).encode()
    try:
        expected = pa.scalar(text, pa.string()).cast(kind).as_py()
    except (pa.ArrowInvalid, OverflowError):  # the latter beyond the years 1 to 9999
        expected = None
    (row,) = values.decoder()([data])
    assert isinstance(row, dict | Misfit)
    found = row["at"] if isinstance(row, dict) else None
    assert found == expected
    assert pa.scalar(found, kind) == pa.scalar(expected, kind)
    fast = values.decode_all(pa.array([data, b"{}"], pa.binary()))
    assert (fast is None) == (expected is None)
    assert fast is None or fast.column("at")[0].as_py() == expected


@given(
    st.sampled_from(sorted(SCHEMAS)),
    st.fixed_dictionaries({}, optional=FITTING | {"id": SMALL, "more": SMALL}),
)
def test_what_fits_is_what_others_take(schema: str, row: dict[str, Any]) -> None:
    """Nulls stand for what is not there, and are left out for them."""
    row["n"] = [it for it in row.get("n", []) if it is not None]
    row["many"] = [it for it in row.get("many", []) if it is not None]
    found = slowly(json.dumps(row).encode(), schema)
    assert (found is not None) == ORACLES[schema].is_valid(row)


@pytest.mark.parametrize("schema", sorted(SCHEMAS))
def test_the_faster_way_is_taken(schema: str) -> None:
    texts = [
        b'{"id":1,"o":{"a":2},"tags":["x",null],"many":[{"a":0},null]}',
        b'{"id":2,"name":null,"x":0,"kind":"b","code":"b"}',
        b'{"id":3,"ok":true,"n":[1,null],"at":"2026-01-01T00:00:00Z"}',
    ]
    if not SCHEMAS[schema].get("additionalProperties", True):
        texts[2] = texts[2].replace(b"}", b',"x":1}')
    else:
        texts[2] = texts[2].replace(b"}", b',"more":{"z":[1]}}')
    fast = VALUES[schema].decode_all(pa.array(texts, pa.binary()))
    assert fast is not None
    assert fast.to_pylist() == [slowly(it, schema) for it in texts]
