from typing import Any, NamedTuple

import pytest

from streamlog.log.compaction.cleaning_plan import CleaningNeed, first_dirty, fits, is_due, standing
from streamlog.log.settings import CompactionSettings


class SegmentPiece(NamedTuple):
    base_offset: int
    next_offset: int
    size_bytes: int
    time_ms: int | None = 0


PIECES = [
    SegmentPiece(0, 10, 100, 10),
    SegmentPiece(10, 20, 100, 20),
    SegmentPiece(20, 30, 200, 30),
]


def look(pieces: list[SegmentPiece] = PIECES, **more: Any) -> CleaningNeed[SegmentPiece]:
    known = {"first_dirty_offset": 0, "upper_offset": 30, "now_ms": 1_000} | more
    lag_ms = known.pop("min_lag_ms", 0)
    settings = CompactionSettings(min_lag_ms=lag_ms)
    return standing(pieces, settings, latest_time=lambda it: it.time_ms, **known)


def test_what_is_committed_and_old_enough_can_be_cleaned() -> None:
    assert look() == CleaningNeed(PIECES, 0, 400)
    assert look(first_dirty_offset=20) == CleaningNeed(PIECES, 200, 200)
    assert look(first_dirty_offset=15) == CleaningNeed(PIECES, 100, 300)
    assert look(upper_offset=29) == CleaningNeed(PIECES[:2], 0, 200)
    assert look(now_ms=29, min_lag_ms=10) == CleaningNeed(PIECES[:1], 0, 100)
    assert look(now_ms=30, min_lag_ms=10) == CleaningNeed(PIECES[:2], 0, 200)
    assert look(now_ms=0, min_lag_ms=10, first_dirty_offset=20) == CleaningNeed(PIECES[:2], 200, 0)
    assert look([SegmentPiece(0, 10, 5, None)], min_lag_ms=1) == CleaningNeed([], 0, 0)
    assert look([]) == CleaningNeed([], 0, 0)


def test_the_share_that_is_dirty() -> None:
    assert look(first_dirty_offset=20).dirty_ratio == 0.5
    assert look([]).dirty_ratio == 0
    assert look(first_dirty_offset=20).upper_offset == 30
    assert look([]).upper_offset == 0
    assert first_dirty(PIECES, 10) == PIECES[1]
    assert first_dirty(PIECES, 15) == PIECES[1]
    assert first_dirty(PIECES, 30) is None


@pytest.mark.parametrize(
    ("first_dirty_offset", "rules", "times", "due"),
    [
        (0, {}, {}, True),
        (20, {}, {}, True),
        (20, {"min_dirty_ratio": 0.51}, {}, False),
        (20, {"min_dirty_ratio": 0.51, "max_lag_ms": 500}, {"oldest_dirty_ms": 501}, False),
        (20, {"min_dirty_ratio": 0.51, "max_lag_ms": 500}, {"oldest_dirty_ms": 500}, True),
        (20, {"min_dirty_ratio": 0.51, "max_lag_ms": 500}, {}, False),
        (30, {"min_dirty_ratio": 0}, {}, False),
        (30, {}, {"horizon_ms": 1_000}, True),
        (30, {}, {"horizon_ms": 1_001}, False),
    ],
)
def test_whether_it_is_worth_it(
    first_dirty_offset: int, rules: dict[str, Any], times: dict[str, int], due: bool
) -> None:
    found = look(first_dirty_offset=first_dirty_offset)
    known: dict[str, Any] = {"oldest_dirty_ms": None, "horizon_ms": None} | times
    assert is_due(found, CompactionSettings(**rules), now_ms=1_000, **known) == due


def test_what_goes_into_one_segment() -> None:
    assert fits(PIECES[1], 0, 100, 200)
    assert not fits(PIECES[1], 0, 101, 200)
    assert fits(SegmentPiece(10, 2**31, 1), 0, 0, 200)
    assert not fits(SegmentPiece(10, 2**31 + 1, 1), 0, 0, 200)
