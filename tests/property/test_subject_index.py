"""The compiled index of subjects is equal to its oracle in plain Python, and that to a list."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.errors import CorruptBatch
from streamlog.record.compiled import subjects as compiled
from tests.oracles import subjects as oracle
from tests.record_batches import HandRecord, record_bytes

SEED = b"sixteen bytes.. "
ROOM = 1 << 40

tokens = st.sampled_from([b"a", b"b", b"ab", b"", b"c" * 40])
subjects = st.lists(tokens, min_size=1, max_size=3).map(b".".join)
pattern_tokens = st.sampled_from([b"a", b"b", b"ab", b"*", b">", b"", b"*a"])
patterns = st.lists(pattern_tokens, min_size=1, max_size=3).map(b".".join)
offsets = st.integers(0, 60)
messages = st.lists(st.none() | subjects, max_size=12)

steps = st.one_of(
    st.tuples(st.just("append"), messages, st.integers(0, 3)),
    st.tuples(st.just("forget_below"), offsets),
    st.tuples(st.just("cut"), offsets),
    st.tuples(st.just("erase"), offsets),
    st.tuples(st.just("erase_matching"), patterns, offsets, st.integers(0, 3)),
    st.tuples(st.just("trim"), st.integers(1, 3), offsets, st.integers(0, 6)),
    st.tuples(st.just("last"), patterns, offsets),
    st.tuples(st.just("offsets"), patterns, offsets, offsets, st.integers(0, 4)),
    st.tuples(st.just("message_total"), patterns, offsets, offsets),
    st.tuples(st.just("last_marked"), patterns, offsets, offsets),
    st.tuples(st.just("next"), subjects, offsets, offsets),
    st.tuples(st.just("last_of_each"), st.lists(patterns, max_size=2), offsets, offsets),
)


def body_of(found: Sequence[bytes | None]) -> bytes:
    """Of records with these subjects; None for one without."""
    headers = [[] if subject is None else [(b"subject", subject)] for subject in found]
    return b"".join(
        record_bytes(HandRecord(b"value", headers=header), at) for at, header in enumerate(headers)
    )


SOME = [b"a", b"a.b", b"*", b">", b"*.b"]


def marked(index: Any, pattern: bytes) -> bytearray:
    """In steps; all messages of the subjects are within the bounds."""
    marks, first, end = bytearray(), 0, 0
    for low in range(0, index.number_end, 2):
        bounds = index.mark(pattern, marks, low=low, high=low + 2)
        if bounds[1]:
            first, end = min(first, bounds[0]) if end else bounds[0], max(end, bounds[1])
    found = index.offsets(marks, 0, 200)
    assert not found or first <= found[0] <= found[-1] < end
    assert bool(found) == bool(end)
    at_once = bytearray()
    assert index.mark(pattern, at_once) == (first, end)
    assert bytes(at_once).rstrip(bytes(1)) == bytes(marks).rstrip(bytes(1))
    if not oracle.is_pattern(pattern):
        assert index.bounds(pattern) == (first, end)
    return marks


def last_of_each(index: Any, wanted: list[bytes], low: int, below: int) -> list[int]:
    """Numbers are others in the twin; offsets are not."""
    numbers = index.matching(wanted)
    assert numbers == index.matching(wanted, high=2) + index.matching(wanted, low=2)
    found, rest = index.last_of_each(numbers, low, below)
    later, none = index.last_of_each(rest, index.start_offset, min(low, below))
    assert none == []
    assert sorted(found + later) == sorted(index.last_of_each(numbers, 0, below)[0])
    for subject in filter(None, map(index.subject_at, found)):
        assert index.number_of(subject) in numbers
    return sorted(found + later)


def carry_out(index: Any, step: tuple[Any, ...]) -> Any:
    name, *arguments = step
    if name == "append":
        found, gap = arguments
        base = index.next_offset
        index.note(body_of(found), len(found), base, base + len(found) + gap)
        return None
    if name == "erase_matching":
        pattern, below, keep = arguments
        return index.erase_matching(pattern, below, keep=keep)
    if name == "offsets":
        pattern, low, high, limit = arguments
        marks = marked(index, pattern)
        assert index.offsets(marks, low, high)[:limit] == index.offsets(
            marks, low, high, limit=limit
        )
        return index.offsets(marks, low, high)
    if name == "trim":
        keep, below, limit = arguments
        return index.trim(keep, below, limit=limit)
    if name == "message_total":
        pattern, below, low = arguments
        return index.message_total(marked(index, pattern), low, below)
    ours: dict[str, Callable[..., Any]] = {"last_of_each": last_of_each, "last_marked": last_marked}
    return ours[name](index, *arguments) if name in ours else getattr(index, name)(*arguments)


def last_marked(index: Any, pattern: bytes, low: int, high: int) -> int:
    found: int = index.last_marked(marked(index, pattern), low, high)
    return found


def all_of(index: Any, below: int) -> Any:
    return (
        index.start_offset,
        index.next_offset,
        len(index),
        index.message_count,
        index.subject_count(below),
        sorted(index.totals(b">", below)),
        sorted(index.totals(b"a.*", below)),
        sorted(
            each
            for low in range(0, index.number_end, 2)
            for each in index.totals(b">", below, low=low, high=low + 2)
        ),
        index.message_total(marked(index, b"a.*"), 0, below),
        index.message_total(marked(index, b"a.b"), 0, below),
        [index.subject_at(offset) for offset in range(80)],
        [index.last(each, below) for each in (b"a", b"a.b", b"*", b">", b"*.b")],
        [index.last(each, below, low=3) for each in (b"a", b"a.b", b"*", b">", b"*.b")],
        [index.next(each, 3, below) for each in (b"a", b"a.b", b"")],
        [index.offsets(marks, 0, below) for marks in map(partial(marked, index), SOME)],
        index.count(b"a"),
    )


class NaiveIndex:
    """A list of messages, each looked at for each question."""

    def __init__(self) -> None:
        self.start, self.end = 0, 0
        self.messages: list[tuple[int, bytes]] = []

    def do(self, step: tuple[Any, ...]) -> Any:
        name, *rest = step
        return getattr(self, name)(*rest)

    def drop(self, gone: Callable[[int, bytes], bool]) -> list[int]:
        found = [at for at, subject in self.messages if gone(at, subject)]
        self.messages = [each for each in self.messages if each[0] not in found]
        return found

    def append(self, found: list[bytes | None], gap: int) -> None:
        self.messages += [(self.end + i, it) for i, it in enumerate(found) if it is not None]
        self.end += len(found) + gap

    def forget_below(self, offset: int) -> None:
        self.drop(lambda at, _: at < offset)
        self.start, self.end = max(self.start, offset), max(self.end, offset)

    def cut(self, offset: int) -> None:
        self.drop(lambda at, _: at >= offset)
        self.end = min(self.end, max(offset, self.start))

    def erase(self, offset: int) -> bool:
        return bool(self.drop(lambda at, _: at == offset))

    def erase_matching(self, pattern: bytes, below: int, keep: int) -> int:
        found = [at for at, it in self.messages if at < below and oracle.matches(pattern, it)]
        doomed = found[: max(0, len(found) - keep)]
        return len(self.drop(lambda at, _: at in doomed))

    def trim(self, keep: int, below: int, limit: int) -> list[int]:
        doomed = []
        for offset, subject in self.messages:
            younger = [at for at, it in self.messages if it == subject and offset < at < below]
            if offset < below and len(younger) >= keep:
                doomed.append(offset)
        doomed = doomed[:limit]
        return self.drop(lambda at, _: at in doomed)

    def last_marked(self, pattern: bytes, low: int, high: int) -> int:
        return max(self.offsets(pattern, low, high, 0), default=-1)

    def last(self, pattern: bytes, below: int) -> int:
        found = [at for at, it in self.messages if at < below and oracle.matches(pattern, it)]
        return found[-1] if found else -1

    def message_total(self, pattern: bytes, below: int, low: int) -> int:
        return len(self.offsets(pattern, low, below, 0))

    def offsets(self, pattern: bytes, low: int, high: int, _: int) -> list[int]:
        return [at for at, it in self.messages if low <= at < high and oracle.matches(pattern, it)]

    def next(self, subject: bytes, offset: int, below: int) -> int:
        found = (at for at, it in self.messages if offset <= at < below and it == subject)
        return min(found, default=-1)

    def last_of_each(self, wanted: list[bytes], _low: int, below: int) -> list[int]:
        found = {
            subject: at
            for at, subject in self.messages
            if at < below and any(oracle.matches(pattern, subject) for pattern in wanted)
        }
        return sorted(found.values())


@settings(max_examples=400, deadline=None)
@given(st.lists(steps, max_size=14), offsets)
def test_twins_are_equal_and_as_a_list_of_messages(
    story: list[tuple[Any, ...]], below: int
) -> None:
    naive = NaiveIndex()
    twins = [twin.SubjectIndex(SEED, bytes_max=ROOM) for twin in (oracle, compiled)]
    for step in story:
        told = [carry_out(twin, step) for twin in twins]
        assert told[0] == told[1] == naive.do(step)
        assert all_of(twins[0], below) == all_of(twins[1], below)
        assert twins[1].start_offset == naive.start
        assert twins[1].next_offset == naive.end
        assert twins[1].message_count == len(naive.messages)
        assert [twins[1].subject_at(at) for at, _ in naive.messages] == [
            subject for _, subject in naive.messages
        ]


@settings(max_examples=200, deadline=None)
@given(messages, messages, st.integers(0, 10), st.sets(st.integers(0, 30)))
def test_keeping_what_another_has(
    first: list[bytes | None], second: list[bytes | None], start: int, gone: set[int]
) -> None:
    """As after a compaction, of which the other has what is left."""
    told = []
    for twin in (oracle, compiled):
        index = twin.SubjectIndex(SEED, bytes_max=ROOM)
        other = twin.SubjectIndex(SEED, bytes_max=ROOM, start_offset=start)
        found = first + second
        index.note(body_of(found), len(found), 0, len(found))
        other.note(body_of(first), len(first), 0, len(first))
        for offset in gone:
            other.erase(offset)
        told.append((index.keep_only(other), all_of(index, 99)))
        for offset in range(start, len(first)):
            assert index.subject_at(offset) == other.subject_at(offset)
    assert told[0] == told[1]


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=40), st.integers(0, 4), st.integers(0, 2**62), st.integers(0, 2**63 - 1))
def test_twins_are_equal_on_anything(body: bytes, count: int, base: int, upper: int) -> None:
    told: list[tuple[Any, ...]] = []
    for twin in (oracle, compiled):
        index = twin.SubjectIndex(SEED, bytes_max=ROOM, start_offset=base)
        try:
            told.append((index.note(body, count, base, upper), index.totals(b">", 2**63 - 1)))
        except CorruptBatch:
            told.append((CorruptBatch, index.next_offset, index.totals(b">", 2**63 - 1)))
    assert told[0] == told[1]


@settings(max_examples=300, deadline=None)
@given(patterns, subjects)
def test_patterns_match_alike(pattern: bytes, subject: bytes) -> None:
    index = compiled.SubjectIndex(SEED, bytes_max=ROOM)
    index.note(body_of([subject]), 1, 0, 1)
    assert (index.last(pattern, 1) == 0) == oracle.matches(pattern, subject)
    assert compiled.matches(pattern, subject) == oracle.matches(pattern, subject)
    assert compiled.is_pattern(pattern) == oracle.is_pattern(pattern)


@pytest.mark.parametrize("count", [1, 255, 256, 70_000])
def test_many_subjects(count: int) -> None:
    """Numbers of one, two and four bytes; each is found, goes, and its number is given anew."""
    index = compiled.SubjectIndex(SEED, bytes_max=ROOM)
    names = [b"orders.%d" % number for number in range(count)]
    for round_ in range(3):
        base = index.next_offset
        index.note(body_of(names), count, base, base + count)
        assert (len(index), index.message_count) == (count, count)
        assert index.last(names[-1], ROOM) == base + count - 1
        assert index.last(b"orders.*", ROOM) == base + count - 1
        assert index.next(names[count // 2], 0, ROOM) == base + count // 2
        size = index.size_bytes
        index.forget_below(base + count)
        assert (len(index), index.message_count, index.totals(b">", ROOM)) == (0, 0, [])
        names = [b"orders.%d-%d" % (round_, number) for number in range(count)]
    assert index.size_bytes <= size


def test_there_is_no_room() -> None:
    for twin in (oracle, compiled):
        index = twin.SubjectIndex(SEED, bytes_max=100_000)
        names = [b"orders.%d" % number for number in range(10_000)]
        full = index.note(body_of(names), 10_000, 0, 10_000)
        assert 100 < full < 10_000
        assert index.next_offset == full == index.message_count
        assert index.note(body_of(names), 10_000, 0, 10_000) == full


def test_what_is_missing_at_the_beginning_is_passed_over() -> None:
    """As in a mirror. Looking at each of so many offsets would take half an hour."""
    far = 10**12
    index = compiled.SubjectIndex(SEED, bytes_max=ROOM)
    index.advance(far)
    index.note(body_of([b"a", b"b"]), 2, far, far + 2)
    assert index.totals(b">", far + 2) == [(b"a", 1), (b"b", 1)]
    assert index.subject_count(far + 1) == 1
    marks = bytearray()
    index.mark(b">", marks, low=0, high=index.number_end)
    assert index.message_total(marks, 0, far + 2) == 2
    index.forget_below(far)
    index.cut(far + 1)
    assert (index.start_offset, index.next_offset, index.message_count) == (far, far + 1, 1)
    index.cut(0)
    assert (index.next_offset, index.message_count) == (far, 0)
    empty = compiled.SubjectIndex(SEED, bytes_max=ROOM)
    empty.advance(far)
    empty.cut(5)
    empty.forget_below(3)
    assert (empty.start_offset, empty.next_offset) == (3, 5)
