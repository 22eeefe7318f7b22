from typing import Any

import pytest

from streamlog.errors import InvalidStreamConfig, InvalidStreamName, InvalidSubject
from streamlog.metadata.stream.settings_translation import level_of
from streamlog.metadata.stream.stream_config import (
    ACTIVITY_STREAM,
    OFFSETS_STREAM,
    StreamConfig,
    check_collision,
    check_writable_by_clients,
    is_hidden,
    is_internal,
)


def test_defaults_are_filled_in() -> None:
    config = StreamConfig.of(name="orders")
    assert config.subjects == ("orders",)
    assert config.duplicate_window_ms == 120_000
    assert config == StreamConfig.of(
        name="orders", subjects=["orders"], duplicate_window_ms=120_000
    )


def test_duplicate_window_is_not_longer_than_the_retention() -> None:
    assert StreamConfig.of(name="s", retention_ms=5_000).duplicate_window_ms == 5_000
    with pytest.raises(InvalidStreamConfig, match="duplicate_window_ms"):
        StreamConfig.of(name="s", retention_ms=5_000, duplicate_window_ms=6_000)


@pytest.mark.parametrize(("replicas", "min_isr"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_in_sync_is_asked_for(replicas: int, min_isr: int) -> None:
    assert StreamConfig.of(name="s", replicas=replicas).min_isr == min_isr


def test_a_default_follows_the_replicas_and_a_choice_does_not() -> None:
    config = StreamConfig.of(name="s", replicas=3)
    assert config.changed(replicas=5).min_isr == 3
    assert config.changed(replicas=1).min_isr == 1
    chosen = StreamConfig.of(name="s", replicas=3, min_isr=1)
    assert chosen.changed(replicas=5).min_isr == 1
    assert StreamConfig.of(name="s", replicas=3, min_isr=3).changed(replicas=2).min_isr == 3


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("mm2-offsets.B.internal", "mm2-offsets.B.internal"),
        ("a..b", "a__b"),
        (".a", "_a"),
        ("a.", "a_"),
        ("...", "___"),
        ("_INBOX.a", "_INBOX_a"),
        ("a_b", "a_b"),
        ("a" * 124 + "." + "b" * 124, "a" * 124 + "." + "b" * 124),
    ],
)
def test_names_of_topics(name: str, subject: str) -> None:
    assert StreamConfig.of(name=name).subjects == (subject,)
    assert level_of(StreamConfig.of(name=name)) == (3 if "." in name else 1)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"retention": "workqueue"}, "retention: workqueue is not for a stream with a dot"),
        ({"mirror": '{"name":"o"}'}, "mirror: not for a stream with a dot"),
        ({"sources": '[{"name":"o"}]'}, "sources: not for a stream with a dot"),
    ],
)
def test_what_goes_by_jetstreams_names_is_not_for_names_with_dots(settings: Any, told: str) -> None:
    assert StreamConfig.of(name="a-b", **settings)
    with pytest.raises(InvalidStreamConfig, match=told):
        StreamConfig.of(name="a.b", **settings)


@pytest.mark.parametrize(
    ("name", "other", "collides"),
    [
        ("a.b", "a_b", True),
        ("a_b", "a.b", True),
        ("a..", "a._", True),
        ("a.b", "a.b", False),
        ("a.b", "a-b", False),
        ("a.b", "a_bc", False),
        ("ab", "a_b", False),
    ],
)
def test_names_that_kafka_cannot_tell_apart(name: str, other: str, collides: bool) -> None:
    if not collides:
        check_collision(name, ["x", other])
        return
    with pytest.raises(InvalidStreamName, match=f"collides with existing topic: '{other}'"):
        check_collision(name, ["x", other])


@pytest.mark.parametrize("name", ["", ".", "a b", "a/b", "..", "__x", "ä", "a" * 250, "a\n", "*"])
def test_bad_names(name: str) -> None:
    with pytest.raises(InvalidStreamName):
        StreamConfig.of(name=name, subjects=("x",))


@pytest.mark.parametrize(
    "settings",
    [
        {"partitions": 0},
        {"partitions": 2.5},
        {"replicas": 6},
        {"retention_bytes": 0},
        {"retention_messages": -2},
        {"retention_ms": 99},
        {"message_bytes_max": 0},
        {"duplicate_window_ms": 1},
        {"compression": "s2"},
        {"sync": "never"},
        {"segment_bytes": 10},
        {"acks": "some"},
        {"cleanup_policy": "tidy"},
        {"cleanup_policy": "compact,tidy"},
        {"cleanup_policy": ""},
        {"delete_retention_ms": -1},
        {"min_compaction_lag_ms": -1},
        {"max_compaction_lag_ms": 0},
        {"max_compaction_lag_ms": 99, "min_compaction_lag_ms": 100},
        {"min_cleanable_dirty_ratio": 1.1},
        {"min_cleanable_dirty_ratio": float("nan")},
        {"discard": "newest"},
        {"no_ack": "perhaps"},
        {"description": "x" * 5000},
        {"metadata": {"k": "x" * 200_000}},
        {"metadata": {"k": 1}},
        {"unheard_of": 1},
    ],
)
def test_bad_settings_name_their_key(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidStreamConfig, match=next(iter(settings))) as raised:
        StreamConfig.of(name="s", **settings)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("given", ["compact,delete", "delete,compact", " delete , compact"])
