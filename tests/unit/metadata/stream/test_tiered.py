"""Settings of tiered storage: what a tiered stream cannot have besides, and which local limits fit."""

from typing import Any

import pytest

from streamlog.errors import InvalidStreamConfig
from streamlog.metadata.stream.settings_translation import (
    BY_NAME,
    from_topic_configs,
    to_jetstream,
)
from streamlog.metadata.stream.stream_config import StreamConfig


def test_topic_configs_are_kafkas() -> None:
    told = {
        "remote.storage.enable": "true",
        "local.retention.ms": "1000",
        "local.retention.bytes": "-1",
    }
    config = StreamConfig.of(name="s", **from_topic_configs(told))
    assert (config.tiered, config.local_retention_ms, config.local_retention_bytes) == (
        True,
        1000,
        -1,
    )


def test_local_limits_follow_those_of_the_stream() -> None:
    config = StreamConfig.of(name="s", tiered=True, retention_ms=9_000, retention_bytes=10**6)
    assert (config.local_limit_ms, config.local_limit_bytes) == (9_000, 10**6)
    config = config.changed(local_retention_ms=500, local_retention_bytes=10)
    assert (config.local_limit_ms, config.local_limit_bytes) == (500, 10)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"cleanup_policy": "compact"}, "compacted"),
        ({"retention": "workqueue"}, "workqueue"),
        ({"retention": "interest"}, "interest"),
        ({"max_messages_per_subject": 1}, "max_messages_per_subject"),
        ({"allow_ttl": True}, "allow_ttl"),
        ({"subject_delete_marker_ttl_ms": 1_000}, "allow_ttl"),
        ({"allow_rollup": True}, "allow_rollup"),
        ({"allow_counter": True}, "allow_counter"),
        ({"allow_schedules": True}, "allow_rollup"),
        ({"retention_messages": 5}, "retention_messages"),
        ({"discard": "new", "retention_bytes": 5}, "discard new"),
        ({"sources": "other"}, "sources"),
        ({"mirror": "other"}, "mirror"),
        ({"storage": "memory"}, "in memory"),
        ({"name": "__activity"}, "internal"),
        ({"retention_ms": 1_000, "local_retention_ms": 1_001}, "local_retention_ms: no more than"),
        ({"retention_ms": 1_000, "local_retention_ms": -1}, "local_retention_ms: no more than"),
        ({"retention_bytes": 10, "local_retention_bytes": 11}, "local_retention_bytes: no more"),
    ],
)
def test_what_a_tiered_stream_cannot_have(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidStreamConfig, match=told):
        StreamConfig.of(**{"name": "s", "tiered": True, **settings})


def test_a_stream_without_it_is_written_as_before() -> None:
    written = StreamConfig.of(name="s").model_dump()
    assert not {"tiered", "local_retention_ms", "local_retention_bytes"} & written.keys()
    assert "streamlog.tiered" not in to_jetstream(StreamConfig.of(name="s"))["metadata"]


def test_local_limits_as_people_write_them() -> None:
    row = BY_NAME["local_retention_ms"]
    assert [row.from_human(it) for it in ("same", "unlimited", "1h", "-2")] == [
        -2,
        -1,
        3_600_000,
        -2,
    ]
    assert [row.to_human(it) for it in (-2, -1, 3_600_000)] == ["same", "unlimited", "1h"]
