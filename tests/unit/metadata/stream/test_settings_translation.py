import ast
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

import streamlog
from streamlog.config import LogSection
from streamlog.errors import InvalidRequest, InvalidStreamConfig
from streamlog.metadata.image.feature_level import check_writable
from streamlog.metadata.image.records import StreamUpdated
from streamlog.metadata.stream import settings_translation
from streamlog.metadata.stream.inert_configs import INERT_CONFIGS
from streamlog.metadata.stream.settings_translation import (
    SETTINGS,
    TOPIC_CONFIGS,
    from_jetstream,
    from_topic_configs,
    level_of,
    to_jetstream,
    to_topic_configs,
    topic_config,
)
from streamlog.metadata.stream.stream_config import StreamConfig
from tests.unit.schemas import whole_numbers

INT64_MAX = 2**63 - 1
KEPT = Path(__file__).parents[3] / "kept"
LISTED_MAX = 20
"""Settings that one module may name: those that it is about. It is less than half of them."""


NUMBERS = whole_numbers(StreamConfig.model_json_schema())


def test_every_setting_is_in_the_table() -> None:
    assert {row.name for row in SETTINGS} == set(StreamConfig.model_fields) - {
        "name", "metadata", "inert_configs",
    }  # fmt: skip


def test_names_are_unique() -> None:
    for names in (
        [row.jetstream for row in SETTINGS],
        [row.kafka for row in SETTINGS],
        [option for row in SETTINGS for option in (row.option or "").split("/") if option],
    ):
        known = [name for name in names if name is not None]
        assert len(known) == len(set(known))


def test_every_setting_says_what_it_means() -> None:
    for row in SETTINGS:
        told = row.told(TOPIC_CONFIGS)
        assert told.endswith(".") and "{" not in told and "  " not in told, told
        assert "`" not in told, "it is shown as plain text"
        nodes = row.about.node_setting
        assert nodes is None or nodes in LogSection.model_fields
        assert (row.type.is_optional or row.name == "message_bytes_max") == (nodes is not None)


def test_every_range_has_two_ends() -> None:
    for row in SETTINGS:
        if row.type.kind in (int, float):
            assert row.range_text, row.name


def test_nothing_else_lists_the_settings() -> None:
    """Whatever needs them all reads the table: a list of its own would miss the next one."""
    package = Path(streamlog.__file__).parent
    known = {
        name
        for row in SETTINGS
        for name in (row.name, row.kafka, row.jetstream, row.option)
        if name is not None and not name.isalpha()
    }
    for path in package.rglob("*.py"):
        if path.name == "stream_config.py" and path.parent.name == "stream":
            continue
        found = {
            word
            for node in ast.walk(ast.parse(path.read_text()))
            for word in (
                [node.value] if isinstance(node, ast.Constant) else
                [node.arg] if isinstance(node, ast.keyword) else []
            )
            if word in known
        }  # fmt: skip
        assert len(found) < LISTED_MAX, f"{path} lists {sorted(found)}"


def test_a_setting_of_a_later_level_is_left_out_at_its_default() -> None:
    """Nodes of an older version read what is written before the level is raised."""
    for row in SETTINGS:
        if row.about.level > 1:
            exclude_if = StreamConfig.model_fields[row.name].exclude_if
            assert exclude_if is not None and exclude_if(row.default), row.name


def test_a_setting_that_the_first_release_did_not_have_is_of_a_later_level() -> None:
    """Its nodes refuse a record with a field that they do not know."""
    known = (KEPT / "0.1.0" / "stream_settings.txt").read_text().split()
    assert {row.name for row in SETTINGS if row.about.level == 1} == set(known)
    assert StreamConfig.of(name="s").model_dump().keys() <= {"name", "metadata", *known}


def test_the_level_of_a_configuration_is_the_highest_of_what_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    later = [
        row._replace(about=replace(row.about, level=3)) if row.name == "no_ack" else row
        for row in SETTINGS
    ]
    monkeypatch.setattr(settings_translation, "SETTINGS", later)
    assert level_of(StreamConfig.of(name="s", acks="leader")) == 1
    config = StreamConfig.of(name="s", no_ack=True)
    assert level_of(config) == 3
    check_writable([StreamUpdated(config=config)], 3)
    with pytest.raises(InvalidRequest, match="needs feature level 3, and the cluster is at 2"):
        check_writable([StreamUpdated(config=config)], 2)


def test_what_stock_nats_clients_send_for_a_bare_stream() -> None:
    fields = {
        "name": "orders",
        "subjects": ["orders.>"],
        "max_age": 0,
        "max_bytes": -1,
        "max_msgs": -1,
        "max_msg_size": -1,
        "num_replicas": 0,
        "duplicate_window": 0,
        "discard": "old",
        "no_ack": False,
        "compression": "none",
        "metadata": None,
        "storage": "file",
    }
    config = StreamConfig.of(**from_jetstream(fields))
    assert config == StreamConfig.of(name="orders", subjects=("orders.>",))


