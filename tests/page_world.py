"""A cluster as the console is told of it, made by hand."""

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from immutables import Map

from streamlog.http.console.cluster_snapshot import ClusterSnapshot, LocalReplicaState
from streamlog.metadata.image.metadata_image import (
    MetadataImage,
    NodeImage,
    PartitionImage,
    StreamImage,
)
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.state import PartitionStatistics
from tests.partition_statistics import partition_statistics

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
ALL = (ONE, TWO, THREE)
NODE = NodeImage(ONE, uuid.UUID(int=1), "host-1", 9092, None)
BEGAN_MS = 1_700_000_000_000


class Progress(NamedTuple):
    """A consumer group."""

    group_id: str
    committed: Mapping[TopicPartition, int]
    state: str = "Stable"
    member_count: int = 1
    coordinator: NodeId = ONE


class LocalPartitions:
    """What this node keeps: all of it, but for what is said to be elsewhere."""

    def __init__(self, elsewhere: Iterable[TopicPartition] = ()) -> None:
        self.elsewhere = set(elsewhere)
        self.asked = 0

    def kept(self, tp: TopicPartition) -> LocalReplicaState | None:
        return None if tp in self.elsewhere else LocalReplicaState(0, 10, 1000)

    def statistics(self, tp: TopicPartition) -> PartitionStatistics | None:
        self.asked += 1
        return None if tp in self.elsewhere else partition_statistics(tp)

    def end(self, tp: TopicPartition) -> int | None:
        return None if tp in self.elsewhere else 10


def partition(
    leader: int = 1, isr: tuple[int, ...] = ALL, replicas: tuple[int, ...] = ALL, epoch: int = 0
) -> PartitionImage:
    return PartitionImage(
        tuple(map(NodeId, replicas)), NodeId(leader), epoch, tuple(map(NodeId, isr)), 0
    )


def stream(name: str, *partitions: PartitionImage, **settings: Any) -> StreamImage:
    config = StreamConfig.of(name=name, replicas=3, partitions=len(partitions), **settings)
    return StreamImage(config, uuid.uuid5(uuid.NAMESPACE_DNS, name), BEGAN_MS, partitions)


def image(*streams: StreamImage, offset: int = 7, **nodes: Any) -> MetadataImage:
    """Three nodes; ``node_2=replace(...)`` for one that is not well, None for one that is not."""
    known = {node_id: replace(NODE, node_id=node_id, host=f"host-{node_id}") for node_id in ALL}
    for name, node in nodes.items():
        node_id = NodeId(int(name.removeprefix("node_")))
        if node is None:
            del known[node_id]
        else:
            known[node_id] = replace(known[node_id], **node)
    return MetadataImage(
        "c-1", offset, 1, Map(known), Map({it.name: it for it in streams}),
        leaderless=sum(p.leader == -1 for it in streams for p in it.partitions),
    )  # fmt: skip


def moment(of: MetadataImage, **changes: Any) -> ClusterSnapshot:
    well = ClusterSnapshot(
        node_id=ONE,
        version="0",
        now_ms=time.time_ns() // 1_000_000,
        image=of,
        role="follower",
        quorum_epoch=3,
        controller=TWO,
        voters=ALL,
        lease_held=True,
        reasons={},
    )
    return replace(well, **changes)
