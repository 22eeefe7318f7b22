"""JetStream's ConsumerConfig: what a consumer is set to, and its rules in nats-server's order and words. Pure.

``read_create`` reads a request of the three forms of CONSUMER.CREATE: it checks the request against its subject,
fills in nats-server's defaults, and raises ApiRefused with the first rule that is broken. Whether the consumer is
there already decides what it comes to: ``decided`` compares the two, and says what may not change.

Durations are milliseconds here, nanoseconds in JSON. A part of a millisecond counts as one, after the rules.
Times are UTC.

On purpose we refuse more than nats-server does: control characters in names, wildcards within tokens, very long
subjects, very many filters. In two cases we are kinder. A create that is repeated word for word finds its
consumer, also where nats-server takes the inactive threshold that it filled in itself for a difference. And a
consumer that becomes durable is not deleted for being idle.
"""

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from streamlog.errors import InvalidSubject
from streamlog.jetstream.consumers.go_duration import MS, go_text, ms_of
from streamlog.jetstream.errors import (
    NAME_MISMATCH,
    REPLICAS,
    REPLICAS_NEGATIVE,
    ApiError,
    ApiRefused,
    invalid_config,
    invalid_json,
    no_consumer,
    pedantic,
)
from streamlog.jetstream.requests.fields import Fields
from streamlog.jetstream.requests.request_schemas import CONSUMER_CONFIG
from streamlog.jetstream.requests.schema import INT64_MAX
from streamlog.jetstream.verbs.stream_config import NAME_LENGTH_MAX, is_valid_name
from streamlog.jetstream.verbs.stream_info import rfc3339
from streamlog.metadata.stream.consumer_limits import ConsumerLimits
from streamlog.metadata.stream.stream_config import (
    DESCRIPTION_BYTES_MAX,
    METADATA_BYTES_MAX,
    StreamConfig,
)
from streamlog.metadata.stream.subjects import SubjectTree, check_form, is_subset

ACK_WAIT_MS: Final = 30_000
MAX_WAITING: Final = 512
MAX_ACK_PENDING: Final = 1_000
INACTIVE_THRESHOLD_MS: Final = 5_000
"""Of a consumer without a durable name."""
PINNED_TTL_MS: Final = 120_000
FLOW_CONTROL_HEARTBEAT_MS: Final = 1_000
HEARTBEAT_MS_MIN: Final = 100
FLOW_NEEDS_ONE_PARTITION: Final = (
    "ack_policy: 'flow_control' names sequences of the stream, which must have one partition"
)
FILTERS_MAX: Final = 1_000
FILTER_STEPS_MAX: Final = 600_000
"""Tokens that the comparison of filters with those that have wildcards may look at, about 0.1 s: they are compared
before anything is known about the rights of the client."""
NATS_KEYS: Final = frozenset({"_nats.ver", "_nats.level", "_nats.req.level"})
"""Of the metadata: what nats-server says of a consumer, and a client that read it sends back."""
_LEVEL_BYTES: Final = len("_nats.req.level") + 1
"""nats-server adds it before it looks at the size of the metadata."""
_TIME_MS: Final = (-62_135_596_800_000, 253_402_300_799_999)
"""The years 1 to 9999."""
ZERO_TIME_MS: Final = _TIME_MS[0]
"""Go's time that is not set."""
_GROUP: Final = re.compile(r"[a-zA-Z0-9/_=-]{1,16}", re.ASCII)

