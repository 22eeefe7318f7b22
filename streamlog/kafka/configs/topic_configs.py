"""A stream's settings as topic configs: what each is for, and who has said what it is."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from streamlog.config import LogSection
from streamlog.kafka.configs.config_entry import ConfigEntry, ConfigKind, ConfigSource, Synonym
from streamlog.metadata.stream.alteration import defaults_of
from streamlog.metadata.stream.config import NO_LIMIT, StreamConfig
from streamlog.metadata.stream.settings_table import SETTINGS, Setting


class TopicConfig(NamedTuple):
    """What there is to say about a row of ``settings_table``."""

    kind: ConfigKind
    documentation: str
    node_setting: str | None = None
    """Of ``[log]``, which holds where the stream says nothing."""
    node_key: str = ""
    """What Kafka calls that."""


TOPIC_CONFIGS: Final[dict[str, TopicConfig]] = {
    "subjects": TopicConfig(
        ConfigKind.LIST,
        "The NATS subjects that are stored, separated by commas; wildcards are allowed."
        " Partition 0 takes the subject itself, partition i takes <subject>.<i>, unless"
        " streamlog.partition_by says otherwise.",
    ),
    "partition_by": TopicConfig(
        ConfigKind.STRING,
        "Which partition a NATS message goes to: subject (partition i takes <subject>.<i>), key (by"
        " the hash of its Streamlog-Key, as Kafka's default partitioner does; without one by that"
        " of its subject), or tokens:N,M (by the hash of these tokens of its subject; the first is"
        " 1).",
    ),
    "group": TopicConfig(
        ConfigKind.STRING,
        "Streams of one group share the messages of a subject: the name of a NATS queue group.",
    ),
    "retention_bytes": TopicConfig(
        ConfigKind.LONG, "Bytes that each partition keeps; whole segments go. -1: no limit."
    ),
    "retention_messages": TopicConfig(
        ConfigKind.LONG, "Records that each partition keeps; whole segments go. -1: no limit."
    ),
    "retention_ms": TopicConfig(
        ConfigKind.LONG, "How long records are kept; whole segments go. At least 100. -1: no limit."
    ),
    "message_bytes_max": TopicConfig(
        ConfigKind.INT,
        "The largest message that is stored; -1: as the node is set.",
        "message_bytes_max",
        "message.max.bytes",
    ),
    "duplicate_window_ms": TopicConfig(
        ConfigKind.LONG,
        "How long a Nats-Msg-Id is known, so that the same message again is stored once."
        " At least 100, and never longer than retention.ms, which it becomes shorter with.",
    ),
    "compression": TopicConfig(
        ConfigKind.STRING, "How batches are compressed on disk: none, gzip, snappy, lz4 or zstd."
    ),
    "sync": TopicConfig(
        ConfigKind.STRING,
        "When records are synced to the disk: commit (before the ack), interval, or os.",
        "sync",
        "streamlog.sync",
    ),
    "segment_bytes": TopicConfig(
        ConfigKind.INT, "The size at which a segment ends.", "segment_bytes", "log.segment.bytes"
    ),
    "segment_age_ms": TopicConfig(
        ConfigKind.LONG, "The age at which a segment ends.", "segment_age_ms", "log.roll.ms"
    ),
    "index_interval_bytes": TopicConfig(
        ConfigKind.INT,
        "Bytes between two entries of a segment's indexes.",
        "index_interval_bytes",
        "log.index.interval.bytes",
    ),
    "auto_pause_ms": TopicConfig(
        ConfigKind.LONG,
        "How long nobody writes to a partition before its files are closed; 0: never.",
        "idle_close_ms",
        "streamlog.auto_pause_ms",
    ),
    "min_isr": TopicConfig(
        ConfigKind.INT,
        "Replicas that must be in sync for a write with acks=all; below that it is refused."
        " Default: a majority of the replicas.",
    ),
    "unclean_election": TopicConfig(
        ConfigKind.BOOLEAN,
        "Have a replica that lacks committed records lead where no other is alive: they are lost.",
    ),
    "acks": TopicConfig(
        ConfigKind.STRING, "When a message is acknowledged to its publisher: all, leader or none."
    ),
    "timestamp_type": TopicConfig(
        ConfigKind.STRING,
        "Which time records of Kafka producers have: CreateTime (the producer's) or LogAppendTime"
        " (the leader's, as those from NATS have).",
    ),
    "cleanup_policy": TopicConfig(
        ConfigKind.LIST,
        "What happens to old records: delete (the retention limits hold), compact (the last record"
        " of each key is kept, and every record must have a key), or both.",
    ),
    "delete_retention_ms": TopicConfig(
        ConfigKind.LONG,
        "How long a tombstone, a record without a value, stays once compaction has passed it.",
    ),
    "min_compaction_lag_ms": TopicConfig(
        ConfigKind.LONG,
        "How long a record is safe from compaction; at least as long as the duplicate window.",
    ),
    "max_compaction_lag_ms": TopicConfig(
        ConfigKind.LONG,
        "The age at which records are compacted, however few they are. -1: no limit.",
    ),
    "min_cleanable_dirty_ratio": TopicConfig(
        ConfigKind.DOUBLE,
        "The share of the log that has not been compacted, from which on it is: 0 to 1.",
    ),
    "discard": TopicConfig(
        ConfigKind.STRING,
        "Which records give way at a limit on bytes or messages: old ones, or new ones, which are"
        " refused.",
    ),
    "discard_new_per_subject": TopicConfig(
        ConfigKind.BOOLEAN, "Refuse new messages of a subject that has as many as it may."
    ),
    "max_messages_per_subject": TopicConfig(
        ConfigKind.LONG,
        "How many messages of each subject a partition keeps: the newest. -1: all of them.",
    ),
    "no_ack": TopicConfig(
        ConfigKind.BOOLEAN,
        "Never acknowledge, although the publisher asks for it with a reply subject.",
    ),
    "subject_transform": TopicConfig(
        ConfigKind.STRING, "SRC -> DEST: the subjects under which messages are stored."
    ),
    "republish": TopicConfig(
        ConfigKind.STRING,
        "SRC -> DEST: where messages are published again once they are committed; with"
        " ' headers-only' behind it their headers alone.",
    ),
    "sealed": TopicConfig(
        ConfigKind.BOOLEAN, "No record comes or goes any more. A stream that is sealed stays so."
    ),
    "deny_purge": TopicConfig(
        ConfigKind.BOOLEAN, "Refuse purges over NATS. A stream that refuses them goes on to."
    ),
    "deny_delete": TopicConfig(
        ConfigKind.BOOLEAN,
        "Refuse to erase single messages over NATS. A stream that refuses it goes on to.",
    ),
    "allow_direct": TopicConfig(
        ConfigKind.BOOLEAN,
        "Let replicas in sync answer direct gets over NATS, not the leader alone.",
    ),
    "placement_cluster": TopicConfig(
        ConfigKind.STRING, "The cluster that the stream has to be in; empty: whichever this is."
    ),
    "readonly": TopicConfig(ConfigKind.BOOLEAN, "Take no records."),
    "paused": TopicConfig(ConfigKind.BOOLEAN, "Take no records for now."),
    "allow_atomic": TopicConfig(
        ConfigKind.BOOLEAN, "Let NATS publishers store batches of messages together or not at all."
    ),
    "allow_ttl": TopicConfig(
        ConfigKind.BOOLEAN, "Let NATS publishers say of a message how long it stays."
    ),
    "allow_rollup": TopicConfig(
        ConfigKind.BOOLEAN,
        "Let NATS publishers send messages that take the place of those before them.",
    ),
    "encrypted": TopicConfig(
        ConfigKind.BOOLEAN,
        "Have what is stored from now on encrypted on the disk, by the nodes' key.",
    ),
    "description": TopicConfig(ConfigKind.STRING, "A text about the stream."),
}
"""By the setting's name; one for each that has a topic config."""


