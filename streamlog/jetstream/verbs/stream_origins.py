"""The rules of a mirror, of sources and of transforms in JetStream's StreamConfig, in its order and its words. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from streamlog.errors import InvalidStreamConfig, InvalidSubject
from streamlog.jetstream.errors import ApiError, ApiRefused, invalid_config
from streamlog.metadata.stream.stream_origin import (
    check_counts,
    is_origin_name,
    origin_text,
    origins_of,
    origins_text,
)
from streamlog.metadata.stream.subject_transform import SubjectTransform
from streamlog.metadata.stream.subjects import SUBJECT_BYTES_MAX, check_form, overlap

MIRROR_WITH_SOURCES: Final = ApiError(
    400, 10031, "stream mirrors can not also contain other sources"
)
MIRROR_WITH_SUBJECTS: Final = ApiError(400, 10034, "stream mirrors can not contain subjects")
MIRROR_WITH_FIRST_SEQ: Final = ApiError(
    400, 10143, "stream mirrors can not have first sequence configured"
)
MIRROR_WITH_ATOMIC: Final = ApiError(
    400, 10198, "stream mirrors can not also use atomic publishing"
)
MIRROR_WITH_BATCHES: Final = ApiError(
    400, 10209, "stream mirrors can not also use batch publishing"
)
MIRROR_WITH_COUNTERS: Final = ApiError(400, 10173, "stream mirrors can not also calculate counters")
MIRROR_WITH_MARKERS: Final = invalid_config("subject delete markers forbidden on mirrors")
MIRROR_WITH_SCHEDULES: Final = ApiError(400, 10186, "stream mirrors can not also schedule messages")
SOURCE_WITH_SCHEDULES: Final = ApiError(400, 10187, "stream source can not also schedule messages")
MIRROR_CHANGED: Final = ApiError(400, 10055, "stream mirror configuration can not be updated")
DUPLICATE_SOURCES: Final = ApiError(400, 10140, "duplicate source configuration detected")
MIRROR_CONSUMER: Final = ApiError(400, 10213, "stream mirror consumer config is invalid")
SOURCE_CONSUMER: Final = ApiError(400, 10215, "stream source consumer config is invalid")
DUPLICATE_CONSUMERS: Final = ApiError(400, 10216, "duplicate stream source consumer detected")
CYCLE: Final = invalid_config("detected cycle")


class _TransformWords:
    """What is said of a transform of subjects."""

    def __init__(self, kind: str, source: int, made: int) -> None:
        """``source``, ``made``: the codes of its two sides."""
        self.kind = kind
        self._source, self._made = source, made

    def source(self, subject: str) -> ApiError:
        said = f"{self.kind} transform source: invalid subject {subject}"
        return ApiError(400, self._source, said)

    def made(self, why: str) -> ApiError:
        return ApiError(400, self._made, f"{self.kind} transform: {why}")


class _Words(_TransformWords):
    """What is said of a mirror, or of a source."""

    def __init__(
        self, kind: str, name: str, codes: tuple[int, int, int, int, int], *, sep: str = ""
    ) -> None:
        """``codes``: of a name, of a filter beside transforms, and of transforms: of their sources, of filters that
        overlap, and of their destinations.
        """
        named, both, source, overlap, made = codes
        super().__init__(kind, source, made)
        self.consumer = MIRROR_CONSUMER if kind == "mirror" else SOURCE_CONSUMER
        self.name = ApiError(400, named, f"{name} stream name is invalid")
        self.both = ApiError(
            400,
            both,
            f"{kind} with multiple subject transforms cannot also have a single subject filter",
        )
        subject = "" if kind == "source" else "subject "
        self.overlap = ApiError(400, overlap, f"{kind} {subject}filters can not overlap")
        self._sep = sep

    def filter(self, subject: str) -> ApiError:
        said = f"subject filter '{subject}' for the {self.kind}{self._sep} invalid subject"
        return ApiError(500, 10049, said)


_STREAM: Final = _TransformWords("stream", 10155, 10156)
_MIRROR: Final = _Words("mirror", "mirrored", (10142, 10150, 10151, 10152, 10154))
_SOURCE: Final = _Words("source", "sourced", (10141, 10144, 10145, 10147, 10146), sep=":")


def check_origins(config: Mapping[str, Any]) -> None:
    """Of a configuration of JetStream's. Raises ApiRefused."""
    mirror, sources = config.get("mirror"), config.get("sources") or ()
    origins = [it for it in (mirror, *sources) if it is not None]
    counts = [len(it.get("subject_transforms") or ()) for it in origins]
    _honoured(check_counts, counts)
    if mirror is not None:
        if config["subjects"]:
            raise ApiRefused(MIRROR_WITH_SUBJECTS)
        if sources:
            raise ApiRefused(MIRROR_WITH_SOURCES)
        if (config.get("first_seq") or 0) > 0:
            raise ApiRefused(MIRROR_WITH_FIRST_SEQ)
        if config["allow_atomic"]:
            raise ApiRefused(MIRROR_WITH_ATOMIC)
        if config["allow_batched"]:
            raise ApiRefused(MIRROR_WITH_BATCHES)
        if config["allow_msg_counter"]:
            raise ApiRefused(MIRROR_WITH_COUNTERS)
        if config["subject_delete_marker_ttl"]:
            raise ApiRefused(MIRROR_WITH_MARKERS)
        if config["allow_msg_schedules"]:
            raise ApiRefused(MIRROR_WITH_SCHEDULES)
        _check(mirror, _MIRROR, config["name"])
        _honoured(origin_text, mirror)
    if sources and config["allow_msg_schedules"]:
        raise ApiRefused(SOURCE_WITH_SCHEDULES)
    seen, consumers = set[str](), set[tuple[str, str, str]]()
    for source in sources:
        _check(source, _SOURCE, config["name"])
        (origin,) = origins_of(_honoured(origins_text, [source]))
        if origin.index_name in seen:
            raise ApiRefused(DUPLICATE_SOURCES)
        seen.add(origin.index_name)
        consumer = (origin.name, origin.api, origin.consumer)
        if origin.consumer and consumer in consumers:
            raise ApiRefused(DUPLICATE_CONSUMERS)
        consumers.add(consumer)


