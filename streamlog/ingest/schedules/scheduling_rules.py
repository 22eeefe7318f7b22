"""Schedules as they are published: ``Nats-Schedule``, and the end of one by ``Nats-Schedule-Next: purge``. Pure.

The order of the checks is JetStream's. A schedule has those before it on its subject go, as ``Nats-Rollup: sub``
does; it is stored with that header.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from streamlog.ingest.admission import rollups
from streamlog.ingest.admission.message_ttl import DISABLED as TTL_DISABLED
from streamlog.ingest.admission.message_ttl import Lifetimes
from streamlog.ingest.admission.publish_headers import Headers
from streamlog.ingest.admission.refusal import PublishRefusal
from streamlog.ingest.schedules.schedule_spec import ScheduleSpec, is_no_time, parse
from streamlog.ingest.schedules.time_zones import zone_named
from streamlog.record.compiled.subjects import matches
from streamlog.record.published import FOR_EVER, lifetime_s

SCHEDULE: Final = b"Nats-Schedule"
TIME_ZONE: Final = b"Nats-Schedule-Time-Zone"
TTL: Final = b"Nats-Schedule-TTL"
ROLLUP: Final = b"Nats-Schedule-Rollup"
TARGET: Final = b"Nats-Schedule-Target"
SOURCE: Final = b"Nats-Schedule-Source"
SCHEDULER: Final = b"Nats-Scheduler"
NEXT: Final = b"Nats-Schedule-Next"
PURGE: Final = b"purge"

AS_ROLLUP: Final = (rollups.HEADER, rollups.SUBJECT)
"""The header that a schedule is stored with."""

_BLANKS: Final = frozenset(b"\t\n\f\r ")


def _refusal(err_code: int, description: str) -> PublishRefusal:
    return PublishRefusal(400, err_code, description, "schedule")


DISABLED: Final = _refusal(10188, "message schedules is disabled")
_PATTERN: Final = _refusal(10189, "message schedules pattern is invalid")
_TARGET: Final = _refusal(10190, "message schedules target is invalid")
_TTL: Final = _refusal(10191, "message schedules invalid per-message TTL")
_ROLLUP: Final = _refusal(10192, "message schedules invalid rollup")
_SOURCE: Final = _refusal(10203, "message schedules source is invalid")
_SCHEDULER: Final = _refusal(10212, "message schedules invalid scheduler")
_TIME_ZONE: Final = _refusal(10223, "message schedules time zone is invalid")

ScheduleOn = Callable[[bytes], bool | PublishRefusal | None]
"""Whether the newest message of a subject is a schedule; None: there is no message; or why that is not known
now."""


def no_message(_subject: bytes) -> bool | PublishRefusal | None:
    """A log without messages."""
    return None


SCHEDULES_MAX: Final = 200_000
"""Of a stream; about 400 bytes each in the memory of its leader. JetStream has no limit."""
FULL: Final = PublishRefusal(
    429,
    10167,
    f"too many requests: the stream has {SCHEDULES_MAX} message schedules",
    "overloaded",
)


class ScheduleRoom:
    """How many schedules may be stored until the leader has counted again."""

    __slots__ = ("left",)

    def __init__(self, left: int = SCHEDULES_MAX) -> None:
        self.left = left

    def take(self) -> bool:
        self.left -= 1
        return self.left >= 0


class SchedulingRules(NamedTuple):
    """Of a stream that takes schedules."""

    subjects: tuple[bytes, ...]
    """What its messages come by: targets and sources are among them."""
    lifetimes: Lifetimes = Lifetimes.NONE

    def has(self, subject: bytes) -> bool:
        return any(matches(pattern, subject) for pattern in self.subjects)


class _Asked(NamedTuple):
    refusal: PublishRefusal | None = None
    spec: ScheduleSpec | None = None


def with_rollup(
    headers: Headers, rules: SchedulingRules | None
) -> tuple[Headers, tuple[bytes, bytes] | None]:
    """What a schedule asks for, and the header that it is stored with besides. None: it says so itself, or
    the message is no schedule.
    """
    if rules is None or not headers.get(SCHEDULE) or rollups.asked_rollup(headers):
        return headers, None
    spec = _asked(headers, 0).spec
    if spec is None:
        return headers, None
    name, value = AS_ROLLUP
    return {**headers, name: value}, AS_ROLLUP


def is_schedule(headers: Mapping[bytes, bytes]) -> bool:
    """Of a message in the log."""
    return bool(headers.get(SCHEDULE))


def purged(headers: Headers) -> bytes:
    """The subject of the schedule that ends with this message; or b""."""
    return headers.get(SCHEDULER, b"") if headers.get(NEXT) == PURGE else b""


def objection(
    headers: Headers,
    subject: bytes,
    rules: SchedulingRules | None,
    now_ms: int,
    *,
    schedule_on: ScheduleOn = no_message,
    room: ScheduleRoom | None = None,
) -> PublishRefusal | None:
    """``rules`` is None where the stream takes no schedules. One that may be stored takes room."""
    asked = _asked(headers, now_ms)
    refusal = asked.refusal
    if asked.refusal or asked.spec:
        refusal = DISABLED if rules is None else refusal or _to_rest(headers, subject, rules)
    refusal = refusal or _to_scheduler(headers, subject, rules, schedule_on)
    if refusal is None and asked.spec and room is not None and not room.take():
        return FULL
    return refusal


def _asked(headers: Headers, now_ms: int) -> _Asked:
    zone, offset = headers.get(TIME_ZONE), None
    if zone is not None:
        offset = zone_named(zone.decode(errors="replace")) if zone else None
        if offset is None:
            return _Asked(_TIME_ZONE)
    text = headers.get(SCHEDULE)
    if not text:
        return _Asked()
    spec = parse(text.decode(errors="replace"), offset)
    if spec is None or spec.first_ns(now_ms * 1_000_000) is None:
        return _Asked(_PATTERN)
    return _Asked(spec=None if is_no_time(spec) else spec)


def _to_rest(headers: Headers, subject: bytes, rules: SchedulingRules) -> PublishRefusal | None:
    lifetime_text, asked = headers.get(TTL, b""), rollups.asked_rollup(headers)
    target, source = headers.get(TARGET, b""), headers.get(SOURCE, b"")
    lifetime = lifetime_s(lifetime_text)
    if lifetime is None or (lifetime == FOR_EVER and rules.lifetimes is Lifetimes.LIMITED):
        return _TTL
    if headers.get(ROLLUP, b"") not in (b"", rollups.SUBJECT):
        return _ROLLUP
    if lifetime_text and rules.lifetimes is Lifetimes.NONE:
        return TTL_DISABLED
    if target == subject or not _is_subject(target):
        return _TARGET
    if source and (source in (target, subject) or not _is_subject(source)):
        return _SOURCE
    if not rules.has(target):
        return _TARGET
    if source and not rules.has(source):
        return _SOURCE
    return _ROLLUP if asked not in (b"", rollups.SUBJECT) else None


def _to_scheduler(
    headers: Headers, subject: bytes, rules: SchedulingRules | None, schedule_on: ScheduleOn
) -> PublishRefusal | None:
    following, scheduler = headers.get(NEXT), headers.get(SCHEDULER, b"")
    if not following:
        return _SCHEDULER if scheduler else None
    if following != PURGE or scheduler == subject or not _is_subject(scheduler):
        return _SCHEDULER
    if rules is None:
        return DISABLED
    found = schedule_on(scheduler)
    if isinstance(found, PublishRefusal):
        return found
    return _SCHEDULER if found is False else None


def _is_subject(text: bytes) -> bool:
    """Of a message: well formed, without wildcards."""
    return bool(text) and all(
        token and token not in (b"*", b">") and _BLANKS.isdisjoint(token)
        for token in text.split(b".")
    )
