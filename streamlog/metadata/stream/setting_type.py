"""What a setting of a stream is: a row of the table that ``StreamConfig`` is. Pure.

A field of ``StreamConfig`` has its type, range and default as any field, and a ``Setting`` with all
else that there is to say about it. ``settings_translation`` reads these rows. The options of ``stream add``
and ``stream edit``, the fields of JetStream's requests, Kafka's topic configs with their
documentation, and docs/stream-settings.md are made of them.

A ``Form`` is how values are written: in JetStream's JSON, as text (topic configs, JetStream's
metadata), and as people write them on the command line. Most settings have the form of their type
and unit; a name that ends with ``_ms`` is a duration, one with ``_bytes`` a size.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from streamlog.config.units import duration_ms, duration_text, size_bytes, size_text, unit_of
from streamlog.config.value_type import ValueType
from streamlog.metadata.stream.consumer_limits import ConsumerLimits
from streamlog.metadata.stream.republish import HEADERS_ONLY
from streamlog.metadata.stream.stream_origin import (
    origin_from_human,
    origin_json,
    origin_text,
    origins_from_human,
    origins_text,
)
from streamlog.metadata.stream.subject_transform import ARROW

OUR_KEYS: Final = "streamlog."
NO_LIMIT: Final = -1
UNLIMITED: Final = "unlimited"
_HUMAN_LIMIT: Final = f"{UNLIMITED} or {NO_LIMIT}"
INT64_MAX: Final = 2**63 - 1
NS_PER_MS: Final = 1_000_000

JsonType = Literal[
    "text", "texts", "flag", "int", "int32", "float", "duration", "choice",
    "transform", "republish", "placement", "origin", "origins", "consumer_limits",
]  # fmt: skip
"""The types of JetStream's fields; ``jetstream`` says how each is read."""


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Form:
    """How values are written. ``None`` from a reader stands for the default."""

    json: JsonType
    metavar: str
    """What help shows for a value."""
    to_json: Callable[[Any], Any] = _same
    from_json: Callable[[Any], Any] = _same
    to_text: Callable[[Any], str] = str
    from_text: Callable[[str], Any] = _same
    """Raises ValueError."""
    to_human: Callable[[Any], str] | None = None
    """None: the text."""
    from_human: Callable[[str], Any] | None = None
    """Raises ValueError."""
    json_choices: tuple[str, ...] = ()
    """Where JetStream has other words than we."""
    unset: Any = None
    """JetStream's zero value; None: it has none, and leaves the field out."""


