"""JetStream's StreamConfig in JSON and ours; the table of ``metadata`` translates. Pure."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from streamlog.errors import InvalidStreamConfig
from streamlog.metadata.stream.config import StreamConfig, check_writable_by_clients
from streamlog.metadata.stream.settings_table import JETSTREAM_FIELDS, from_jetstream, to_jetstream


class Fixed(NamedTuple):
    """A field that means one thing here: what we echo, and which values ask for no other."""

    echo: Any
    """None: left out."""
    passes: Callable[[Any], bool]


def _empty(value: Any) -> bool:
    """As a client sends what was never set."""
    return not value or (isinstance(value, Mapping) and not any(value.values()))


def _nothing(value: Any) -> bool:
    return value is None


def _no_limit(value: Any) -> bool:
    return value in (None, 0, -1) and value is not True and value is not False


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value is None or value in values


def _anything(value: Any) -> bool:
    return True


FIXED: dict[str, Fixed] = {
    "retention": Fixed("limits", _one_of("limits", "")),
    "storage": Fixed("file", _one_of("file", "")),
    "max_consumers": Fixed(-1, _no_limit),
    "mirror_direct": Fixed(False, _empty),
    "consumer_limits": Fixed({}, _empty),
    "first_seq": Fixed(None, _one_of(0, 1)),
    "persist_mode": Fixed(None, _one_of("default", "")),
    "mirror": Fixed(None, _nothing),
    "pedantic": Fixed(None, _anything),
}
"""Fields that the table does not translate. Any other field must be empty."""

OMITTED_IF_EMPTY = frozenset(
    {
        "description", "subjects", "no_ack", "duplicate_window", "placement", "mirror", "sources",
        "first_seq", "subject_transform", "republish", "discard_new_per_subject",
        "subject_delete_marker_ttl", "allow_msg_counter", "allow_atomic", "allow_msg_schedules",
        "allow_batched", "metadata",
    }
)  # fmt: skip
"""What JetStream leaves out where it is not set; all else it tells always."""
AUTO_PAUSED: Final = "_streamlog.auto_paused"
TOLD_KEYS = frozenset({"_nats.ver", "_nats.level", "_nats.req.level", AUTO_PAUSED})
"""Of the metadata: what JetStream and we say of the stream, and what a client that read it sends
back."""


def config_from_json(fields: Mapping[str, Any]) -> StreamConfig:
    """Raises InvalidRequest, naming the field, for what is wrong or what we cannot honour."""
    for name, value in fields.items():
        if name in JETSTREAM_FIELDS:
            continue
        passes = FIXED[name].passes if name in FIXED else _empty
        if not passes(value):
            raise InvalidStreamConfig(f"{name}: {_shown(value)} is not supported")
    settings = from_jetstream(fields)
    settings["metadata"] = {k: v for k, v in settings["metadata"].items() if k not in TOLD_KEYS}
    config = StreamConfig.of(**settings)
    check_writable_by_clients(config.name)
    return config


def config_to_json(config: StreamConfig) -> dict[str, Any]:
    """What clients are told, defaults filled in."""
    fixed = {name: row.echo for name, row in FIXED.items() if row.echo is not None}
    told = {**fixed, **to_jetstream(config)}
    return {key: value for key, value in told.items() if value or key not in OMITTED_IF_EMPTY}


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
