"""Retention: what a log no longer keeps. ``PartitionLog.advance_log_start`` has it begin later.

A tiered log (KIP-405) has two starts. Its local log start offset is that of ``PartitionLog``: what is below is in the
object store alone. ``local_count`` moves it. The limits of the stream hold for both.

A log begins with the oldest record that its limits keep. A limit of messages is exact; limits of bytes and of age
let whole batches go, so that what stays is at least what the limit says, and less than one batch more. Old times
behind newer ones go when the newer ones do. A segment's files go when the log begins behind all of it.

Whole segments are found by what is known of each of them: ``expired_count``. What goes of the segment that stays
is found by its indexes, once it is verified: ``PartitionLog.trimmed_start``. A leader does that; followers begin
where their leader does, and let whole segments go by themselves only where they cannot hear of it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol, TypeVar

from streamlog.log.settings import UNLIMITED, LogSettings


class RetainedSegment(Protocol):
    """What retention looks at in a segment."""

    next_offset: int
    size_bytes: int


S = TypeVar("S", bound=RetainedSegment)


def expired_count(
    segments: Sequence[S],
    settings: LogSettings,
    *,
    now_ms: int,
    high_watermark: int,
    latest_time: Callable[[S], int | None],
) -> int:
    """How many segments may go by their bytes or their age, from the first on; the last, active one only if it is
    too old.

    ``latest_time`` is asked as seldom as possible; a segment whose time is not known is not too
    old.
    """
    left_bytes = sum(segment.size_bytes for segment in segments)
    count = 0
    for segment in segments:
        if segment.next_offset > high_watermark or not segment.size_bytes:
            break
        left_bytes -= segment.size_bytes
        is_active = segment is segments[-1]
        too_large = UNLIMITED < settings.retention_bytes <= left_bytes
        if is_active or not too_large:
            if settings.retention_ms == UNLIMITED:
                break
            time_ms = latest_time(segment)
            if time_ms is None or now_ms - time_ms <= settings.retention_ms:
                break
        count += 1
    return count


def local_count(
    segments: Sequence[S],
    settings: LogSettings,
    *,
    now_ms: int,
    tier_end: int,
    latest_time: Callable[[S], int | None],
) -> int:
    """How many segments of a tiered log may go here, from the first on, as the object store has all below ``tier_end``.
    The last, active one stays.
    """
    age_min_ms = settings.local_age_min_ms
    limits = replace(
        settings,
        retention_bytes=settings.local_retention_bytes,
        retention_ms=settings.local_retention_ms,
    )
    if limits.retention_ms != UNLIMITED:
        limits = replace(limits, retention_ms=max(limits.retention_ms, age_min_ms))
    count = expired_count(
        segments, limits, now_ms=now_ms, high_watermark=tier_end, latest_time=latest_time
    )
    count = min(count, len(segments) - 1)
    for at in range(count):
        time_ms = latest_time(segments[at])
        if time_ms is None or now_ms - time_ms < age_min_ms:
            return at
    return count


_NEVER_MS: Final = 2**63


class LogState(NamedTuple):
    """What retention depends on, beside the settings and the time. Of the same state it decides the same."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    segment_count: int


class Trim(NamedTuple):
    """What a look at a log has found."""

    start_offset: int
    """The log may begin there."""
    due_ms: int | None
    """Its first batch is too old then. None: that is not known, or age is not limited."""


class _LastLook(NamedTuple):
    """So long nothing is to go of a log that is still in that state."""

    settings: LogSettings
    state: LogState
    until_ms: int


class Retention:
    """Of one log. It remembers until when nothing can go: most looks cost no more than a comparison."""

    __slots__ = ("_last_look",)

    def __init__(self) -> None:
        self._last_look: _LastLook | None = None

    def forget(self) -> None:
        """Forget the last look: segments have been replaced, or their times are others."""
        self._last_look = None

    def start_offset(
        self,
        segments: Iterable[S],
        settings: LogSettings,
        state: LogState,
        *,
        now_ms: int,
        latest_time: Callable[[S], int | None],
    ) -> int:
        """Where the log begins once the segments are gone that the limits no longer keep: never past the
        high watermark, and the active segment goes only if it is all too old.

        Raises what ``latest_time`` does.
        """
        known = self._last_look
        is_same = known is not None and (known.settings, known.state) == (settings, state)
        if known is not None and is_same and now_ms <= known.until_ms:
            return state.log_start_offset
        self._last_look = None
        found = list(segments)
        count = expired_count(
            found,
            settings,
            now_ms=now_ms,
            high_watermark=state.high_watermark,
            latest_time=latest_time,
        )
        if count:
            return max(state.log_start_offset, found[count - 1].next_offset)
        if settings.retention_ms == UNLIMITED:
            self._last_look = _LastLook(settings, state, _NEVER_MS)
        elif (time_ms := latest_time(found[0])) is not None:  # None: as far as can be told now
            self._last_look = _LastLook(settings, state, time_ms + settings.retention_ms)
        return state.log_start_offset