def _bool_from_text(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _bool_to_text(value: bool) -> str:
    return "true" if value else "false"


def _list_from_text(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def policies_in_order(value: Any) -> Any:
    """A list in any order, as Kafka has it; what is none of ours is refused as it came."""
    parts = sorted({part.strip() for part in value.split(",")}) if isinstance(value, str) else []
    return ",".join(parts) if parts else value


def _zero_is_default(value: Any) -> Any:
    return None if value == 0 else value


def _ns(value_ms: int) -> int:
    """At most 292 years: clients read 64 bits."""
    return 0 if value_ms == NO_LIMIT else min(value_ms * NS_PER_MS, INT64_MAX)


def _ms(value_ns: Any) -> Any:
    """Whole milliseconds, never rounded down to nothing."""
    if not isinstance(value_ns, int) or isinstance(value_ns, bool):
        return value_ns
    return None if value_ns == 0 else -(-value_ns // NS_PER_MS)


def _compression_to_json(value: str) -> str:
    return "none" if value in ("none", "uncompressed") else "s2"


def _compression_from_json(value: Any) -> Any:
    return "snappy" if value == "s2" else value


def _compression_to_text(value: str) -> str:
    """Kafka's name for what the batches of its producers are in any case."""
    return "producer" if value == "none" else value


def _compression_from_text(text: str) -> str:
    return "none" if text == "producer" else text


def _default_to_nothing(value: str) -> str:
    return "" if value == "default" else value


def _nothing_to_default(value: Any) -> Any:
    return None if value == "" else value


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


def _limits_to_json(value: str) -> dict[str, int]:
    limits = ConsumerLimits.parse(value)
    told = {
        "inactive_threshold": min(limits.inactive_threshold_ms * NS_PER_MS, INT64_MAX),
        "max_ack_pending": limits.max_ack_pending,
    }
    return {name: number for name, number in told.items() if number}


def _limits_from_json(value: Any) -> Any:
    """A time that is less than nothing limits nothing."""
    if not isinstance(value, Mapping):
        return value
    threshold_ms = max(0, -(-(value.get("inactive_threshold") or 0) // NS_PER_MS))
    return str(ConsumerLimits(threshold_ms, max(-1, value.get("max_ack_pending") or 0))) or None


SAME: Final = -2
"""A local limit is that of the whole stream, as in Kafka."""


def _local_text(written: Callable[[int], str]) -> Callable[[int], str]:
    named = {SAME: "same", NO_LIMIT: UNLIMITED}
    return lambda value: named.get(value) or written(value)


def _local_from_text(read: Callable[[str], int]) -> Callable[[str], int]:
    named = {"same": SAME, str(SAME): SAME, UNLIMITED: NO_LIMIT, str(NO_LIMIT): NO_LIMIT}

    def value_of(text: str) -> int:
        known = named.get(text)
        return read(text) if known is None else known

    return value_of


TEXT: Final = Form("text", "TEXT", unset="")
TEXTS: Final = Form(
    "texts", "TEXT", to_json=list, to_text=",".join, from_text=_list_from_text, unset=[]
)
FLAG: Final = Form("flag", "BOOLEAN", to_text=_bool_to_text, from_text=_bool_from_text, unset=False)
NUMBER: Final = Form("int", "INTEGER", from_json=_zero_is_default, from_text=int)
RATIO: Final = Form("float", "FLOAT", from_text=float)
SIZE: Final = replace(NUMBER, metavar="SIZE", to_human=size_text, from_human=size_bytes)
SIZE32: Final = replace(SIZE, json="int32")
DURATION: Final = replace(
    NUMBER, json="duration", metavar="DURATION", to_json=_ns, from_json=_ms,
    to_human=duration_text, from_human=duration_ms, unset=0,
)  # fmt: skip
LOCAL_DURATION: Final = replace(
    DURATION, metavar="DURATION or same", to_json=_same, from_json=_same, to_human=_local_text(duration_text),
    from_human=_local_from_text(duration_ms), unset=None,
)  # fmt: skip
LOCAL_SIZE: Final = replace(
    SIZE,
    metavar="SIZE or same",
    to_human=_local_text(size_text),
    from_human=_local_from_text(size_bytes),
)
CHOICE: Final = Form("choice", "CHOICE")
POLICIES: Final = replace(CHOICE, from_text=policies_in_order)
COMPRESSION: Final = Form(
    "choice", "CHOICE", _compression_to_json, _compression_from_json,
    _compression_to_text, _compression_from_text, to_human=str, json_choices=("none", "s2"),
)  # fmt: skip
PERSIST_MODE: Final = Form(
    "choice",
    "CHOICE",
    _default_to_nothing,
    _nothing_to_default,
    json_choices=("default", "async", ""),
)
TRANSFORM: Final = Form("transform", "'SRC -> DEST'", _transform_to_json, _transform_from_json)
REPUBLISH: Final = Form("republish", "'SRC -> DEST'", _republish_to_json, _republish_from_json)
ORIGIN: Final = Form(
    "origin", "NAME or JSON", origin_json, origin_text, from_human=origin_from_human
)
ORIGINS: Final = Form(
    "origins", "NAMES or JSON", origin_json, origins_text, from_human=origins_from_human
)
CLUSTER: Final = Form("placement", "TEXT", _cluster_to_json, _cluster_from_json)
TABLE_SCHEMA: Final = Form("text", "FILE", from_text=str.strip, unset="")
"""On the command line the file is named that has it."""
CONSUMER_LIMITS: Final = Form("consumer_limits", "LIMITS", _limits_to_json, _limits_from_json)


@dataclass(frozen=True)
class Setting:
    """What a field of ``StreamConfig`` says of itself, besides type, range and default."""

    meaning: str
    """A sentence or two. Range, unit, choices and default are added where it is shown. The name of
    another setting is in braces: it becomes that of the topic config, or of the option.
    """
    _: KW_ONLY
    jetstream: str | None = None
    """The field of JetStream's StreamConfig; None: the key ``streamlog.<name>`` of its metadata."""
    omitempty: bool = False
    """JetStream leaves the field out where it has its zero value."""
    kafka: str | None = ""
    """The topic config; "": ``streamlog.<name>``; None: CreateTopics has a place of its own."""
    option: str | None = ""
    """Of ``stream add`` and ``stream edit``; "": of the name; None: another command sets it."""
    form: Form | None = None
    """None: that of the type and the unit."""
    is_list: bool = False
    """The text has members, separated by commas, that can be added and removed."""
    minus_one: str = "no limit"
    """What -1 stands for, where the range has it."""
    node_setting: str | None = None
    """Key of ``[log]`` that holds where the stream leaves it open."""
    default: str = ""
    """Where the default depends on other settings."""
    see: str = ""
    """A page of the documentation, with more about it."""
    level: int = 1
    """The feature level from which on nodes can read it; see ``feature_level``."""


class StreamSetting(NamedTuple):
    """A row of the table: a ``Setting`` with its name and its type."""

    name: str
    about: Setting
    type: ValueType
    default: Any
    form: Form

    @classmethod
    def of(cls, name: str, about: Setting, kind: ValueType, default: Any) -> "StreamSetting":
        return cls(name, about, kind, default, about.form or _form_of(name, kind))

    @property
    def key(self) -> str:
        """In JetStream's metadata."""
        return OUR_KEYS + self.name

    @property
    def jetstream(self) -> str | None:
        return self.about.jetstream

    @property
    def kafka(self) -> str | None:
        return self.key if self.about.kafka == "" else self.about.kafka

    @property
    def option(self) -> str | None:
        """As click declares it: both names of a flag, with a slash between them."""
        if self.about.option != "":
            return self.about.option
        name = self.name.removesuffix("_ms").replace("_", "-")
        return f"--{name}/--no-{name}" if self.type.kind is bool else f"--{name}"

    @property
    def unit(self) -> str:
        return {"DURATION": "ms", "SIZE": "bytes"}.get(self.form.metavar, "")

    @property
    def is_limit(self) -> bool:
        """It takes -1."""
        return self.type.low == NO_LIMIT

    @property
    def is_list(self) -> bool:
        return self.about.is_list

    @property
    def range_text(self) -> str:
        """Of a number: as in ``100ms to 7d``."""
        low, high = self.type.low, self.type.high
        if low is None or high is None:
            return ""
        if not self.is_limit:
            return f"{self.to_human(low)} to {self.to_human(high)}"
        return f"1 to {self.to_human(high)}, or {UNLIMITED}"

    def told(self, names: Mapping[str, str], *, human: bool = False) -> str:
        """What it means, with a default that is no value. ``names``: of settings, as they are called
        where it is shown; ``human``: values are as people write them.
        """
        parts = [self.about.meaning.format_map(names)]
        if self.is_limit:
            parts.append(f"{_HUMAN_LIMIT if human else NO_LIMIT}: {self.about.minus_one}.")
        if self.about.node_setting is not None:
            parts.append(f"Default: the node's log.{self.about.node_setting}.")
        elif self.about.default:
            parts.append(f"Default: {self.about.default.format_map(names)}.")
        return " ".join(parts)

    def to_human(self, value: Any) -> str:
        """As people write it on the command line."""
        if self.is_limit and value == NO_LIMIT:
            return UNLIMITED
        return (self.form.to_human or self.form.to_text)(value)

    def from_human(self, text: str) -> Any:
        """Raises ValueError, which says what is wrong with the text."""
        if self.is_limit and text in (UNLIMITED, str(NO_LIMIT)):
            return NO_LIMIT
        try:
            value = (self.form.from_human or self.form.from_text)(text)
        except ValueError as error:
            if self.form.from_human is not None:
                raise
            raise ValueError(f"{text!r} is not a value of it ({self.form.metavar})") from error
        if self.type.choices and value not in self.type.choices:
            raise ValueError(f"{text!r} is none of {', '.join(self.type.choices)}")
        low, high = 1 if self.is_limit else self.type.low, self.type.high
        if low is not None and high is not None and not low <= value <= high:
            raise ValueError(f"{text} is not {self.range_text}")
        return value


def _form_of(name: str, kind: ValueType) -> Form:
    if kind.choices:
        return CHOICE
    if kind.kind is int:
        return {"ms": DURATION, "bytes": SIZE}.get(unit_of(name), NUMBER)
    return {bool: FLAG, float: RATIO, tuple: TEXTS, str: TEXT}[kind.kind]
