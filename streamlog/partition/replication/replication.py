"""Replication as the node runs it: who follows whom, what leaders propose, what is reported."""

import asyncio
import logging
from concurrent.futures import Executor

from streamlog.client.security import NO_SECURITY, Security
from streamlog.config import ReplicationSection
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage
from streamlog.metrics import NodeMetrics
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.partition.partition import Partition
from streamlog.partition.replication.cluster import ClusterMetadata, FetchPeer
from streamlog.partition.replication.isr_changes import IsrChanges
from streamlog.partition.replication.leader_reports import UnreachableLeaderReports
from streamlog.partition.replication.replica_fetcher import ReplicaFetchers

logger = logging.getLogger(__name__)


class Replication:
    """Of all partitions of a node that is one of a cluster. ``run`` as a task."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        cluster: ClusterMetadata,
        settings: ReplicationSection,
        workers: Executor,
        metrics: NodeMetrics,
        security: Security = NO_SECURITY,
    ) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._with_followers: dict[Partition, None] = {}
        """Those that this node leads."""
        self._complaints = UnreachableLeaderReports(node_id, cluster)
        self._fetchers = ReplicaFetchers(
            node_id=node_id,
            node_epoch=lambda: cluster.node_epoch,
            settings=settings,
            unreachable=self._complaints.unreachable,
            workers=workers,
            metrics=metrics,
            security=security,
        )
        self._isr_changes = IsrChanges(
            node_id=node_id, settings=settings, cluster=cluster, led=self._led
        )

    def isr_may_change(self, partition: Partition) -> None:
        self._isr_changes.look_at(partition)

    def heard(self, partition: Partition, image: MetadataImage, *, is_new: bool) -> None:
        """``partition`` does as ``image`` says; ``is_new``: another leader, or a new epoch."""
        if partition.is_leader and len(partition.state.replicas) > 1:
            self._with_followers[partition] = None
        else:
            self._with_followers.pop(partition, None)
        leader = image.nodes.get(partition.leader)
        if leader is None or leader.node_id == self._node_id:
            self._fetchers.leave(partition.tp)
        elif is_new:
            self._fetchers.follow(partition, FetchPeer(leader.node_id, leader.host, leader.port))

    def health_changed(self, partition: Partition) -> None:
        self._fetchers.look_at(partition.tp)

    def begins_later(self, partition: Partition) -> None:
        self._fetchers.hurry(partition.tp)

    def gone(self, tp: TopicPartition, partition: Partition | None) -> None:
        """This node keeps it no longer; None: it was not open."""
        self._fetchers.leave(tp)
        if partition is not None:
            self._with_followers.pop(partition, None)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._fetchers.run())
            group.create_task(self._isr_changes.run())
            group.create_task(self._complaints.run())

    def _led(self) -> list[Partition]:
        return [it for it in self._with_followers if it.is_leader]


def tell_change(
    tp: TopicPartition,
    before: PartitionImage | None,
    now: PartitionImage,
    *,
    node_id: NodeId,
    end_offset: int,
    metrics: NodeMetrics,
) -> None:
    """In the log and in the metrics, by the leader."""
    if now.leader != node_id:
        return
    place = {
        "stream": tp.stream,
        "partition": tp.partition,
        "epoch": now.leader_epoch,
        "offset": end_offset,
    }
    if before is None or before.leader_epoch != now.leader_epoch:
        metrics.leader_elections.inc()
        logger.info("partition led", extra=place)
    elif before.leader != NO_LEADER and set(before.isr) != set(now.isr):
        if set(before.isr) - set(now.isr):
            metrics.isr_shrinks.inc()
        if set(now.isr) - set(before.isr):
            metrics.isr_expands.inc()
        logger.info("in-sync replicas changed", extra={**place, "isr": list(now.isr)})
