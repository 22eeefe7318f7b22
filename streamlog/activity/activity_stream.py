"""How ``__activity`` is kept."""

from typing import Final

from streamlog.config import ActivitySection
from streamlog.metadata.stream.config import ACTIVITY_STREAM, StreamConfig
from streamlog.metadata.stream.internal_stream import min_isr_of

SEGMENT_BYTES: Final = 16 * 1024 * 1024
SEGMENT_AGE_MS: Final = 86_400_000
"""Retention lets go of whole segments, and little may happen in months."""


def config_of(settings: ActivitySection, nodes: int) -> StreamConfig:
    """By so many nodes; in one partition, since all of it has one order."""
    replicas = min(settings.replicas, nodes)
    return StreamConfig.of(
        name=ACTIVITY_STREAM,
        replicas=replicas,
        min_isr=min_isr_of(replicas),
        sync="commit",
        retention_ms=settings.retention_ms,
        segment_bytes=SEGMENT_BYTES,
        segment_age_ms=min(SEGMENT_AGE_MS, settings.retention_ms)
        if settings.retention_ms > 0
        else SEGMENT_AGE_MS,
        allow_direct=True,
    )
