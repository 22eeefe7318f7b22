"""Cron expressions of six fields, the first of which is seconds, as JetStream reads them. Pure.

A field is ``*`` or ``?``, numbers, names of months and days, ranges, steps (``*/15``, ``10-40/5``, ``5/10``) or
several of these with commas. Days of the month and of the week both count where neither is a star: a day that
one of them names is enough.

A time zone is a function of an instant. Where a clock is put forward or back, the times that result are
JetStream's, which takes them from Go's calendar.
"""

import re
from calendar import timegm
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

Offset = Callable[[int], int]
"""How many seconds a zone is ahead of UTC, at so many seconds after 1970."""

YEARS_MAX: Final = 5
"""An expression that names no time in the next years is none."""
HOUR_S: Final = 3_600
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BLANKS: Final = re.compile(
    "[\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+"
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,40}")
_INTEGER_MAX: Final = 2**63 - 1
_MONTHS: Final = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class _Bounds(NamedTuple):
    first: int
    last: int
    names: Mapping[str, int] = {}


_BOUNDS: Final = (
    _Bounds(0, 59),
    _Bounds(0, 59),
    _Bounds(0, 23),
    _Bounds(1, 31),
    _Bounds(1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Bounds(0, 6, {name: number for number, name in enumerate(_DAYS)}),
)


class _CronField(NamedTuple):
    values: frozenset[int]
    is_star: bool = False
    """It restricts nothing."""


class Cron(NamedTuple):
    """One expression."""

    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    month_days: _CronField
    months: frozenset[int]
    week_days: _CronField

    @classmethod
    def parse(cls, text: str) -> "Cron | None":
        """None: it is none, or names no time at all."""
        parts = [part for part in _BLANKS.split(text) if part]
        if len(parts) != len(_BOUNDS):
            return None
        fields = [_field(part, bounds) for part, bounds in zip(parts, _BOUNDS, strict=True)]
        seconds, minutes, hours, month_days, months, week_days = fields
        if seconds is None or minutes is None or hours is None:
            return None
        if month_days is None or months is None or week_days is None:
            return None
        cron = cls(
            seconds.values, minutes.values, hours.values, month_days, months.values, week_days
        )
        return cron if cron._names_any_time else None

    @property
    def _names_any_time(self) -> bool:
        """A field of commas alone has no value."""
        days = (self.month_days, self.week_days)
        enough = all if any(it.is_star for it in days) else any
        return enough(it.values for it in days) and all(
            (self.seconds, self.minutes, self.hours, self.months)
        )

    def next_after(self, after_s: int, offset: Offset) -> int | None:
        """The first time behind that second; None: there is none within some years."""
        clock = _Clock(after_s + 1, offset)
        last_year = clock.local.year + YEARS_MAX
        truncated = False
        while clock.local.year <= last_year:
            if clock.local.month not in self.months:
                if not truncated:
                    truncated = True
                    clock.set(clock.local.replace(day=1, hour=0, minute=0, second=0))
                clock.add_months(1)
                while clock.local.month not in self.months and clock.local.month != 1:
                    clock.add_months(1)
                if clock.local.month == 1:
                    continue
            if not self._has_day(clock.local):
                if not truncated:
                    truncated = True
                    clock.set(clock.local.replace(hour=0, minute=0, second=0))
                clock.add_days(1)
                while not self._has_day(clock.local) and clock.local.day != 1:
                    clock.add_days(1)
                if clock.local.day == 1:
                    continue
            if clock.local.hour not in self.hours:
                if not truncated:
                    truncated = True
                    clock.set(clock.local.replace(minute=0, second=0))
                clock.move(HOUR_S)
                while clock.local.hour not in self.hours and clock.local.hour != 0:
                    clock.move(HOUR_S)
                if clock.local.hour == 0:
                    continue
            if clock.local.minute not in self.minutes:
                if not truncated:
                    truncated = True
                    clock.move(-(clock.utc_s % 60))
                clock.move(60)
                while clock.local.minute not in self.minutes and clock.local.minute != 0:
                    clock.move(60)
                if clock.local.minute == 0:
                    continue
            if clock.local.second not in self.seconds:
                truncated = True
                clock.move(1)
                while clock.local.second not in self.seconds and clock.local.second != 0:
                    clock.move(1)
                if clock.local.second == 0:
                    continue
            return clock.utc_s
        return None

    def _has_day(self, local: datetime) -> bool:
        in_month = local.day in self.month_days.values
        in_week = local.isoweekday() % 7 in self.week_days.values
        if self.month_days.is_star or self.week_days.is_star:
            return in_month and in_week
        return in_month or in_week


class _Clock:
    """An instant, and what a clock in the zone says then."""

    __slots__ = ("_offset", "local", "utc_s")

    def __init__(self, utc_s: int, offset: Offset) -> None:
        self._offset = offset
        self._be(utc_s)

    def move(self, seconds: int) -> None:
        self._be(self.utc_s + seconds)

    def add_days(self, days: int) -> None:
        self.set(self.local + timedelta(days=days))

    def add_months(self, months: int) -> None:
        """The 31st of a month with fewer days is one of the days after it."""
        local = self.local
        years, month = divmod(local.month - 1 + months, 12)
        first = local.replace(year=local.year + years, month=month + 1, day=1)
        self.set(first + timedelta(days=local.day - 1))

    def set(self, local: datetime) -> None:
        """Of a time that a clock skips, or shows twice, Go takes the one by the offset that holds when UTC
        comes to what the clock says.
        """
        shown_s = timegm(local.timetuple())
        self._be(shown_s - self._offset(shown_s - self._offset(shown_s)))

    def _be(self, utc_s: int) -> None:
        self.utc_s = utc_s
        self.local = (_EPOCH + timedelta(seconds=utc_s + self._offset(utc_s))).replace(tzinfo=None)


def _field(text: str, bounds: _Bounds) -> _CronField | None:
    values, is_star = set[int](), False
    for part in text.split(","):
        if not part:
            continue
        found = _range(part, bounds)
        if found is None:
            return None
        values |= found.values
        is_star |= found.is_star
    return _CronField(frozenset(values), is_star)


def _range(text: str, bounds: _Bounds) -> _CronField | None:
    """``7``, ``*``, ``mon-fri``, ``5-50/5`` or ``5/10``, which goes on to the end."""
    span, *steps = text.split("/")
    low, *highs = span.split("-")
    is_star = low in ("*", "?")
    if is_star:
        first: int | None = bounds.first
        last: int | None = bounds.last
    elif len(highs) > 1:
        return None
    else:
        first = _number(low, bounds)
        last = _number(highs[0], bounds) if highs else first
    step: int | None = 1
    if steps:
        step = _integer(steps[0]) if len(steps) == 1 else None
        if not highs:
            last = bounds.last
    if first is None or last is None or not step:
        return None
    if not bounds.first <= first <= last <= bounds.last:
        return None
    return _CronField(frozenset(range(first, last + 1, step)), is_star and step == 1)


def _number(text: str, bounds: _Bounds) -> int | None:
    return bounds.names.get(text.lower()) if text.lower() in bounds.names else _integer(text)


def _integer(text: str) -> int | None:
    """As Go reads one that is not negative."""
    number = int(text) if _INTEGER.fullmatch(text) else -1
    return number if 0 <= number <= _INTEGER_MAX else None
