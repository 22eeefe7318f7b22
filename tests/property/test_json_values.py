"""The faster way to decode JSON agrees with the slower one: on what fits, and on what it is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.lake.columns.json_values import JsonValues

pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

SCHEMA = {
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["string", "null"]},
        "x": {"type": "number"},
        "ok": {"type": "boolean"},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "o": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
    "required": ["id"],
}
VALUES = JsonValues.parse(json.dumps(SCHEMA).encode())
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
    | st.sampled_from(["2026-01-01T00:00:00Z", "2026-13-01T00:00:00Z"]),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip
ROWS = st.dictionaries(st.sampled_from([*SCHEMA["properties"], "more"]), ANY, max_size=5)
TEXTS = ROWS.map(lambda row: json.dumps(row).encode()) | st.sampled_from(
    [b"", b"{}", b"{}{}", b'{"id":1}{"id":2}', b'{"id":1}\n{"id":2}', b"{]}", b'{"id":1,"id":2}',
     b'{"id":1,"name":"\xff"}', b'{"id":1,"x":NaN}', b' {"id":1}', b'{"id":1.0}', b'{"id":1e2}']
)  # fmt: skip


def slowly(text: bytes) -> dict[str, Any] | None:
    try:
        return VALUES.decoder()(text)
    except Exception:
        return None


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_both_ways_agree(texts: list[bytes]) -> None:
    fast = VALUES.decode_all(pa.array(texts, pa.binary()))
    if fast is None:
        return
    assert fast.to_pylist() == [slowly(it) for it in texts]


def test_the_faster_way_is_taken() -> None:
    texts = [b'{"id":1,"o":{"a":2},"tags":["x",null]}', b'{"id":2,"more":{"z":[1]}}']
    fast = VALUES.decode_all(pa.array(texts, pa.binary()))
    assert fast is not None
    assert fast.to_pylist() == [slowly(it) for it in texts]
