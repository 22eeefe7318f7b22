"""A registry of one node over real files, driven by images made by the real controller."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

from streamlog.config import LogSection
from streamlog.errors import StreamlogError
from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.storage.disk import Disk, OsDisk
from streamlog.metadata import controller
from streamlog.metadata.controller import Decision
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metrics import NodeMetrics
from streamlog.model import LogId, NodeId, TopicPartition
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.record.batch import batches
from streamlog.record.codec import RecordRun, iter_records
from tests.node_registration import started

ONE = NodeId(1)


class Told:
    """An acknowledgement that can be awaited."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def committed(self, base_offset: int) -> None:
        self.answer.set_result(base_offset)

    def failed(self, error: StreamlogError) -> None:
        self.answer.set_exception(error)


def run_of(*values: bytes) -> RecordRun:
    run = RecordRun()
    for value in values:
        run.append(None, value)
    return run


async def publish(partition: Partition, *values: bytes) -> int:
    """Append and wait for the acknowledgement; the base offset."""
    told = Told()
    partition.append(run_of(*values), told)
    return await told.answer


async def values_of(partition: Partition, offset: int | None = None) -> list[bytes | None]:
    """All committed values."""
    found: list[bytes | None] = []
    at = partition.log_start_offset if offset is None else offset
    while at < partition.high_watermark:
        with await partition.read(at, 1 << 20) as piece:
            data = piece.read()
        for header, batch in batches(data):
            found += [r.value for r in iter_records(batch) if r.offset >= at]
            at = header.next_offset
    return found


class World:
    """A data folder and what a node does to it."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.image = MetadataImage("c")
        self.deleted: frozenset[UUID] = frozenset()
        self.metrics = NodeMetrics()
        self.keys = KeyRing()  # of the next registry
        self.registries: list[ReplicaManager] = []

    def registry(self, disk: Disk | None = None, **settings: object) -> ReplicaManager:
        """Slow upkeep, so that a test says itself when something is to happen."""
        quiet = {
            "checkpoint_interval_ms": 3_600_000,
            "sync_interval_ms": 3_600_000,
            "retention_check_ms": 3_600_000,
        }
        registry = ReplicaManager(
            self.data_dir,
            node_id=ONE,
            settings=LogSection.model_validate({**quiet, **settings}),
            metrics=self.metrics,
            disk=disk,
            keys=self.keys,
        )
        # Twice a second, by the clock of the machine, while the records of a test have times of its own.
        registry._message_limits.run = asyncio.Event().wait  # type: ignore[assignment]
        return registry

    async def apply(self, decision: Decision) -> None:
        old = self.image
        self.image = old.apply_all(decision.records, offset=old.offset, epoch=1)
        for registry in self.registries:
            registry.apply(old, self.image)
            await registry.settled()

    async def create(self, name: str, **settings: object) -> None:
        config = StreamConfig.of(name=name, **settings)
        await self.apply(controller.create_stream(self.image, config, new_id=uuid4(), now_ms=0))

    def log_id(self, name: str) -> LogId:
        """Of its partition 0."""
        stream = self.image.stream(name)
        return LogId(tp(name), stream.stream_id, stream.partition(0).incarnation(ONE))

    def checkpoint(self, file: str) -> dict[LogId, int]:
        return OffsetCheckpoint(self.data_dir / file, OsDisk()).read()

    async def update(self, name: str, **settings: object) -> None:
        config = self.image.stream(name).config.changed(**settings)
        await self.apply(controller.update_stream(self.image, config))

    async def delete(self, name: str) -> None:
        await self.apply(controller.delete_stream(self.image, name))

    async def register(self) -> None:
        await self.apply(started(self.image, ONE, uuid4()))

    @asynccontextmanager
    async def node(
        self, disk: Disk | None = None, **settings: object
    ) -> AsyncIterator[ReplicaManager]:
        """From a start to a clean stop."""
        registry = await self.started(disk, **settings)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(registry.run())
            yield registry
            await registry.close()
            running.cancel()

    async def started(self, disk: Disk | None = None, **settings: object) -> ReplicaManager:
        """As after the start; whoever drops it has killed the node."""
        for killed in self.registries:
            await _threads_ended(killed)
        registry = self.registry(disk, **settings)
        self.registries.clear()
        await registry.open(self.image, self.deleted)
        self.registries.append(registry)
        await self.register()
        return registry


async def _threads_ended(killed: ReplicaManager) -> None:
    """A kill ends the threads that write with their process. Here they are waited for: one that still
    replaced a small file would take the temporary file of the next node's.
    """
    flusher = killed._flusher
    while flusher._awake or flusher._running or flusher._is_together:  # noqa: ASYNC110
        await asyncio.sleep(0)


def failures_of(registry: ReplicaManager) -> dict[TopicPartition, StreamlogError]:
    """Partitions that cannot be written to, and why."""
    failed = {it.tp: it.failure for it in registry.partitions() if it.failure is not None}
    return {**registry.unopened, **failed}


def tp(name: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(name, partition)
