"""When a schedule fires: ``Nats-Schedule`` and ``Nats-Schedule-Time-Zone``, as JetStream reads them. Pure.

Times are nanoseconds since 1970, as JetStream's are.
"""

import re
from datetime import date
from typing import Final, NamedTuple

from streamlog.ingest.schedules.cron import Cron, Offset
from streamlog.record.published import go_duration_ns

SECOND_NS: Final = 10**9
SPEC_LENGTH_MAX: Final = 1_000
"""JetStream has no limit but that of a header."""
_DAY_S: Final = 86_400
_ERA_YEARS: Final = 400
"""The calendar repeats itself after so many."""
_ERA_DAYS: Final = 146_097
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_AT: Final = "@at "
_EVERY: Final = "@every "
_NAMED: Final = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_TIME: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_NO_TIME_NS: Final = -62_135_596_800 * SECOND_NS
"""The first of January of the year 1, which is what a time is in Go that was not set."""


class ScheduleSpec(NamedTuple):
    """One schedule: at one time, every so often, or by a cron expression."""

    at_ns: int | None = None
    every_ns: int | None = None
    cron: Cron | None = None
    offset: Offset | None = None
    """Of the time zone of a cron expression; None: UTC."""

    @property
    def repeats(self) -> bool:
        return self.at_ns is None

    def first_ns(self, stored_ns: int) -> int | None:
        """When a schedule fires first that was stored then; None: never."""
        return self.at_ns if self.at_ns is not None else self.after_ns(stored_ns)

    def after_ns(self, before_ns: int) -> int | None:
        """When it fires after that time, if it repeats."""
        if self.every_ns is not None:
            return _to_seconds(before_ns) + self.every_ns
        if self.cron is None:
            return None
        found_s = self.cron.next_after(before_ns // SECOND_NS, self.offset or _utc)
        return None if found_s is None else found_s * SECOND_NS

    def next_ns(self, before_ns: int, now_ns: int) -> int | None:
        """The same, but times that have passed are left out: it fires once for all of them."""
        found_ns = self.after_ns(before_ns)
        if found_ns is None or found_ns >= now_ns:
            return found_ns
        return self.after_ns(_to_seconds(now_ns))


def parse(text: str, offset: Offset | None = None) -> ScheduleSpec | None:
    """A schedule, in the time zone that is named beside it, if any is; None: it is wrong."""
    if len(text) > SPEC_LENGTH_MAX:
        return None
    if text.startswith((_AT, _EVERY)):
        if offset is not None:
            return None
        if text.startswith(_AT):
            at_ns = time_ns(text.removeprefix(_AT))
            return None if at_ns is None else ScheduleSpec(at_ns=at_ns)
        every_ns = go_duration_ns(text.removeprefix(_EVERY))
        if every_ns is None or every_ns < SECOND_NS:
            return None
        return ScheduleSpec(every_ns=every_ns)
    cron = Cron.parse(_NAMED.get(text, text))
    return None if cron is None else ScheduleSpec(cron=cron, offset=offset)


def is_no_time(spec: ScheduleSpec) -> bool:
    """JetStream takes a message with it for one without a schedule."""
    return spec.at_ns == _NO_TIME_NS


def time_ns(text: str) -> int | None:
    """Of a time as RFC 3339 has it, and Go reads it; None: it is none."""
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[group]) for group in range(1, 7))
    ahead_hours, ahead_minutes = int(found[9] or 0), int(found[10] or 0)
    if hour > 23 or minute > 59 or second > 59 or ahead_hours > 24 or ahead_minutes > 60:
        return None
    eras = 1 if year < _ERA_YEARS else -1  # a date has no year 0
    try:
        day_number = date(year + eras * _ERA_YEARS, month, day).toordinal()
    except ValueError:
        return None
    days = day_number - eras * _ERA_DAYS - _EPOCH_DAY
    ahead_s = (ahead_hours * 60 + ahead_minutes) * 60 * (-1 if found[8] == "-" else 1)
    seconds = days * _DAY_S + hour * 3_600 + minute * 60 + second - ahead_s
    return seconds * SECOND_NS + int((found[7] or "")[:9].ljust(9, "0"))


def rfc3339_nano(instant_ns: int, offset: Offset | None = None) -> str:
    """As Go writes it, in the time zone."""
    seconds, ns = divmod(instant_ns, SECOND_NS)
    ahead_s = 0 if offset is None else offset(seconds)
    days, second_of_day = divmod(seconds + ahead_s, _DAY_S)
    day = date.fromordinal(days + _EPOCH_DAY)
    minutes, second = divmod(second_of_day, 60)
    hour, minute = divmod(minutes, 60)
    fraction = f".{ns:09}".rstrip("0") if ns else ""
    told = f"{day.isoformat()}T{hour:02}:{minute:02}:{second:02}{fraction}"
    return told + (_zone_text(ahead_s) if ahead_s else "Z")


def _zone_text(ahead_s: int) -> str:
    hours, minutes = divmod(abs(ahead_s) // 60, 60)
    return f"{'-' if ahead_s < 0 else '+'}{hours:02}:{minutes:02}"


def _to_seconds(instant_ns: int) -> int:
    """A half is rounded up."""
    return (instant_ns + SECOND_NS // 2) // SECOND_NS * SECOND_NS


def _utc(_at_s: int) -> int:
    return 0
