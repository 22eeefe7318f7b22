"""Some nodes' partitions, served on real ports, that follow each other; the controller is asked
directly, and every node hears at once what it decides, unless a test says otherwise.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from streamlog.config import (
    GroupsSection,
    KafkaSection,
    LogSection,
    ReplicationSection,
    TierSection,
)
from streamlog.errors import NoController, StreamlogError
from streamlog.groups.service import GroupService
from streamlog.kafka.context import Context
from streamlog.kafka.net.listener import Listener
from streamlog.kafka.transaction_partitions import TransactionPartitions
from streamlog.log.encryption.key_ring import KeyRing
from streamlog.log.storage.disk import Disk, OsDisk
from streamlog.log.storage.file_pool import FilePool
from streamlog.metadata import commands as c
from streamlog.metadata.commands import Granted
from streamlog.metadata.image.feature_level import LEVEL_MAX
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import NodeTier, ReplicaManager
from streamlog.partition.tiering.object_storage import ObjectStorage
from tests.controller_world import World
from tests.fake_lease import FakeLease

TP = TopicPartition("s", 0)
TIMEOUT_S = 60.0
SLOW_MS = 3_600_000


class ReplicaNode:
    """One life of a node. It is its registry's ``Cluster`` and its server's ``Metadata``."""

    controller_id = None
    is_current = True

    def __init__(
        self, world: "ReplicaWorld", node_id: NodeId, *, disk: Disk | None, **log: object
    ) -> None:
        self.node_id = node_id
        self.image = MetadataImage("c")
        self.lease = FakeLease()
        self.metrics = NodeMetrics()
        self.refuse: StreamlogError | None = None
        """What the controller answers, if anything but what it decides."""
        self.asked: list[c.Command] = []
        self.reports: list[TopicPartition] = []
        self.offline: set[TopicPartition] = set()
        self.full = False
        self._world = world
        (world.path / str(node_id)).mkdir(parents=True, exist_ok=True)
        quiet = {"sync_interval_ms": SLOW_MS, "retention_check_ms": SLOW_MS}
        metadata: Any = self
        self.storage: ObjectStorage | None = None
        tier: NodeTier | None = None
        if world.tier is not None:
            files = FilePool(OsDisk(), 64, world.keys)
            folder = world.path / str(node_id)
            self.storage = ObjectStorage(world.tier, "c", folder, files=files)
            tier = NodeTier(world.tier, "c", self.storage, files)
        self.registry = ReplicaManager(
            world.path / str(node_id),
            node_id=node_id,
            settings=LogSection.model_validate({**quiet, **log}),
            metrics=self.metrics,
            disk=disk,
            replication=world.settings,
            cluster=metadata,
            power_lost=False,
            keys=world.keys,
            tier=tier,
        )
        self.listener = Listener(
            Context(
                node_id=node_id,
                address=lambda: self.listener.address,
                settings=KafkaSection(port=0),
                partitions=self.registry,
                metadata=metadata,
                metrics=self.metrics,
                groups=GroupService(
                    node_id=node_id,
                    settings=GroupsSection(),
                    metadata=metadata,
                    partitions=self.registry,
                ),
                transaction_partitions=world.transactions,
            )
        )
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def node_epoch(self) -> int:
        return self._world.controller.epoch(self.node_id)

    async def request(self, command: c.Command) -> Granted:
        self.asked.append(command)
        if self.refuse is not None:
            raise self.refuse
        return await self._world.ask(command)

    async def create_stream(self, *_: object, **__: object) -> Granted:
        raise NoController("no client makes streams here")

    async def report_leader(self, tp: TopicPartition, leader: NodeId, leader_epoch: int) -> None:
        self.reports.append(tp)

    def tell_offline(self, offline: Iterable[TopicPartition]) -> None:
        self.offline = set(offline)

    def tell_full(self, full: bool) -> None:
        self.full = full

    def partition(self, tp: TopicPartition = TP) -> Partition:
        return self.registry.partition(tp)

    # Its life

    async def start(self) -> None:
        self.listener.open()
        loop = asyncio.get_running_loop()
        host, port = self.listener.address
        self._tasks.append(loop.create_task(self.listener.run()))
        self._world.controller.runs += 1
        known = self._world.controller.image.nodes.get(self.node_id)
        await self._world.ask(
            c.RegisterNode(
                node_id=self.node_id,
                incarnation=UUID(int=self._world.controller.runs + (1 << 40)),
                directory_id=UUID(int=self.node_id),
                stamps=() if known is None else (known.incarnation,),
                host=host,
                port=port,
            )
        )
        image = self._world.controller.image
        await self.registry.open(image)
        await self.hear(image)
        self._tasks.append(loop.create_task(self.registry.run()))
        self._world.nodes[self.node_id] = self
        self._world.controller.live.add(self.node_id)
        offset = image.offset
        await self._world.ask(
            c.Heartbeat(
                node_id=self.node_id,
                node_epoch=self.node_epoch,
                offset=offset,
                offline=tuple((tp.stream, tp.partition) for tp in self.offline),
                full=self.full,
            )
        )

    async def hear(self, image: MetadataImage) -> None:
        old, self.image = self.image, image
        self.registry.apply(old, image)
        await self.registry.settled()

    async def stop(self) -> None:
        """Nobody is told of it."""
        del self._world.nodes[self.node_id]
        await self.listener.stop()
        await self.registry.close()
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


class ReplicaWorld:
    """``async with ReplicaWorld(folder, 3) as world``."""

    def __init__(self, path: Path, count: int, **settings: int) -> None:
        self.path = path
        self.controller = World()
        self.controller.image = replace(self.controller.image, level=LEVEL_MAX)
        self.settings = ReplicationSection.model_validate(
            {"replica_lag_time_max_ms": 60_000, "fetch_backoff_ms": 10, **settings}
        )
        self.nodes: dict[NodeId, ReplicaNode] = {}
        self.tier: TierSection | None = None
        """Of nodes that are started from now on."""
        self.keys: KeyRing | None = None
        """The same."""
        self.log: dict[str, object] = {}
        """Settings of the logs of nodes that are started from now on."""
        self.deaf: set[int] = set()
        """Nodes that hear nothing of what is decided."""
        self.transactions: TransactionPartitions | None = None
        """Of nodes that are started from now on."""
        self._count = count
        self._deciding = asyncio.Lock()

    async def __aenter__(self) -> Self:
        for number in range(1, self._count + 1):
            await self.start(number)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in list(self.nodes.values()):
            await node.stop()

    def __getitem__(self, number: int) -> ReplicaNode:
        return self.nodes[NodeId(number)]

    async def start(self, number: int, disk: Disk | None = None, **log: object) -> ReplicaNode:
        node = ReplicaNode(self, NodeId(number), disk=disk, **{**self.log, **log})
        await node.start()
        return node

    async def ask(self, command: c.Command) -> Granted:
        async with self._deciding:
            decision = self.controller.ask(command)
            await self.spread()
            return Granted(self.controller.image.offset, dict(decision.result))

    async def spread(self) -> None:
        for node in list(self.nodes.values()):
            if node.node_id not in self.deaf and node.image is not self.controller.image:
                await node.hear(self.controller.image)

    async def create(self, **settings: object) -> None:
        self.controller.create("s", **{"replicas": self._count, **settings})
        await self.spread()
        for node in list(self.nodes.values()):  # one may have heard of it by another decision
            await node.registry.settled()

    async def elect(self, number: int, tp: TopicPartition = TP) -> None:
        await self.ask(
            c.ElectLeader(stream=tp.stream, partition=tp.partition, leader=NodeId(number))
        )

    async def beat(self, number: int) -> None:
        """The controller hears what the node cannot do."""
        node = self[number]
        await self.ask(
            c.Heartbeat(
                node_id=node.node_id,
                node_epoch=node.node_epoch,
                offset=node.image.offset,
                offline=tuple((tp.stream, tp.partition) for tp in node.offline),
                full=node.full,
            )
        )

    async def stop(self, number: int) -> None:
        """The node is gone, and fenced."""
        await self[number].stop()
        self.controller.live.discard(NodeId(number))
        epoch = self.controller.epoch(number)
        await self.ask(c.FenceNode(node_id=NodeId(number), node_epoch=epoch))

    @property
    def leader(self) -> ReplicaNode:
        return self.nodes[self.controller.partition().leader]

    @property
    def followers(self) -> list[ReplicaNode]:
        return [node for node in self.nodes.values() if node is not self.leader]

    def isr(self) -> set[int]:
        return set(self.controller.partition().isr)


async def until(condition: Callable[[], object], *, timeout_s: float = TIMEOUT_S) -> None:
    """Wait for what other tasks bring about."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - nobody signals it
            await asyncio.sleep(0.002)


@asynccontextmanager
async def replicas(path: Path, count: int = 3, **settings: int) -> AsyncIterator[ReplicaWorld]:
    """A world with the stream ``s`` of one partition on every node."""
    async with ReplicaWorld(path, count, **settings) as world:
        await world.create()
        yield world
