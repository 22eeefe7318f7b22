"""JetStream's StreamConfig: its rules, in its order and its words, and the translation to ours. Pure.

``normalised`` is what remains of a configuration that keeps the rules, the numbers that stand for
"no limit" being -1. Whether streamlog can honour it is asked afterwards, by ``config_from_json``;
the table of ``metadata`` translates.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from streamlog.errors import InvalidStreamConfig, InvalidSubject
from streamlog.jetstream.errors import (
    REPLICAS_NEGATIVE,
    ApiError,
    ApiRefused,
    invalid_config,
    pedantic,
)
from streamlog.jetstream.replies import JsonText, encoded
from streamlog.jetstream.requests.fields import Fields
from streamlog.jetstream.verbs.stream_origins import check_origins, check_transform
from streamlog.metadata.stream.setting_type import StreamSetting
from streamlog.metadata.stream.settings_translation import (
    JETSTREAM_FIELDS,
    SETTINGS,
    from_jetstream,
    to_jetstream,
)
from streamlog.metadata.stream.stream_config import (
    DESCRIPTION_BYTES_MAX,
    METADATA_BYTES_MAX,
    RESTORING,
    StreamConfig,
    check_writable_by_clients,
    default_window_ms,
)
from streamlog.metadata.stream.subjects import (
    SUBJECT_BYTES_MAX,
    SUBJECTS_MAX,
    SubjectTree,
    check_form,
    check_space,
)


class Fixed(NamedTuple):
    """A field that means one thing here: what we echo, and which values ask for no other."""

    echo: Any
    """None: left out."""
    passes: Callable[[Any], bool]


def _empty(value: Any) -> bool:
    """As a client sends what was never set."""
    return not value or (isinstance(value, Mapping) and not any(value.values()))


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value is None or value in values


def _anything(value: Any) -> bool:
    return True


FIXED: dict[str, Fixed] = {
    "pedantic": Fixed(None, _anything),
}
"""Fields that the table does not translate. Any other field must be empty."""
KEPT_CONFIGS_MAX: Final = 1_000
KEPT_TEXTS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Those of ten thousand streams take about six."""
_ECHOES: Final = {name: row.echo for name, row in FIXED.items() if row.echo is not None}

OMITTED_IF_EMPTY = frozenset(
    {
        "mirror", "sources",
        "metadata",
        *(it.jetstream for it in SETTINGS if it.jetstream is not None and it.about.omitempty),
    }
)  # fmt: skip
"""What JetStream leaves out where it is not set; all else it tells always."""
AUTO_PAUSED: Final = "_streamlog.auto_paused"
TOLD_KEYS = frozenset({"_nats.ver", "_nats.level", "_nats.req.level", AUTO_PAUSED, RESTORING})
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
    told = {**_ECHOES, **to_jetstream(config)}
    if config.is_fed and config.duplicate_window_ms == default_window_ms(config.retention_ms):
        told.pop("duplicate_window", None)  # JetStream has no default for those
    for key in [key for key in OMITTED_IF_EMPTY & told.keys() if not told[key]]:
        del told[key]
    return told


class KeptTexts:
    """JSON by the name of a stream, made of a value that is never changed; all are dropped when they are too many.

    They are bytes, which the garbage collector does not look at: with an object for each of ten thousand, a list
    of all of them took twice as long.
    """

    def __init__(self) -> None:
        self._values: dict[str, object] = {}
        self._texts: dict[str, bytes] = {}
        self._bytes = 0
        """Added up over all that was put there since it was empty."""

    def get(self, name: str, value: object) -> bytes | None:
        """Unless it was made of another value."""
        return self._texts[name] if self._values.get(name) is value else None

    def put(self, name: str, value: object, text: bytes) -> bytes:
        self._bytes += len(text)
        if self._bytes > KEPT_TEXTS_BYTES_MAX:
            self._values.clear()
            self._texts.clear()
            self._bytes = len(text)
        self._values[name] = value
        self._texts[name] = text
        return text


class ConfigTexts:
    """``config_to_json`` of configurations that were asked for, of the last ones also as JSON's values. Neither
    must be changed.
    """

    def __init__(self) -> None:
        self._told: dict[str, tuple[StreamConfig, dict[str, Any]]] = {}
        self._texts = KeptTexts()

    def of(self, config: StreamConfig) -> dict[str, Any]:
        known = self._told.get(config.name)
        if known is not None and known[0] is config:
            return known[1]
        if len(self._told) >= KEPT_CONFIGS_MAX:
            self._told.clear()
        told = config_to_json(config)
        self._told[config.name] = config, told
        return told

    def text_of(self, config: StreamConfig) -> JsonText:
        """For a list, which may tell of very many."""
        text = self._texts.get(config.name, config)
        if text is None:
            known, told = self._told.get(config.name, (None, None))
            told = told if known is config and told else config_to_json(config)
            text = self._texts.put(config.name, config, encoded(told))
        return JsonText(text)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


