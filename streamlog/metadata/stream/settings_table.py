"""The one table of what a stream's settings are called, and how their values are written. Pure.

- JetStream: a field of its StreamConfig, or, for what only streamlog has, ``streamlog.<name>`` in
  its ``metadata``, whose values are texts. Keys that are not ours are kept as they came.
- Kafka: a topic config, whose values are texts, too. Where Kafka has no such config the key is
  ``streamlog.<name>`` again; the subject is ``subject``.

Fields that JetStream has and this table has not are none of ours: ``jetstream`` refuses or echoes them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from streamlog.errors import InvalidStreamConfig
from streamlog.metadata.stream.config import NO_LIMIT, StreamConfig, default_min_isr
from streamlog.metadata.stream.republish import HEADERS_ONLY
from streamlog.metadata.stream.subject_transform import ARROW

OUR_KEYS = "streamlog."
_NS_PER_MS = 1_000_000
_INT64_MAX = 2**63 - 1


class Setting(NamedTuple):
    """One row. ``None`` from a reader stands for the default."""

    name: str
    jetstream: str | None
    """The field of JetStream's StreamConfig; None: the key ``streamlog.<name>`` of its metadata."""
    kafka: str | None
    """The topic config; None where CreateTopics has a place of its own for it."""
    to_json: Callable[[Any], Any]
    from_json: Callable[[Any], Any]
    to_text: Callable[[Any], str]
    from_text: Callable[[str], Any]

    @property
    def key(self) -> str:
        return OUR_KEYS + self.name


def _same(value: Any) -> Any:
    return value


