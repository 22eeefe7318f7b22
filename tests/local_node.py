"""A node without processes: NATS to disk, and the management API, on this event loop."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Self

from streamlog.app.node import build_metadata
from streamlog.config import Settings
from streamlog.control.service import ControlService
from streamlog.ingest.service import IngestService
from streamlog.jetstream.api import ManagementApi
from streamlog.log.storage.disk import Disk, OsDisk
from streamlog.log.storage.permissions import FOLDER_MODE
from streamlog.log.storage.reserve import Reserve
from streamlog.metadata.commands import RegisterNode
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.nodes.data_dir import DataDir
from streamlog.metadata.quorum.peers import Peers
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition
from streamlog.nats.router import Router
from streamlog.nats.sockets import Sockets
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.partition.tracing import TracedPartition, Traces
from streamlog.record.batch import batches
from streamlog.record.codec import Record, iter_records

NODE_ID = NodeId(1)


class LocalNode:
    """``async with LocalNode(path, url) as node``: started in the order of ``app.node``."""

    def __init__(
        self,
        path: Path,
        nats_url: str,
        *,
        default_api_prefix: bool = True,
        nats: dict[str, Any] | None = None,
        ingest: dict[str, Any] | None = None,
        log: dict[str, Any] | None = None,
        disk: Disk | None = None,
        wait_connected: bool = True,
        traces: Traces | None = None,
    ) -> None:
        disk = disk or OsDisk()
        path.mkdir(FOLDER_MODE, parents=True, exist_ok=True)  # as by the umask of a node's process
        self.metrics = NodeMetrics()
        self._incarnation = uuid.uuid4()
        self._data_dir = DataDir.open(path, NODE_ID)
        self._data_dir.begin_run(self._incarnation)
        settings = Settings(
            node={"id": NODE_ID, "data_dir": path},
            nats={
                "servers": (nats_url,),
                "default_api_prefix": default_api_prefix,
                "reconnect_backoff_ms": 20,
                **(nats or {}),
            },
            ingest=ingest or {},
            log=log or {},
        )
        reserve = Reserve(self._data_dir.path / "reserve", settings.log.metadata_reserve_bytes)
        self.metadata = build_metadata(settings, self._data_dir, self._incarnation, reserve)
        self.registry = ReplicaManager(
            path,
            node_id=NODE_ID,
            settings=settings.log,
            metrics=self.metrics,
            disk=disk,
            new_partition=partial(TracedPartition, traces=traces) if traces else Partition,
        )
        self.router = Router()
        self.sockets = Sockets(
            self.router,
            write_timeout_ms=settings.nats_listen.write_timeout_ms,
            read_buffer_bytes=settings.ingest.read_buffer_bytes,
            around_turn=traces.reading if traces else None,
        )
        self.source = IngestService(
            node_id=NODE_ID,
            nats=settings.nats,
            ingest=settings.ingest,
            message_bytes_max=settings.log.message_bytes_max,
            partitions=self.registry,
            router=self.router,
            metrics=self.metrics,
            sockets=self.sockets,
            lease=self.metadata.lease,
        )
        self.control = ControlService(
            node_id=NODE_ID,
            metadata=self.metadata,
            partitions=self.registry,
            peers=Peers(self._data_dir.cluster_id, NODE_ID),
            lease=self.metadata.lease,
        )
        self.api = ManagementApi(
            node_id=NODE_ID,
            nats=settings.nats,
            data_dir=self._data_dir.path,
            metadata=self.metadata,
            partitions=self.registry,
            metrics=self.metrics,
            router=self.router,
            sockets=self.sockets,
            control=self.control,
            lease=self.metadata.lease,
        )
        self._wait_connected = wait_connected
        self._tasks = asyncio.TaskGroup()
        self._running: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        await self.metadata.open()
        self._run(self.metadata.run())
        await self.metadata.register(
            RegisterNode(
                node_id=NODE_ID,
                incarnation=self._incarnation,
                directory_id=self._data_dir.directory_id,
                stamps=self._data_dir.stamps,
                host="127.0.0.1",
                port=9092,
            )
        )
        registry, source = self.registry, self.source
        await self.metadata.attach(registry.apply, self._open_registry, registry.settled)
        await self.metadata.attach(source.apply, self._begin_ingest, source.settled)
        await self.metadata.attach(self.api.apply, self._begin_admin)
        self._run(self.registry.run())
        self.sockets.begin(source.room)
        self._run(self.sockets.run())
        self._run(self.source.run())
        self._run(self.metadata.join())
        self._run(self.api.run())
        await until(self._leads_all)
        if self._wait_connected:
            await until(lambda: self.source.is_connected and self.api.is_ready)
        return self

    def _run(self, service: Coroutine[Any, Any, None]) -> None:
        self._running.append(self._tasks.create_task(service))

    def _leads_all(self) -> bool:
        image = self.metadata.image
        leaders = {each.leader for stream in image.streams.values() for each in stream.partitions}
        return (
            not image.nodes[NODE_ID].fenced
            and leaders <= {NODE_ID}
            and self.source.has_settled(image)
        )

    async def _open_registry(self, image: MetadataImage) -> None:
        await self.registry.open(image, self.metadata.recently_deleted)
        self.registry.apply(MetadataImage(image.cluster_id), image)

    async def _begin_ingest(self, image: MetadataImage) -> None:
        self.source.apply(MetadataImage(image.cluster_id), image)
        self.registry.add_listener(self.source.look)
        await self.source.settled(None)

    async def _begin_admin(self, image: MetadataImage) -> None:
        self.registry.add_listener(self.api.look)

    async def __aexit__(self, *error: Any) -> None:
        await self.stop()
        await self._tasks.__aexit__(None, None, None)

    async def stop(self) -> None:
        """In order; a second time does nothing."""
        if not self._running:
            return
        running, self._running = self._running, []
        await self.api.stop()
        await self.source.stop()
        self.sockets.close()
        await self.metadata.close()
        await self.registry.close()
        self._data_dir.close()
        for task in running:
            task.cancel()

    async def create(self, name: str, **settings: Any) -> Partition:
        await self.metadata.create_stream(StreamConfig.of(name=name, **settings))
        return self.partition(name)

    def partition(self, name: str, number: int = 0) -> Partition:
        return self.registry.partition(TopicPartition(name, number))

    async def records(self, name: str, number: int = 0) -> list[Record]:
        """All that are committed."""
        partition = self.partition(name, number)
        found: list[Record] = []
        offset = partition.log_start_offset
        while offset < partition.high_watermark:
            with await partition.read(offset, 1 << 20) as part:
                for header, batch in batches(part.read()):
                    found.extend(iter_records(batch))
                    offset = header.next_offset
        return found

    def failures(self, *reasons: str) -> int:
        """Attempts to connect to NATS that failed for these reasons, by default for any."""
        counted = next(iter(self.metrics.nats_connection_failures.collect())).samples
        return sum(
            int(sample.value)
            for sample in counted
            if sample.name.endswith("_total")
            and (not reasons or sample.labels["reason"] in reasons)
        )

    def count(self, sample: str, **labels: str) -> float:
        """A metric's value now."""
        return self.metrics.registry.get_sample_value(sample, labels) or 0.0


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Wait for what another task brings about."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 (any condition, of any task)
            await asyncio.sleep(0.002)