def test_durations_are_nanoseconds_in_jetstream() -> None:
    config = StreamConfig.of(**from_jetstream({"name": "s", "max_age": 3_600 * 10**9}))
    assert config.retention_ms == 3_600_000
    assert to_jetstream(config)["max_age"] == 3_600 * 10**9
    assert to_jetstream(StreamConfig.of(name="s"))["max_age"] == 0


def test_what_only_streamlog_has_travels_in_metadata() -> None:
    metadata = {"streamlog.partitions": "3", "streamlog.sync": "os", "team": "blue"}
    config = StreamConfig.of(**from_jetstream({"name": "s", "metadata": metadata}))
    assert (config.partitions, config.sync, config.metadata) == (3, "os", {"team": "blue"})
    assert to_jetstream(config)["metadata"] == metadata


def test_defaults_leave_no_trace_in_metadata() -> None:
    assert to_jetstream(StreamConfig.of(name="s"))["metadata"] == {}


def test_the_default_of_min_isr_leaves_no_trace_so_that_replicas_can_be_edited() -> None:
    fields = to_jetstream(StreamConfig.of(name="s", replicas=3))
    assert fields["metadata"] == {}
    edited = StreamConfig.of(**from_jetstream({**fields, "num_replicas": 1}))
    assert edited.min_isr == 1
    chosen = to_jetstream(StreamConfig.of(name="s", replicas=3, min_isr=1))
    assert chosen["metadata"] == {"streamlog.min_isr": "1"}


def test_unclean_elections_are_chosen_under_kafkas_name() -> None:
    config = StreamConfig.of(
        name="s", **from_topic_configs({"unclean.leader.election.enable": "true"})
    )
    assert config.unclean_election
    assert to_topic_configs(config)["unclean.leader.election.enable"] == "true"
    assert to_jetstream(config)["metadata"] == {"streamlog.unclean_election": "true"}


def test_a_codec_jetstream_does_not_know_survives_an_edit() -> None:
    config = StreamConfig.of(name="s", compression="zstd")
    fields = to_jetstream(config)
    assert fields["compression"] == "s2"
    assert fields["metadata"] == {"streamlog.compression": "zstd"}
    again = StreamConfig.of(**from_jetstream({**fields, "description": "edited"}))
    assert again == config.changed(description="edited")
    snappy = StreamConfig.of(**from_jetstream({"name": "s", "compression": "s2"}))
    assert snappy.compression == "snappy"
    assert to_jetstream(snappy)["metadata"] == {}


@pytest.mark.parametrize(
    "metadata",
    [
        {"streamlog.unheard_of": "1"},
        {"streamlog.partitions": "many"},
        {"streamlog.partitions": 3},
        {"streamlog.retention_ms": "5"},
        ["streamlog.partitions"],
    ],
)
def test_bad_metadata_is_refused(metadata: Any) -> None:
    with pytest.raises(InvalidStreamConfig):
        from_jetstream({"name": "s", "metadata": metadata})


def test_topic_configs() -> None:
    configs = {
        "retention.ms": "60000",
        "segment.bytes": "1048576",
        "cleanup.policy": "delete",
        "subject": "a.b, c.*",
        "streamlog.no_ack": "true",
        "min.cleanable.dirty.ratio": "0.25",
        "max.compaction.lag.ms": str(2**63 - 1),
        "compression.type": None,
    }
    config = StreamConfig.of(name="s", **from_topic_configs(configs))
    assert config.retention_ms == 60_000
    assert config.segment_bytes == 1_048_576
    assert config.subjects == ("a.b", "c.*")
    assert config.no_ack
    assert config.min_cleanable_dirty_ratio == 0.25
    assert config.max_compaction_lag_ms == 2**63 - 1


KAFKAS: Final = """
cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level
delete.retention.ms file.delete.delay.ms flush.messages flush.ms follower.replication.throttled.replicas
index.interval.bytes leader.replication.throttled.replicas local.retention.bytes local.retention.ms
max.compaction.lag.ms max.message.bytes message.timestamp.after.max.ms message.timestamp.before.max.ms
message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms min.insync.replicas preallocate
remote.log.copy.disable remote.log.delete.on.disable remote.storage.enable retention.bytes retention.ms
segment.bytes segment.index.bytes segment.jitter.ms segment.ms unclean.leader.election.enable
"""
"""What kafka-configs.sh of Kafka 4.2 lists for topics."""


def test_every_topic_config_of_kafka_is_known() -> None:
    own = {row.kafka for row in SETTINGS if row.kafka and not row.kafka.startswith("streamlog.")}
    assert (own - {"subject"}) | set(INERT_CONFIGS) == set(KAFKAS.split())
    assert not own & set(INERT_CONFIGS)
    for name, row in INERT_CONFIGS.items():
        assert topic_config(name) is row
        assert row.check(row.default) == row.default


