"""Configs of topics and nodes as DescribeConfigs shows them."""

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from streamlog.config import LogSection, Settings
from streamlog.metadata.stream.alteration import defaults_of
from streamlog.metadata.stream.config import NO_LIMIT, StreamConfig
from streamlog.metadata.stream.settings_table import SETTINGS, Setting


class ConfigSource(IntEnum):
    """Who has said so; see KIP-226."""

    TOPIC = 1
    NODE = 4
    """The node's settings: its file or its environment."""
    DEFAULT = 5


class ConfigKind(IntEnum):
    """What the text of a value stands for; see KIP-569."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Synonym(NamedTuple):
    """What is in force where none before it in a list of these says anything."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """The first of ``synonyms`` is in force."""

    name: str
    kind: ConfigKind
    documentation: str
    synonyms: tuple[Synonym, ...]
    read_only: bool

    def told(self, *, synonyms: bool, documentation: bool) -> dict[str, Any]:
        """The fields of the answer. Nothing that is secret has a topic config or Kafka's name."""
        in_force = self.synonyms[0]
        return {
            "name": self.name,
            "value": in_force.value,
            "read_only": self.read_only,
            "config_source": in_force.source,
            "is_sensitive": False,
            "synonyms": [it._asdict() for it in self.synonyms] if synonyms else [],
            "config_type": self.kind,
            "documentation": self.documentation if documentation else None,
        }


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
        "Time without writes to a partition after which its files are closed; 0: never.",
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
            synonyms = tuple(_topic_config_synonyms(row, about, own, default, node))
            yield ConfigEntry(row.kafka, about.kind, about.documentation, synonyms, read_only=False)


