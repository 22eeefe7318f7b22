"""Produce by hand, held to the schemas of kio."""

from uuid import UUID

import pytest

from streamlog.errors import MalformedFrame
from streamlog.wire import api_messages, produce
from streamlog.wire.cursor import Cursor
from streamlog.wire.leaders import CurrentLeader, NodeEndpoint
from streamlog.wire.produce import ProduceResult
from streamlog.wire.registry import APIS, PRODUCE

API = APIS[PRODUCE]
VERSIONS = range(3, API.version_max + 1)
IDS = [UUID(int=2**100), UUID(int=5)]
REQUEST = {
    "transactional_id": "t",
    "acks": -1,
    "timeout": 1_500,
    "topic_data": [
        {
            "name": "a",
            "topic_id": IDS[0],
            "partition_data": [{"index": 3, "records": b"xyz"}, {"index": 4, "records": None}],
        },
        {"name": "b", "topic_id": IDS[1], "partition_data": []},
    ],
}


def topics(version: int) -> tuple[str | bytes, str | bytes]:
    """As the version names them."""
    return ("a", "b") if version < produce.TOPIC_IDS_FROM else (IDS[0].bytes, IDS[1].bytes)


@pytest.mark.parametrize("version", VERSIONS)
def test_requests(version: int) -> None:
    a, b = topics(version)
    data = api_messages.encode_request(API, version, REQUEST)
    cursor = Cursor(data)
    request = produce.read_request(cursor, version)
    assert cursor.remaining == 0
    assert (request.acks, request.timeout_ms, request.transactional_id) == (-1, 1_500, "t")
    assert request.topics == [(a, [(3, b"xyz"), (4, None)]), (b, [])]
    for end in range(len(data)):
        with pytest.raises(MalformedFrame):
            produce.read_request(Cursor(data[:end]), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_responses(version: int) -> None:
    a, b = topics(version)
    failed = ProduceResult(4, 45, error_message="no", faulty=(1, 9), fault="bad")
    results = [ProduceResult(3, 0, 77, 5), failed]
    answer = produce.encode_response(b"head", [(a, results), (b, [])], version)
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    assert answer[4:8] == b"head"
    cursor = Cursor(answer[8:])
    told = api_messages.read_response(cursor, API, version)
    assert cursor.remaining == 0
    first, second = told["responses"][0]["partition_responses"]
    assert (first["index"], first["error_code"], first["base_offset"]) == (3, 0, 77)
    assert (second["index"], second["error_code"], second["base_offset"]) == (4, 45, -1)
    if version < produce.TOPIC_IDS_FROM:
        assert [it["name"] for it in told["responses"]] == ["a", "b"]
    else:
        assert [it["topic_id"] for it in told["responses"]] == IDS
    assert told["throttle_time"] == 0
    if version >= 5:
        assert (first["log_start_offset"], second["log_start_offset"]) == (5, -1)
    if version >= 8:
        assert (first["error_message"], second["error_message"]) == (None, "no")
        assert not first["record_errors"]
        named = [
            (it["batch_index"], it["batch_index_error_message"]) for it in second["record_errors"]
        ]
        assert named == [(1, "bad"), (9, "bad")]


@pytest.mark.parametrize("version", range(9, API.version_max + 1))
def test_who_leads_is_told_from_version_10_on(version: int) -> None:
    topic, _ = topics(version)
    result = ProduceResult(3, 6, error_message="no", leader=CurrentLeader(2, 9))
    answer = produce.encode_response(
        b"head", [(topic, [result])], version, nodes=[NodeEndpoint(2, "h", 1, "r")], throttle_ms=5
    )
    cursor = Cursor(answer[8:])
    told = api_messages.read_response(cursor, API, version)
    assert cursor.remaining == 0
    assert told["throttle_time"] == 5
    (part,) = told["responses"][0]["partition_responses"]
    if version >= produce.LEADERS_FROM:
        assert part["current_leader"] == {"leader_id": 2, "leader_epoch": 9}
        assert told["node_endpoints"] == [{"node_id": 2, "host": "h", "port": 1, "rack": "r"}]
