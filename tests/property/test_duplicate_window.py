"""The compiled window beside the plain one: the same ids, under any use of it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlog.ingest.admission import duplicate_window
from streamlog.ingest.dedup_recovery.snapshot_format import DedupSnapshot, decode, encode
from tests.oracles import duplicate_window as oracle
from tests.oracles import message_id_snapshot

WINDOW_MS = 800
IDS_MAX = 12

ids = st.sampled_from([b"", b"a", b"b", b"ab", b"c" * 300]) | st.integers(0, 40).map(
    lambda number: b"id-%d" % number
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), ids, st.integers(0, 300)),
        st.tuples(st.just("many"), st.integers(0, 120), st.integers(0, 300)),
        st.tuples(st.just("again"), ids, st.integers(2, 5)),
        st.tuples(st.just("forget"), st.integers(0, 60)),
        st.tuples(st.just("expire"), st.integers(-500, 2_000)),
        st.tuples(st.just("restart"), st.booleans()),
        st.tuples(st.just("configure"), st.sampled_from([0, 7, 400, 800, 5_000])),
    ),
    max_size=40,
)


def slots_of(window: Any) -> list[tuple[int, list[tuple[bytes, int]]]]:
    if isinstance(window, oracle.DuplicateWindow):
        return [(end_ms, list(found.items())) for end_ms, found in window.slots()]
    return [(slot.end_ms, list(slot.ids().items())) for slot in window.slots()]


class Twins:
    """Both windows, each told the same."""

    def __init__(self) -> None:
        self.plain = oracle.DuplicateWindow(WINDOW_MS, ids_max=IDS_MAX)
        self.compiled = duplicate_window.DuplicateWindow(WINDOW_MS, ids_max=IDS_MAX)
        self.now_ms, self.offset = 1_000_000, 0
        self.kept: list[tuple[Any, Any]] = []
        """Slots that were handed out, and what was in them then."""

    def add(self, message_id: bytes, later_ms: int) -> None:
        self.now_ms += later_ms
        for window in (self.plain, self.compiled):
            window.add(message_id, self.offset, self.now_ms)
        self.offset += 1

    def many(self, count: int, later_ms: int) -> None:
        for number in range(count):
            self.add(b"many-%d" % (number * 7919 % 131), later_ms if number == 50 else 0)

    def again(self, message_id: bytes, times: int) -> None:
        for _ in range(times):
            self.add(message_id, 0)

    def forget(self, count: int) -> None:
        for window in (self.plain, self.compiled):
            window.forget(self.offset - count)
        self.offset = max(0, self.offset - count)

    def expire(self, later_ms: int) -> None:
        self.now_ms += later_ms
        for window in (self.plain, self.compiled):
            window.expire(self.now_ms)

    def configure(self, window_ms: int) -> None:
        self.plain.window_ms = self.compiled.window_ms = window_ms

    def restart(self, by_file: bool) -> None:
        """Out of what the windows hand out, or out of the file of it."""
        slots, youngest = self.compiled.slots(), self.compiled.youngest
        self.kept += [(slot, slot.ids()) for slot in slots]
        if by_file:
            head = bytes(16), self.offset, 3, 5
            data = encode(DedupSnapshot(*head, youngest, slots))
            assert data == message_id_snapshot.encode(
                *head, self.plain.youngest, self.plain.slots()
            )
            snapshot = decode(data, "x")
            assert snapshot == DedupSnapshot(*head, youngest, slots)
            slots, youngest = snapshot.slots, snapshot.last
        filled = duplicate_window.DuplicateWindow(1, ids_max=1)
        filled.restore(slots, youngest)
        after = duplicate_window.DuplicateWindow(self.compiled.window_ms, ids_max=IDS_MAX)
        after.complete_since_ms = self.compiled.complete_since_ms
        after.adopt(filled)
        assert (len(filled), filled.slots(), filled.youngest) == (0, [], None)
        self.compiled = after

    def compare(self) -> None:
        plain, compiled = self.plain, self.compiled
        assert slots_of(compiled) == slots_of(plain)
        for seen in ("youngest", "complete_since_ms", "window_ms"):
            assert getattr(compiled, seen) == getattr(plain, seen), seen
        assert len(compiled) == len(plain)
        assert compiled.is_full() == plain.is_full()
        assert compiled.last() == plain.last()
        known = {message_id for _, found in plain.slots() for message_id in found}
        for message_id in known | {b"", b"a", b"b", b"id-3", b"many-4", b"never"}:
            assert compiled.find(message_id) == plain.find(message_id)
        for slot, before in self.kept:
            assert slot.ids() == before


@settings(max_examples=400, deadline=None)
@given(steps, st.booleans())
def test_compiled_window_is_the_plain_one(
    todo: list[tuple[Any, ...]], compares_always: bool
) -> None:
    twins = Twins()
    for what, *arguments in todo:
        getattr(twins, what)(*arguments)
        if compares_always:  # which freezes the slots
            twins.compare()
    twins.compare()


def test_window_of_many_ids_is_the_plain_one_and_gives_memory_back() -> None:
    """Tables grow and shrink, and expired entries leave in several steps."""
    twins = Twins()
    for _ in range(9):
        for number in range(6_000):
            twins.add(b"%d" % (twins.offset * 7 + number % 3), 0)
        twins.expire(110)
    twins.forget(9_000)
    twins.compare()
    most = twins.compiled.size_bytes
    for _ in range(12):
        twins.expire(200)
        twins.add(b"%d" % twins.offset, 0)
    twins.compare()
    assert twins.compiled.size_bytes < most // 50


def test_window_whose_ids_are_all_too_old_takes_no_memory() -> None:
    twins = Twins()
    for number in range(50_000):
        twins.add(b"%d" % number, 0)
    twins.expire(10_000)
    assert twins.compiled.size_bytes < 100
    twins.add(b"0", 0)
    twins.compare()


def test_repeated_id_takes_no_memory_for_ever() -> None:
    twins = Twins()
    for number in range(20_000):
        twins.add(b"%d" % (number % 5), 0)
    twins.compare()
    assert twins.compiled.size_bytes < 200_000


def test_an_id_takes_as_little_memory_as_promised() -> None:
    window = duplicate_window.DuplicateWindow(WINDOW_MS, ids_max=1 << 20)
    count = 200_000
    for number in range(count):
        window.add(b"%016d" % number, number, number * WINDOW_MS // count)
    assert window.size_bytes < count * 66 * 9 // 8 + 10_000


@pytest.mark.parametrize("cut", range(1, 30))
def test_columns_that_are_cut_are_refused(cut: int) -> None:
    window = duplicate_window.DuplicateWindow(1, ids_max=9)
    for offset, message_id in enumerate((b"abc", b"", b"de")):
        window.add(message_id, offset, 7)
    (slot,) = window.slots()
    data = slot.columns()
    assert duplicate_window.WindowSlot.of_columns(8, 3, data + b"more") == (slot, len(data))
    with pytest.raises(ValueError, match="message ids"):
        duplicate_window.WindowSlot.of_columns(8, 3, data[:-cut])
    with pytest.raises(ValueError, match="message ids"):
        duplicate_window.WindowSlot.of_columns(8, 2**31, data)
