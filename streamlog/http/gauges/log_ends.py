"""The high watermarks of what groups have committed in, wherever it is led."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final

from streamlog.client.cluster import Cluster
from streamlog.client.security import NO_SECURITY, Security
from streamlog.client.topology import NodeInfo, list_offsets_request, listed_offsets
from streamlog.errors import StreamlogError
from streamlog.fairness import cooperatively
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import TopicPartition
from streamlog.partition.partition import Partition
from streamlog.wire import registry
from streamlog.wire.special_offsets import LATEST

PERIOD_S: Final = 5.0
TIMEOUT_MS: Final = 2_000


class LogEnds:
    """A replica here that may serve reads knows; it is a fetch behind its leader at most.

    Of all others, each leader is asked every ``period_s``, in one request; one that does not answer
    leaves them unknown, until it does. Where replicas are on every node no node is ever asked.
    """

    def __init__(
        self,
        *,
        wanted: Callable[[], Awaitable[Collection[TopicPartition]]],
        local: Callable[[TopicPartition], Partition],
        image: Callable[[], MetadataImage],
        period_s: float = PERIOD_S,
        security: Security = NO_SECURITY,
    ) -> None:
        self._period_s = period_s
        self._wanted = wanted
        self._local = local  # raises StreamlogError where there is none
        self._image = image
        self._security = security
        self._remote: dict[TopicPartition, int] = {}  # as leaders have told

    def end(self, tp: TopicPartition) -> int | None:
        """As far as can be told just now."""
        end = self._here(tp)
        return self._remote.get(tp) if end is None else end

    async def known(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Of these, which may be many, the same."""
        ends = {}
        async for tp in cooperatively(tps):
            end = self.end(tp)
            if end is not None:
                ends[tp] = end
        return ends

    async def run(self) -> None:
        async with Cluster([], timeout_ms=TIMEOUT_MS, security=self._security) as cluster:
            while True:
                await self.refresh(cluster)
                await asyncio.sleep(self._period_s)

    async def refresh(self, cluster: Cluster) -> None:
        """Ask the leaders once."""
        told: dict[TopicPartition, int] = {}
        for node, epochs in (await self._by_leader()).items():
            request = list_offsets_request(epochs, LATEST)
            try:
                answer = await cluster.ask(node, registry.LIST_OFFSETS, request)
            except StreamlogError:
                continue
            told.update(
                (tp, it.offset) for tp, it in listed_offsets(answer).items() if not it.error_code
            )
        self._remote = told

    def _here(self, tp: TopicPartition) -> int | None:
        try:
            partition = self._local(tp)
        except StreamlogError:
            return None
        if not partition.may_serve_reads or not partition.high_watermark_known:
            return None
        return partition.high_watermark

    async def _by_leader(self) -> dict[NodeInfo, dict[TopicPartition, int]]:
        """What is to be asked of whom, with the leader's epoch."""
        image = self._image()
        found: dict[NodeInfo, dict[TopicPartition, int]] = {}
        async for tp in cooperatively(await self._wanted()):
            stream = image.streams.get(tp.stream)
            if stream is None or tp.partition >= len(stream.partitions):
                continue
            if self._here(tp) is not None:
                continue
            partition = stream.partitions[tp.partition]
            leader = image.nodes.get(partition.leader)
            if leader is not None:
                node = NodeInfo(partition.leader, leader.host, leader.port, None)
                found.setdefault(node, {})[tp] = partition.leader_epoch
        return found
