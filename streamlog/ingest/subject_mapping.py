"""The subjects under which a stream stores what is published, where they are others."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from streamlog.metadata.stream.config import StreamConfig
from streamlog.metadata.stream.subject_transform import SubjectTransform

REMEMBERED_MAX: Final = 10_000
"""Subjects of a partition; more are made anew each time."""


def subject_change(config: StreamConfig) -> Callable[[bytes], bytes] | None:
    """What an inflow calls for each message; None for nearly all streams."""
    if not config.subject_transform:
        return None
    transform = SubjectTransform.parse(config.subject_transform)

    @lru_cache(REMEMBERED_MAX)
    def changed(subject: bytes) -> bytes:
        made = transform(subject.decode(errors="surrogateescape"))
        return made.encode(errors="surrogateescape") if made else subject

    return changed
