"""What a table says of its position, and what is read next: against a table that is a list of offsets."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlog.lake.position import (
    OFFSETS,
    STREAM,
    STREAM_ID,
    OffsetRange,
    PositionError,
    RecordsGone,
    TablePosition,
    merged,
    nearest_position,
    next_ranges,
)

EMPTY = TablePosition("s", "id")
BOUNDS = st.dictionaries(
    st.integers(0, 3), st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted), max_size=4
)


class NaiveTable:
    """Rows one by one, and a log whose start and end move up."""

    def __init__(self) -> None:
        self.rows: set[tuple[int, int]] = set()
        self.log: dict[int, tuple[int, int]] = {}
        self.snapshots: list[dict[str, str] | None] = []
        self.kept: list[set[tuple[int, int]]] = []

    def expected_next(self) -> dict[int, list[int]]:
        """All offsets of the log that are above every row of the partition."""
        found = {}
        for number, (start, end) in self.log.items():
            there = [offset for p, offset in self.rows if p == number]
            first = max(there) + 1 if there else start
            found[number] = list(range(first, end))
        return found


@given(
    st.lists(
        st.tuples(st.sampled_from(["publish", "commit", "other", "rollback"]), st.integers(0, 3),
                  st.integers(1, 6)),
        max_size=40,
    )
)  # fmt: skip
def test_each_offset_is_read_once(steps: list[tuple[str, int, int]]) -> None:
    """Commits of parts of what is next, snapshots of others, and going back, in any order."""
    table = NaiveTable()
    for kind, number, count in steps:
        if kind == "publish":
            start, end = table.log.get(number, (0, 0))
            table.log[number] = (start, end + count)
        elif kind == "other" and table.snapshots:
            table.snapshots.append({})
            table.kept.append(set(table.rows))
        elif kind == "rollback" and len(table.snapshots) > 1:
            table.snapshots.pop()
            table.kept.pop()
            table.rows = set(table.kept[-1])
        elif kind == "commit":
            position = nearest_position(reversed(table.snapshots)) or EMPTY
            ranges = next_ranges(position, table.log)
            found = {it.partition: list(range(it.start_offset, it.end_offset)) for it in ranges}
            assert found == table.expected_next()
            pieces = [
                OffsetRange(
                    it.partition, it.start_offset, min(it.end_offset, it.start_offset + count)
                )
                for it in ranges
                if it.start_offset < it.end_offset
            ]
            if not pieces:
                continue
            after = position.advanced(pieces)
            for it in pieces:
                for offset in range(it.start_offset, it.end_offset):
                    assert (it.partition, offset) not in table.rows
                    table.rows.add((it.partition, offset))
            table.snapshots.append(after.to_summary(merged(pieces), "c"))
            table.kept.append(set(table.rows))


@given(st.dictionaries(st.integers(0, 100), st.integers(0, 2**63 - 1)))
def test_a_summary_says_the_position(ends: Mapping[int, int]) -> None:
    position = TablePosition("orders", "0b3c", ends)
    assert TablePosition.of_summary(position.to_summary([], "c")) == position


@given(st.permutations([(0, 5), (5, 5), (5, 9), (9, 12)]))
def test_pieces_in_any_order_are_one_range(pieces: list[tuple[int, int]]) -> None:
    ranges = [OffsetRange(1, start, end) for start, end in pieces]
    assert merged(ranges) == [OffsetRange(1, 0, 12)]
    assert EMPTY.advanced(ranges).ends == {1: 12}


@given(BOUNDS, BOUNDS)
def test_what_is_lost_is_never_passed_over_in_silence(
    ends: Mapping[int, tuple[int, int]], bounds: Mapping[int, tuple[int, int]]
) -> None:
    position = TablePosition("s", "id", {number: end for number, (_, end) in ends.items()})
    cut_back = any(end < position.ends.get(number, 0) for number, (_, end) in bounds.items())
    lost = any(start > position.ends.get(number, start) for number, (start, _) in bounds.items())
    for allowed in (False, True):
        if cut_back or (lost and not allowed):
            with pytest.raises(RecordsGone):
                next_ranges(position, bounds, loss_allowed=allowed)
            continue
        for it in next_ranges(position, bounds, loss_allowed=allowed):
            start, end = bounds[it.partition]
            assert it.start_offset == max(start, position.ends.get(it.partition, start))
            assert it.end_offset == end


@pytest.mark.parametrize("gap", [-1, 1])
def test_a_range_that_does_not_follow_is_refused(gap: int) -> None:
    position = EMPTY.advanced([OffsetRange(0, 0, 10)])
    with pytest.raises(PositionError):
        position.advanced([OffsetRange(0, 10 + gap, 20)])
    if gap > 0:
        assert position.advanced([OffsetRange(0, 11, 20)], loss_allowed=True).ends == {0: 20}
    else:
        with pytest.raises(PositionError):
            position.advanced([OffsetRange(0, 9, 20)], loss_allowed=True)


def test_pieces_with_a_hole_are_refused() -> None:
    with pytest.raises(PositionError):
        merged([OffsetRange(0, 0, 5), OffsetRange(0, 6, 9)])


def test_a_position_that_has_expired_is_not_taken_for_none() -> None:
    with pytest.raises(PositionError, match="expired"):
        nearest_position([{}, None])
    assert nearest_position([{}, {}]) is None


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"0": -1}', '{"0": null}'])
def test_a_damaged_position_is_refused(text: str) -> None:
    with pytest.raises(PositionError):
        TablePosition.of_summary({OFFSETS: text, STREAM: "s", STREAM_ID: "id"})


def test_another_stream_is_refused() -> None:
    with pytest.raises(PositionError, match="created again"):
        EMPTY.of_stream("s", "other")
    with pytest.raises(PositionError, match="not of"):
        EMPTY.of_stream("t", "id")
    assert TablePosition("s", "").of_stream("s", "id").stream_id == "id"