def test_what_has_no_effect_is_kept_and_not_written_before_its_level() -> None:
    given = {
        "flush.ms": " 5 ",
        "preallocate": "TRUE",
        "leader.replication.throttled.replicas": "0:1,1:2",
    }
    config = StreamConfig.of(name="s", **from_topic_configs(given))
    kept = {
        "flush.ms": "5",
        "leader.replication.throttled.replicas": "0:1,1:2",
        "preallocate": "true",
    }
    assert config.inert_configs == kept
    assert level_of(config) == 3
    assert {key: to_topic_configs(config)[key] for key in kept} == kept
    told = to_jetstream(config)["metadata"]
    assert told == {f"streamlog.kafka.{key}": value for key, value in kept.items()}
    assert StreamConfig.of(**from_jetstream(to_jetstream(config))) == config
    assert "inert_configs" not in StreamConfig.of(name="s").model_dump()
    with pytest.raises(InvalidStreamConfig, match="is none of"):
        StreamConfig.of(name="s", inert_configs={"no.such": "1"})


@pytest.mark.parametrize(
    ("text", "kept", "level"),
    [
        ("producer", "none", 1),
        ("none", "none", 1),
        ("uncompressed", "uncompressed", 3),
        ("lz4", "lz4", 1),
    ],
)
def test_kafkas_names_of_codecs(text: str, kept: str, level: int) -> None:
    config = StreamConfig.of(name="s", **from_topic_configs({"compression.type": text}))
    assert (config.compression, level_of(config)) == (kept, level)
    assert to_topic_configs(config)["compression.type"] == ("producer" if kept == "none" else kept)
    assert StreamConfig.of(**from_jetstream(to_jetstream(config))) == config


def test_a_min_isr_above_the_replicas_is_not_written_before_its_level() -> None:
    assert level_of(StreamConfig.of(name="s", replicas=3, min_isr=3)) == 1
    assert level_of(StreamConfig.of(name="s", replicas=3, min_isr=4)) == 3


@pytest.mark.parametrize(
    "configs", [{"unheard.of": "1"}, {"retention.ms": "soon"}, {"streamlog.no_ack": "perhaps"}]
)
def test_bad_topic_configs_name_their_key(configs: dict[str, str | None]) -> None:
    with pytest.raises(InvalidStreamConfig, match=next(iter(configs))):
        from_topic_configs(configs)


def test_topic_configs_leave_out_what_the_node_decides() -> None:
    told = to_topic_configs(StreamConfig.of(name="s"))
    assert "segment.bytes" not in told
    assert told["retention.ms"] == "-1"
    assert told["subject"] == "s"


def test_every_number_has_an_upper_bound_that_fits_64_bits() -> None:
    """So that clients whose numbers have no more can read each stream, and the list of all."""
    assert len(NUMBERS) > 15
    for name, bounds in NUMBERS.items():
        assert bounds.get("maximum", INT64_MAX + 1) <= INT64_MAX, name


@pytest.mark.parametrize("name", NUMBERS)
def test_the_largest_numbers_can_be_read_by_stock_nats_clients(name: str) -> None:
    fit = {"replicas": 5} if name == "min_isr" else {}
    largest = NUMBERS[name].get("maximum", INT64_MAX)
    config = StreamConfig.of(name="s", **{**fit, name: largest})
    fields = to_jetstream(config)
    assert max(it for it in fields.values() if isinstance(it, int)) <= INT64_MAX
    assert StreamConfig.of(**from_jetstream(fields)).partitions == config.partitions


def test_a_stream_in_memory_waits_for_no_disk() -> None:
    config = StreamConfig.of(**from_jetstream({"name": "s", "storage": "memory"}))
    assert config.sync_by("commit") == "os"
    assert to_jetstream(config)["storage"] == "memory"
    assert StreamConfig.of(name="s").sync_by("commit") == "commit"
    assert StreamConfig.of(name="s", sync="interval").sync_by("commit") == "interval"
    with pytest.raises(InvalidStreamConfig, match="sync: commit is not for a stream in memory"):
        StreamConfig.of(name="s", storage="memory", sync="commit")
    with pytest.raises(InvalidStreamConfig, match="storage"):
        StreamConfig.of(name="__consumer_offsets", storage="memory")


def test_acks_of_an_async_stream_wait_for_no_disk() -> None:
    config = StreamConfig.of(**from_jetstream({"name": "s", "persist_mode": "async"}))
    assert config.sync_by("commit") == "os"
    assert to_jetstream(config)["persist_mode"] == "async"
    assert "persist_mode" not in StreamConfig.of(name="s").model_dump()
    for wrong, told in (
        ({"replicas": 3}, "not supported on replicated streams"),
        ({"storage": "memory"}, "only supported on file storage"),
        ({"allow_atomic": True}, "not supported with atomic batch publish"),
        ({"sync": "commit"}, "not supported with sync commit"),
        ({"name": "__consumer_offsets"}, "internal stream"),
    ):
        with pytest.raises(InvalidStreamConfig, match=told):
            StreamConfig.of(**{"name": "s", "persist_mode": "async", **wrong})
