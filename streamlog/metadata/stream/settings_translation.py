"""The table of a stream's settings, and how whole configurations are translated by it. Pure.

The rows are the fields of ``StreamConfig``.

- JetStream: a field of its StreamConfig, or, for what only streamlog has, ``streamlog.<name>`` in
  its ``metadata``, whose values are texts. Keys that are not ours are kept as they came.
- Kafka: a topic config, whose values are texts, too. Where Kafka has no such config the key is
  ``streamlog.<name>`` again; the subject is ``subject``.

Fields that JetStream has and this table has not are none of ours: ``jetstream`` refuses or echoes them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from streamlog.config.value_type import value_type
from streamlog.errors import InvalidStreamConfig
from streamlog.metadata.stream.inert_configs import (
    INERT_CONFIGS,
    INERT_KEYS,
    InertConfig,
    to_metadata,
)
from streamlog.metadata.stream.setting_type import OUR_KEYS, Setting, StreamSetting
from streamlog.metadata.stream.stream_config import StreamConfig, default_min_isr


def _rows() -> Iterator[StreamSetting]:
    for name, field in StreamConfig.model_fields.items():
        for about in field.metadata:
            if isinstance(about, Setting):
                yield StreamSetting.of(name, about, value_type(field), field.default)


SETTINGS: Final = tuple(_rows())
TOPIC_CONFIGS: Final = {row.name: row.kafka or row.name for row in SETTINGS}
"""What Kafka calls each setting."""

_BY_KEY = {row.key: row for row in SETTINGS if row.jetstream is None or row.name == "compression"}
_BY_KAFKA = {row.kafka: row for row in SETTINGS if row.kafka is not None}


def _topic_text(row: StreamSetting, value: Any) -> str | None:
    """None: it is left out."""
    return None if value in (None, ()) else row.form.to_text(value)


_TOPIC_DEFAULTS = {key: _topic_text(row, row.default) for key, row in _BY_KAFKA.items()}
BY_NAME = {row.name: row for row in SETTINGS}
_DEFAULTS = {row.name: row.default for row in SETTINGS}
_TOLD_BY_DEFAULT: dict[str, Any] = {
    row.jetstream: said
    for row in SETTINGS
    if row.jetstream is not None and (said := row.form.to_json(row.default)) is not None
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
            _put(settings, row, row.form.from_json(fields[row.jetstream]))
    metadata = fields.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        raise InvalidStreamConfig("metadata: not an object")
    settings["metadata"] = {k: v for k, v in metadata.items() if not k.startswith(OUR_KEYS)}
    inert = {k.removeprefix(INERT_KEYS): v for k, v in metadata.items() if k.startswith(INERT_KEYS)}
    if inert:
        settings["inert_configs"] = inert
    for key, text in metadata.items():
        if key.startswith(OUR_KEYS) and not key.startswith(INERT_KEYS):
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
        if row.jetstream is not None and (said := row.form.to_json(value)) is not None:
            fields[row.jetstream] = said
        if row.key in _BY_KEY and not _says_it_all(row, value):
            ours[row.key] = row.form.to_text(value)
    fields["metadata"] = {**config.metadata, **ours, **dict(to_metadata(config.inert_configs))}
    return fields


def from_topic_configs(configs: Mapping[str, str | None]) -> dict[str, Any]:
    """Settings for ``StreamConfig.of`` out of Kafka's topic configs; null is the default."""
    settings: dict[str, Any] = {}
    inert = dict[str, str]()
    for key, text in configs.items():
        row = topic_config(key)
        if text is None:
            continue
        if isinstance(row, InertConfig):
            inert[key] = row.check(text)
        else:
            _put_text(settings, row, key, text)
    if inert:
        settings["inert_configs"] = inert
    return settings


def to_topic_configs(config: StreamConfig) -> dict[str, str]:
    """Kafka's topic configs of ``config``; what is left to the node's settings is left out, subjects where there
    are none, and what has no effect where it was not set.
    """
    texts, values = dict(_TOPIC_DEFAULTS), vars(config)
    for key, row in _BY_KAFKA.items():
        if (value := values[row.name]) != row.default:
            texts[key] = _topic_text(row, value)
    told = {key: text for key, text in texts.items() if text is not None}
    return told | config.inert_configs


def topic_config(key: str) -> StreamSetting | InertConfig:
    """The row of Kafka's topic config ``key``. Raises InvalidStreamConfig."""
    row = _BY_KAFKA.get(key) or INERT_CONFIGS.get(key)
    if row is None:
        known = ", ".join(sorted({*filter(None, _BY_KAFKA), *INERT_CONFIGS}))
        raise InvalidStreamConfig(f"Unknown topic config name: {key[:60]}; there are {known}")
    return row


def value_of_text(row: StreamSetting, text: str) -> Any:
    """Raises InvalidStreamConfig, with Kafka's name for the setting where it has one."""
    try:
        return row.form.from_text(text)
    except ValueError:
        key = row.kafka or row.name
        raise InvalidStreamConfig(f"{key}: {text!r} is not a value of it") from None


def _put(settings: dict[str, Any], row: StreamSetting, value: Any) -> None:
    if value is not None:
        settings[row.name] = value


def _put_text(settings: dict[str, Any], row: StreamSetting | None, key: str, text: Any) -> None:
    if row is None:
        raise InvalidStreamConfig(f"{key}: no such setting")
    if not isinstance(text, str):
        raise InvalidStreamConfig(f"{key}: {text!r} is not a text")
    try:
        settings[row.name] = row.form.from_text(text)
    except ValueError:
        raise InvalidStreamConfig(f"{key}: {text!r} is not a value of it") from None


def _says_it_all(row: StreamSetting, value: Any) -> bool:
    """Does JetStream's own field tell this value, so that no key of ours is needed?"""
    return row.jetstream is not None and row.form.from_json(row.form.to_json(value)) == value


def level_of(config: StreamConfig) -> int:
    """The feature level from which on all nodes can read it: a setting at its default is not written."""
    needed = max(
        (row.about.level for row in SETTINGS if getattr(config, row.name) != row.default), default=1
    )
    return max(needed, _KAFKA_LEVEL) if _has_values_of_kafka(config) else needed


_KAFKA_LEVEL: Final = 3
"""From there on a stream may have all of Kafka's topic configs, and any name that a topic may have."""


def _has_values_of_kafka(config: StreamConfig) -> bool:
    """A name, or values of settings, that released versions refuse, or topic configs without a setting."""
    above = config.min_isr > config.replicas or "." in config.name
    return above or config.compression == "uncompressed" or bool(config.inert_configs)
