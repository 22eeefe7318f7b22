"""Configs of topics and nodes as DescribeConfigs shows them."""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from streamlog.config import GroupsSection, LogSection, Settings
from streamlog.config.description import meaning
from streamlog.groups.shares.share_group_config import GROUP_CONFIGS, ConfigRange, default_of
from streamlog.metadata.stream.alteration import defaults_of
from streamlog.metadata.stream.inert_configs import INERT_CONFIGS
from streamlog.metadata.stream.setting_type import NO_LIMIT, StreamSetting
from streamlog.metadata.stream.settings_translation import SETTINGS, TOPIC_CONFIGS
from streamlog.metadata.stream.stream_config import StreamConfig

INT32_MAX: Final = 2**31 - 1


class ConfigSource(IntEnum):
    """Who has said so; see KIP-226."""

    TOPIC = 1
    NODE = 4
    """The node's settings: its file or its environment."""
    DEFAULT = 5
    GROUP = 8


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


def shown_group_configs(
    configs: Mapping[str, str], settings: GroupsSection
) -> Iterator[ConfigEntry]:
    """All that a share group may have; those that it does not have are the node's."""
    for name, config in GROUP_CONFIGS.items():
        default = Synonym(f"group.{name}", default_of(name, settings), ConfigSource.NODE)
        own = (Synonym(name, configs[name], ConfigSource.GROUP),) if name in configs else ()
        is_number = isinstance(config.kind, ConfigRange)
        kind = ConfigKind.INT if is_number else ConfigKind.STRING
        yield ConfigEntry(name, kind, config.meaning, (*own, default), read_only=False)


def shown_topic_configs(config: StreamConfig, node: LogSection) -> Iterator[ConfigEntry]:
    """All of them. A setting counts as the stream's own where it is not the default; one without effect, where it was
    set.
    """
    defaults = defaults_of(config).model_copy(update={"retention_ms": NO_LIMIT})
    for row in SETTINGS:
        if row.kafka is not None:
            own, default = getattr(config, row.name), getattr(defaults, row.name)
            synonyms = tuple(_topic_config_synonyms(row, row.kafka, own, default, node))
            documentation = row.told(TOPIC_CONFIGS)
            if row.type.choices:
                documentation += f" One of {' | '.join(map(row.form.to_text, row.type.choices))}."
            yield ConfigEntry(row.kafka, _kind(row), documentation, synonyms, read_only=False)
    for name, inert in INERT_CONFIGS.items():
        default = Synonym(name, inert.default, ConfigSource.DEFAULT)
        set_to = config.inert_configs.get(name)
        own = () if set_to is None else (Synonym(name, set_to, ConfigSource.TOPIC),)
        told = f"It has no effect. {inert.why.format_map(TOPIC_CONFIGS)}"
        yield ConfigEntry(name, _INERT_KINDS[inert.kind], told, (*own, default), read_only=False)


_INERT_KINDS: Final = {
    "boolean": ConfigKind.BOOLEAN,
    "int": ConfigKind.INT,
    "long": ConfigKind.LONG,
    "list": ConfigKind.LIST,
}


_KINDS: Final[dict[type, ConfigKind]] = {bool: ConfigKind.BOOLEAN, float: ConfigKind.DOUBLE}


def _kind(row: StreamSetting) -> ConfigKind:
    if row.is_list:
        return ConfigKind.LIST
    if row.type.kind is int:
        return ConfigKind.INT if (row.type.high or 0) <= INT32_MAX else ConfigKind.LONG
    return _KINDS.get(row.type.kind, ConfigKind.STRING)


