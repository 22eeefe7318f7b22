from dataclasses import dataclass
from typing import Any

import pytest

from streamlog.log.retention import expired_count
from streamlog.log.settings import LogSettings

NOW_MS = 10_000


@dataclass
class SegmentPiece:
    """A segment of ten records and 100 bytes."""

    next_offset: int
    size_bytes: int = 100
    time_ms: int | None = NOW_MS


def pieces(count: int) -> list[SegmentPiece]:
    """The last is the active one; the first is the oldest, by a second each."""
    return [SegmentPiece(10 * i, time_ms=NOW_MS - 1_000 * (count - i)) for i in range(1, count + 1)]


def expired(segments: list[SegmentPiece], high_watermark: int | None = None, **limits: Any) -> int:
    if high_watermark is None:
        high_watermark = segments[-1].next_offset
    return expired_count(
        segments,
        LogSettings(**limits),
        now_ms=NOW_MS,
        high_watermark=high_watermark,
        latest_time=lambda piece: piece.time_ms,
    )


def test_without_limits_nothing_goes() -> None:
    assert expired(pieces(5)) == 0


@pytest.mark.parametrize(
    ("limit", "count"), [(500, 0), (499, 0), (400, 1), (399, 1), (101, 3), (100, 4), (0, 4)]
)
def test_at_least_so_many_bytes_are_kept(limit: int, count: int) -> None:
    assert expired(pieces(5), retention_bytes=limit) == count


@pytest.mark.parametrize(
    ("limit", "count"), [(4_000, 0), (3_999, 1), (3_000, 1), (1_500, 3), (0, 4)]
)
def test_only_what_is_all_too_old_goes(limit: int, count: int) -> None:
    assert expired(pieces(5), retention_ms=limit) == count


def test_the_active_segment_goes_only_when_it_is_all_too_old() -> None:
    segments = pieces(3)
    segments[-1].time_ms = NOW_MS - 100
    assert expired(segments, retention_ms=99) == 3
    assert expired(segments, retention_ms=100) == 2
    assert expired(segments, retention_bytes=0) == 2


def test_an_empty_active_segment_stays() -> None:
    segments = pieces(3)
    segments[-1].size_bytes = 0
    assert expired(segments, retention_ms=0) == 2


def test_nothing_above_the_high_watermark_goes() -> None:
    assert expired(pieces(5), 30, retention_bytes=0) == 3
    assert expired(pieces(5), 29, retention_bytes=0) == 2
    assert expired(pieces(5), 0, retention_ms=0) == 0


def test_a_segment_whose_time_is_not_known_is_not_too_old() -> None:
    segments = pieces(5)
    segments[1].time_ms = None
    assert expired(segments, retention_ms=0) == 1


def test_the_strictest_limit_counts_for_each_segment() -> None:
    assert expired(pieces(5), retention_bytes=400, retention_ms=1_500) == 3