NAME_LENGTH_MAX: Final = 255
REPLICAS_MAX: Final = 5
MS: Final = 1_000_000
"""In nanoseconds, as all durations here."""
SECOND: Final = 1_000 * MS
SHORTEST_NS: Final = 100 * MS
WINDOW_NS: Final = 120 * SECOND
NOT_IN_NAMES: Final = frozenset(" \t\r\n\f.*>\\/")

_LIMITS: Final = tuple(
    row.jetstream
    for row in SETTINGS
    if row.jetstream is not None and row.is_limit and row.form.json != "duration"
)
"""In the order in which JetStream looks at them."""


def _unset(row: StreamSetting) -> Any:
    """What JetStream takes a setting for that is not named."""
    return row.default if row.form.unset is None else row.form.unset


_DEFAULTS: Final[Mapping[str, Any]] = {
    "name": "",
    "metadata": {},
    "pedantic": False,
    **{
        row.jetstream: _unset(row)
        for row in SETTINGS
        if row.jetstream is not None
        and row.form.json
        not in ("transform", "republish", "placement", "origin", "origins", "consumer_limits")
    },
    **dict.fromkeys(_LIMITS, -1),
}

Config = dict[str, Any]


class ConfigRule(NamedTuple):
    """What must not be, and what is said then."""

    broken: Callable[[Config], bool]
    told: ApiError


def _rule(told: str, broken: Callable[[Config], bool]) -> ConfigRule:
    return ConfigRule(broken, invalid_config(told))


def is_valid_name(name: str) -> bool:
    return bool(name) and NOT_IN_NAMES.isdisjoint(name)


def normalised(fields: Fields) -> Config:
    """Raises ApiRefused with the first rule that is broken."""
    config: Config = {**_DEFAULTS, **fields}
    _check(config, _FIRST)
    config["num_replicas"] = config["num_replicas"] or 1
    _check(config, _REPLICAS)
    for name in _LIMITS:
        _normalise_limit(config, name)
    _check(config, _AGE)
    if not config["duplicate_window"] and not config.get("mirror") and not config.get("sources"):
        config["duplicate_window"] = _default_window(config)
    _check(config, _COMBINATIONS)
    _imply(config)
    _check(config, _PERSISTENCE)
    check_origins(config)
    if config.get("mirror") is None:
        if not config.get("sources"):
            config["subjects"] = config["subjects"] or [config["name"]]
        _check_subjects(config)
    check_transform(config)
    if (config.get("placement") or {}).get("preferred"):
        raise ApiRefused(invalid_config("preferred server not permitted in placement"))
    return config


def check_creation(fields: Fields) -> None:
    """What a stream cannot begin as; asked before anything else about it. Raises ApiRefused."""
    if fields.get("sealed"):
        raise ApiRefused(invalid_config("stream configuration for create can not be sealed"))
    if fields.get("mirror_direct") and not fields.get("mirror"):
        raise ApiRefused(invalid_config("stream has no mirror but does have mirror direct"))


def _metadata_bytes(config: Config) -> int:
    return sum(len(k.encode()) + len(v.encode()) for k, v in config["metadata"].items())


def _with_counter(told: str, broken: Callable[[Config], bool]) -> ConfigRule:
    return _rule(f"counter stream {told}", lambda it: it["allow_msg_counter"] and broken(it))


def _per_subject(told: str, broken: Callable[[Config], bool]) -> ConfigRule:
    return _rule(
        f"discard new per subject requires {told}",
        lambda it: it["discard_new_per_subject"] and broken(it),
    )


def _async(told: str, broken: Callable[[Config], bool]) -> ConfigRule:
    return _rule(
        f"async persist mode is {told}", lambda it: it["persist_mode"] == "async" and broken(it)
    )


def _marker(broken: Callable[[int], bool]) -> Callable[[Config], bool]:
    return lambda it: broken(it["subject_delete_marker_ttl"])


