"""A node's view of the metadata that is not logged: the real controller and image decide."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4, uuid5

from streamlog.authn.scram import ITERATIONS, Scram, credential_of, salted_password
from streamlog.errors import NoController, OffsetOutOfRange, StreamlogError
from streamlog.metadata import controller
from streamlog.metadata.commands import (
    AlterStream,
    AlterUser,
    Command,
    CreateStream,
    DeleteStream,
    DescribeCluster,
    Granted,
    PlaceStream,
    UpdateStream,
)
from streamlog.metadata.controller import Decision
from streamlog.metadata.controller.clients import alter_user
from streamlog.metadata.image.credential import Credentials, StoredCredential
from streamlog.metadata.image.metadata_image import MetadataImage, StreamImage, partition_changed
from streamlog.metadata.image.records import NodeFenced
from streamlog.metadata.stream.alteration import SettingChange
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NodeId, TopicPartition
from streamlog.raft.messages import Answer, Request, SnapshotId
from tests.fake_lease import FakeLease
from tests.fake_partition import NODE, FakePartition
from tests.node_registration import started

CLUSTER_ID = "c1u5t3r-of-the-tests"
SALT = b"as good as any other"


def first_id(name: str) -> UUID:
    """Of the first stream of that name; one that is created anew has another id."""
    return uuid5(UUID(int=0), name)


class FakeMetadata:
    """The real controller and image, without a log."""

    def __init__(self, local: dict[TopicPartition, FakePartition], directory: Path) -> None:
        self.image = MetadataImage(CLUSTER_ID)
        self.lease = FakeLease()
        self.asked: list[Command] = []
        """What this node has asked the controller for."""
        self.no_controller: StreamlogError | None = None
        """What becomes of whatever is asked of the controller."""
        self.controller_id: NodeId | None = NODE
        self.is_current = False
        self.taken: list[tuple[Command, bool]] = []
        """Commands with whether another node has forwarded them."""
        self.raft_answers: Callable[[Request], Awaitable[Answer]] = _no_quorum
        self.snapshots: dict[SnapshotId, bytes] = {}
        self.result: Granted | StreamlogError = Granted(0, {})
        """What becomes of every command."""
        self._names: set[str] = set()
        """Of all streams that were ever created."""
        self._local = local
        self._directory = directory

    async def take(self, command: Command, *, forwarded: bool) -> Granted:
        self.taken.append((command, forwarded))
        if isinstance(self.result, StreamlogError):
            raise self.result
        return self.result

    async def request(self, command: Command) -> Granted:
        if self.no_controller is not None:
            raise self.no_controller
        if isinstance(command, DescribeCluster):
            return Granted(0, {"high_watermark": self.image.offset})
        self.asked.append(command)
        live = frozenset(it.node_id for it in self.image.nodes.values() if not it.fenced)
        decision = controller.decide(self.image, command, now_ms=1_000, new_id=uuid4(), live=live)
        self._apply(decision)
        return Granted(self.image.offset, decision.result)

    async def update_stream(
        self, config: StreamConfig, seen: StreamConfig | None = None
    ) -> StreamImage:
        await self.request(UpdateStream(config=config, seen=seen))
        return self.image.stream(config.name)

    async def alter_stream(
        self,
        name: str,
        changes: tuple[SettingChange, ...],
        assignments: tuple[tuple[NodeId, ...], ...] = (),
        seen: StreamConfig | None = None,
    ) -> StreamImage:
        before = self.image.streams.get(name)
        await self.request(
            AlterStream(name=name, changes=changes, assignments=assignments, seen=seen)
        )
        stream = self.image.stream(name)
        assert before is not None
        for index in range(len(before.partitions), len(stream.partitions)):
            self._keep(TopicPartition(name, index))
        return stream

    def _keep(self, tp: TopicPartition) -> None:
        directory = self._directory / f"{tp}-{uuid4()}"
        directory.mkdir()
        stream = self.image.stream(tp.stream)
        partition = FakePartition(tp, directory, stream.stream_id.bytes)
        partition.leader_epoch = stream.partition(tp.partition).leader_epoch
        self._local[tp] = partition

    async def raft_request(self, request: Request) -> Answer:
        return await self.raft_answers(request)

    async def read_snapshot(
        self, snapshot: SnapshotId, position: int, max_bytes: int
    ) -> tuple[bytes, int]:
        if snapshot not in self.snapshots:
            raise OffsetOutOfRange(snapshot.end_offset, 0, 0)
        data = self.snapshots[snapshot]
        return data[position : position + max_bytes], len(data)

    async def create_stream(
        self, config: StreamConfig, assignments: tuple[tuple[NodeId, ...], ...] = ()
    ) -> tuple[StreamImage, bool]:
        new_id = uuid4() if config.name in self._names else first_id(config.name)
        self._names.add(config.name)
        decision = controller.create_stream(
            self.image, config, new_id=new_id, now_ms=1_000, assignments=assignments
        )
        self._apply(decision)
        for index in range(config.partitions if decision.changes else 0):
            self._keep(TopicPartition(config.name, index))
        return self.image.stream(config.name), decision.changes

    async def change_stream(
        self, command: Command, name: str, *, deleted: StreamImage | None = None
    ) -> Granted:
        result: dict[str, Any] = {}
        match command:
            case PlaceStream():
                _, created = await self.create_stream(command.config, command.assignments)
                result["created"] = created
            case CreateStream():
                _, created = await self.create_stream(command.config)
                result["created"] = created
            case AlterStream():
                changed = command.changes, command.assignments, command.seen
                await self.alter_stream(name, *changed)
            case DeleteStream():
                await self.delete_stream(name, command.stream_id)
            case _:
                await self.request(command)
        return Granted(self.image.offset, result)

    async def delete_stream(self, name: str, stream_id: UUID | None = None) -> None:
        partitions = self.image.stream(name).partitions
        self._apply(controller.delete_stream(self.image, name, stream_id))
        for index in range(len(partitions)):
            partition = self._local.pop(TopicPartition(name, index))
            partition.wake()
            partition.close()

    def add_user(self, name: str, password: str, *mechanisms: Scram) -> None:
        """Of all mechanisms where none is named."""
        changed: Credentials = {}
        for scram in mechanisms or Scram:
            salted = salted_password(scram, password, SALT, ITERATIONS)
            stored = StoredCredential.of(credential_of(scram, salted, SALT, ITERATIONS))
            changed = {**changed, scram.value: stored}
        command = AlterUser(name=name, changed=changed, decoy_secret="c2VjcmV0")
        self._apply(alter_user(self.image, command))

    def register(self, port: int, node_id: NodeId = NODE, rack: str = "r1") -> None:
        self._apply(started(self.image, node_id, uuid4(), host="127.0.0.1", port=port, rack=rack))

    def fence(self, node_id: NodeId) -> None:
        self._apply(Decision((NodeFenced(node_id=node_id, fenced=True),)))

    def change(self, stream: str, index: int, **fields: Any) -> None:
        """The image's partition as the test wants it."""
        known = replace(self.image.stream(stream).partition(index), incarnations=())
        self._apply(Decision((partition_changed(stream, index, replace(known, **fields)),)))

    def _apply(self, decision: Decision) -> None:
        self.image = self.image.apply_all(decision.records, offset=self.image.offset, epoch=1)


async def _no_quorum(_: Request) -> Answer:
    raise NoController("this node takes no part in the quorum")
