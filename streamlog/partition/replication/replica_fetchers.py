"""All followed partitions, by the node that leads them: a fetcher for each such node."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple

from streamlog.client.security import NO_SECURITY, Security
from streamlog.config import ReplicationSection
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.partition import Partition
from streamlog.partition.replication.cluster import FetchPeer
from streamlog.partition.replication.replica_fetcher import ReplicaFetcher, Unreachable


class _Followed(NamedTuple):
    partition: Partition
    leader: NodeId


class ReplicaFetchers:
    """``follow`` and ``leave`` at any time; ``run`` as a task."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        node_epoch: Callable[[], int],
        settings: ReplicationSection,
        unreachable: Unreachable,
        workers: Executor,
        metrics: NodeMetrics,
        security: Security = NO_SECURITY,
    ) -> None:
        """``unreachable`` hears of each vain attempt, with the partitions it was made for."""
        self._node_id = node_id
        self._node_epoch = node_epoch
        self._settings = settings
        self._unreachable = unreachable
        self._workers = workers
        self._metrics = metrics
        self._security = security
        self._fetchers: dict[NodeId, ReplicaFetcher] = {}
        self._followed: dict[TopicPartition, _Followed] = {}
        self._group: asyncio.TaskGroup | None = None

    def follow(self, partition: Partition, leader: FetchPeer) -> None:
        """Ask this leader from now on, and at once; again for each new epoch."""
        followed = _Followed(partition, leader.node_id)
        if self._followed.get(partition.tp) != followed:
            self.leave(partition.tp)
        self._followed[partition.tp] = followed
        self._fetcher(leader).follow(partition, leader)

    def leave(self, tp: TopicPartition) -> None:
        """It is followed no more. An answer that is on its way does nothing."""
        followed = self._followed.pop(tp, None)
        if followed is not None:
            self._fetchers[followed.leader].leave(followed.partition)

    def look_at(self, tp: TopicPartition) -> None:
        """Whether it can be followed may have changed."""
        followed = self._followed.get(tp)
        if followed is not None:
            self._fetchers[followed.leader].look_at(followed.partition)

    def hurry(self, tp: TopicPartition) -> None:
        """Its leader is to hear at once how it is now."""
        followed = self._followed.get(tp)
        if followed is not None:
            self._fetchers[followed.leader].hurry(followed.partition)

    async def run(self) -> None:
        """For as long as the node runs."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for fetcher in self._fetchers.values():
                group.create_task(fetcher.run())
            await asyncio.get_running_loop().create_future()  # until cancelled

    def _fetcher(self, leader: FetchPeer) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader.node_id)
        if fetcher is None:
            fetcher = ReplicaFetcher(
                leader,
                node_id=self._node_id,
                node_epoch=self._node_epoch,
                settings=self._settings,
                unreachable=self._unreachable,
                workers=self._workers,
                metrics=self._metrics,
                security=self._security,
            )
            self._fetchers[leader.node_id] = fetcher
            if self._group is not None:
                self._group.create_task(fetcher.run())
        return fetcher
