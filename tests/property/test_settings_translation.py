"""Every configuration comes back as it was from JetStream's JSON and from Kafka's topic configs."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.jetstream.requests.request_schemas import STREAM_CONFIG
from streamlog.jetstream.verbs.stream_config import config_from_json, config_to_json, normalised
from streamlog.metadata.stream.inert_configs import INERT_CONFIGS
from streamlog.metadata.stream.setting_type import StreamSetting
from streamlog.metadata.stream.settings_translation import (
    SETTINGS,
    from_jetstream,
    from_topic_configs,
    to_jetstream,
    to_topic_configs,
)
from streamlog.metadata.stream.stream_config import StreamConfig

SUBJECTS = st.sampled_from([("a",), ("a.b", "c.*"), ("x.>",)])
MIRRORS = (
    '{"name":"o"}',
    '{"name":"o","opt_start_time":"2026-01-02T03:04:05.006Z","filter_subject":"a.*"}',
    '{"name":"O.1","opt_start_seq":7}'.replace(".", "-"),
)
SOURCES = (
    '[{"name":"o","external":{"api":"$JS.hub.API","deliver":"d"}}]',
    '[{"name":"o","subject_transforms":[{"src":"a","dest":"b"},{"src":"c","dest":""}]},{"name":"p"}]',
)
SCHEMAS = (
    "",
    'json {"properties": {"a": {"type": "string"}}}',
    'avro {"type":"record","name":"r","fields":[{"name":"a","type":"long"}]}',
    "protobuf p.M Ci5NLg==",
)
LIMITS = (
    "",
    "inactive_threshold=10s",
    "inactive_threshold=90s,max_ack_pending=5",
    "max_ack_pending=-1",
)
limit = st.one_of(st.just(-1), st.integers(1, 2**40))


def values_of(row: StreamSetting) -> st.SearchStrategy[Any]:
    """Of a setting that is named."""
    low, high = row.type.low, row.type.high
    if row.type.choices:
        return st.sampled_from(row.type.choices)
    if row.type.kind is bool:
        return st.booleans()
    if row.type.kind is tuple:
        return st.lists(st.sampled_from(["a", "b.*", "c.>"]), min_size=1).map(tuple)
    if row.form.json == "origin":
        return st.sampled_from(MIRRORS)
    if row.form.json == "origins":
        return st.sampled_from(SOURCES)
    if row.form.json == "consumer_limits":
        return st.sampled_from(LIMITS)
    if row.name == "table_schema":
        return st.sampled_from(SCHEMAS)
    if row.type.kind is str:
        return st.sampled_from(["a", "x y", "> -> y.>", "a.* -> b.$1", "key"])
    assert low is not None and high is not None
    if row.type.kind is float:
        return st.floats(low, high)
    if row.is_limit:
        return st.one_of(st.just(-1), st.integers(1, int(min(high, 2**40))))
    return st.integers(int(low), int(min(high, 2**40)))


@st.composite
def configs(draw: st.DrawFn) -> StreamConfig:
    """Settings that others bear on are drawn by hand, all others as the table has them."""
    replicas = draw(st.integers(1, 5))
    subjects = draw(SUBJECTS)
    retention_ms = draw(st.one_of(st.just(-1), st.integers(100, 2**40)))
    window_max = 2**30 if retention_ms == -1 else retention_ms
    cleanup_policy = draw(st.sampled_from(["delete", "compact", "compact,delete"]))
    per_subject = draw(limit)
    discard = draw(st.sampled_from(["old", "new"] if cleanup_policy == "delete" else ["old"]))
    by_hand = {
        "subjects": subjects,
        "partitions": 1 if subjects == ("x.>",) else draw(st.integers(1, 9)),
        "replicas": replicas,
        "min_isr": draw(st.one_of(st.none(), st.integers(1, replicas + 2))),
        "inert_configs": draw(
            st.dictionaries(st.sampled_from(sorted(INERT_CONFIGS)), st.none(), max_size=3).map(
                lambda names: {name: INERT_CONFIGS[name].default for name in names}
            )
        ),
        "retention_ms": retention_ms,
        "duplicate_window_ms": draw(st.one_of(st.none(), st.integers(100, window_max))),
        "cleanup_policy": cleanup_policy,
        "min_compaction_lag_ms": draw(st.integers(0, 100)),
        "max_compaction_lag_ms": draw(st.one_of(st.just(-1), st.integers(100, 2**40))),
        "retention": draw(
            st.sampled_from(["limits", "interest", "workqueue"])
            if cleanup_policy == "delete"
            else st.just("limits")
        ),
        "discard": discard,
        "max_messages_per_subject": per_subject,
        "discard_new_per_subject": discard == "new" and per_subject > 0 and draw(st.booleans()),
        "allow_rollup": (allow_rollup := draw(st.booleans())),
        "deny_purge": not allow_rollup and draw(st.booleans()),
        "subject_transform": draw(st.sampled_from(["", "a.* -> b.{{wildcard(1)}}", "> -> x.>"])),
        "republish": draw(st.sampled_from(["", "> -> again.y.>", "a.* -> again.$1 headers-only"])),
        "partition_by": draw(st.sampled_from(["subject", "key", "tokens:1,2"])),
        "group": "",
        "placement_cluster": draw(st.sampled_from(["", "here"])),
        "description": draw(st.text(max_size=20)),
    }
    by_hand |= {"mirror": "", "sources": "", "mirror_direct": False}
    takes = draw(st.sampled_from(["nothing", "nothing", "mirror", "sources"]))
    if takes == "mirror":
        by_hand |= {
            "mirror": draw(st.sampled_from(MIRRORS)),
            "mirror_direct": draw(st.booleans()),
            "retention": "limits",
            "subjects": (),
            "subject_transform": "",
            "republish": "",
            "discard": "old",
            "discard_new_per_subject": False,
            "allow_atomic": False,
            "allow_batched": False,
            "allow_ttl": False,
            "first_sequence": 0,
        }
    elif takes == "sources":
        by_hand |= {
            "sources": draw(st.sampled_from(SOURCES)),
            "subjects": draw(st.sampled_from([(), subjects])),
            "partition_by": "key",
            "republish": "",
        }
    may_count = (
        (takes, cleanup_policy, discard) == ("nothing", "delete", "old")
        and by_hand["retention"] == "limits"
        and (by_hand["partition_by"] == "subject" or by_hand["partitions"] == 1)
    )
    by_hand["allow_counter"] = may_count and draw(st.booleans())
    if by_hand["allow_counter"]:
        by_hand["allow_ttl"] = False
    may_mark = (
        takes != "mirror"
        and cleanup_policy == "delete"
        and not by_hand["allow_counter"]
        and not by_hand["deny_purge"]
        and (by_hand["partition_by"] == "subject" or by_hand["partitions"] == 1)
    )
    marker_ttl = draw(st.one_of(st.just(-1), st.integers(1_000, 2**40))) if may_mark else -1
    by_hand["subject_delete_marker_ttl_ms"] = marker_ttl
    if marker_ttl != -1:
        by_hand |= {"allow_ttl": True, "allow_rollup": True}
    may_schedule = (
        (takes, cleanup_policy, discard) == ("nothing", "delete", "old")
        and by_hand["partitions"] == 1
        and by_hand["allow_rollup"]
        and not by_hand["allow_counter"]
    )
    by_hand["allow_schedules"] = may_schedule and draw(st.booleans())
    by_hand["storage"] = draw(st.sampled_from(["file", "memory"]))
    if by_hand["storage"] == "memory":
        by_hand["sync"] = draw(st.sampled_from([None, "os"]))
    may_be_async = by_hand["storage"] == "file" and draw(st.booleans())
    by_hand["persist_mode"] = "async" if may_be_async else "default"
    if may_be_async:
        by_hand |= {
            "replicas": 1,
            "min_isr": 1,
            "allow_atomic": False,
            "sync": draw(st.sampled_from([None, "os"])),
        }
    by_hand["tiered"] = False
    may_tier = (
        (takes, cleanup_policy, discard) == ("nothing", "delete", "old")
        and by_hand["retention"] == "limits"
        and by_hand["storage"] == "file"
    )
    if may_tier and draw(st.booleans()):
        by_hand |= {
            "tiered": True,
            "max_messages_per_subject": -1,
            "discard_new_per_subject": False,
            "allow_ttl": False,
            "allow_rollup": False,
            "allow_counter": False,
            "allow_schedules": False,
            "subject_delete_marker_ttl_ms": -1,
            "retention_bytes": -1,
            "retention_messages": -1,
        }
        local_max = retention_ms if retention_ms != -1 else 2**40
        by_hand["local_retention_ms"] = draw(st.one_of(st.just(-2), st.integers(0, local_max)))
    others = {
        row.name: draw(st.one_of(st.just(row.default), values_of(row)))
        for row in SETTINGS
        if row.name not in by_hand
    }
    return StreamConfig.of(
        name="s",
        metadata=draw(
            st.dictionaries(st.sampled_from(["team", "k.v"]), st.text(max_size=5), max_size=2)
        ),
        **by_hand,
        **others,
    )


@settings(max_examples=100, deadline=None)
@given(configs())
def test_jetstream_round_trip(config: StreamConfig) -> None:
    fields = json.loads(json.dumps(to_jetstream(config)))
    assert StreamConfig.of(**from_jetstream(fields)) == config


@settings(max_examples=100, deadline=None)
@given(configs())
def test_what_a_client_reads_it_can_send_back(config: StreamConfig) -> None:
    """By the types of JetStream's fields, and by its rules."""
    fields = json.loads(json.dumps(config_to_json(config)))
    assert config_from_json(normalised(STREAM_CONFIG.read(fields))) == config


@settings(max_examples=100, deadline=None)
@given(configs())
def test_topic_configs_round_trip(config: StreamConfig) -> None:
    kept = {"name", "partitions", "replicas", "metadata"}
    beside = {key: getattr(config, key) for key in kept}
    assert StreamConfig.of(**beside, **from_topic_configs(to_topic_configs(config))) == config


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
