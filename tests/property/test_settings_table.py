"""Every configuration comes back as it was from JetStream's JSON and from Kafka's topic configs."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.metadata.stream.config import StreamConfig
from streamlog.metadata.stream.setting import StreamSetting
from streamlog.metadata.stream.settings_table import (
    SETTINGS,
    from_jetstream,
    from_topic_configs,
    to_jetstream,
    to_topic_configs,
)

SUBJECTS = st.sampled_from([("a",), ("a.b", "c.*"), ("x.>",)])
limit = st.one_of(st.just(-1), st.integers(1, 2**40))


@st.composite
def configs(draw: st.DrawFn) -> StreamConfig:
    replicas = draw(st.integers(1, 5))
    subjects = draw(SUBJECTS)
    retention_ms = draw(st.one_of(st.just(-1), st.integers(100, 2**40)))
    window_max = 2**30 if retention_ms == -1 else retention_ms
    return StreamConfig.of(
        name="s",
        subjects=subjects,
        partitions=1 if subjects == ("x.>",) else draw(st.integers(1, 9)),
        replicas=replicas,
        min_isr=draw(st.one_of(st.none(), st.integers(1, replicas))),
        unclean_election=draw(st.booleans()),
        retention_bytes=draw(limit),
        retention_messages=draw(limit),
        retention_ms=retention_ms,
        message_bytes_max=draw(st.one_of(st.just(-1), st.integers(1, 2**26))),
        duplicate_window_ms=draw(st.one_of(st.none(), st.integers(100, window_max))),
        compression=draw(st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"])),
        sync=draw(st.sampled_from([None, "commit", "interval", "os"])),
        segment_bytes=draw(st.one_of(st.none(), st.integers(4096, 2**31 - 1))),
        segment_age_ms=draw(st.one_of(st.none(), st.integers(100, 2**40))),
        index_interval_bytes=draw(st.one_of(st.none(), st.integers(0, 2**20))),
        cleanup_policy=draw(st.sampled_from(["delete", "compact", "compact,delete"])),
        delete_retention_ms=draw(st.integers(0, 2**40)),
        min_compaction_lag_ms=draw(st.integers(0, 100)),
        max_compaction_lag_ms=draw(st.one_of(st.just(-1), st.integers(100, 2**40))),
        min_cleanable_dirty_ratio=draw(st.floats(0, 1)),
        acks=draw(st.sampled_from(["all", "leader", "none"])),
        no_ack=draw(st.booleans()),
        subject_transform=draw(st.sampled_from(["", "a.* -> b.{{wildcard(1)}}", "> -> x.>"])),
        republish=draw(st.sampled_from(["", "> -> again.y.>", "a.* -> again.$1 headers-only"])),
        sealed=draw(st.booleans()),
        readonly=draw(st.booleans()),
        paused=draw(st.booleans()),
        allow_atomic=draw(st.booleans()),
        description=draw(st.text(max_size=20)),
        metadata=draw(
            st.dictionaries(st.sampled_from(["team", "k.v"]), st.text(max_size=5), max_size=2)
        ),
    )


@settings(max_examples=200, deadline=None)
@given(configs())
def test_jetstream_round_trip(config: StreamConfig) -> None:
    fields = json.loads(json.dumps(to_jetstream(config)))
    assert StreamConfig.of(**from_jetstream(fields)) == config


@settings(max_examples=200, deadline=None)
@given(configs())
def test_topic_configs_round_trip(config: StreamConfig) -> None:
    kept = {"name", "partitions", "replicas", "metadata"}
    beside = {key: getattr(config, key) for key in kept}
    assert StreamConfig.of(**beside, **from_topic_configs(to_topic_configs(config))) == config


def values_of(row: StreamSetting) -> st.SearchStrategy[Any]:
    """Of a setting that is named."""
    low, high = row.type.low, row.type.high
    if row.type.choices:
        return st.sampled_from(row.type.choices)
    if row.type.kind is bool:
        return st.booleans()
    if row.type.kind is tuple:
        return st.lists(st.sampled_from(["a", "b.*", "c.>"]), min_size=1).map(tuple)
    if row.type.kind is str:
        return st.sampled_from(["a", "x y", "> -> y.>", "a.* -> b.$1", "key"])
    assert low is not None and high is not None
    if row.type.kind is float:
        return st.floats(low, high)
    return st.integers(int(low), int(high))


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row.name)
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_a_value_is_read_as_it_was_written(row: StreamSetting, data: st.DataObject) -> None:
    value = data.draw(values_of(row))
    text = row.form.to_text(value)
    assert row.form.from_text(text) == value
    assert row.form.to_text(row.form.from_text(text)) == text
    if row.option is not None:
        human = row.to_human(value)
        assert row.from_human(human) == value
        assert row.to_human(row.from_human(human)) == human
        assert row.from_human(text) == value, "a number without a unit"
