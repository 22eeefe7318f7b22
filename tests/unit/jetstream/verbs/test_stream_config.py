import copy
from typing import Any

import pytest
from nats.js.api import StreamConfig as JetStreamConfig

from streamlog.errors import InvalidRequest, InvalidStreamConfig, InvalidStreamName, InvalidSubject
from streamlog.jetstream.verbs.stream_config import FIXED, config_from_json, config_to_json
from streamlog.metadata.stream.stream_config import StreamConfig


def test_what_nats_py_sends_by_default_passes() -> None:
    fields = JetStreamConfig(name="orders").as_dict()
    assert config_from_json(fields) == StreamConfig.of(name="orders")


def test_what_go_clients_send_by_default_passes() -> None:
    fields: dict[str, Any] = {
        "name": "orders", "subjects": ["orders.>"], "retention": "limits", "max_consumers": -1,
        "max_msgs": -1, "max_bytes": -1, "discard": "old", "max_age": 0, "max_msgs_per_subject": -1,
        "max_msg_size": -1, "storage": "file", "num_replicas": 1, "duplicate_window": 120000000000,
        "compression": "none", "placement": None, "mirror": None, "sources": [], "sealed": False,
        "deny_delete": False, "deny_purge": False, "allow_rollup_hdrs": False, "allow_direct": True,
        "mirror_direct": False, "consumer_limits": {"inactive_threshold": 0}, "metadata": {},
        "allow_msg_ttl": False, "first_seq": 0, "persist_mode": "default", "pedantic": False,
        "something_of_tomorrow": 0,
    }  # fmt: skip
    assert config_from_json(fields).subjects == ("orders.>",)


def test_settings_are_translated() -> None:
    config = config_from_json(
        {
            "name": "orders", "max_age": 60_000_000_000, "max_bytes": 5000, "max_msgs": 7,
            "max_msg_size": 100, "no_ack": True, "compression": "s2", "description": "d",
            "metadata": {"streamlog.partitions": "3", "streamlog.sync": "os", "mine": "1"},
        }
    )  # fmt: skip
    assert config == StreamConfig.of(
        name="orders", retention_ms=60_000, retention_bytes=5000, retention_messages=7,
        message_bytes_max=100, no_ack=True, compression="snappy", description="d",
        partitions=3, sync="os", metadata={"mine": "1"},
    )  # fmt: skip


def test_what_is_echoed_can_be_sent_back_and_read_by_nats_py() -> None:
    config = StreamConfig.of(
        name="a", partitions=2, compression="lz4", retention_ms=5000, acks="leader"
    )
    fields = config_to_json(config)
    assert config_from_json(fields) == config
    read = JetStreamConfig.from_response(copy.deepcopy(fields))
    assert (read.max_age, read.num_replicas, read.storage, read.retention) == (
        5.0,
        1,
        "file",
        "limits",
    )
    assert config_from_json(read.as_dict()) == config


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("storage", "disk"), ("discard", "newest"),
        ("consumer", {"name": "x"}), ("republish", {"src": "a", "dest": "x.>"}),
        ("subject_transform", "a"),
        ("first_seq", 2**45), ("persist_mode", "often"),
        ("template_owner", "x"), ("something_of_tomorrow", "on"),
    ],
)  # fmt: skip
def test_what_cannot_be_honoured_is_refused_by_name(field: str, value: object) -> None:
    told = {"first_seq": "first_sequence"}.get(field, field)
    with pytest.raises(InvalidStreamConfig, match=told):
        config_from_json({"name": "orders", field: value})


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": "a b"}, InvalidStreamName),
        ({"name": ""}, InvalidStreamName),
        ({"name": "x" * 250}, InvalidStreamName),
        ({"name": "__consumer_offsets"}, InvalidStreamName),
        ({"name": "a", "subjects": ["a..b"]}, InvalidSubject),
        ({"name": "a", "subjects": ["$JS.API.>"]}, InvalidSubject),
        ({"name": "a", "subjects": [">"]}, InvalidSubject),
        ({"name": "a", "subjects": "a"}, InvalidRequest),
        ({"name": "a", "max_bytes": "many"}, InvalidRequest),
        ({"name": "a", "max_age": 5}, InvalidRequest),
        ({"name": "a", "num_replicas": 6}, InvalidRequest),
        ({"name": "a", "metadata": {"streamlog.partitions": "many"}}, InvalidRequest),
        ({"name": "a", "metadata": {"streamlog.colour": "red"}}, InvalidRequest),
        ({"name": 7}, InvalidRequest),
        ({}, InvalidRequest),
    ],
)
def test_what_is_wrong_is_refused(fields: dict[str, Any], error: type[InvalidRequest]) -> None:
    with pytest.raises(error):
        config_from_json(fields)


@pytest.mark.parametrize("field", sorted(FIXED))
def test_odd_types_do_not_crash(field: str) -> None:
    for value in ([], {}, "x", 1.5, True, {"a": {"b": 1}}, [None]):
        try:
            config_from_json({"name": "orders", field: value})
        except InvalidRequest:
            continue
