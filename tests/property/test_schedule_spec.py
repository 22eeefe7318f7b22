"""When schedules fire: cron expressions against a walk through the calendar, and what nats-server makes of them."""

from datetime import UTC, date, datetime, timedelta, timezone
from itertools import product
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.ingest.schedules.cron import YEARS_MAX, Cron
from streamlog.ingest.schedules.schedule_spec import SECOND_NS, parse, rfc3339_nano, time_ns
from streamlog.ingest.schedules.time_zones import zone_named

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
BOUNDS: Final = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
NAMES: Final = {4: {"jan": 1, "feb": 2, "dec": 12}, 5: {"sun": 0, "wed": 3, "sat": 6}}
HALF_YEAR_S: Final = 183 * 86_400


@st.composite
def fields(draw: st.DrawFn, place: int) -> tuple[str, frozenset[int], bool]:
    """The text, its values, and whether it is a star."""
    low, high = BOUNDS[place]
    number = st.integers(low, high)
    kinds = draw(
        st.lists(st.sampled_from(["star", "number", "range", "name"]), min_size=1, max_size=2)
    )
    texts, values, is_star = list[str](), set[int](), False
    for kind in kinds:
        step = draw(st.sampled_from([None, None, 1, 2, 7, 30]))
        first, last = low, high
        if kind == "star":
            text = draw(st.sampled_from("*?"))
            is_star |= step in (None, 1)
        elif kind == "range":
            first, last = sorted((draw(number), draw(number)))
            text = f"{first}-{last}"
        else:
            names = {value: name for name, value in NAMES.get(place, {}).items()}
            first = (
                draw(st.sampled_from(sorted(names))) if kind == "name" and names else draw(number)
            )
            text = names[first].title() if kind == "name" and names else str(first)
            last = first if step is None else high
        texts.append(text if step is None else f"{text}/{step}")
        values |= set(range(first, last + 1, step or 1))
    return ",".join(texts), frozenset(values), is_star


expressions = st.tuples(*(fields(place) for place in range(6)))
instants = st.integers(0, 4 * 10**9)


def naive_next(
    after: datetime, drawn: tuple[tuple[str, frozenset[int], bool], ...]
) -> datetime | None:
    """The first time behind it, day by day."""
    (_, seconds, _), (_, minutes, _), (_, hours, _), in_month, (_, months, _), in_week = drawn
    times = sorted(product(hours, minutes, seconds))
    day = after.date()
    while day.year <= after.year + YEARS_MAX + 1:
        both = (day.day in in_month[1], day.isoweekday() % 7 in in_week[1])
        has_day = all(both) if in_month[2] or in_week[2] else any(both)
        if day.month in months and has_day:
            for hour, minute, second in times:
                found = datetime(
                    day.year, day.month, day.day, hour, minute, second, tzinfo=after.tzinfo
                )
                if found > after:
                    return found
        day += timedelta(days=1)
    return None


@settings(max_examples=300, deadline=None)
@given(expressions, instants, st.sampled_from([0, 3_600, -12_600, 20_700, 50_400]))
def test_cron_beside_a_calendar(
    drawn: tuple[tuple[str, frozenset[int], bool], ...], after_s: int, ahead_s: int
) -> None:
    cron = Cron.parse(" ".join(text for text, *_ in drawn))
    assert cron is not None
    found_s = cron.next_after(after_s, lambda _: ahead_s)
    zone = timezone(timedelta(seconds=ahead_s))
    after = (EPOCH + timedelta(seconds=after_s)).astimezone(zone)
    expected = naive_next(after, drawn)
    last_year = (after + timedelta(seconds=1)).year + YEARS_MAX
    if expected is not None and expected.year > last_year:
        expected = None
    found = None if found_s is None else (EPOCH + timedelta(seconds=found_s)).astimezone(zone)
    assert found == expected


@settings(max_examples=300, deadline=None)
@given(
    expressions,
    st.sampled_from(
        [
            "Europe/Berlin",
            "America/Havana",
            "America/Santiago",
            "Australia/Lord_Howe",
            "Africa/Casablanca",
        ]
    ),
    st.integers(1_700_000_000, 2_000_000_000),
)
def test_in_a_time_zone_it_goes_on(
    drawn: tuple[tuple[str, frozenset[int], bool], ...], name: str, after_s: int
) -> None:
    """Where clocks are put forward or back, too; elsewhere as with a fixed offset."""
    zone, cron = zone_named(name), Cron.parse(" ".join(text for text, *_ in drawn))
    assert cron is not None
    assert zone is not None
    found_s = cron.next_after(after_s, zone)
    if found_s is None:
        return
    assert found_s > after_s
    around = range(after_s - 86_400, found_s + 2 * 86_400, 3_600 * 12)
    if found_s - after_s < HALF_YEAR_S and len({zone(at_s) for at_s in around}) == 1:
        ahead_s = zone(after_s)
        assert found_s == cron.next_after(after_s, lambda _: ahead_s)


