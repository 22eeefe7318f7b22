"""Three nodes' management APIs over one image.

Logs and decisions are real. In the place of the metadata quorum is one image that all nodes see,
each when its test lets it.
"""

import asyncio
import time
import uuid
from pathlib import Path

from streamlog.config import LogSection, NatsSection
from streamlog.control.service import ControlService
from streamlog.errors import NoController, NodeUnreachable
from streamlog.jetstream.api import ManagementApi
from streamlog.metadata.commands import (
    AwaitApplied,
    Command,
    CreateStream,
    DeleteStream,
    DescribeCluster,
    FenceNode,
    Granted,
    Heartbeat,
    RegisterNode,
    TransferController,
    UpdateStream,
)
from streamlog.metadata.controller import decide
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage
from streamlog.metadata.quorum.peers import PeerAddress
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition
from streamlog.nats.router import Router
from streamlog.nats.sockets import Sockets
from streamlog.partition.partition import Partition
from streamlog.partition.replica_manager import ReplicaManager
from streamlog.record.codec import RecordRun
from tests.fake_lease import FakeLease
from tests.local_node import until

IDS = tuple(NodeId(i) for i in (1, 2, 3))
FRONT = IDS[0]
"""It alone answers the bare prefix, so that a test knows whom it asks."""


class PeersHere:
    """In the place of sockets between the nodes: ports are ids of nodes."""

    def __init__(self, world: "World") -> None:
        self._world = world

    async def command(
        self, address: PeerAddress, data: bytes, timeout_ms: int, *, purpose: str = ""
    ) -> bytes:
        member = self._world.members[NodeId(address.port)]
        if not member.answers_nodes:
            error = NodeUnreachable(f"{address}: nothing listens there")
            error.refused = True
            raise error
        return await member.control.nodes.answer(data)


class Member:
    """One node, and the metadata as it sees them."""

    def __init__(self, world: "World", node_id: NodeId, path: Path, url: str) -> None:
        self.node_id = node_id
        self.image = MetadataImage("test")
        self.may_see = True
        self.controller_id = FRONT
        self.registry = ReplicaManager(
            path, node_id=node_id, settings=LogSection(sync="os"), metrics=NodeMetrics()
        )
        self.lease = FakeLease()
        self.control = ControlService(
            node_id=node_id,
            metadata=self,  # type: ignore[arg-type]
            partitions=self.registry,
            peers=PeersHere(world),  # type: ignore[arg-type]
            lease=self.lease,
        )
        self.answers_nodes = True
        router = Router()
        self.sockets = Sockets(router, write_timeout_ms=10_000)
        self.api = ManagementApi(
            node_id=node_id,
            nats=NatsSection(servers=(url,), default_api_prefix=node_id == FRONT),
            data_dir=path,
            metadata=self,  # type: ignore[arg-type]
            partitions=self.registry,
            metrics=NodeMetrics(),
            router=router,
            sockets=self.sockets,
            control=self.control,
            lease=self.lease,
        )
        self._world = world
        self._seen = asyncio.Event()

    async def see(self) -> None:
        """Act on what has been decided by now."""
        if self.may_see:
            old, self.image = self.image, self._world.image
            self.registry.apply(old, self.image)
            await self.registry.settled()
            self._seen.set()

    # As ``metadata.service.MetadataService``

    is_current = False

    async def create_stream(
        self, config: StreamConfig, assignments: tuple[()] = ()
    ) -> tuple[StreamImage, bool]:
        granted = await self.request(CreateStream(config=config))
        return self.image.stream(config.name), granted.result["created"]

    async def update_stream(
        self, config: StreamConfig, seen: StreamConfig | None = None
    ) -> StreamImage:
        await self.request(UpdateStream(config=config, seen=seen))
        return self.image.stream(config.name)

    async def change_stream(
        self, command: Command, name: str, *, deleted: StreamImage | None = None
    ) -> Granted:
        return await self.request(command)

    async def delete_stream(self, name: str, stream_id: uuid.UUID | None = None) -> None:
        await self.request(DeleteStream(name=name))

    async def request(self, command: Command) -> Granted:
        granted = await self._world.request(command)
        while self.image.offset < granted.offset:
            await self._next()
        return granted

    async def take(self, command: Command, *, forwarded: bool) -> Granted:
        assert isinstance(command, AwaitApplied) and forwarded
        while self.image.offset < command.offset:
            await self._next()
        return Granted(command.offset, {})

    async def _next(self) -> None:
        self._seen.clear()
        await self._seen.wait()


class World:
    """Three nodes and what was decided."""

    def __init__(self, path: Path, url: str) -> None:
        self.image = MetadataImage("test")
        self.has_controller = True
        self.transfers: list[TransferController] = []
        self.members = {i: Member(self, i, path / str(i), url) for i in IDS}

    @property
    def front(self) -> Member:
        return self.members[FRONT]

    async def start(self, group: asyncio.TaskGroup) -> None:
        for node_id, member in self.members.items():
            (member.registry._folders.path(TopicPartition("x", 0)).parent.parent).mkdir(
                parents=True
            )
            await member.registry.open(self.image)
            group.create_task(member.registry.run(), name=f"registry {node_id}")
            member.sockets.begin()
            group.create_task(member.sockets.run(), name=f"sockets {node_id}")
            group.create_task(member.api.run())
            granted = await self.request(
                RegisterNode(
                    node_id=node_id, incarnation=uuid.uuid4(), directory_id=uuid.uuid4(),
                    host="127.0.0.1", port=node_id,
                )
            )  # fmt: skip
            epoch = granted.result["node_epoch"]
            await self.request(Heartbeat(node_id=node_id, node_epoch=epoch, offset=epoch + 1))
        await until(lambda: all(member.api.is_ready for member in self.members.values()))

    async def request(self, command: Command) -> Granted:
        if not self.has_controller:
            raise NoController("lost")
        match command:
            case DescribeCluster():
                return Granted(0, {"high_watermark": self.image.offset})
            case TransferController():
                self.transfers.append(command)
                return Granted(0, {})
        decision = decide(
            self.image, command, now_ms=time.time_ns() // 1_000_000, new_id=uuid.uuid4(),
            live=frozenset(IDS),
        )  # fmt: skip
        self.image = self.image.apply_all(decision.records, offset=self.image.offset, epoch=1)
        for member in self.members.values():
            await member.see()
        return Granted(self.image.offset, decision.result)

    async def fence(self, node_id: NodeId) -> None:
        epoch = self.image.nodes[node_id].epoch
        await self.request(FenceNode(node_id=node_id, node_epoch=epoch))

    def leader(self, stream: str, number: int = 0) -> NodeId:
        return self.image.stream(stream).partition(number).leader

    def led(self, stream: str, number: int = 0) -> Partition:
        """The partition on the node that leads it."""
        leader = self.members[self.leader(stream, number)]
        return leader.registry.partition(TopicPartition(stream, number))

    def store(self, stream: str, *values: bytes, number: int = 0) -> None:
        """One batch, which is committed soon."""
        run = RecordRun()
        for i, value in enumerate(values):
            run.append(None, value, [(b"subject", b"%b.%d" % (stream.encode(), i))])
        self.led(stream, number).append(run, Unawaited())

    async def store_all(self, stream: str, *values: bytes, number: int = 0) -> None:
        self.store(stream, *values, number=number)
        partition = self.led(stream, number)
        await until(lambda: partition.high_watermark == partition.log_end_offset)


class Unawaited:
    def committed(self, base_offset: int) -> None:
        pass

    def failed(self, error: Exception) -> None:
        pass
