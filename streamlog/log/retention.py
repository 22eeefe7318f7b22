"""Retention: the segments that a log may delete. Pure.

Whole segments go, oldest first. What stays is at least what a limit says, and less than one segment
more; a limit on messages or bytes thus keeps a little more than JetStream would.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

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
    """How many segments may go, from the first on; the last, active one only if it is too old.

    ``latest_time`` is asked as seldom as possible; a segment whose time is not known is not too
    old.
    """
    log_end_offset = segments[-1].next_offset
    left_bytes = sum(segment.size_bytes for segment in segments)
    count = 0
    for segment in segments:
        if segment.next_offset > high_watermark or not segment.size_bytes:
            break
        left_bytes -= segment.size_bytes
        left_messages = log_end_offset - segment.next_offset
        is_active = segment is segments[-1]
        too_large = UNLIMITED < settings.retention_bytes <= left_bytes
        too_many = UNLIMITED < settings.retention_messages <= left_messages
        if is_active or not (too_large or too_many):
            if settings.retention_ms == UNLIMITED:
                break
            time_ms = latest_time(segment)
            if time_ms is None or now_ms - time_ms <= settings.retention_ms:
                break
        count += 1
    return count
