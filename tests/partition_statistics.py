"""A partition's statistics with the values that a test names."""

from typing import Any

from streamlog.model import NodeId, TopicPartition
from streamlog.partition.state import PartitionStatistics


def partition_statistics(tp: TopicPartition, **values: Any) -> PartitionStatistics:
    """A partition of three replicas that this node leads, two records behind on a follower."""
    defaults: dict[str, Any] = {
        "leader": NodeId(1),
        "leader_epoch": 0,
        "is_leader": True,
        "log_start_offset": 0,
        "high_watermark": 10,
        "undecided": 0,
        "log_end_offset": 12,
        "size_bytes": 1000,
        "segment_count": 1,
        "replica_count": 3,
        "isr_size": 3,
        "min_isr": 2,
        "follower_lag": 2,
        "in_flight_bytes": 0,
        "in_flight_batches": 0,
        "is_auto_paused": False,
        "is_damaged": False,
        "failure": None,
    }
    return PartitionStatistics(tp=tp, **{**defaults, **values})
