"""What a schedule in the log says, and the message that it fires. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from streamlog.ingest.admission.publish_headers import key_of
from streamlog.ingest.schedules.cron import Offset
from streamlog.ingest.schedules.schedule_spec import (
    ScheduleSpec,
    is_no_time,
    parse,
    rfc3339_nano,
    time_ns,
)
from streamlog.ingest.schedules.time_zones import zone_named
from streamlog.record.batch import Record
from streamlog.record.published import asked

PREFIX: Final = "Nats-Schedule"
SCHEDULER: Final = "Nats-Scheduler"
NEXT: Final = "Nats-Schedule-Next"
PURGE: Final = b"purge"
SUBJECT: Final = "subject"
REPLY: Final = "reply"
_LEFT_OUT: Final = (PREFIX, "Nats-Expected-")
_LEFT_OUT_NAMES: Final = frozenset({"Nats-Msg-Id", "Nats-TTL", "Nats-Rollup"})
_BLOCK_BYTES: Final = len(b"NATS/1.0\r\n\r\n")
_LINE_BYTES: Final = len(b": \r\n")


class Schedule(NamedTuple):
    """A message of the log that is one."""

    subject: bytes
    spec: ScheduleSpec
    zone: Offset | None
    target: bytes
    source: bytes
    """The subject whose newest message is published in place of this one's; b"": none."""
    ttl: bytes
    rollup: bytes


class ScheduledMessage(NamedTuple):
    """What it fires."""

    subject: bytes
    key: bytes | None
    value: bytes
    headers: list[tuple[bytes, bytes | None]]
    """All but its subject."""
    rollup: bytes
    purged: bytes
    """The subject of a schedule that ends with it; or b""."""

    @property
    def size_bytes(self) -> int:
        """As NATS counts."""
        lines = sum(len(name) + len(value or b"") + _LINE_BYTES for name, value in self.headers)
        return _BLOCK_BYTES + lines + len(self.value)


class Firing(NamedTuple):
    """That a message in the log says of the schedule which has fired it."""

    scheduler: bytes
    next_ns: int | None
    """When it fires next; None: it has ended."""


def schedule_of(record: Record) -> Schedule | None:
    """None: it is none, or its time zone is not known here."""
    headers = asked(record.headers)
    spec_and_zone = _spec_of(headers)
    target = headers.get("Nats-Schedule-Target", b"")
    if spec_and_zone is None or not target:
        return None
    return Schedule(
        subject_of(record),
        *spec_and_zone,
        target,
        headers.get("Nats-Schedule-Source", b""),
        headers.get("Nats-Schedule-TTL", b""),
        headers.get("Nats-Schedule-Rollup", b""),
    )


def firing_of(record: Record) -> Firing | None:
    """None: no schedule has fired it."""
    headers = asked(record.headers)
    scheduler, following = headers.get(SCHEDULER), headers.get(NEXT)
    if not scheduler or not following:
        return None
    if following == PURGE:
        return Firing(scheduler, None)
    next_ns = time_ns(following.decode(errors="replace"))
    return None if next_ns is None else Firing(scheduler, next_ns)


def is_fired(record: Record) -> bool:
    return bool(asked(record.headers).get(SCHEDULER))


def subject_of(record: Record) -> bytes:
    """As it is stored."""
    first = record.headers[:1]
    return (first[0][1] or b"") if first and first[0][0] == SUBJECT else b""


def message_of(schedule: Schedule, content: Record, *, next_ns: int | None) -> ScheduledMessage:
    """``content``: of the schedule's own message, or of the newest one of its source."""
    own = content.headers
    own = own[1:] if own[:1] and own[0][0] == SUBJECT else own
    own = own[1:] if own[:1] and own[0][0] == REPLY else own
    headers: list[tuple[bytes, bytes | None]] = [
        (name.encode(), value)
        for name, value in own
        if not name.startswith(_LEFT_OUT) and name not in _LEFT_OUT_NAMES
    ]
    headers.append((SCHEDULER.encode(), schedule.subject))
    following = PURGE if next_ns is None else rfc3339_nano(next_ns, schedule.zone).encode()
    headers.append((NEXT.encode(), following))
    if schedule.ttl:
        headers.append((b"Nats-TTL", schedule.ttl))
    if schedule.rollup:
        headers.append((b"Nats-Rollup", schedule.rollup))
    return ScheduledMessage(
        schedule.target,
        key_of((name, value or b"") for name, value in headers),
        content.value or b"",
        headers,
        schedule.rollup,
        schedule.subject if next_ns is None else b"",
    )


def _spec_of(headers: Mapping[str, bytes]) -> tuple[ScheduleSpec, Offset | None] | None:
    text, zone_name = headers.get("Nats-Schedule"), headers.get("Nats-Schedule-Time-Zone")
    zone = None if zone_name is None else zone_named(zone_name.decode(errors="replace"))
    if not text or (zone_name is not None and zone is None):
        return None
    spec = parse(text.decode(errors="replace"), zone)
    return None if spec is None or is_no_time(spec) else (spec, zone)
