"""Where a mirror, or a source of a stream, takes its messages from: JetStream's StreamSource. Pure.

A configuration keeps an origin as JSON text in JetStream's own words, with its fields in one order, so that equal
origins are equal texts. ``origin_of`` and ``origins_of`` read such texts; ``origin_text`` and ``origins_text`` write
them, of JSON or of what a client sent.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple

from streamlog.errors import InvalidStreamConfig, InvalidSubject
from streamlog.metadata.stream.subject_transform import SubjectTransform
from streamlog.metadata.stream.subjects import check_form, overlap

ORIGINS_MAX: Final = 1_000
"""Sources of one stream; each is a consumer at its origin."""
TRANSFORMS_MAX: Final = 64
"""Of one origin: each is compared with each."""
ALL_TRANSFORMS_MAX: Final = 1_000
"""Of all sources of a stream."""
TEXT_BYTES_MAX: Final = 256 * 1024
"""Of all sources of a stream."""
SEQUENCE_MAX: Final = 2**63 - 1
CONSUMER_MARK: Final = ":C="
"""Before a consumer in a source's index name, as JetStream has it."""
FILTERS_SEPARATOR: Final = "\f"
"""Between the filters in a source's index name, as JetStream has it."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NOT_IN_NAMES: Final = frozenset(" \t\r\n\f.*>\\/")


class Transform(NamedTuple):
    """Messages of the subjects ``src``, and what subject they get; "": the one that they have."""

    src: str
    dest: str


class StreamOrigin(NamedTuple):
    """One mirror or source. Without ``api`` the origin is a stream of this cluster."""

    name: str
    start_seq: int = 0
    """Where nothing was taken yet: the first sequence; 0: from the start."""
    start_ms: int | None = None
    """The same, by time; counts before ``start_seq``."""
    filter_subject: str = ""
    transforms: tuple[Transform, ...] = ()
    api: str = ""
    """The prefix of the JetStream API that has the origin, without a dot at the end."""
    deliver: str = ""
    """The prefix of the subjects to which it delivers."""
    consumer: str = ""
    """Of the origin, durable, with ``ack_policy: flow_control``: read by it; "": by one that is made for it."""
    consumer_deliver: str = ""
    """Its deliver subject."""

    @property
    def filters(self) -> tuple[str, ...]:
        """The subjects that are wanted; none: all."""
        if self.transforms:
            return tuple(it.src or ">" for it in self.transforms)
        return (self.filter_subject,) if self.filter_subject not in ("", ">") else ()

    @property
    def index_name(self) -> str:
        """What tells the sources of a stream apart."""
        filters = FILTERS_SEPARATOR.join(self.filters) or ">"
        made = FILTERS_SEPARATOR.join(it.dest or ">" for it in self.transforms) or ">"
        place = f"{self.name}:{self.api}" if self.api else self.name
        if self.consumer:
            place += f"{CONSUMER_MARK}{self.consumer}"
        return f"{place} {filters} {made}"

    def json(self) -> dict[str, Any]:
        """In JetStream's words."""
        said: dict[str, Any] = {"name": self.name}
        if self.start_seq:
            said["opt_start_seq"] = self.start_seq
        if self.start_ms is not None:
            said["opt_start_time"] = _time(self.start_ms)
        if self.filter_subject:
            said["filter_subject"] = self.filter_subject
        if self.transforms:
            said["subject_transforms"] = [it._asdict() for it in self.transforms]
        if self.api or self.deliver:
            said["external"] = {"api": self.api, "deliver": self.deliver}
        if self.consumer or self.consumer_deliver:
            said["consumer"] = {"name": self.consumer, "deliver_subject": self.consumer_deliver}
        return said


def origin_text(value: Any) -> Any:
    """The text of an origin out of JetStream's JSON; None for none. What is none is returned as it came."""
    if value is None or not isinstance(value, Mapping):
        return value
    return _text(_read(value).json())


