"""The schedules of a log by the time at which they are due, against a walk through the log."""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.ingest.schedules.pending_schedules import PendingSchedule, PendingSchedules

SUBJECTS = [b"%d" % number for number in range(12)]


class Said(NamedTuple):
    """By a message: a schedule, or what one has fired."""

    subject: bytes
    is_schedule: bool
    due_ns: int | None


said = st.builds(
    Said,
    st.sampled_from(SUBJECTS),
    st.booleans(),
    st.integers(0, 20) | st.none(),
)


def naive(log: list[Said]) -> dict[bytes, PendingSchedule]:
    found: dict[bytes, PendingSchedule] = {}
    for offset, it in enumerate(log):
        if it.is_schedule:
            found[it.subject] = PendingSchedule(it.due_ns or 0, offset, it.subject, offset)
        elif it.subject in found and it.due_ns is None:
            del found[it.subject]
        elif it.subject in found:
            found[it.subject] = found[it.subject]._replace(due_ns=it.due_ns or 0, said_at=offset)
    return found


def tell(pending: PendingSchedules, offset: int, it: Said) -> None:
    if it.is_schedule:
        pending.stored(it.subject, offset, it.due_ns or 0)
    else:
        pending.fired(it.subject, offset, it.due_ns)


def read(log: list[Said]) -> PendingSchedules:
    pending = PendingSchedules()
    for offset, it in enumerate(log):
        tell(pending, offset, it)
    return pending


@settings(max_examples=500)
@given(st.lists(said, max_size=60), st.integers(0, 21))
def test_what_is_due(log: list[Said], now: int) -> None:
    pending, expected = read(log), naive(log)
    due = {it for it in expected.values() if it.due_ns <= now}
    found = pending.due(now, 100)
    assert found == sorted(found, key=lambda it: it.offset)
    assert len(pending) == len(expected)
    assert set(found) == due
    some = pending.due(now, 2)
    assert len(some) == min(2, len(found))
    assert set(some) <= set(found)


@given(st.lists(said, max_size=60), st.integers(1, 5))
def test_some_at_a_time_are_all_in_the_end(log: list[Said], count: int) -> None:
    pending, expected = read(log), naive(log)
    rounds = len(expected) // count + 2
    found = [it for _ in range(rounds) for it in pending.some(count)]
    assert set(found) == set(expected.values())


@given(st.lists(said, max_size=20), st.integers(0, 25), st.integers(0, 25))
def test_what_may_have_fired(log: list[Said], gap_offset: int, gap_ns: int) -> None:
    pending = read(log)
    pending.gap(gap_offset, gap_ns)
    for it in pending.due(30, 100):
        expected = it.said_at < gap_offset and it.due_ns // 1_000_000 <= gap_ns
        assert pending.may_have_fired(it) == expected
        pending.put_off(it, 40)
        assert it not in pending.due(30, 100)
