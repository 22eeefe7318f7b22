"""Records as lines of JSON: nothing is lost."""

import base64
import json
from typing import NamedTuple

from streamlog.cli.messages.record_lines import json_record
from streamlog.cli.output import document


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def test_all_of_a_record() -> None:
    headers = (("subject", b"a.b"), ("subject", None), ("raw", b"\x80"))
    record = Record(7, 1_795_260_000_123, None, "grün\n".encode(), headers)
    line = document(json_record(2, record))
    assert line.count("\n") == 1
    assert json.loads(line) == {
        "partition": 2,
        "offset": 7,
        "timestamp_ms": 1_795_260_000_123,
        "time": "2026-11-21T11:20:00.123Z",
        "key": None,
        "value": "grün\n",
        "headers": [["subject", "a.b"], ["subject", None], ["raw", {"base64": "gA=="}]],
    }


def test_bytes_that_are_not_text_survive() -> None:
    value = bytes(range(256))
    shown = json.loads(document(json_record(0, Record(0, 0, b"", value, ()))))
    assert base64.b64decode(shown["value"]["base64"]) == value
    assert shown["key"] == ""