def origins_text(value: Any) -> Any:
    """The same of a list."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return value
    return _text([_read(it).json() for it in value]) if value else None


def origin_json(text: str) -> Any:
    """What ``origin_text`` was made of."""
    return json.loads(text) if text else None


def origin_from_human(text: str) -> str:
    """A stream's name, or JSON in JetStream's words. Raises ValueError."""
    try:
        value = json.loads(text) if text.lstrip().startswith("{") else {"name": text}
        return _text(_read(value).json()) if text else ""
    except (InvalidStreamConfig, TypeError) as error:
        raise ValueError(str(error)) from None


def origins_from_human(text: str) -> str:
    """Names with commas between them, or a JSON list. Raises ValueError."""
    if not text.lstrip().startswith("["):
        value: Any = [{"name": name.strip()} for name in text.split(",")] if text else []
    else:
        value = json.loads(text)
    try:
        return origins_text(value) or ""
    except (InvalidStreamConfig, TypeError) as error:
        raise ValueError(str(error)) from None


@lru_cache(4096)
def origin_of(text: str) -> StreamOrigin:
    """Of a text that was checked. Raises InvalidStreamConfig, ValueError."""
    return _read(json.loads(text))


@lru_cache(4096)
def origins_of(text: str) -> tuple[StreamOrigin, ...]:
    """Raises as ``origin_of``."""
    return tuple(_read(it) for it in json.loads(text)) if text else ()


def is_origin_name(name: str) -> bool:
    """JetStream takes names that ours may not have."""
    return bool(name) and _NOT_IN_NAMES.isdisjoint(name)


def check_counts(counts: Sequence[int]) -> None:
    """``counts``: of transforms, of each source. Asked first, so that checking costs little. Raises
    InvalidStreamConfig.
    """
    if len(counts) > ORIGINS_MAX:
        raise InvalidStreamConfig(f"sources: at most {ORIGINS_MAX}, not {len(counts)}")
    if max(counts, default=0) > TRANSFORMS_MAX or sum(counts) > ALL_TRANSFORMS_MAX:
        raise InvalidStreamConfig(
            f"subject_transforms: at most {TRANSFORMS_MAX} of an origin, and {ALL_TRANSFORMS_MAX} of all"
        )


def check_origin(origin: StreamOrigin, what: str) -> None:
    """``what``: ``mirror`` or ``source``. Raises InvalidStreamConfig."""
    if not is_origin_name(origin.name):
        raise InvalidStreamConfig(f"{what}: {origin.name[:60]!r} is no stream's name")
    if origin.filter_subject and origin.transforms:
        raise InvalidStreamConfig(f"{what}: filter_subject and subject_transforms are both set")
    if not 0 <= origin.start_seq <= SEQUENCE_MAX:
        raise InvalidStreamConfig(f"{what}: opt_start_seq: {origin.start_seq} is no sequence")
    _check_consumer(origin, what)
    for text in (origin.api, origin.deliver):
        if any(char.isspace() or char in "*>" for char in text):
            raise InvalidStreamConfig(f"{what}: external: {text[:60]!r} is no subject")
    if len(_text(origin.json())) > TEXT_BYTES_MAX:
        raise InvalidStreamConfig(f"{what}: at most {TEXT_BYTES_MAX} bytes")
    try:
        for subject in origin.filters:
            check_form(subject)
        for it in origin.transforms:
            if it.dest:
                SubjectTransform(it.src or ">", it.dest)
    except InvalidSubject as error:
        raise InvalidStreamConfig(f"{what}: {error}") from None
    filters = origin.filters
    for place, one in enumerate(filters):
        if any(overlap(one, other) for other in filters[place + 1 :]):
            raise InvalidStreamConfig(f"{what}: the filter {one!r} overlaps with another one")


def _check_consumer(origin: StreamOrigin, what: str) -> None:
    if not (origin.consumer or origin.consumer_deliver):
        return
    try:
        check_form(origin.consumer_deliver)
        is_good = {"*", ">"}.isdisjoint(origin.consumer_deliver.split("."))
    except InvalidSubject:
        is_good = False
    if not (is_good and is_origin_name(origin.consumer)):
        raise InvalidStreamConfig(f"stream {what} consumer config is invalid")
    if origin.start_seq or origin.start_ms is not None or origin.filter_subject:
        raise InvalidStreamConfig(
            f"{what}: where it begins, and its filter, are those of its consumer"
        )


def transform_of(origin: StreamOrigin) -> "OriginTransform":
    """The subjects that its messages get."""
    return OriginTransform(origin.transforms)


class OriginTransform:
    """The first transform counts whose ``src`` matches."""

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self._made = [
            SubjectTransform(it.src or ">", it.dest) if it.dest else None for it in transforms
        ]
        self._kept = [SubjectTransform(it.src or ">", _same(it.src or ">")) for it in transforms]

    def __call__(self, subject: str) -> str:
        for kept, made in zip(self._kept, self._made, strict=True):
            if kept(subject) is not None:
                return (made(subject) if made else None) or subject
        return subject


def _same(pattern: str) -> str:
    """The destination that leaves a subject of this pattern as it is."""
    wildcards, tokens = 0, []
    for token in pattern.split("."):
        wildcards += token == "*"
        tokens.append(f"{{{{wildcard({wildcards})}}}}" if token == "*" else token)
    return ".".join(tokens)


def _read(value: Any) -> StreamOrigin:
    """Raises InvalidStreamConfig for what is no origin."""
    if not isinstance(value, Mapping):
        raise InvalidStreamConfig(f"{str(value)[:60]!r} is no origin of a stream")
    external, consumer = value.get("external") or {}, value.get("consumer") or {}
    transforms = value.get("subject_transforms") or ()
    try:
        return StreamOrigin(
            str(value.get("name") or ""),
            int(value.get("opt_start_seq") or 0),
            _time_ms(value.get("opt_start_time")),
            str(value.get("filter_subject") or ""),
            tuple(Transform(str(it.get("src", "")), str(it.get("dest", ""))) for it in transforms),
            str(external.get("api") or "").rstrip("."),
            str(external.get("deliver") or "").rstrip("."),
            str(consumer.get("name") or ""),
            str(consumer.get("deliver_subject") or ""),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidStreamConfig(f"an origin of a stream: {error}") from None


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _time(time_ms: int) -> str:
    """As Go writes it."""
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    text = moment.isoformat(timespec="milliseconds").replace("+00:00", "")
    return re.sub(r"\.?0*$", "", text) + "Z" if "." in text else f"{text}Z"


def _time_ms(value: Any) -> int | None:
    """Raises ValueError."""
    if value is None or isinstance(value, int):
        return value
    moment = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return -((_EPOCH - moment) // timedelta(milliseconds=1))