def _bool_from_text(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _bool_to_text(value: bool) -> str:
    return "true" if value else "false"


def _list_from_text(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _zero_is_default(value: Any) -> Any:
    return None if value == 0 else value


def _ns(value_ms: int) -> int:
    """At most 292 years: clients read 64 bits."""
    return 0 if value_ms == NO_LIMIT else min(value_ms * _NS_PER_MS, _INT64_MAX)


def _ms(value_ns: Any) -> Any:
    """Whole milliseconds, never rounded down to nothing."""
    if not isinstance(value_ns, int) or isinstance(value_ns, bool):
        return value_ns
    return None if value_ns == 0 else -(-value_ns // _NS_PER_MS)


def _compression_to_json(value: str) -> str:
    return "none" if value == "none" else "s2"


def _compression_from_json(value: Any) -> Any:
    return "snappy" if value == "s2" else value


def _transform_to_json(value: str) -> Any:
    source, _, destination = value.partition(ARROW)
    return {"src": source, "dest": destination} if value else None


def _transform_from_json(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    destination = value.get("dest")
    return f"{value.get('src') or '>'}{ARROW}{destination}" if destination else None


def _republish_to_json(value: str) -> Any:
    said = _transform_to_json(value.removesuffix(HEADERS_ONLY))
    if said and value.endswith(HEADERS_ONLY):
        said["headers_only"] = True
    return said


def _republish_from_json(value: Any) -> Any:
    said = _transform_from_json(value)
    headers_only = isinstance(value, Mapping) and value.get("headers_only") is True
    return said and f"{said}{HEADERS_ONLY if headers_only else ''}"


def _cluster_to_json(value: str) -> dict[str, str]:
    return {"cluster": value} if value else {}


def _cluster_from_json(value: Any) -> Any:
    return value.get("cluster") or None if isinstance(value, Mapping) else value


def _number(name: str, jetstream: str | None, kafka: str | None) -> Setting:
    return Setting(name, jetstream, kafka, _same, _zero_is_default, str, int)


def _duration(name: str, jetstream: str | None, kafka: str) -> Setting:
    return Setting(name, jetstream, kafka, _ns, _ms, str, int)


def _text(name: str, jetstream: str | None, kafka: str) -> Setting:
    return Setting(name, jetstream, kafka, _same, _same, str, _same)


def _flag(name: str, jetstream: str | None, kafka: str) -> Setting:
    return Setting(name, jetstream, kafka, _same, _same, _bool_to_text, _bool_from_text)


SETTINGS: tuple[Setting, ...] = (
    Setting("subjects", "subjects", "subject", list, _same, ",".join, _list_from_text),
    _number("partitions", None, None),
    _text("partition_by", None, "streamlog.partition_by"),
    _text("group", None, "streamlog.group"),
    _number("replicas", "num_replicas", None),
    _number("retention_bytes", "max_bytes", "retention.bytes"),
    _number("retention_messages", "max_msgs", "streamlog.retention_messages"),
    _duration("retention_ms", "max_age", "retention.ms"),
    _number("message_bytes_max", "max_msg_size", "max.message.bytes"),
    _duration("duplicate_window_ms", "duplicate_window", "streamlog.duplicate_window_ms"),
    Setting(
        "compression", "compression", "compression.type",
        _compression_to_json, _compression_from_json, str, _same,
    ),
    _text("sync", None, "streamlog.sync"),
    _number("segment_bytes", None, "segment.bytes"),
    _number("segment_age_ms", None, "segment.ms"),
    _number("index_interval_bytes", None, "index.interval.bytes"),
    _number("auto_pause_ms", None, "streamlog.auto_pause_ms"),
    _number("min_isr", None, "min.insync.replicas"),
    _flag("unclean_election", None, "unclean.leader.election.enable"),
    _text("acks", None, "streamlog.acks"),
    _text("timestamp_type", None, "message.timestamp.type"),
    _text("cleanup_policy", None, "cleanup.policy"),
    _number("delete_retention_ms", None, "delete.retention.ms"),
    _number("min_compaction_lag_ms", None, "min.compaction.lag.ms"),
    _number("max_compaction_lag_ms", None, "max.compaction.lag.ms"),
    Setting(
        "min_cleanable_dirty_ratio", None, "min.cleanable.dirty.ratio", _same, _same, str, float
    ),
    _text("discard", "discard", "streamlog.discard"),
    _flag(
        "discard_new_per_subject", "discard_new_per_subject", "streamlog.discard_new_per_subject"
    ),
    _number(
        "max_messages_per_subject", "max_msgs_per_subject", "streamlog.max_messages_per_subject"
    ),
    _flag("no_ack", "no_ack", "streamlog.no_ack"),
    Setting(
        "subject_transform", "subject_transform", "streamlog.subject_transform",
        _transform_to_json, _transform_from_json, str, _same,
    ),
    Setting(
        "republish", "republish", "streamlog.republish",
        _republish_to_json, _republish_from_json, str, _same,
    ),
    _flag("sealed", "sealed", "streamlog.sealed"),
    _flag("deny_purge", "deny_purge", "streamlog.deny_purge"),
    _flag("deny_delete", "deny_delete", "streamlog.deny_delete"),
    _flag("allow_direct", "allow_direct", "streamlog.allow_direct"),
    Setting(
        "placement_cluster", "placement", "streamlog.placement_cluster",
        _cluster_to_json, _cluster_from_json, str, _same,
    ),
    _flag("readonly", None, "streamlog.readonly"),
    _flag("paused", None, "streamlog.paused"),
    _flag("allow_atomic", "allow_atomic", "streamlog.allow_atomic"),
    _flag("allow_ttl", "allow_msg_ttl", "streamlog.allow_ttl"),
    _flag("allow_rollup", "allow_rollup_hdrs", "streamlog.allow_rollup"),
    _flag("encrypted", None, "streamlog.encrypted"),
    _text("description", "description", "streamlog.description"),
)  # fmt: skip

_BY_KEY = {row.key: row for row in SETTINGS if row.jetstream is None or row.name == "compression"}
_BY_KAFKA = {row.kafka: row for row in SETTINGS if row.kafka is not None}
BY_NAME = {row.name: row for row in SETTINGS}
_DEFAULTS = {row.name: StreamConfig.model_fields[row.name].default for row in SETTINGS}
_TOLD_BY_DEFAULT: dict[str, Any] = {
    row.jetstream: said
    for row in SETTINGS
    if row.jetstream is not None and (said := row.to_json(_DEFAULTS[row.name])) is not None
}

JETSTREAM_FIELDS = frozenset(
    {"name", "metadata", *(row.jetstream for row in SETTINGS if row.jetstream is not None)}
)
"""The fields of JetStream's StreamConfig that this table translates."""


def from_jetstream(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Settings for ``StreamConfig.of`` out of JetStream's JSON; foreign fields are passed over.

    A key ``streamlog.<name>`` of the metadata wins over the field, so that a codec that JetStream
    does not know survives a client that reads the configuration, changes a field and sends it
    back.
    """
    settings: dict[str, Any] = {"name": fields.get("name")}
    for row in SETTINGS:
        if row.jetstream is not None and fields.get(row.jetstream) is not None:
            _put(settings, row, row.from_json(fields[row.jetstream]))
    metadata = fields.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise InvalidStreamConfig("metadata: not an object")
    settings["metadata"] = {k: v for k, v in metadata.items() if not k.startswith(OUR_KEYS)}
    for key, text in metadata.items():
        if key.startswith(OUR_KEYS):
            _put_text(settings, _BY_KEY.get(key), key, text)
    return settings


def to_jetstream(config: StreamConfig) -> dict[str, Any]:
    """The table's part of JetStream's JSON for ``config``.

    Nearly all settings have their defaults, and a list of streams tells those of each.
    """
    fields: dict[str, Any] = {"name": config.name, **_TOLD_BY_DEFAULT}
    ours: dict[str, str] = {}
    values = vars(config)
    defaults = {**_DEFAULTS, "min_isr": default_min_isr(config.replicas)}
    for name, default in defaults.items():
        if (value := values[name]) == default:
            continue
        row = BY_NAME[name]
        if row.jetstream is not None and (said := row.to_json(value)) is not None:
            fields[row.jetstream] = said
        if row.key in _BY_KEY and not _says_it_all(row, value):
            ours[row.key] = row.to_text(value)
    fields["metadata"] = {**config.metadata, **ours}
    return fields


def from_topic_configs(configs: Mapping[str, str | None]) -> dict[str, Any]:
    """Settings for ``StreamConfig.of`` out of Kafka's topic configs; null is the default."""
    settings: dict[str, Any] = {}
    for key, text in configs.items():
        if key not in _BY_KAFKA:
            raise InvalidStreamConfig(f"{key}: no such topic config")
        if text is not None:
            _put_text(settings, _BY_KAFKA[key], key, text)
    return settings


def to_topic_configs(config: StreamConfig) -> dict[str, str]:
    """Kafka's topic configs of ``config``; what is left to the node's settings is left out."""
    values = ((key, row, getattr(config, row.name)) for key, row in _BY_KAFKA.items())
    return {key: row.to_text(value) for key, row, value in values if value is not None}


def setting_of_topic_config(key: str) -> Setting:
    """The row of Kafka's topic config ``key``. Raises InvalidStreamConfig."""
    row = _BY_KAFKA.get(key)
    if row is None:
        known = ", ".join(sorted(filter(None, _BY_KAFKA)))
        raise InvalidStreamConfig(f"{key}: no such topic config; there are {known}")
    return row


def value_of_text(row: Setting, text: str) -> Any:
    """Raises InvalidStreamConfig, with Kafka's name for the setting where it has one."""
    try:
        return row.from_text(text)
    except ValueError:
        key = row.kafka or row.name
        raise InvalidStreamConfig(f"{key}: {text!r} is not a value of it") from None


def _put(settings: dict[str, Any], row: Setting, value: Any) -> None:
    if value is not None:
        settings[row.name] = value


def _put_text(settings: dict[str, Any], row: Setting | None, key: str, text: Any) -> None:
    if row is None:
        raise InvalidStreamConfig(f"{key}: no such setting")
    if not isinstance(text, str):
        raise InvalidStreamConfig(f"{key}: {text!r} is not a text")
    try:
        settings[row.name] = row.from_text(text)
    except ValueError:
        raise InvalidStreamConfig(f"{key}: {text!r} is not a value of it") from None


def _says_it_all(row: Setting, value: Any) -> bool:
    """Does JetStream's own field tell this value, so that no key of ours is needed?"""
    return row.jetstream is not None and row.from_json(row.to_json(value)) == value