def shown_topic_configs(config: StreamConfig, node: LogSection) -> Iterator[ConfigEntry]:
    """All of them. A setting counts as the stream's own where it is not the default."""
    defaults = defaults_of(config).model_copy(update={"retention_ms": NO_LIMIT})
    for row in SETTINGS:
        if row.kafka is not None:
            about = TOPIC_CONFIGS[row.name]
            own, default = getattr(config, row.name), getattr(defaults, row.name)
            synonyms = tuple(_synonyms(row, about, own, default, node))
            yield ConfigEntry(row.kafka, about.kind, about.documentation, synonyms, read_only=False)


def _synonyms(
    row: Setting, about: TopicConfig, own: Any, default: Any, node: LogSection
) -> Iterator[Synonym]:
    key = row.kafka or row.key
    if own != default:
        yield Synonym(key, row.to_text(own), ConfigSource.TOPIC)
    if about.node_setting is None:
        yield Synonym(key, row.to_text(default), ConfigSource.DEFAULT)
        return
    set_to = getattr(node, about.node_setting)
    unset = LogSection.model_fields[about.node_setting].default
    if set_to != unset:
        yield Synonym(about.node_key, row.to_text(set_to), ConfigSource.NODE)
    yield Synonym(about.node_key, row.to_text(unset), ConfigSource.DEFAULT)
