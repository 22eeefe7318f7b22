"""``__consumer_offsets``: its settings, and the partition to which a group's records go. Pure.

The stream is made when the first group needs it. As in Kafka the partition is Java's
``String.hashCode`` of the group's name, without its sign, modulo the number of partitions.
"""

from typing import Final

from streamlog.config import GroupsSection
from streamlog.metadata.stream.internal_stream import min_isr_of
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM, StreamConfig

SEGMENT_BYTES: Final = 16 * 1024 * 1024
_SMALLEST: Final = -(1 << 31)


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


def java_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 code units, in 32 bits with a sign."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[position : position + 2], "big")) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def partition_of(group: str, partitions: int) -> int:
    """``Utils.abs(hash) % partitions``, where the smallest number of all counts as 0."""
    hashed = java_hash(group)
    return (0 if hashed == _SMALLEST else abs(hashed)) % partitions
