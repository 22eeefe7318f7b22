"""What is answered about a stream: JetStream's StreamInfo."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from streamlog.admin.stream_config import config_to_json
from streamlog.metadata.image import StreamImage
from streamlog.model import NO_LEADER, NodeId, TopicPartition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NO_TIME = "0001-01-01T00:00:00Z"


class Statistics(Protocol):
    """What is shown of ``partition.owner.PartitionStatistics``."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


class ShownPartition(Protocol):
    """What is needed of ``partition.owner.Partition``."""

    @property
    def tp(self) -> TopicPartition: ...
    def statistics(self) -> Statistics: ...
    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None: ...
    async def latest_timestamp(self) -> tuple[int, int] | None: ...


def rfc3339(time_ms: int) -> str:
    """In UTC, ending in ``Z``: some clients read nothing else."""
    text = (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def node_name(node_id: int) -> str:
    return f"node-{node_id}"


async def stream_info(
    stream: StreamImage, partitions: Sequence[ShownPartition], *, domain: str, now_ms: int
) -> dict[str, Any]:
    """Config, state and cluster; of several partitions the sums, and the outermost sequences."""
    return {
        "config": config_to_json(stream.config),
        "created": rfc3339(stream.created_ms),
        "state": await _state(partitions),
        "domain": domain,
        "cluster": _cluster(stream),
        "ts": rfc3339(now_ms),
    }


async def _state(partitions: Sequence[ShownPartition]) -> dict[str, Any]:
    statistics = [partition.statistics() for partition in partitions]
    first = [await partition.offset_for_timestamp(0) for partition in partitions]
    last = [await partition.latest_timestamp() for partition in partitions]
    first_ms = [found[1] for found in first if found]
    last_ms = [found[1] for found in last if found]
    last_seq = max((each.high_watermark for each in statistics), default=0)
    return {
        "messages": sum(each.high_watermark - each.log_start_offset for each in statistics),
        "bytes": sum(each.size_bytes for each in statistics),
        "first_seq": min((each.log_start_offset + 1 for each in statistics), default=0)
        if last_seq
        else 0,
        "first_ts": rfc3339(min(first_ms)) if first_ms else NO_TIME,
        "last_seq": last_seq,
        "last_ts": rfc3339(max(last_ms)) if last_ms else NO_TIME,
        "num_deleted": 0,
        "consumer_count": 0,
    }


def _cluster(stream: StreamImage) -> dict[str, Any]:
    """Of partition 0; its leader is not among the replicas, as JetStream has it."""
    if not stream.partitions:
        return {"replicas": []}
    partition = stream.partitions[0]
    cluster: dict[str, Any] = {"raft_group": f"{stream.name}-0"}
    if partition.leader != NO_LEADER:
        cluster["leader"] = node_name(partition.leader)
    cluster["replicas"] = [
        {
            "name": node_name(node_id),
            "current": NodeId(node_id) in partition.isr,
            "active": 0,
            "peer": node_name(node_id),
        }
        for node_id in partition.replicas
        if node_id != partition.leader
    ]
    return cluster