_FIRST: Final = (
    _rule(
        "stream name is required and can not contain '.', '*', '>', '\\', '/'",
        lambda it: not is_valid_name(it["name"]),
    ),
    _rule(
        f"stream name is too long, maximum allowed is {NAME_LENGTH_MAX}",
        lambda it: len(it["name"].encode()) > NAME_LENGTH_MAX,
    ),
    _rule(
        f"stream description is too long, maximum allowed is {DESCRIPTION_BYTES_MAX}",
        lambda it: len(it["description"].encode()) > DESCRIPTION_BYTES_MAX,
    ),
    _rule(
        f"stream metadata exceeds maximum size of {METADATA_BYTES_MAX} bytes",
        lambda it: _metadata_bytes(it) > METADATA_BYTES_MAX,
    ),
)
_REPLICAS: Final = (
    _rule(
        f"maximum replicas is {REPLICAS_MAX}",
        lambda it: it["num_replicas"] > REPLICAS_MAX,
    ),
    ConfigRule(lambda it: it["num_replicas"] < 0, REPLICAS_NEGATIVE),
)
_AGE: Final = (
    _rule("max age can not be negative", lambda it: it["max_age"] < 0),
    _rule("max age needs to be >= 100ms", lambda it: 0 < it["max_age"] < SHORTEST_NS),
)
_COMBINATIONS: Final = (
    _rule("duplicates window can not be negative", lambda it: it["duplicate_window"] < 0),
    _rule(
        "duplicates window can not be larger then max age",
        lambda it: 0 < it["max_age"] < it["duplicate_window"],
    ),
    _rule(
        "duplicates window needs to be >= 100ms",
        lambda it: 0 < it["duplicate_window"] < SHORTEST_NS,
    ),
    _rule(
        "roll-ups require the purge permission",
        lambda it: it["deny_purge"] and it["allow_rollup_hdrs"],
    ),
    _with_counter("cannot use discard new", lambda it: it["discard"] == "new"),
    _with_counter("cannot use message TTLs", lambda it: it["allow_msg_ttl"]),
    _with_counter("cannot use message schedules", lambda it: it["allow_msg_schedules"]),
    _with_counter("can only use limits retention", lambda it: it["retention"] != "limits"),
    _per_subject("discard new policy to be set", lambda it: it["discard"] != "new"),
    _per_subject("max msgs per subject > 0", lambda it: it["max_msgs_per_subject"] <= 0),
    _rule(
        "subject delete marker TTL must be at least 1 second",
        _marker(lambda ttl_ns: 0 < ttl_ns < SECOND),
    ),
    _rule("subject delete marker TTL must not be negative", _marker(lambda ttl_ns: ttl_ns < 0)),
    _rule(
        "message scheduling cannot use discard new",
        lambda it: it["allow_msg_schedules"] and it["discard"] == "new",
    ),
)
_PERSISTENCE: Final = (
    _async("only supported on file storage", lambda it: it["storage"] != "file"),
    _async("not supported on replicated streams", lambda it: it["num_replicas"] > 1),
    _async("not supported with atomic batch publish", lambda it: it["allow_atomic"]),
)


def _check(config: Config, rules: Iterable[ConfigRule]) -> None:
    for rule in rules:
        if rule.broken(config):
            raise ApiRefused(rule.told)


def _normalise_limit(config: Config, name: str) -> None:
    if config["pedantic"] and config[name] < -1:
        raise ApiRefused(pedantic(f"{name} must be set to -1"))
    if config[name] < 1:
        config[name] = -1


def _default_window(config: Config) -> int:
    age_ns: int = config["max_age"]
    if not 0 < age_ns < WINDOW_NS:
        return WINDOW_NS
    if config["pedantic"]:
        raise ApiRefused(pedantic("duplicate window cannot be bigger than max age"))
    return age_ns


def _imply(config: Config) -> None:
    """Settings that others bring along; who asked for pedantry is told instead."""
    if config["subject_delete_marker_ttl"]:
        _require(config, "allow_msg_ttl", "subject delete marker", "message TTLs")
        _require(config, "allow_rollup_hdrs", "subject delete marker", "roll-ups")
        config["deny_purge"] = False
    if config["allow_msg_schedules"]:
        _require(config, "allow_rollup_hdrs", "message scheduling", "roll-ups")
        config["deny_purge"] = False


def _require(config: Config, name: str, wish: str, needed: str) -> None:
    if not config[name] and config["pedantic"]:
        raise ApiRefused(invalid_config(f"{wish} cannot be set if {needed} are disabled"))
    config[name] = True


def _check_subjects(config: Config) -> None:
    """In JetStream's order: the first subject that is wrong in any way. In linear time, since the
    sender of the request is not known yet.
    """
    subjects: list[str] = config["subjects"]
    if len(subjects) > SUBJECTS_MAX:
        told = f"subjects: at most {SUBJECTS_MAX} are allowed, not {len(subjects)}"
        raise ApiRefused(invalid_config(told))
    if any(len(subject) > SUBJECT_BYTES_MAX for subject in subjects):
        raise ApiRefused(invalid_config("invalid subject"))
    overlaps = _later_overlaps(subjects)
    seen: set[str] = set()
    for subject, other in zip(subjects, overlaps, strict=True):
        try:
            check_form(subject)
        except InvalidSubject:
            raise ApiRefused(invalid_config("invalid subject")) from None
        if subject in seen:
            raise ApiRefused(invalid_config("duplicate subjects detected"))
        seen.add(subject)
        if not config["no_ack"]:
            _check_space(subject)
        if other is not None:
            raise ApiRefused(
                invalid_config(f'subject "{subject}" overlaps with "{subjects[other]}"')
            )


def _later_overlaps(subjects: Sequence[str]) -> list[int | None]:
    """For each subject the place of the first one after it that overlaps with it."""
    tree, found = SubjectTree(), list[int | None]()
    try:
        for place in range(len(subjects) - 1, -1, -1):
            found.append(tree.overlapping(subjects[place]))
            tree.add(subjects[place], place)
    except InvalidSubject as error:
        raise ApiRefused(invalid_config(str(error))) from None
    return found[::-1]


def _check_space(subject: str) -> None:
    try:
        check_space(subject)
    except InvalidSubject as error:
        raise ApiRefused(invalid_config(str(error))) from None
