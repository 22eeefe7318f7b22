"""A member of the metadata quorum as a node has it, but without partitions."""

import asyncio
import random
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from streamlog.config import ClusterSection, GroupsSection, KafkaSection
from streamlog.errors import PartitionNotFound
from streamlog.groups.service import GroupService
from streamlog.kafka.context import Context
from streamlog.kafka.net.listener import Listener
from streamlog.log.storage.disk import Disk, OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.metadata.commands import RegisterNode
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.quorum.metadata_replica import MetadataReplica
from streamlog.metadata.quorum.peers import Peers
from streamlog.metadata.quorum.store import MetadataStore
from streamlog.metadata.quorum.voter_sets import configured_voters, fingerprint
from streamlog.metadata.service import MetadataService
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition
from streamlog.raft.settings import RaftSettings

HOST = "127.0.0.1"
SETTINGS = ClusterSection(
    heartbeat_interval_ms=50,
    pause_tolerance_ms=150,
    leader_lease_ms=1_200,
    session_timeout_ms=1_500,
    election_timeout_ms=600,
    request_timeout_ms=2_000,
)


class NoPartitions:
    def partition(self, tp: TopicPartition) -> object:
        raise PartitionNotFound(f"partition {tp} is not on this node")


class Member:
    """``start``; ``stop`` as a node does, or ``kill``, after which it can be started again."""

    def __init__(
        self,
        directory: Path,
        node_id: int,
        port: int,
        voters: Sequence[str],
        *,
        cluster_id: str = "c",
        disk: Disk | None = None,
        settings: ClusterSection = SETTINGS,
    ) -> None:
        self.node_id = NodeId(node_id)
        self.port = port
        self.directory = directory
        self.disk = disk or OsDisk()
        self.data_directory_id = uuid.uuid4()
        self._stamps: list[uuid.UUID] = []
        """Of the data folder, which outlives that of the metadata."""
        self.seen: list[MetadataImage] = []
        self._voters = configured_voters(voters)
        self._cluster_id = cluster_id
        self._settings = settings
        self.raft_settings = RaftSettings(election_timeout_ms=settings.election_timeout_ms)

    async def start(self) -> None:
        """It takes part in the quorum when this returns; see ``register``."""
        store = MetadataStore(
            self.directory, self._cluster_id, disk=self.disk, files=FilePool(self.disk, 16)
        )
        replica = MetadataReplica(
            store,
            node_id=self.node_id,
            configured=self._voters,
            voters_id=fingerprint(self._cluster_id, self._voters),
            settings=self.raft_settings,
            random=random.random,
        )
        self.incarnation = uuid.uuid4()
        self._stamps.append(self.incarnation)
        self.service = MetadataService(
            replica,
            self._cluster_id,
            node_id=self.node_id,
            incarnation=self.incarnation,
            settings=self._settings,
            peers=Peers(self._cluster_id, self.node_id),
        )
        await self.service.open()
        self._listener = Listener(
            Context(
                node_id=self.node_id,
                address=lambda: (HOST, self.port),
                settings=KafkaSection(host=HOST, port=self.port),
                partitions=NoPartitions(),  # type: ignore[arg-type]
                metadata=self.service,
                metrics=NodeMetrics(),
                groups=GroupService(
                    node_id=self.node_id,
                    settings=GroupsSection(),
                    metadata=self.service,
                    partitions=NoPartitions(),  # type: ignore[arg-type]
                ),
            )
        )
        self._listener.open()
        self._tasks = [
            asyncio.create_task(self._listener.run()),
            asyncio.create_task(self.service.run()),
        ]

    async def register(self) -> None:
        """From here on it is one of the living."""
        await self.service.register(
            RegisterNode(
                node_id=self.node_id,
                incarnation=self.incarnation,
                directory_id=self.data_directory_id,
                stamps=tuple(self._stamps),
                host=HOST,
                port=self.port,
            )
        )
        await self.service.attach(self._saw, self._began)
        self._tasks.append(asyncio.create_task(self.service.join()))

    async def stop(self) -> None:
        await self.service.leave()
        await self._listener.stop()
        await self.service.close()
        await self._end()

    async def kill(self) -> None:
        """As nearly as a task can: nothing is said to anybody, nothing more is written."""
        await self._end()
        with suppress(Exception):
            self.service._quorum.replica.store.close()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._listener.stop()

    async def _began(self, image: MetadataImage) -> None:
        self.seen.append(image)

    def _saw(self, _old: MetadataImage, new: MetadataImage) -> None:
        self.seen.append(new)


async def until(true: Callable[[], bool], *, seconds: float = 20.0) -> None:
    """Look again and again: nothing tells a test when a cluster has come round."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - there is no event for what others know
            await asyncio.sleep(0.005)
