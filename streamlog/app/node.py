"""The composition root: builds a node's services and lives their life."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from streamlog import __version__
from streamlog.admin.api import ManagementApi
from streamlog.app.lifecycle import Lifecycle, Step
from streamlog.app.loop_lag import LoopLag
from streamlog.config import Settings
from streamlog.console.readiness import Readiness
from streamlog.console.site import Site
from streamlog.errors import StreamlogError
from streamlog.ingest.source import NatsSource
from streamlog.log.disk import OsDisk
from streamlog.log.files import FilePool
from streamlog.metadata.data_dir import DataDir
from streamlog.metadata.image import Image
from streamlog.metadata.service import MetadataService
from streamlog.metadata.store import MetadataStore
from streamlog.metrics import NodeMetrics
from streamlog.partition.registry import Registry
from streamlog.server.context import Context
from streamlog.server.listener import Listener

logger = logging.getLogger(__name__)

METADATA_FILES_MAX = 16


class Node:
    """One node in its folder. ``run`` returns after ``stopping`` is set."""

    def __init__(self, settings: Settings, data_dir: DataDir) -> None:
        self.stopping = asyncio.Event()
        self._settings = settings
        self._data_dir = data_dir
        self._tasks: list[asyncio.Task[None]] = []
        metrics = NodeMetrics()
        disk = OsDisk()
        store = MetadataStore(
            data_dir.metadata,
            data_dir.cluster_id,
            disk=disk,
            files=FilePool(disk, METADATA_FILES_MAX),
        )
        self._metadata = MetadataService(store, data_dir.cluster_id)
        self._registry = Registry(
            data_dir.path,
            node_id=data_dir.node_id,
            settings=settings.log,
            metrics=metrics,
            disk=disk,
        )
        self._listener = Listener(
            Context(
                node_id=data_dir.node_id,
                settings=settings.kafka,
                partitions=self._registry,
                metadata=self._metadata,
                metrics=metrics,
            )
        )
        self._source = NatsSource(
            node_id=data_dir.node_id,
            nats=settings.nats,
            ingest=settings.ingest,
            message_bytes_max=settings.log.message_bytes_max,
            partitions=self._registry,
            metrics=metrics,
        )
        self._admin = ManagementApi(
            node_id=data_dir.node_id,
            nats=settings.nats,
            metadata=self._metadata,
            partitions=self._registry,
        )
        self._loop_lag = LoopLag(metrics.event_loop_lag_seconds)
        self._site = Site(
            settings.http.host,
            settings.http.port,
            registry=metrics.registry,
            partitions=self._registry.statistics,
            offline_count=lambda: len(self._registry.failures),
            readiness=self._readiness(),
            loop_lag_s=lambda: self._loop_lag.seconds,
        )
        self._life = self._lifecycle()

    def _lifecycle(self) -> Lifecycle:
        """Whatever answers others starts after what it needs, and stops before it."""
        return Lifecycle(
            start_order=(
                Step("console", self._start_console),
                Step("metadata", self._metadata.open),
                Step("partitions", self._start_partitions),
                Step("leadership", self._lead),
                Step("ingest", self._start_ingest),
                Step("server", self._start_server),
                Step("admin", self._start_admin),
            ),
            stop_order=(
                Step("admin", self._admin.stop),
                Step("ingest", self._source.stop),
                Step("server", self._listener.stop),
                Step("metadata", self._metadata.close),
                Step("partitions", self._registry.close),
                Step("console", self._site.stop),
            ),
        )

    def _readiness(self) -> Readiness:
        return Readiness(
            {
                "node": self._why_not_up,
                "metadata": lambda: str(self._metadata.failure or "") or None,
                "nats": self._why_no_nats,
            }
        )

    async def run(self) -> bool:
        """False: the stop was not clean, so that the next start will recover."""
        async with asyncio.TaskGroup() as tasks:
            self._group = tasks
            starting = tasks.create_task(self._start())
            stop = tasks.create_task(self.stopping.wait())
            await asyncio.wait((starting, stop), return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
                await asyncio.wait((starting,))
            await self.stopping.wait()
            clean = await self._stop()
            for task in self._tasks:
                task.cancel()
        logger.info("stopped", extra={"clean": clean})
        return clean

    async def _start(self) -> None:
        """What cannot start leaves nothing half open behind it."""
        logger.info(
            "starting",
            extra={
                "version": __version__,
                "node": self._data_dir.node_id,
                "cluster": self._data_dir.cluster_id,
                "data_dir": str(self._data_dir.path),
                "event_loop": type(asyncio.get_running_loop()).__module__.partition(".")[0],
            },
        )
        try:
            await self._life.start()
        except StreamlogError:
            await self._stop()
            raise
        host, port = self._listener.address
        http = f"{self._settings.http.host}:{self._site.port}"
        logger.info("started", extra={"kafka": f"{host}:{port}", "http": http})

    async def _stop(self) -> bool:
        return await self._life.stop(self._settings.node.stop_timeout_ms / 1000)

    # The steps of the start

    async def _start_console(self) -> None:
        await self._site.start()
        self._run(self._loop_lag.run())

    async def _start_partitions(self) -> None:
        await self._registry.open(self._metadata.image, self._metadata.recently_deleted)
        self._run(self._registry.run())

    async def _lead(self) -> None:
        """Say where this node is; from then on it leads its partitions, each in a new epoch."""
        self._listener.open()
        self._metadata.add_listener(self._registry.reconcile)
        host, port = self._advertised()
        await self._metadata.register(
            self._data_dir.node_id, host=host, port=port, rack=self._settings.node.rack
        )

    async def _start_ingest(self) -> None:
        await self._source.reconcile(Image(self._data_dir.cluster_id), self._metadata.image)
        self._metadata.add_listener(self._source.reconcile)
        self._run(self._source.run())

    async def _start_server(self) -> None:
        self._run(self._metadata.run())
        self._run(self._listener.run())

    async def _start_admin(self) -> None:
        self._run(self._admin.run())

    def _run(self, service: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(self._group.create_task(service))

    def _advertised(self) -> tuple[str, int]:
        """What clients are told to connect to."""
        kafka = self._settings.kafka
        host, port = self._listener.address
        return kafka.advertised_host or host, kafka.advertised_port or port

    # Why the node is not ready

    def _why_not_up(self) -> str | None:
        if self.stopping.is_set():
            return "the node is stopping"
        part = self._life.starting
        return f"the node is starting: {part}" if part else None

    def _why_no_nats(self) -> str | None:
        if self._source.is_connected and self._admin.is_ready:
            return None
        return "not connected to NATS: nothing is taken in, reads go on"
