"""What of a log can be cleaned, whether it is worth it, and what goes into one segment. Pure."""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from streamlog.log.segment.index import RELATIVE_OFFSET_MAX
from streamlog.log.settings import UNLIMITED, CompactionSettings


class Sealed(Protocol):
    """What is looked at in a sealed segment."""

    @property
    def base_offset(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


S = TypeVar("S", bound=Sealed)


class CleaningNeed(NamedTuple, Generic[S]):
    """How a log stands towards its next cleaning."""

    segments: list[S]
    """That can be cleaned, from the first of the log on."""
    clean_bytes: int
    """Of those that have been, ..."""
    dirty_bytes: int
    """... and of those that have not, or not all of it."""

    @property
    def dirty_ratio(self) -> float:
        all_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / all_bytes if all_bytes else 0.0

    @property
    def upper_offset(self) -> int:
        """Nothing from there on can be cleaned now."""
        return self.segments[-1].next_offset if self.segments else 0


def standing(
    sealed: Sequence[S],
    settings: CompactionSettings,
    *,
    first_dirty_offset: int,
    upper_offset: int,
    now_ms: int,
    latest_time: Callable[[S], int | None],
) -> CleaningNeed[S]:
    """``upper_offset``: what is committed and synced. A segment of unknown time is too young."""
    segments: list[S] = []
    clean_bytes = dirty_bytes = 0
    for segment in sealed:
        if segment.next_offset > upper_offset:
            break
        if segment.next_offset <= first_dirty_offset:
            clean_bytes += segment.size_bytes
        else:
            time_ms = latest_time(segment) if settings.min_lag_ms else 0
            if time_ms is None or now_ms - time_ms < settings.min_lag_ms:
                break
            dirty_bytes += segment.size_bytes
        segments.append(segment)
    return CleaningNeed(segments, clean_bytes, dirty_bytes)


def is_due(
    found: CleaningNeed[S],
    settings: CompactionSettings,
    *,
    now_ms: int,
    oldest_dirty_ms: int | None,
    horizon_ms: int | None,
) -> bool:
    """``oldest_dirty_ms``: the time of the first record that is not cleaned; ``horizon_ms``: from
    when on there are tombstones to be dropped.
    """
    if horizon_ms is not None and horizon_ms <= now_ms:
        return bool(found.segments)
    if not found.dirty_bytes:
        return False
    if found.dirty_ratio >= settings.min_dirty_ratio:
        return True
    limit_ms = settings.max_lag_ms
    return (
        limit_ms != UNLIMITED
        and oldest_dirty_ms is not None
        and now_ms - oldest_dirty_ms >= limit_ms
    )


def first_dirty(segments: Sequence[S], first_dirty_offset: int) -> S | None:
    return next((it for it in segments if it.next_offset > first_dirty_offset), None)


def fits(segment: Sealed, base_offset: int, size_bytes: int, segment_bytes: int) -> bool:
    """Whether a new segment of ``size_bytes`` so far can take in what is left of ``segment``."""
    return (
        size_bytes + segment.size_bytes <= segment_bytes
        and segment.next_offset - 1 - base_offset <= RELATIVE_OFFSET_MAX
    )