NATS_SERVER_SAYS: Final = [
    ("0 30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T02:30:00+02:00"),
    ("0 30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-25T02:30:00+02:00"),
    ("0 30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T02:30:00+01:00"),
    ("0 0 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T02:00:00+01:00"),
    ("0 15 2,3 * * *", "America/New_York", "2026-03-08T05:00:00Z", "2026-03-08T03:15:00-04:00"),
    ("0 0 0 * * *", "America/Havana", "2026-03-07T12:00:00Z", "2026-03-09T00:00:00-04:00"),
    ("0 0 0 8 3 *", "America/Havana", "2026-03-07T12:00:00Z", "2027-03-08T00:00:00-05:00"),
    ("0 0 0 * * sun", "America/Santiago", "2026-09-05T12:00:00Z", "2026-09-13T00:00:00-03:00"),
    ("0 45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00:00Z", "2026-04-05T01:45:00+11:00"),
    ("0 15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00:00Z", "2026-10-05T02:15:00+11:00"),
    ("0 0 0 29 2 *", "", "2026-03-01T00:00:00Z", "2028-02-29T00:00:00Z"),
    ("0 0 0 29 2 *", "", "2096-03-01T00:00:00Z", ""),
    ("0 0 12 13 * fri", "", "2026-01-01T00:00:00Z", "2026-01-02T12:00:00Z"),
    ("0 0 12 ? * fri", "", "2026-01-01T00:00:00Z", "2026-01-02T12:00:00Z"),
    ("0 0 0 1 1 *", "Pacific/Kiritimati", "2026-06-01T00:00:00Z", "2027-01-01T00:00:00+14:00"),
    ("59 59 23 31 12 *", "Asia/Kathmandu", "2026-06-01T00:00:00Z", "2026-12-31T23:59:59+05:45"),
    (
        "*/7 5/20 1-9/4 * jan-mar,Jul mon",
        "Africa/Casablanca",
        "2026-02-01T00:00:00Z",
        "2026-02-02T01:05:00+01:00",
    ),
    ("0 30 1 * * *", "Africa/Casablanca", "2026-02-14T12:00:00Z", "2026-02-15T01:30:00+01:00"),
    ("0 0 0 31 * *", "Atlantic/Azores", "2026-03-28T12:00:00Z", "2026-05-31T00:00:00Z"),
    ("* 59 * * * *", "", "2026-12-31T23:59:59Z", "2027-01-01T00:59:00Z"),
    ("0 0 0 31 2 *", "", "2026-01-01T00:00:00Z", ""),
    ("0 0 0 30 feb *", "UTC", "2026-01-01T00:00:00Z", ""),
]


@pytest.mark.parametrize(("spec", "zone_name", "after", "expected"), NATS_SERVER_SAYS)
def test_as_nats_server_reads_it(spec: str, zone_name: str, after: str, expected: str) -> None:
    zone = zone_named(zone_name) if zone_name else None
    parsed, after_ns = parse(spec, zone), time_ns(after)
    assert parsed is not None
    assert after_ns is not None
    found_ns = parsed.first_ns(after_ns)
    assert ("" if found_ns is None else rfc3339_nano(found_ns, zone)) == expected


@given(
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),
    st.integers(0, 999_999_999),
    st.integers(-1439, 1439),
)
def test_times_as_text(local: datetime, ns: int, ahead_minutes: int) -> None:
    instant = local.replace(microsecond=0, tzinfo=timezone(timedelta(minutes=ahead_minutes)))
    seconds = (instant - EPOCH) // timedelta(seconds=1)
    fraction = f".{ns:09}"
    text = instant.isoformat().replace("+", f"{fraction}+")
    if "+" not in text:
        head, _, tail = text.rpartition("-")
        text = f"{head}{fraction}-{tail}"
    assert time_ns(text) == seconds * SECOND_NS + ns
    told = rfc3339_nano(seconds * SECOND_NS + ns, lambda _: ahead_minutes * 60)
    assert time_ns(told) == seconds * SECOND_NS + ns


@given(st.integers(1, 10**6), st.integers(0, 2 * 10**18), st.integers(-(10**12), 10**15))
def test_every_so_often(tenths: int, before_ns: int, ago_ns: int) -> None:
    """To the second, and once for all that was missed."""
    every_ns, spec = tenths * 10**8, parse(f"@every {tenths // 10}.{tenths % 10}s")
    if every_ns < SECOND_NS:
        assert spec is None
        return
    assert spec is not None
    now_ns = before_ns + ago_ns
    found_ns = spec.next_ns(before_ns, now_ns)
    assert found_ns is not None
    assert (found_ns - every_ns) % SECOND_NS == 0
    if now_ns <= before_ns:
        assert abs(found_ns - every_ns - before_ns) <= SECOND_NS // 2
    else:
        assert found_ns >= now_ns


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "@at", "@at x", "@every 1", "@every 0s", "@never", "* * * * *", "* * * * * * *", "60 * * * * *",
        ", * * * * *", "* , * * * *", "* * * , * ,", "* * * * , *", "* * * * * mon-", "* * * * 0 *", "a * * * * *",
        "*/0 * * * * *", "1-2-3 * * * * *", "1/2/3 * * * * *", "9-8 * * * * *", "\u0661 * * * * *", "* " * 2_000,
    ],
)  # fmt: skip
def test_what_is_no_schedule(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize("text", ["@at 2026-01-01T00:00:00Z", "@every 1m"])
def test_a_time_zone_is_for_cron_alone(text: str) -> None:
    assert parse(text) is not None
    assert parse(text, zone_named("UTC")) is None


@pytest.mark.parametrize(
    "name",
    ["", "Nowhere", "Europe", "../etc/passwd", "/etc/localtime", "Local", "a\0b", "x" * 5_000],
)
def test_zones_that_are_none(name: str) -> None:
    assert zone_named(name) is None


def test_the_day_a_month_has_not() -> None:
    """The last day of each month comes by its number alone."""
    spec, found = parse("0 0 0 31 * *"), list[date]()
    assert spec is not None
    at_ns = time_ns("2026-01-31T00:00:00Z")
    while len(found) < 7 and at_ns is not None:
        found.append((EPOCH + timedelta(seconds=at_ns // SECOND_NS)).date())
        at_ns = spec.after_ns(at_ns)
    assert [it.month for it in found] == [1, 3, 5, 7, 8, 10, 12]
