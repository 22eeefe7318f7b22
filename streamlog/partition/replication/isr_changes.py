"""Sends ISR changes that this node's leaders propose to the controller (Kafka's AlterPartitionManager)."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from streamlog.clock import monotonic_ms
from streamlog.config import ReplicationSection
from streamlog.errors import NoController, Overloaded, StreamlogError
from streamlog.metadata.commands import AlterIsr, IsrChange
from streamlog.metadata.service import MetadataService
from streamlog.model import NO_INCARNATION, NodeId
from streamlog.partition.partition import Partition
from streamlog.replication.isr import IsrProposal, ReplicaStanding

logger = logging.getLogger(__name__)

CHANGES_MAX: Final = 1_000
"""In one request; the others wait for the next."""

Asked = list[tuple[Partition, IsrProposal]]


class IsrChanges:
    """One request at a time, for all partitions that have something to propose.

    A proposal is put again until it is answered: whatever the controller may have granted, the
    leader counts with it until it knows.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        settings: ReplicationSection,
        cluster: MetadataService,
        led: Callable[[], Iterable[Partition]],
    ) -> None:
        """``led``: the partitions of this node that have followers."""
        self._node_id = node_id
        self._settings = settings
        self._cluster = cluster
        self._led = led
        self._due: dict[Partition, None] = {}
        self._some = asyncio.Event()

    def look_at(self, partition: Partition) -> None:
        """It may have something to propose."""
        self._due[partition] = None
        self._some.set()

    async def run(self) -> None:
        """For as long as the node runs; all are looked at now and then, for who lags."""
        interval_s = self._settings.replica_lag_time_max_ms / 2 / 1000
        loop = asyncio.get_running_loop()
        next_look = loop.time() + interval_s
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_look):
                    await self._some.wait()
            if loop.time() >= next_look:
                next_look = loop.time() + interval_s
                self._due |= dict.fromkeys(self._led())
            if not await self._put(self._take()):
                await asyncio.sleep(self._settings.fetch_backoff_ms / 1000)
            if not self._due:
                self._some.clear()

    def _take(self) -> Asked:
        asked: Asked = []
        now_ms, lag_time_ms = monotonic_ms(), self._settings.replica_lag_time_max_ms
        while self._due and len(asked) < CHANGES_MAX:
            partition = next(iter(self._due))
            del self._due[partition]
            proposal = partition.state.isr_proposal(
                now_ms, lag_time_ms=lag_time_ms, standings=self._standing
            )
            if proposal is not None and not partition.closed:
                asked.append((partition, proposal))
        return asked

    def _standing(self, node_id: NodeId) -> ReplicaStanding:
        if node_id == self._node_id:
            return ReplicaStanding(self._cluster.node_epoch, is_live=True)
        node = self._cluster.image.nodes.get(node_id)
        if node is None:
            return ReplicaStanding(-1, is_live=False)
        return ReplicaStanding(node.epoch, is_live=not node.fenced and not node.full)

    def _incarnation(self, partition: Partition, node_id: NodeId) -> int:
        """A proposal ends with a newer partition epoch, so these are the incarnations of the state
        that it was made on.
        """
        if node_id == self._node_id:
            return partition.incarnation
        return partition.state.incarnations.get(node_id, NO_INCARNATION)

    async def _put(self, asked: Asked) -> bool:
        """Whether it is worth going on at once."""
        if not asked:
            return True
        changes = tuple(
            IsrChange(
                stream_id=UUID(bytes=partition.topic_id),
                stream=partition.tp.stream,
                partition=partition.tp.partition,
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
                isr=tuple(
                    (node_id, node_epoch, self._incarnation(partition, node_id))
                    for node_id, node_epoch in proposal.members
                ),
            )
            for partition, proposal in asked
        )
        command = AlterIsr(
            node_id=self._node_id, node_epoch=self._cluster.node_epoch, changes=changes
        )
        try:
            granted = await self._cluster.request(command)
        except StreamlogError as error:
            logger.info("in-sync replicas not agreed on", extra={"error": str(error)})
            self._unanswered(asked, was_sent=not isinstance(error, NoController | Overloaded))
            return False
        verdicts: list[str] = list(granted.result["verdicts"])
        return self._answered(asked, verdicts)

    def _unanswered(self, asked: Asked, *, was_sent: bool) -> None:
        now_ms = monotonic_ms()
        for partition, proposal in asked:
            if was_sent:
                partition.state.isr_unanswered(proposal, now_ms)
            self.look_at(partition)

    def _answered(self, asked: Asked, verdicts: list[str]) -> bool:
        """What is granted this node has acted on by now; what is stale it will hear of."""
        now_ms, is_settled = monotonic_ms(), True
        for (partition, proposal), verdict in zip(asked, verdicts, strict=True):
            if verdict == "refused":
                partition.carry_out(partition.state.isr_refused(proposal, now_ms))
            if verdict == "refused" or partition.state.proposes(proposal):
                self.look_at(partition)
                is_settled = False
        return is_settled
