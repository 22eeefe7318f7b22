"""``__consumer_offsets``: its settings. The stream is made when the first group needs it. Pure."""

from typing import Final

from streamlog.config import GroupsSection
from streamlog.metadata.stream.internal_stream import min_isr_of
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM, StreamConfig

SEGMENT_BYTES: Final = 16 * 1024 * 1024


def config_of(settings: GroupsSection, nodes: int) -> StreamConfig:
    """By so many nodes: one of them may be lost, no commit with it, and commits go on.

    The log is read whole at each change of leaders: it is compacted, in small segments.
    """
    replicas = min(settings.offsets_replicas, nodes)
    return StreamConfig.of(
        name=OFFSETS_STREAM,
        partitions=settings.offsets_partitions,
        replicas=replicas,
        min_isr=min_isr_of(replicas),
        sync="commit",
        cleanup_policy="compact",
        segment_bytes=SEGMENT_BYTES,
    )