def _topic_config_synonyms(
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


class NodeConfig(NamedTuple):
    """``key`` of the table ``section`` under Kafka's name for it."""

    name: str
    section: str
    key: str
    kind: ConfigKind
    documentation: str


_NODE_CONFIGS: Final = (
    NodeConfig("broker.id", "node", "id", ConfigKind.INT, "The node's number."),
    NodeConfig("node.id", "node", "id", ConfigKind.INT, "The node's number."),
    NodeConfig("broker.rack", "node", "rack", ConfigKind.STRING, "Replicas go to different racks."),
    NodeConfig("log.dirs", "node", "data_dir", ConfigKind.STRING, "Where everything is kept."),
    NodeConfig("max.connections", "kafka", "connections_max", ConfigKind.INT, "Of clients, at once."),
    NodeConfig(
        "max.connections.per.ip", "kafka", "connections_per_address_max", ConfigKind.INT,
        "Of clients that come from one address, at once.",
    ),
    NodeConfig(
        "socket.request.max.bytes", "kafka", "request_bytes_max", ConfigKind.INT, "The largest request."
    ),
    NodeConfig("fetch.max.bytes", "kafka", "fetch_bytes_max", ConfigKind.INT, "The largest answer."),
    NodeConfig(
        "connections.max.idle.ms", "kafka", "idle_timeout_ms", ConfigKind.LONG,
        "A connection that is silent for so long is closed.",
    ),
    NodeConfig(
        "controller.quorum.voters", "cluster", "voters", ConfigKind.LIST,
        "Who votes in the metadata quorum at the first start.",
    ),
    NodeConfig(
        "controller.quorum.election.timeout.ms", "cluster", "election_timeout_ms", ConfigKind.INT,
        "A voter that does not hear of a quorum leader for so long stands for election.",
    ),
    NodeConfig(
        "controller.quorum.request.timeout.ms", "cluster", "request_timeout_ms", ConfigKind.INT,
        "How long a request between nodes may take.",
    ),
    NodeConfig(
        "broker.heartbeat.interval.ms", "cluster", "heartbeat_interval_ms", ConfigKind.INT,
        "How often the controller hears of this node.",
    ),
    NodeConfig(
        "broker.session.timeout.ms", "cluster", "session_timeout_ms", ConfigKind.INT,
        "A node that is not heard of for so long is fenced.",
    ),
    NodeConfig(
        "replica.lag.time.max.ms", "replication", "replica_lag_time_max_ms", ConfigKind.LONG,
        "A follower that is behind for so long is no longer in sync.",
    ),
    NodeConfig(
        "replica.fetch.wait.max.ms", "replication", "fetch_wait_max_ms", ConfigKind.INT,
        "How long a follower's fetch waits for records.",
    ),
    NodeConfig(
        "replica.fetch.response.max.bytes", "replication", "fetch_bytes_max", ConfigKind.INT,
        "The most that a follower fetches at once.",
    ),
    NodeConfig(
        "replica.fetch.backoff.ms", "replication", "fetch_backoff_ms", ConfigKind.INT,
        "The pause after a leader could not be reached.",
    ),
    NodeConfig(
        "log.segment.bytes", "log", "segment_bytes", ConfigKind.INT, "The size at which a segment ends."
    ),
    NodeConfig("log.roll.ms", "log", "segment_age_ms", ConfigKind.LONG, "The age at which it ends."),
    NodeConfig(
        "log.index.interval.bytes", "log", "index_interval_bytes", ConfigKind.INT,
        "Bytes between two entries of a segment's indexes.",
    ),
    NodeConfig(
        "log.retention.check.interval.ms", "log", "retention_check_ms", ConfigKind.LONG,
        "How often segments are looked for that are kept no longer.",
    ),
    NodeConfig(
        "log.flush.offset.checkpoint.interval.ms", "log", "checkpoint_interval_ms", ConfigKind.INT,
        "How often the offsets are noted from which a start goes on.",
    ),
    NodeConfig(
        "message.max.bytes", "log", "message_bytes_max", ConfigKind.INT,
        "The largest message, of streams that say nothing about it.",
    ),
)  # fmt: skip

_FACTS: Final = (
    ("auto.create.topics.enable", ConfigKind.BOOLEAN, "false", "Streams are created by request only."),
    ("delete.topic.enable", ConfigKind.BOOLEAN, "true", "Streams can be deleted."),
    ("num.partitions", ConfigKind.INT, "1", "Of a new stream, where nothing is said."),
    ("default.replication.factor", ConfigKind.INT, "1", "Of a new stream, where nothing is said."),
)  # fmt: skip
"""What cannot be set, and clients ask about."""


def shown_node_configs(settings: Settings, address: tuple[str, int]) -> Iterator[ConfigEntry]:
    """All that can be told; ``address`` is where clients reach the node."""
    for config in _NODE_CONFIGS:
        section: BaseModel = getattr(settings, config.section)
        value = getattr(section, config.key)
        field = type(section).model_fields[config.key]
        default = Synonym(config.name, _node_config_text(field.get_default()), ConfigSource.DEFAULT)
        own = Synonym(config.name, _node_config_text(value), ConfigSource.NODE)
        synonyms = (own,) if field.is_required() else (own, default)
        if own.value == default.value:
            synonyms = (default,)
        yield ConfigEntry(config.name, config.kind, config.documentation, synonyms, read_only=True)
    yield from _rebalancing(settings.cluster.leader_rebalance_ms)
    host, port = address
    listener = Synonym("advertised.listeners", f"PLAINTEXT://{host}:{port}", ConfigSource.NODE)
    about = "Where clients reach this node."
    yield ConfigEntry(listener.name, ConfigKind.STRING, about, (listener,), read_only=True)
    for name, kind, value, about in _FACTS:
        fact = Synonym(name, value, ConfigSource.DEFAULT)
        yield ConfigEntry(name, kind, about, (fact,), read_only=True)


def _rebalancing(interval_ms: int) -> Iterator[ConfigEntry]:
    """One setting of ours is two of Kafka's, whose interval is in seconds."""
    source = ConfigSource.DEFAULT if interval_ms == 30_000 else ConfigSource.NODE
    enabled = Synonym("auto.leader.rebalance.enable", _node_config_text(interval_ms > 0), source)
    about = "Preferred replicas are made leaders again by themselves."
    yield ConfigEntry(enabled.name, ConfigKind.BOOLEAN, about, (enabled,), read_only=True)
    seconds = str(-(-interval_ms // 1000))
    interval = Synonym("leader.imbalance.check.interval.seconds", seconds, source)
    about = "How often that is looked at."
    yield ConfigEntry(interval.name, ConfigKind.LONG, about, (interval,), read_only=True)


def _node_config_text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case _:
            return str(value)
