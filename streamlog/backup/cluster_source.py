"""A running cluster, asked over the socket API."""

import contextlib
from collections.abc import AsyncGenerator
from uuid import UUID

from streamlog.backup.source import BackupExtent, Batch
from streamlog.client.cluster import Cluster, with_retries
from streamlog.client.position import Offset
from streamlog.client.reader import PartitionReader
from streamlog.errors import StreamNotFound
from streamlog.metadata.image.image_types import StreamImage
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.snapshot import decode_snapshot
from streamlog.model import TopicPartition
from streamlog.wire import registry
from streamlog.wire.errors import check

PATIENCE_MS = 30_000
EXPORT_TIMEOUT_MS = 60_000


class ServedCluster:
    """A ``Source``. Consumers see no more than what is committed, and neither does a backup."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def image(self) -> MetadataImage:
        found = await self._cluster.operate("cluster.export", {}, timeout_ms=EXPORT_TIMEOUT_MS)
        return decode_snapshot(str(found).encode(), "the cluster's metadata")

    async def is_sealed(self, stream: StreamImage) -> bool:
        """Nodes decrypt what they send, and do not tell."""
        return stream.config.encrypted

    async def extent(self, stream: StreamImage, tp: TopicPartition) -> BackupExtent:
        async def ask() -> BackupExtent:
            start = await self._cluster.earliest_offset(tp)
            return BackupExtent(start, await self._cluster.latest_offset(tp))

        return await with_retries(ask, PATIENCE_MS, about=str(tp))

    async def epoch_end(self, tp: TopicPartition, epoch: int) -> int | None:
        return await with_retries(lambda: self._epoch_end(tp, epoch), PATIENCE_MS, about=str(tp))

    async def _epoch_end(self, tp: TopicPartition, epoch: int) -> int | None:
        self._cluster.forget(tp.stream)
        node, leader_epoch = await self._cluster.leader(tp)
        asked = {
            "partition": tp.partition,
            "current_leader_epoch": leader_epoch,
            "leader_epoch": epoch,
        }
        request = {"replica_id": -2, "topics": [{"topic": tp.stream, "partitions": [asked]}]}
        answer = await self._cluster.ask(node, registry.OFFSET_FOR_LEADER_EPOCH, request)
        found = answer["topics"][0]["partitions"][0]
        check(found["error_code"], str(tp))
        return found["end_offset"] if found["leader_epoch"] == epoch else None

    async def confirm(self, stream: StreamImage) -> None:
        """A name may be given again, an id never is."""

        async def ask() -> UUID | None:
            self._cluster.forget(stream.name)
            return (await self._cluster.topic(stream.name)).topic_id

        if await with_retries(ask, PATIENCE_MS, about=stream.name) != stream.stream_id:
            raise StreamNotFound(f"{stream.name} was deleted, and another stream has its name")

    async def batches(
        self, stream: StreamImage, number: int, start: int, stop: int
    ) -> AsyncGenerator[Batch, None]:
        tp, topic_id = TopicPartition(stream.name, number), stream.stream_id
        async with (
            PartitionReader(self._cluster, tp, Offset(start), topic_id=topic_id) as reader,
            contextlib.aclosing(reader.batches(stop=stop)) as found,
        ):
            async for header, batch in found:
                yield header, batch