def _honoured(read: Any, value: Any) -> Any:
    try:
        return read(value)
    except InvalidStreamConfig as error:
        raise ApiRefused(invalid_config(str(error))) from None


def _check(origin: Mapping[str, Any], words: _Words, own_name: str) -> None:
    name, external = origin.get("name") or "", origin.get("external")
    if not is_origin_name(name):
        raise ApiRefused(words.name)
    filtered, transforms = (
        origin.get("filter_subject") or "",
        origin.get("subject_transforms") or (),
    )
    if words is _MIRROR:
        _check_consumer(origin, words)
    if filtered and transforms:
        raise ApiRefused(words.both)
    if filtered and not _is_subject(filtered):
        raise ApiRefused(words.filter(filtered))
    _check_transforms(transforms, words)
    if words is _SOURCE:
        _check_consumer(origin, words)
    if external is None:
        if name == own_name:
            raise ApiRefused(CYCLE)
        return
    api, deliver = external.get("api") or "", external.get("deliver") or ""
    if api and (not _is_subject(api.rstrip(".")) or "*" in api or ">" in api):
        said = f'stream external api prefix "{api}" must be a valid subject without wildcards'
        raise ApiRefused(invalid_config(said))
    if deliver and ("*" in deliver or ">" in deliver):
        said = f"stream external delivery prefix {deliver} must not contain wildcards"
        raise ApiRefused(ApiError(400, 10024, said))


def _check_consumer(origin: Mapping[str, Any], words: _Words) -> None:
    """Where it begins, and what it leaves out, are the consumer's."""
    consumer = origin.get("consumer")
    if consumer is None:
        return
    deliver = consumer.get("deliver_subject") or ""
    is_literal = {"*", ">"}.isdisjoint(deliver.split("."))
    is_good = is_origin_name(consumer.get("name") or "") and is_literal and _is_subject(deliver)
    begins = origin.get("opt_start_seq") or origin.get("opt_start_time") is not None
    if not is_good or begins or origin.get("filter_subject"):
        raise ApiRefused(words.consumer)


def check_transform(config: Mapping[str, Any]) -> None:
    """Of the stream's own messages. Raises ApiRefused. What is too long is refused with the other settings."""
    transform = config.get("subject_transform") or {}
    if all(len(transform.get(side) or "") <= SUBJECT_BYTES_MAX for side in ("src", "dest")):
        _check_transform(transform, _STREAM)


def _check_transform(transform: Mapping[str, str], words: _TransformWords) -> str:
    """The subjects that it is for."""
    source, made = transform.get("src") or "", transform.get("dest") or ""
    if source and not _is_subject(source):
        raise ApiRefused(words.source(source))
    if made:
        try:
            SubjectTransform(source or ">", made)
        except InvalidSubject as error:
            raise ApiRefused(words.made(str(error))) from None
    return source or ">"


def _check_transforms(transforms: Sequence[Mapping[str, str]], words: _Words) -> None:
    for place, it in enumerate(transforms):
        source = _check_transform(it, words)
        others = (other.get("src") or ">" for other in transforms[place + 1 :])
        if any(overlap(source, other) for other in others):
            raise ApiRefused(words.overlap)


def _is_subject(subject: str) -> bool:
    try:
        check_form(subject)
    except InvalidSubject:
        return False
    return True
