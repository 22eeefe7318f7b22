"""A record for eyes: cut, and nothing in it is taken for anything but text."""

import json

from hypothesis import given
from hypothesis import strategies as st

from streamlog.http.console.messages.decode import (
    HEADERS_MAX,
    KEY_BYTES_MAX,
    VALUE_BYTES_MAX,
    shown,
)
from streamlog.record.codec import Record


def test_text_and_bytes() -> None:
    record = Record(7, 1_000, b"k\xc3\xa9y", b"\xff\x00", (("n", b"v"), ("none", None)))
    told = shown(record)
    assert told["key"] == {"text": "kéy", "size_bytes": 4, "cut": False}
    assert told["value"] == {"hex": "ff 00", "size_bytes": 2, "cut": False}
    assert told["headers"] == [["n", {"text": "v", "size_bytes": 1, "cut": False}], ["none", None]]
    assert (told["offset"], told["headers_more"]) == (7, 0)


def test_what_is_long_is_cut_and_its_length_told() -> None:
    headers = tuple((f"h{number}", b"x" * 9_999) for number in range(HEADERS_MAX + 5))
    told = shown(Record(0, 0, b"\xff" * 5_000, "ü".encode() * 5_000, headers))
    assert told["value"]["text"] == "ü" * (VALUE_BYTES_MAX // 2)
    assert told["value"]["size_bytes"] == 10_000 and told["value"]["cut"]
    assert len(told["key"]["hex"].split()) == KEY_BYTES_MAX // 2
    assert (len(told["headers"]), told["headers_more"]) == (HEADERS_MAX, 5)
    assert len(json.dumps(told)) < 40_000


def test_a_cut_through_a_character_is_still_text() -> None:
    value = b"x" + "ü".encode() * VALUE_BYTES_MAX
    assert shown(Record(0, 0, None, value, ()))["value"]["text"] == "x" + "ü" * (
        (VALUE_BYTES_MAX - 1) // 2
    )


@given(st.none() | st.binary(max_size=3_000))
def test_anything_can_be_shown(value: bytes | None) -> None:
    told = shown(Record(0, 0, value, value, (("h", value),)))
    again = json.loads(json.dumps(told))
    assert again == told
    if value is None:
        assert told["value"] is None
    else:
        assert told["value"]["size_bytes"] == len(value)
        if "text" in told["value"] and not told["value"]["cut"]:
            assert told["value"]["text"].encode() == value
