"""Replication as the node runs it: who follows whom, what leaders propose, what is reported."""

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import Executor
from typing import Final

from streamlog.client.security import NO_SECURITY, Security
from streamlog.config import ReplicationSection
from streamlog.errors import StreamlogError
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage
from streamlog.metadata.service import MetadataService
from streamlog.metrics import NodeMetrics
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.partition.partition import Partition
from streamlog.partition.replication.isr_changes import IsrChanges
from streamlog.partition.replication.replica_fetcher import FetchPeer, ReplicaFetchers

logger = logging.getLogger(__name__)

REPORTED_AGAIN_S: Final = 1.0
"""A leader that stays away is reported again so much later: reports count together for a while."""


class UnreachableLeaderReports:
    """Leaders that cannot be reached are reported to the controller, which believes a majority.

    One report at a time: if the node is gone for good, the controller will be quicker.
    """

    def __init__(self, node_id: NodeId, cluster: MetadataService) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._waiting: dict[Partition, NodeId] = {}
        self._told: dict[NodeId, float] = {}
        self._some = asyncio.Event()

    def unreachable(self, leader: NodeId, partitions: Iterable[Partition]) -> None:
        """None of these can be fetched from it. Only who is in sync has a say."""
        now = asyncio.get_running_loop().time()
        if now >= self._told.get(leader, 0.0) + REPORTED_AGAIN_S:
            self._told[leader] = now
            self._waiting.update((it, leader) for it in partitions if self._has_say(it, leader))
            self._some.set()

    async def run(self) -> None:
        """For as long as the node runs."""
        while True:
            await self._some.wait()
            while self._waiting:
                partition, leader = self._waiting.popitem()
                if self._has_say(partition, leader):
                    await self._report(partition, leader)
            self._some.clear()

    def _has_say(self, partition: Partition, leader: NodeId) -> bool:
        return partition.leader == leader and self._node_id in partition.isr

    async def _report(self, partition: Partition, leader: NodeId) -> None:
        try:
            await self._cluster.report_leader(partition.tp, leader, partition.leader_epoch)
        except StreamlogError as error:
            logger.debug("report refused", extra=partition.place(error))


class Replication:
    """Of all partitions of a node that is one of a cluster. ``run`` as a task."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        cluster: MetadataService,
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
        elif (
            self._node_id not in partition.isr
        ):  # it joins only once its leader knows that it knows
            self._fetchers.hurry(partition.tp)

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
