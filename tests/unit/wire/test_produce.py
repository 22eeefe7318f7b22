"""Produce by hand, held to the schemas of kio."""

import pytest

from streamlog.errors import MalformedFrame
from streamlog.wire import control, produce
from streamlog.wire.cursor import Cursor
from streamlog.wire.produce import ProduceResult
from streamlog.wire.registry import APIS, PRODUCE

API = APIS[PRODUCE]
REQUEST = {
    "transactional_id": "t",
    "acks": -1,
    "timeout": 1_500,
    "topic_data": [
        {
            "name": "a",
            "partition_data": [{"index": 3, "records": b"xyz"}, {"index": 4, "records": None}],
        },
        {"name": "b", "partition_data": []},
    ],
}


@pytest.mark.parametrize("version", range(3, 10))
def test_requests(version: int) -> None:
    data = control.encode_request(API, version, REQUEST)
    cursor = Cursor(data)
    request = produce.read_request(cursor, version)
    assert cursor.remaining == 0
    assert (request.acks, request.timeout_ms, request.transactional_id) == (-1, 1_500, "t")
    assert request.topics == [("a", [(3, b"xyz"), (4, None)]), ("b", [])]
    for end in range(len(data)):
        with pytest.raises(MalformedFrame):
            produce.read_request(Cursor(data[:end]), version)


@pytest.mark.parametrize("version", range(3, 10))
def test_responses(version: int) -> None:
    results = [ProduceResult(3, 0, 77, 5), ProduceResult(4, 45, error_message="no")]
    answer = produce.encode_response(b"head", [("a", results), ("b", [])], version)
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    assert answer[4:8] == b"head"
    cursor = Cursor(answer[8:])
    told = control.read_response(cursor, API, version)
    assert cursor.remaining == 0
    first, second = told["responses"][0]["partition_responses"]
    assert (first["index"], first["error_code"], first["base_offset"]) == (3, 0, 77)
    assert (second["index"], second["error_code"], second["base_offset"]) == (4, 45, -1)
    assert [it["name"] for it in told["responses"]] == ["a", "b"]
    assert told["throttle_time"] == 0
    if version >= 5:
        assert (first["log_start_offset"], second["log_start_offset"]) == (5, -1)
    if version >= 8:
        assert (first["error_message"], second["error_message"]) == (None, "no")