def test_cleanup_policies_come_in_any_order(given: str) -> None:
    config = StreamConfig.of(name="s", cleanup_policy=given)
    assert config.cleanup_policy == "compact,delete"
    assert config.is_compacted
    assert config.is_retained


def test_either_cleanup_policy_alone() -> None:
    compacted = StreamConfig.of(name="s", cleanup_policy="compact")
    assert (compacted.is_compacted, compacted.is_retained) == (True, False)
    assert not StreamConfig.of(name="s").is_compacted


def test_subjects_are_checked() -> None:
    with pytest.raises(InvalidSubject):
        StreamConfig.of(name="s", subjects=("a..b",))


def test_the_name_must_be_there_and_a_text() -> None:
    with pytest.raises(InvalidStreamConfig, match="name"):
        StreamConfig.of()
    with pytest.raises(InvalidStreamConfig, match="name"):
        StreamConfig.of(name=7)


def test_changed_checks_too() -> None:
    config = StreamConfig.of(name="s", metadata={"owner": "me"})
    assert config.changed(retention_ms=1_000_000).retention_ms == 1_000_000
    with pytest.raises(InvalidStreamConfig):
        config.changed(retention_ms=3)


def test_json_round_trip() -> None:
    config = StreamConfig.of(name="s", subjects=("a.*", "b.>"), sync="os", compression="zstd")
    assert StreamConfig.model_validate_json(config.model_dump_json()) == config


def test_an_internal_stream_has_no_subjects_and_is_kept_whole() -> None:
    config = StreamConfig.of(name=OFFSETS_STREAM, replicas=3)
    assert config.subjects == ()
    assert config.changed(replicas=1).subjects == ()
    for wrong in ({"subjects": ["a"]}, {"retention_ms": 1_000}, {"retention_bytes": 1}):
        with pytest.raises(InvalidStreamConfig, match=next(iter(wrong))):
            StreamConfig.of(name=OFFSETS_STREAM, **wrong)
    with pytest.raises(InvalidStreamName):
        StreamConfig.of(name="__other")
    assert (is_internal(OFFSETS_STREAM), is_internal("__other")) == (True, False)
    with pytest.raises(InvalidStreamName, match="internal"):
        check_writable_by_clients(OFFSETS_STREAM)
    check_writable_by_clients("orders")


def test_activity_may_be_looked_at_and_goes_in_time() -> None:
    config = StreamConfig.of(name=ACTIVITY_STREAM, retention_ms=60_000)
    assert (config.subjects, config.is_retained) == ((), True)
    for wrong in ({"subjects": ["a"]}, {"cleanup_policy": "compact"}):
        with pytest.raises(InvalidStreamConfig, match=next(iter(wrong))):
            StreamConfig.of(name=ACTIVITY_STREAM, **wrong)
    with pytest.raises(InvalidStreamName, match="internal"):
        check_writable_by_clients(ACTIVITY_STREAM)
    assert (is_hidden(ACTIVITY_STREAM), is_hidden(OFFSETS_STREAM)) == (False, True)


@pytest.mark.parametrize(
    "republish",
    [
        "x",
        "orders.> -> orders.copy.>",
        "> -> >",
        "orders.* -> orders.$1",
        "a -> $JS.API.x",
        "> -> a",
    ],
)
def test_what_cannot_be_republished_is_refused(republish: str) -> None:
    with pytest.raises(InvalidStreamConfig, match="republish"):
        StreamConfig.of(name="s", subjects=("orders.>",), republish=republish)


@pytest.mark.parametrize(
    "republish", ["orders -> orders.1", "orders -> orders.2", "orders.* -> orders.$1"]
)
def test_nor_to_another_partition(republish: str) -> None:
    """Partition i listens to ``orders.i``: a message would be stored there again and again."""
    with pytest.raises(InvalidStreamConfig, match="cycle"):
        StreamConfig.of(name="s", subjects=("orders",), partitions=3, republish=republish)
    for other in ("orders -> orders.3", "orders -> orders.seen", "orders -> orders.1.x"):
        StreamConfig.of(name="s", subjects=("orders",), partitions=3, republish=other)