def _topic_config_synonyms(
    row: StreamSetting, key: str, own: Any, default: Any, node: LogSection
) -> Iterator[Synonym]:
    to_text, nodes = row.form.to_text, row.about.node_setting
    if own != default:
        yield Synonym(key, to_text(own), ConfigSource.TOPIC)
    if nodes is None:
        yield Synonym(key, to_text(default), ConfigSource.DEFAULT)
        return
    node_key = next((it.name for it in _NODE_CONFIGS if it[1:3] == ("log", nodes)), key)
    set_to, unset = getattr(node, nodes), LogSection.model_fields[nodes].default
    if set_to != unset:
        yield Synonym(node_key, to_text(set_to), ConfigSource.NODE)
    yield Synonym(node_key, to_text(unset), ConfigSource.DEFAULT)


class NodeConfig(NamedTuple):
    """``key`` of the table ``section`` under Kafka's name for it, with the type that Kafka gives it."""

    name: str
    section: str
    key: str
    kind: ConfigKind


_NODE_CONFIGS: Final = (
    NodeConfig("broker.id", "node", "id", ConfigKind.INT),
    NodeConfig("node.id", "node", "id", ConfigKind.INT),
    NodeConfig("broker.rack", "node", "rack", ConfigKind.STRING),
    NodeConfig("log.dirs", "node", "data_dir", ConfigKind.STRING),
    NodeConfig("max.connections", "kafka", "connections_max", ConfigKind.INT),
    NodeConfig("max.connections.per.ip", "kafka", "connections_per_address_max", ConfigKind.INT),
    NodeConfig("socket.request.max.bytes", "kafka", "request_bytes_max", ConfigKind.INT),
    NodeConfig("fetch.max.bytes", "kafka", "fetch_bytes_max", ConfigKind.INT),
    NodeConfig("connections.max.idle.ms", "kafka", "idle_timeout_ms", ConfigKind.LONG),
    NodeConfig("auto.create.topics.enable", "kafka", "auto_create_topics", ConfigKind.BOOLEAN),
    NodeConfig("num.partitions", "kafka", "default_partitions", ConfigKind.INT),
    NodeConfig("default.replication.factor", "kafka", "default_replicas", ConfigKind.INT),
    NodeConfig("controller.quorum.voters", "cluster", "voters", ConfigKind.LIST),
    NodeConfig(
        "controller.quorum.election.timeout.ms", "cluster", "election_timeout_ms", ConfigKind.INT
    ),
    NodeConfig(
        "controller.quorum.request.timeout.ms", "cluster", "request_timeout_ms", ConfigKind.INT
    ),
    NodeConfig("broker.heartbeat.interval.ms", "cluster", "heartbeat_interval_ms", ConfigKind.INT),
    NodeConfig("broker.session.timeout.ms", "cluster", "session_timeout_ms", ConfigKind.INT),
    NodeConfig(
        "replica.lag.time.max.ms", "replication", "replica_lag_time_max_ms", ConfigKind.LONG
    ),
    NodeConfig("replica.fetch.wait.max.ms", "replication", "fetch_wait_max_ms", ConfigKind.INT),
    NodeConfig(
        "replica.fetch.response.max.bytes", "replication", "fetch_bytes_max", ConfigKind.INT
    ),
    NodeConfig("replica.fetch.backoff.ms", "replication", "fetch_backoff_ms", ConfigKind.INT),
    NodeConfig("log.segment.bytes", "log", "segment_bytes", ConfigKind.INT),
    NodeConfig("log.roll.ms", "log", "segment_age_ms", ConfigKind.LONG),
    NodeConfig("log.index.interval.bytes", "log", "index_interval_bytes", ConfigKind.INT),
    NodeConfig("log.retention.check.interval.ms", "log", "retention_check_ms", ConfigKind.LONG),
    NodeConfig(
        "log.flush.offset.checkpoint.interval.ms", "log", "checkpoint_interval_ms", ConfigKind.INT
    ),
    NodeConfig("message.max.bytes", "log", "message_bytes_max", ConfigKind.INT),
)

_FACTS: Final = (
    ("delete.topic.enable", ConfigKind.BOOLEAN, "true", "Streams can be deleted."),
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
        about = meaning(config.section, config.key).replace("`", "")
        yield ConfigEntry(config.name, config.kind, about, synonyms, read_only=True)
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
