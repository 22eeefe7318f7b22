"""Leaders that cannot be reached are reported to the controller, which believes a majority."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from streamlog.errors import StreamlogError
from streamlog.model import NodeId
from streamlog.partition.partition import Partition
from streamlog.partition.replication.cluster import ClusterMetadata

logger = logging.getLogger(__name__)

AGAIN_S: Final = 1.0
"""A leader that stays away is reported again so much later: reports count together for a while."""


class UnreachableLeaderReports:
    """One report at a time: if the node is gone for good, the controller will be quicker."""

    def __init__(self, node_id: NodeId, cluster: ClusterMetadata) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._waiting: dict[Partition, NodeId] = {}
        self._told: dict[NodeId, float] = {}
        self._some = asyncio.Event()

    def unreachable(self, leader: NodeId, partitions: Iterable[Partition]) -> None:
        """None of these can be fetched from it. Only who is in sync has a say."""
        now = asyncio.get_running_loop().time()
        if now >= self._told.get(leader, 0.0) + AGAIN_S:
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
