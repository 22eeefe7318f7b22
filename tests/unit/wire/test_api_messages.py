import pytest

from streamlog.errors import MalformedFrame, UnsupportedVersion
from streamlog.wire import api_messages
from streamlog.wire.cursor import Cursor
from streamlog.wire.registry import APIS, LIST_OFFSETS, METADATA, PRODUCE


def test_what_an_old_version_does_not_have_is_left_out() -> None:
    api = APIS[LIST_OFFSETS]
    values = {
        "replica_id": -1,
        "isolation_level": 1,
        "topics": [
            {
                "name": "a",
                "partitions": [{"partition_index": 0, "current_leader_epoch": 3, "timestamp": -2}],
            }
        ],
    }
    old = api_messages.read_request(Cursor(api_messages.encode_request(api, 1, values)), api, 1)
    assert "isolation_level" not in old
    assert old["topics"][0]["partitions"] == [{"partition_index": 0, "timestamp": -2}]
    new = api_messages.read_request(Cursor(api_messages.encode_request(api, 7, values)), api, 7)
    assert new == values


def test_a_response_comes_back() -> None:
    api = APIS[METADATA]
    values = {"cluster_id": "c", "brokers": [{"node_id": 1, "host": "h", "port": 9}], "topics": []}
    for version in range(13):
        data = api_messages.encode_response(api, version, values)
        answer = api_messages.read_response(Cursor(data), api, version)
        assert answer["brokers"][0]["port"] == 9


def test_versions_that_are_only_offered_are_refused() -> None:
    for version in (0, 1, 2):
        with pytest.raises(UnsupportedVersion, match="too old"):
            api_messages.read_request(Cursor(bytes(100)), APIS[PRODUCE], version)


def test_garbage_is_malformed() -> None:
    with pytest.raises(MalformedFrame):
        api_messages.read_request(Cursor(b"\x7f" * 9), APIS[METADATA], 4)