CONSUMER_EXISTS: Final = ApiError(400, 10148, "consumer already exists")
CONSUMER_DOES_NOT_EXIST: Final = ApiError(400, 10149, "consumer does not exist")
NAME_IN_USE: Final = ApiError(400, 10013, "consumer name already in use")
_BACKOFF_TOO_LONG: Final = ApiError(
    400, 10116, "max deliver is required to be > length of backoff values"
)
_INVALID_GROUP: Final = ApiError(
    400,
    10162,
    "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The fields in JetStream's order. The defaults are what a field is that is left out."""

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: str = "all"
    """``all``, ``last``, ``new``, ``by_start_sequence``, ``by_start_time``, ``last_per_subject``."""
    opt_start_seq: int = 0
    opt_start_time_ms: int | None = None
    ack_policy: str = "none"
    """``none``, ``all``, ``explicit``; ``flow_control``: all before an answer to flow control."""
    ack_wait_ms: int = 0
    max_deliver: int = -1
    """-1: no limit."""
    backoff_ms: tuple[int, ...] = ()
    filter_subject: str = ""
    filter_subjects: tuple[str, ...] = ()
    replay_policy: str = "instant"
    """``instant``, ``original``."""
    rate_limit_bps: int = 0
    sample_freq: str = ""
    """A percentage, with or without its sign."""
    max_waiting: int = 0
    max_ack_pending: int = 0
    """-1: no limit."""
    flow_control: bool = False
    headers_only: bool = False
    max_batch: int = 0
    """Of a pull request, as the two below; 0: no limit."""
    max_expires_ms: int = 0
    max_bytes: int = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat_ms: int = 0
    inactive_threshold_ms: int = 0
    """0: it stays."""
    num_replicas: int = 0
    """0: as the stream's."""
    mem_storage: bool = False
    direct: bool = False
    """Of a mirror or source: nothing of it is kept, and no list shows it."""
    sourcing: bool = False
    """Of a mirror or source; where it is not ``direct``, it goes back to its floor when it is made again."""
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pause_until_ms: int | None = None
    priority_groups: tuple[str, ...] = ()
    priority_policy: str = "none"
    """``none``, ``overflow``, ``pinned_client``, ``prioritized``."""
    priority_timeout_ms: int = 0

    @property
    def is_durable(self) -> bool:
        return bool(self.durable_name)

    @property
    def is_kept(self) -> bool:
        """It outlives its coordinator: it is durable, or neither asked to be in memory nor one of a mirror."""
        return self.is_durable or not (self.mem_storage or self.direct)

    @property
    def is_push(self) -> bool:
        return bool(self.deliver_subject)

    @property
    def acks_by_flow(self) -> bool:
        """Answers to flow control acknowledge."""
        return self.ack_policy == "flow_control"

    @property
    def takes_acks(self) -> bool:
        """Of each message, at the subject that the message names."""
        return self.ack_policy in ("explicit", "all")

    @property
    def is_of_stream(self) -> bool:
        """It serves a mirror or source: it does not count among the consumers of its stream."""
        return self.direct or self.sourcing

    @property
    def filters(self) -> tuple[str, ...]:
        """None: every message of the stream."""
        return (self.filter_subject,) if self.filter_subject else self.filter_subjects

    @property
    def sample_percent(self) -> int:
        """Of the acknowledgements, how many are reported."""
        return int(self.sample_freq.removesuffix("%") or "0")

    def json(self) -> dict[str, Any]:
        """As CONSUMER.INFO shows it: most fields are left out where they are empty."""
        told: dict[str, Any] = {}
        for name, attribute in _ATTRIBUTES.items():
            value = getattr(self, attribute)
            if name in _TIMES:
                if value is not None:
                    told[name] = rfc3339(value)
            elif name in _ALWAYS_TOLD or (value and value != _EMPTY[name]):
                told[name] = _told(name, value)
        return told

    @classmethod
    def of_json(cls, fields: Mapping[str, Any]) -> Self:
        """What ``json`` wrote."""
        return cls(**_attributes({**_EMPTY, **CONSUMER_CONFIG.read(fields, strict=False)}))


_DURATIONS: Final = frozenset(
    {"ack_wait", "max_expires", "idle_heartbeat", "inactive_threshold", "priority_timeout"}
)
_TIMES: Final = frozenset({"opt_start_time", "pause_until"})
_LISTS: Final = frozenset({"filter_subjects", "priority_groups"})
_ALWAYS_TOLD: Final = frozenset({"deliver_policy", "ack_policy", "replay_policy", "num_replicas"})
_ATTRIBUTES: Final[Mapping[str, str]] = {
    field.name.removesuffix("_ms"): field.name for field in dataclasses.fields(ConsumerConfig)
}
"""By the name in JSON."""
_EMPTY: Final[Mapping[str, Any]] = MappingProxyType(
    {
        **dict.fromkeys(_ATTRIBUTES, 0),
        **dict.fromkeys(_TIMES),
        **dict.fromkeys(("backoff", *_LISTS), ()),
        **dict.fromkeys(
            ("flow_control", "headers_only", "mem_storage", "direct", "sourcing"), False
        ),
        **dict.fromkeys(
            (
                *("durable_name", "name", "description", "filter_subject", "sample_freq"),
                *("deliver_subject", "deliver_group"),
            ),
            "",
        ),
        "deliver_policy": "all",
        "ack_policy": "none",
        "replay_policy": "instant",
        "priority_policy": "none",
        "metadata": MappingProxyType({}),
    }
)
"""What a request means by a field that is left out, as its schema reads it."""


def _told(name: str, value: Any) -> Any:
    if name in _DURATIONS:
        return value * MS
    if name == "backoff":
        return [it * MS for it in value]
    if name in _LISTS:
        return list(value)
    return dict(value) if name == "metadata" else value


def _attributes(fields: Fields) -> dict[str, Any]:
    """Of fields as their schema reads them."""
    values = dict(fields)
    for name in _DURATIONS:
        values[name] = ms_of(values[name])
    for name in _TIMES:
        if values[name] is not None:
            values[name] = min(max(values[name], _TIME_MS[0]), _TIME_MS[1])
    for name in _LISTS:
        values[name] = tuple(values[name])
    values["backoff"] = tuple(map(ms_of, values["backoff"]))
    values["max_deliver"] = values["max_deliver"] or -1
    values["metadata"] = {k: v for k, v in values["metadata"].items() if k not in NATS_KEYS}
    if values["deliver_policy"] == "undefined":
        values["deliver_policy"] = "all"
    return {_ATTRIBUTES[name]: value for name, value in values.items()}


# Requests


class CreateRequest(NamedTuple):
    """CONSUMER.CREATE."""

    config: ConsumerConfig
    """Its name is empty where one has to be chosen."""
    action: str = ""
    """``create``, ``update``; empty: either."""
    pedantic: bool = False
    leaves_threshold: bool = False
    """It says nothing of the inactive threshold."""


def read_create(
    fields: Fields,
    *,
    stream: StreamConfig,
    subject_consumer: str = "",
    subject_filter: str = "",
    is_durable_form: bool = False,
    is_clustered: bool = True,
) -> CreateRequest:
    """``fields`` are read by CONSUMER_CREATE. Raises ApiRefused.

    A mirror or source names all its consumers alike, one after the other: each gets a name of its own. Where
    acknowledgements remove messages, there is only one of them, which is durable and acknowledges.

    ``subject_consumer``, ``subject_filter``: what the request's subject names; empty where it names none.
    ``is_durable_form``: CONSUMER.DURABLE.CREATE.
    """
    asked: _Asked = {**_EMPTY, **fields.get("config", {})}
    if fields.get("stream_name", "") != stream.name:
        raise ApiRefused(NAME_MISMATCH)
    _check_subject(asked, subject_consumer, subject_filter, is_durable_form=is_durable_form)
    if not is_clustered and asked["num_replicas"] > 1:
        raise ApiRefused(REPLICAS)
    is_pedantic = fields.get("pedantic", False)
    if asked["direct"] and asked["sourcing"] and asked["name"] and stream.retention != "limits":
        asked |= {
            "direct": False, "durable_name": asked["name"], "ack_policy": "flow_control",
            "ack_wait": 0, "max_deliver": 0, "inactive_threshold": 0,
        }  # fmt: skip
    _fill_in(asked, stream.limits_of_consumers, is_pedantic=is_pedantic)
    for rule in _RULES:
        if error := rule(asked, stream):
            raise ApiRefused(error)
    config = ConsumerConfig(**_attributes(asked))
    if config.direct and config.sourcing:
        config = dataclasses.replace(config, name="")
    leaves_threshold = not config.inactive_threshold_ms
    if leaves_threshold and not config.is_durable:
        config = dataclasses.replace(config, inactive_threshold_ms=INACTIVE_THRESHOLD_MS)
    return CreateRequest(config, fields.get("action", ""), is_pedantic, leaves_threshold)


def check_honoured(config: ConsumerConfig, partitions: int) -> None:
    """Raises ApiRefused for what keeps the rules, but is not served. ``partitions``: of the stream."""
    if config.acks_by_flow and partitions > 1:
        raise ApiRefused(no_consumer(f"{FLOW_NEEDS_ONE_PARTITION}, not {partitions}"))
    if config.sourcing and not (config.direct or config.acks_by_flow):
        said = "sourcing: only direct consumers and those with ack_policy: 'flow_control' are supported"
        raise ApiRefused(no_consumer(said))


def check_queue(
    config: ConsumerConfig, others: Iterable[ConsumerConfig], *, is_new: bool = True
) -> None:
    """Of a work queue: a message is for one consumer. ``others``: of the same stream. Raises ApiRefused.

    That of a mirror or source may begin anywhere, but shares no message with others: they would take it away from it.
    """
    if is_new and config.ack_policy not in ("explicit", "flow_control"):
        raise _refused(10098, "workqueue stream requires explicit ack")
    known = list(others)
    if known and not config.filters:
        raise _refused(10099, "multiple non-filtered consumers not allowed on workqueue stream")
    taken, tree = [it for other in known for it in other.filters], SubjectTree()
    for number, subject in enumerate(taken):
        tree.add(subject, number)
    is_all_taken = any(not it.filters for it in known)
    if is_all_taken or any(tree.overlapping(it) is not None for it in config.filters):
        raise _refused(10100, "filtered consumer not unique on workqueue stream")
    if is_new and config.deliver_policy != "all" and not config.sourcing:
        raise _refused(10101, "consumer must be deliver all on workqueue stream")


def is_same(old: ConsumerConfig, new: ConsumerConfig) -> bool:
    """Whether a create that asks for ``new`` finds what it asks for. A pause is no part of it."""
    return old == dataclasses.replace(new, pause_until_ms=old.pause_until_ms)


def check_update(old: ConsumerConfig, new: ConsumerConfig, *, is_bound: bool = False) -> None:
    """Raises ApiRefused with the first thing that may not change. ``is_bound``: the deliver subject of ``old``
    has subscribers.
    """
    if is_same(old, new):
        return
    for attribute, told in _LASTING:
        if getattr(old, attribute) != getattr(new, attribute):
            raise ApiRefused(no_consumer(f"{told} can not be updated"))
    if old.deliver_subject != new.deliver_subject:
        if not old.is_push:
            raise ApiRefused(no_consumer("can not update pull consumer to push based"))
        if not new.is_push:
            raise ApiRefused(no_consumer("can not update push consumer to pull based"))
        if is_bound:
            raise ApiRefused(NAME_IN_USE)
    if old.max_waiting != new.max_waiting:
        raise ApiRefused(no_consumer("max waiting can not be updated"))


def decided(
    old: ConsumerConfig | None, request: CreateRequest, *, is_bound: bool = False
) -> ConsumerConfig:
    """What the consumer of that name is set to then, ``old`` being what it is set to now. Raises ApiRefused.

    It is paused and resumed by other requests alone. One that was durable stays, unless the request says otherwise:
    clients that name it, but do not call it durable, must not have it deleted while they are away.
    """
    new = request.config
    if old is None:
        if request.action == "update":
            raise ApiRefused(CONSUMER_DOES_NOT_EXIST)
        return new
    stays = old.is_durable or not old.inactive_threshold_ms
    if (
        new.sourcing and new.is_durable
    ):  # it goes back to its floor, wherever its stream says that it begins
        new = dataclasses.replace(
            new,
            deliver_policy=old.deliver_policy,
            opt_start_seq=old.opt_start_seq,
            opt_start_time_ms=old.opt_start_time_ms,
        )
    new = dataclasses.replace(
        new,
        pause_until_ms=old.pause_until_ms,
        inactive_threshold_ms=(
            0 if request.leaves_threshold and stays else new.inactive_threshold_ms
        ),
    )
    if request.action == "create" and not is_same(old, new):
        raise ApiRefused(CONSUMER_EXISTS)
    check_update(old, new, is_bound=is_bound)
    return new


_LASTING: Final = (
    ("deliver_policy", "deliver policy"),
    ("mem_storage", "storage type"),
    ("direct", "direct"),
    ("sourcing", "sourcing"),
    ("opt_start_seq", "start sequence"),
    ("opt_start_time_ms", "start time"),
    ("ack_policy", "ack policy"),
    ("replay_policy", "replay policy"),
    ("idle_heartbeat_ms", "heart beats"),
    ("flow_control", "flow control"),
)


def pause_until(fields: Fields) -> int | None:
    """Of a PAUSE request, in milliseconds; None: go on."""
    until_ms: int | None = fields.get("pause_until")
    return None if until_ms is None or until_ms <= ZERO_TIME_MS else min(until_ms, _TIME_MS[1])


def unpinned_group(fields: Fields) -> str:
    """Of an UNPIN request. Raises ApiRefused."""
    group: str = fields.get("group", "")
    if not group:
        raise ApiRefused(invalid_json("consumer group not specified"))
    if not _GROUP.fullmatch(group):
        raise ApiRefused(_INVALID_GROUP)
    return group


# Rules, in nats-server's order

_Asked = dict[str, Any]
"""The fields of a request's configuration, as their schema reads them: durations in nanoseconds."""
_Rule = Callable[[_Asked, StreamConfig], ApiError | None]


def _check_subject(asked: _Asked, name: str, subject_filter: str, *, is_durable_form: bool) -> None:
    """The request against its subject, which has the last word on the name."""
    durable: str = asked["durable_name"]
    if {"/", "\\"} & set(name or asked["name"]):
        raise _refused(10127, "Consumer name can not contain path separators")
    if is_durable_form and not durable:
        raise _refused(10018, "consumer expected to be durable but a durable name was not set")
    if name and durable and name != durable:
        raise _refused(10017, "consumer name in subject does not match durable name in request")
    if not name and durable:
        raise _refused(
            10020, "consumer expected to be ephemeral but a durable name was set in request"
        )
    asked["name"] = name or asked["name"]
    if subject_filter and asked["filter_subjects"]:
        raise _refused(10137, "consumer with multiple subject filters cannot use subject based API")
    if subject_filter and subject_filter != asked["filter_subject"]:
        raise _refused(
            10131,
            "Consumer create request did not match filtered subject from create subject",
        )


def _refused(err_code: int, told: str) -> ApiRefused:
    return ApiRefused(ApiError(400, err_code, told))


def _fill_in(asked: _Asked, limits: ConsumerLimits, *, is_pedantic: bool) -> None:
    """Defaults. A pedantic request is refused instead where it asks for something else."""
    for name, least, told in _LEAST:
        if asked[name] < least:
            if is_pedantic:
                raise ApiRefused(pedantic(f"{name} must {told}"))
            asked[name] = least
    if not asked["deliver_subject"]:
        asked["max_waiting"] = asked["max_waiting"] or MAX_WAITING
    if asked["ack_policy"] in ("explicit", "all"):
        asked["ack_wait"] = asked["ack_wait"] or ACK_WAIT_MS * MS
    if asked["backoff"]:
        if is_pedantic and asked["ack_wait"] != asked["backoff"][0]:
            raise ApiRefused(pedantic("first backoff value has to equal batch AckWait"))
        asked["ack_wait"] = asked["backoff"][0]
    for name, limit in (
        ("max_ack_pending", limits.max_ack_pending),
        ("inactive_threshold", limits.inactive_threshold_ms * MS),
    ):
        if limit and not asked[name]:
            if is_pedantic and limit > 0:
                told = f"{name} must be set if it's configured in stream limits"
                raise ApiRefused(pedantic(told))
            asked[name] = limit
    if asked["ack_policy"] != "none":
        asked["max_ack_pending"] = asked["max_ack_pending"] or MAX_ACK_PENDING
    if asked["priority_policy"] == "pinned_client":
        asked["priority_timeout"] = asked["priority_timeout"] or PINNED_TTL_MS * MS
    if asked["ack_policy"] == "flow_control" and not is_pedantic:
        asked["flow_control"] = True
        asked["idle_heartbeat"] = FLOW_CONTROL_HEARTBEAT_MS * MS


_LEAST: Final = (
    ("max_deliver", -1, "be set to -1"),
    ("max_waiting", 0, "not be negative"),
    ("max_ack_pending", -1, "be set to -1"),
    ("max_batch", 0, "not be negative"),
    ("max_expires", 0, "not be negative"),
    ("max_bytes", 0, "not be negative"),
    ("idle_heartbeat", 0, "not be negative"),
    ("inactive_threshold", 0, "not be negative"),
    ("priority_timeout", 0, "not be negative"),
)


def _rule(err_code: int, told: str, broken: Callable[[_Asked], Any]) -> _Rule:
    return _told_by(ApiError(400, err_code, told), broken)


def _told_by(error: ApiError, broken: Callable[[_Asked], Any]) -> _Rule:
    return lambda asked, _: error if broken(asked) else None


def _of_push(err_code: int, told: str, broken: Callable[[_Asked], Any]) -> _Rule:
    return _rule(err_code, told, lambda it: it["deliver_subject"] and broken(it))


def _of_pull(err_code: int, told: str, broken: Callable[[_Asked], Any]) -> _Rule:
    return _rule(err_code, told, lambda it: not it["deliver_subject"] and broken(it))


def _of_flow_acks(err_code: int, told: str, broken: Callable[[_Asked], Any]) -> _Rule:
    return _rule(err_code, told, lambda it: it["ack_policy"] == "flow_control" and broken(it))


def _of_groups(err_code: int, told: str, broken: Callable[[_Asked], Any]) -> _Rule:
    return _rule(err_code, told, lambda it: it["priority_policy"] != "none" and broken(it))


def _is_bad_name(name: str) -> bool:
    return bool(name) and not (is_valid_name(name) and not _CONTROL.search(name))


_CONTROL: Final = re.compile(r"[\x00-\x20\x7f]|\s")


def _is_bad_subject(subject: str) -> bool:
    try:
        check_form(subject)
    except InvalidSubject:
        return True
    return False


def _has_wildcard(subject: str) -> bool:
    return not {"*", ">"}.isdisjoint(subject.split("."))


def _forms_cycle(asked: _Asked, stream: StreamConfig) -> ApiError | None:
    subject = asked["deliver_subject"]
    if subject and stream.hears(subject):
        return ApiError(400, 10081, "consumer deliver subject forms a cycle")
    return None


def beyond(
    limits: ConsumerLimits, max_ack_pending: int, inactive_threshold_ms: int
) -> ApiError | None:
    """The limit of its stream that a consumer is beyond."""
    if 0 < limits.max_ack_pending < max_ack_pending:
        told = f"consumer max ack pending exceeds system limit of {limits.max_ack_pending}"
        return ApiError(400, 10121, told)
    if 0 < limits.inactive_threshold_ms < inactive_threshold_ms:
        limit = go_text(limits.inactive_threshold_ms)
        return ApiError(400, 10153, f"consumer inactive threshold exceeds system limit of {limit}")
    return None


def _check_filters(asked: _Asked, _: StreamConfig) -> ApiError | None:
    """A filter must not be within another one."""
    filters = [it for it in (*asked["filter_subjects"], asked["filter_subject"]) if it]
    if len(filters) > FILTERS_MAX:
        return invalid_config(
            f"filter_subjects: at most {FILTERS_MAX} are allowed, not {len(filters)}"
        )
    wild = [place for place, it in enumerate(filters) if _has_wildcard(it)]
    tokens = [it.count(".") + 1 for it in filters]
    if len(filters) * sum(tokens[it] for it in wild) + len(wild) * sum(tokens) > FILTER_STEPS_MAX:
        return invalid_config("filter_subjects: too many wildcards to compare them with each other")
    counts = Counter(filters)
    for place, subject in enumerate(filters):
        if _is_bad_subject(subject):
            return _BAD_SUBJECT
        if counts[subject] > 1 or any(
            is_subset(subject, filters[it]) for it in wild if it != place
        ):
            return ApiError(400, 10138, "consumer subject filters cannot overlap")
    return None


_BAD_SUBJECT: Final = invalid_config("invalid subject")


def _check_start(asked: _Asked, _: StreamConfig) -> ApiError | None:
    """A start belongs to the policies that are named after it."""
    policy = asked["deliver_policy"]
    words = "all" if policy == "undefined" else policy.replace("_", " ")
    has_sequence, has_time = asked["opt_start_seq"] > 0, asked["opt_start_time"] is not None
    told = ""
    if policy == "by_start_sequence":
        if not has_sequence:
            told = "optional start sequence is not set"
        elif has_time:
            told = "optional start time is also set"
    elif policy == "by_start_time":
        if not has_time:
            told = "optional start time is not set"
        elif has_sequence:
            told = "optional start start sequence is also set"  # nats-server's words
    elif has_sequence:
        told = "optional start sequence is also set"
    elif has_time:
        told = "optional start time is also set"
    elif policy == "last_per_subject" and not (asked["filter_subject"] or asked["filter_subjects"]):
        told = "optional filter subject is not set"
    if not told:
        return None
    return ApiError(400, 10094, f"consumer delivery policy is deliver {words}, but {told}")


def _check_sampling(asked: _Asked, _: StreamConfig) -> ApiError | None:
    text: str = asked["sample_freq"]
    if not text:
        return None
    number = text.removesuffix("%")
    if not _NUMBER.fullmatch(number):
        why = "invalid syntax"
    else:
        value = int(number) if len(number) <= _NUMBER_LENGTH_MAX else INT64_MAX + 1
        if 0 <= value <= INT64_MAX:
            return None
        if -INT64_MAX - 1 <= value < 0:
            return _bad_sampling("<nil>")  # nats-server's word
        why = "value out of range"
    return _bad_sampling(f"strconv.Atoi: parsing {json.dumps(number, ensure_ascii=False)}: {why}")


_NUMBER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NUMBER_LENGTH_MAX: Final = 30


def _bad_sampling(why: str) -> ApiError:
    return ApiError(400, 10095, f"failed to parse consumer sampling configuration: {why}")


def _check_groups(asked: _Asked, _: StreamConfig) -> ApiError | None:
    for group in asked["priority_groups"] if asked["priority_policy"] != "none" else ():
        if not group:
            return ApiError(400, 10161, "Group name cannot be an empty string")
        if not _GROUP.fullmatch(group):
            return _INVALID_GROUP
    return None


def _metadata_bytes(metadata: Mapping[str, str]) -> int:
    kept = ((k, v) for k, v in metadata.items() if k not in NATS_KEYS)
    return _LEVEL_BYTES + sum(len(k.encode()) + len(v.encode()) for k, v in kept)


_RULES: Final[tuple[_Rule, ...]] = (
    _told_by(
        invalid_config("consumer name can not contain '.', '*', '>', '\\', '/'"),
        lambda it: _is_bad_name(it["name"]),
    ),
    lambda it, stream: (
        ApiError(400, 10126, "consumer config replica count exceeds parent stream")
        if it["num_replicas"] > stream.replicas
        else None
    ),
    _told_by(REPLICAS_NEGATIVE, lambda it: it["num_replicas"] < 0),
    _rule(
        10184, "consumer backoff needs to be positive", lambda it: min(it["backoff"], default=0) < 0
    ),
    _rule(10183, "consumer ack wait needs to be positive", lambda it: it["ack_wait"] < 0),
    _of_flow_acks(
        10218,
        "flow control ack policy requires a push based consumer",
        lambda it: not it["deliver_subject"],
    ),
    _of_flow_acks(
        10219, "flow control ack policy requires flow control", lambda it: not it["flow_control"]
    ),
    _told_by(
        invalid_config("flow control ack policy heartbeat needs to be 1s"),
        lambda it: (
            it["ack_policy"] == "flow_control"
            and it["idle_heartbeat"] != FLOW_CONTROL_HEARTBEAT_MS * MS
        ),
    ),
    _of_flow_acks(
        10220,
        "flow control ack policy requires max ack pending",
        lambda it: it["max_ack_pending"] <= 0,
    ),
    _of_flow_acks(
        10221,
        "flow control ack policy requires unset ack wait",
        lambda it: it["ack_wait"] or it["backoff"],
    ),
    _of_flow_acks(
        10222,
        "flow control ack policy requires unset max deliver",
        lambda it: it["max_deliver"] > 0,
    ),
    _told_by(
        _BACKOFF_TOO_LONG,
        lambda it: it["max_deliver"] > 0 and len(it["backoff"]) > it["max_deliver"],
    ),
    _rule(
        10107,
        f"consumer description is too long, maximum allowed is {DESCRIPTION_BYTES_MAX}",
        lambda it: len(it["description"].encode()) > DESCRIPTION_BYTES_MAX,
    ),
    _of_push(
        10079,
        "consumer deliver subject has wildcards",
        lambda it: _has_wildcard(it["deliver_subject"]),
    ),
    _of_push(
        10112,
        "invalid push consumer deliver subject",
        lambda it: _is_bad_subject(it["deliver_subject"]),
    ),
    _forms_cycle,
    _of_push(
        10080, "consumer in push mode can not set max waiting", lambda it: it["max_waiting"] != 0
    ),
    _of_push(
        10082,
        "consumer requires ack policy for max ack pending",
        lambda it: it["max_ack_pending"] > 0 and it["ack_policy"] == "none",
    ),
    _of_push(
        10083,
        f"consumer idle heartbeat needs to be >= {HEARTBEAT_MS_MIN}ms",
        lambda it: 0 < it["idle_heartbeat"] < HEARTBEAT_MS_MIN * MS,
    ),
    lambda it, stream: (
        ApiError(
            400, 10084, "consumer in pull mode requires explicit ack policy on workqueue stream"
        )
        if stream.retention == "workqueue"
        and not it["deliver_subject"]
        and it["ack_policy"] == "none"
        else None
    ),
    _of_pull(
        10086,
        "consumer in pull mode can not have rate limit set",
        lambda it: it["rate_limit_bps"] > 0,
    ),
    _of_pull(
        10088,
        "consumer idle heartbeat requires a push based consumer",
        lambda it: it["idle_heartbeat"] > 0,
    ),
    _of_pull(
        10089, "consumer flow control requires a push based consumer", lambda it: it["flow_control"]
    ),
    _of_pull(
        10115,
        "consumer max request expires needs to be >= 1ms",
        lambda it: 0 < it["max_expires"] < MS,
    ),
    lambda asked, stream: beyond(
        stream.limits_of_consumers, asked["max_ack_pending"], ms_of(asked["inactive_threshold"])
    ),
    _rule(
        10090,
        "consumer direct requires a push based consumer",
        lambda it: it["direct"] and not it["deliver_subject"],
    ),
    _rule(
        10091,
        "consumer direct requires an ephemeral consumer",
        lambda it: it["direct"] and it["durable_name"],
    ),
    _rule(
        10136,
        "consumer cannot have both FilterSubject and FilterSubjects specified",
        lambda it: it["filter_subject"] and it["filter_subjects"],
    ),
    _rule(
        10139,
        "consumer filter in FilterSubjects cannot be empty",
        lambda it: "" in it["filter_subjects"],
    ),
    _check_filters,
    _check_start,
    _check_sampling,
    _rule(
        10108,
        "consumer with flow control also needs heartbeats",
        lambda it: it["flow_control"] and not it["idle_heartbeat"],
    ),
    _rule(
        10135,
        f"consumer metadata exceeds maximum size of {METADATA_BYTES_MAX // 1024}KB",
        lambda it: _metadata_bytes(it["metadata"]) > METADATA_BYTES_MAX,
    ),
    _of_groups(
        10178,
        "priority groups can not be used with push consumers",
        lambda it: it["deliver_subject"],
    ),
    _of_groups(
        10159,
        "Setting PriorityPolicy requires at least one PriorityGroup to be set",
        lambda it: not it["priority_groups"],
    ),
    _check_groups,
    _rule(
        10196,
        "consumer can not have priority groups when policy is none",
        lambda it: it["priority_policy"] == "none" and it["priority_groups"],
    ),
    _rule(
        10197,
        "PinnedTTL cannot be set when PriorityPolicy is none",
        lambda it: it["priority_policy"] == "none" and it["priority_timeout"] > 0,
    ),
    _rule(
        10102,
        f"consumer name is too long, maximum allowed is {NAME_LENGTH_MAX}",
        lambda it: len(it["name"].encode()) > NAME_LENGTH_MAX,
    ),
)
