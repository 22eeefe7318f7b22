"""The socket API over partitions of a few lines, for tests of the server and of its clients.

The partitions keep their batches in real segment files, so that what is sent is sent by sendfile.
"""

import asyncio
import ssl
import struct
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple
from uuid import uuid4

from streamlog.access.scram import ITERATIONS, Scram, credential_of, salted_password
from streamlog.config import (
    MIB,
    GroupsSection,
    KafkaSection,
    LogSection,
    NodeSection,
    SaslSection,
    Settings,
)
from streamlog.errors import (
    NoController,
    OffsetOutOfRange,
    PartitionNotFound,
    StaleNode,
    StreamlogError,
)
from streamlog.groups.service import GroupService
from streamlog.metadata import controller
from streamlog.metadata.alteration import SettingChange
from streamlog.metadata.commands import AlterStream, AlterUser, Command, DescribeCluster
from streamlog.metadata.controller import Decision
from streamlog.metadata.controller.users import alter_user
from streamlog.metadata.credential import Credentials, StoredCredential
from streamlog.metadata.forwarding import Granted
from streamlog.metadata.image import Image, StreamImage, partition_changed
from streamlog.metadata.records import NodeFenced
from streamlog.metadata.stream import StreamConfig
from streamlog.metrics import NodeMetrics
from streamlog.model import EpochEnd, NodeId, TopicPartition
from streamlog.partition.pending import Acknowledgement
from streamlog.partition.producing import Appended
from streamlog.raft.messages import Answer, Request, SnapshotId
from streamlog.record.produced import ProducedBatch, stamp
from streamlog.server.authenticator import Authenticator
from streamlog.server.context import Context
from streamlog.server.listener import Listener
from tests.lone_node import started
from tests.offsets_partition import OffsetsPartitions
from tests.record_batches import HandRecord, hand_batch

NODE = NodeId(7)
CLUSTER_ID = "c1u5t3r-of-the-tests"
SALT = b"as good as any other"


async def until(condition: Callable[[], bool]) -> None:
    """Lets the server work until it is so."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for does not know of us
            await asyncio.sleep(0.001)


class FileRange:
    """A slice of a segment file; says whether it was closed."""

    def __init__(self, file: BinaryIO, position: int, length: int) -> None:
        self.held: bytes | None = None
        self._file = file
        self.position = position
        self.length = length
        self.closed = False

    def __len__(self) -> int:
        return self.length

    def fileno(self) -> int:
        return self._file.fileno()

    def read(self) -> bytes:
        self._file.seek(self.position)
        return self._file.read(self.length)

    def close(self) -> None:
        self.closed = True


class Batch(NamedTuple):
    base_offset: int
    next_offset: int
    timestamp_ms: int
    file: BinaryIO
    position: int
    length: int


class Statistics(NamedTuple):
    high_watermark: int
    log_end_offset: int
    size_bytes: int


class FakeLease:
    held = True


class FakePartition:
    """A partition whose high watermark is its log end, unless a test says otherwise."""

    def __init__(self, tp: TopicPartition, directory: Path, topic_id: bytes) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.is_leader = True
        self.in_sync = False
        """Of a follower."""
        self.high_watermark_known = True
        self.leader_epoch = 0
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.batches: list[Batch] = []
        self.slices: list[FileRange] = []
        self.reads = 0
        self.on_read: Callable[[], None] = lambda: None
        self.epoch_ends: dict[int, tuple[int, int]] = {}
        self.failure: Exception | None = None
        self.watchers: list[Callable[[], None]] = []
        self.end_watchers: list[Callable[[], None]] = []
        self.node_epochs: dict[int, int] = {}
        """Of the replicas that may fetch."""
        self.lagging: frozenset[int] = frozenset()
        """Of these, those that are not in sync."""
        self.fetches: list[tuple[int, int]] = []
        """Replica and offset of each fetch that counted."""
        self.had_all: list[tuple[int, int]] = []
        """Replica and how long ago, of what it told without a fetch."""
        self.below_min_isr = False
        self.commits = True
        """What is produced is, at once."""
        self.waiting: list[tuple[int, Acknowledgement]] = []
        """Base offsets of what is produced and not committed, and who hears of it."""
        self.producing_fails: StreamlogError | None = None
        self._directory = directory
        self._file: BinaryIO | None = None

    def append(
        self,
        values: list[bytes],
        *,
        timestamp_ms: int = 1_000,
        attributes: int = 0,
        compress: Callable[[bytes], bytes] = bytes,
        commit: bool = True,
    ) -> None:
        batch = hand_batch(
            [HandRecord(value, headers=[(b"subject", b"s")]) for value in values],
            self.log_end_offset,
            base_timestamp_ms=timestamp_ms,
            max_timestamp_ms=timestamp_ms,
            leader_epoch=self.leader_epoch,
            attributes=attributes,
            compress=compress,
        )
        self.append_bytes(batch, timestamp_ms=timestamp_ms, commit=commit)

    async def know_producers(self) -> None:
        pass

    def produce(self, batch: ProducedBatch, ack: Acknowledgement) -> Appended:
        if self.producing_fails is not None:
            raise self.producing_fails
        base_offset = self.log_end_offset
        data = stamp(batch, base_offset=base_offset, leader_epoch=self.leader_epoch)
        self.append_bytes(data, timestamp_ms=batch.max_timestamp_ms, commit=self.commits)
        self.waiting.append((base_offset, ack))
        if self.commits:
            self.commit_produced()
        return Appended(base_offset)

    def commit_produced(self) -> None:
        """As a timer would, when all that is there has been synced."""
        self.commit()
        waiting, self.waiting = self.waiting, []
        for base_offset, ack in waiting:
            ack.committed(base_offset)

    def append_bytes(self, batch: bytes, *, timestamp_ms: int = 1_000, commit: bool = True) -> None:
        if self._file is None:
            self.roll()
        assert self._file is not None
        self._file.seek(0, 2)
        position = self._file.tell()
        self._file.write(batch)
        self._file.flush()
        (last_delta,) = struct.unpack_from(">i", batch, 23)
        end = self.log_end_offset + last_delta + 1
        self.batches.append(
            Batch(self.log_end_offset, end, timestamp_ms, self._file, position, len(batch))
        )
        self.log_end_offset = end
        if commit:
            self.commit()
        else:
            self._tell(self.end_watchers)

    def roll(self) -> None:
        """The next batch goes to a new file."""
        self._file = (self._directory / f"{self.log_end_offset:020d}.log").open("w+b")

    def commit(self) -> None:
        self.high_watermark = self.log_end_offset
        self.wake()

    def wake(self) -> None:
        self._tell([*self.watchers, *self.end_watchers])

    def _tell(self, watchers: list[Callable[[], None]]) -> None:
        for watcher in list(watchers):
            watcher()

    @property
    def may_serve_reads(self) -> bool:
        return self.is_leader or self.in_sync

    async def read_for_follower(
        self, node_id: int, node_epoch: int, offset: int, last_epoch: int, max_bytes: int
    ) -> FileRange | EpochEnd:
        if self.node_epochs.get(node_id) != node_epoch:
            raise StaleNode(f"node {node_id} is in epoch {self.node_epochs.get(node_id)}")
        end = self.epoch_end(last_epoch)
        if last_epoch >= 0 and (end.epoch < last_epoch or end.end_offset < offset):
            return end
        self.fetches.append((node_id, offset))
        if max_bytes == 0 or offset == self.log_end_offset:
            if self._file is None:
                self.roll()
            assert self._file is not None
            return FileRange(self._file, 0, 0)
        return await self._read(offset, max_bytes, self.log_end_offset)

    async def read(self, offset: int, max_bytes: int) -> FileRange:
        return await self._read(offset, max_bytes, self.high_watermark)

    async def _read(self, offset: int, max_bytes: int, upper: int) -> FileRange:
        self.reads += 1
        self.on_read()
        if self.failure is not None:
            raise self.failure
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        visible = [b for b in self.batches if offset < b.next_offset <= upper]
        first = visible[0]
        length = first.length
        for batch in visible[1:]:
            if batch.file is not first.file or length + batch.length > max_bytes:
                break
            length += batch.length
        self.slices.append(FileRange(first.file, first.position, length))
        return self.slices[-1]

    @property
    def isr(self) -> frozenset[NodeId]:
        return frozenset({NODE, *map(NodeId, self.node_epochs)}) - self.lagging

    def replica_had_all(self, node_id: int, node_epoch: int, ago_ms: int) -> None:
        self.had_all.append((node_id, ago_ms))

    def add_watcher(self, watcher: Callable[[], None], *, end: bool = False) -> None:
        (self.end_watchers if end else self.watchers).append(watcher)

    def remove_watcher(self, watcher: Callable[[], None]) -> None:
        (self.watchers if watcher in self.watchers else self.end_watchers).remove(watcher)

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        found = (b for b in self.batches if b.timestamp_ms >= timestamp_ms)
        return next(((b.base_offset, b.timestamp_ms) for b in found), None)

    async def latest_timestamp(self) -> tuple[int, int] | None:
        if not self.batches:
            return None
        latest = max(self.batches, key=lambda batch: batch.timestamp_ms)
        return latest.base_offset, latest.timestamp_ms

    def epoch_end(self, epoch: int) -> EpochEnd:
        return EpochEnd(*self.epoch_ends.get(epoch, (epoch, self.log_end_offset)))

    def statistics(self) -> Statistics:
        size_bytes = sum(batch.length for batch in self.batches)
        return Statistics(self.high_watermark, self.log_end_offset, size_bytes)

    async def purge(self, up_to_offset: int) -> int:
        if self.failure is not None:
            raise self.failure
        before = self.log_start_offset
        self.log_start_offset = max(before, min(up_to_offset, self.high_watermark))
        return self.log_start_offset - before

    def close(self) -> None:
        for file in {batch.file for batch in self.batches} | {self._file}:
            if file is not None:
                file.close()


class FakeMetadata:
    """The real controller and image, without a log."""

    def __init__(self, local: dict[TopicPartition, FakePartition], directory: Path) -> None:
        self.image = Image(CLUSTER_ID)
        self.lease = FakeLease()
        self.asked: list[Command] = []
        """What this node has asked the controller for."""
        self.no_controller: StreamlogError | None = None
        """What becomes of whatever is asked of the controller."""
        self.controller_id: NodeId | None = NODE
        self.taken: list[tuple[Command, bool]] = []
        """Commands with whether another node has forwarded them."""
        self.raft_answers: Callable[[Request], Awaitable[Answer]] = _no_quorum
        self.snapshots: dict[SnapshotId, bytes] = {}
        self.result: Granted | StreamlogError = Granted(0, {})
        """What becomes of every command."""
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
        decision = controller.decide(
            self.image, command, now_ms=1_000, new_id=uuid4(), live=live, voters=frozenset()
        )
        self._apply(decision)
        return Granted(self.image.offset, decision.result)

    async def alter_stream(
        self,
        name: str,
        changes: tuple[SettingChange, ...],
        assignments: tuple[tuple[NodeId, ...], ...] = (),
    ) -> StreamImage:
        before = self.image.streams.get(name)
        await self.request(AlterStream(name=name, changes=changes, assignments=assignments))
        stream = self.image.stream(name)
        assert before is not None
        for index in range(len(before.partitions), len(stream.partitions)):
            self._keep(TopicPartition(name, index))
        return stream

    def _keep(self, tp: TopicPartition) -> None:
        directory = self._directory / f"{tp}-{uuid4()}"
        directory.mkdir()
        topic_id = self.image.stream(tp.stream).stream_id.bytes
        self._local[tp] = FakePartition(tp, directory, topic_id)

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
        decision = controller.create_stream(
            self.image, config, new_id=uuid4(), now_ms=1_000, assignments=assignments
        )
        self._apply(decision)
        for index in range(config.partitions if decision.changes else 0):
            self._keep(TopicPartition(config.name, index))
        return self.image.stream(config.name), decision.changes

    async def delete_stream(self, name: str) -> None:
        partitions = self.image.stream(name).partitions
        self._apply(controller.delete_stream(self.image, name))
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
            changed = {**changed, scram.value: stored}  # type: ignore[dict-item]
        command = AlterUser(name=name, changed=changed, decoy_secret="c2VjcmV0")
        self._apply(alter_user(self.image, command))

    def register(self, port: int, node_id: NodeId = NODE, rack: str = "r1") -> None:
        self._apply(started(self.image, node_id, uuid4(), host="127.0.0.1", port=port, rack=rack))

    def fence(self, node_id: NodeId) -> None:
        self._apply(Decision((NodeFenced(node_id=node_id, fenced=True),)))

    def change(self, stream: str, index: int, **fields: Any) -> None:
        """The image's partition as the test wants it."""
        known = self.image.stream(stream).partition(index)
        self._apply(Decision((partition_changed(stream, index, replace(known, **fields)),)))

    def _apply(self, decision: Decision) -> None:
        self.image = self.image.apply_all(decision.records, offset=self.image.offset, epoch=1)


async def _no_quorum(_: Request) -> Answer:
    raise NoController("this node takes no part in the quorum")


class KafkaNode:
    """A listener on a free port, over fake partitions and metadata that are not logged."""

    def __init__(
        self,
        groups: GroupsSection | None = None,
        *,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        sasl: SaslSection | None = None,
        **settings: Any,
    ) -> None:
        self.settings = KafkaSection(**{"port": 0, **settings})
        self.metrics = NodeMetrics()
        self.local: dict[TopicPartition, FakePartition] = {}
        self._directory = tempfile.TemporaryDirectory(prefix="streamlog-test-")
        self.directory = Path(self._directory.name)
        self.node_settings = Settings.model_construct(
            node=NodeSection(id=NODE, data_dir=self.directory, rack="r1"),
            log=LogSection(segment_bytes=8 * MIB),
            sasl=sasl or SaslSection(),
        )
        self.metadata = FakeMetadata(self.local, self.directory)
        self.offsets = OffsetsPartitions()
        self.groups = GroupService(
            node_id=NODE,
            settings=groups or GroupsSection(),
            metadata=self.metadata,
            partitions=self.offsets,
        )
        self.authenticator = (
            None if sasl is None else Authenticator.load(sasl, lambda: self.metadata.image)
        )
        self.context = Context(
            node_id=NODE,
            address=lambda: self.listener.address,
            settings=self.settings,
            partitions=self,
            metadata=self.metadata,
            metrics=self.metrics,
            groups=self.groups,
            node_settings=self.node_settings,
            authenticator=self.authenticator,
            tls=tls,
        )
        self.listener = Listener(self.context)

    @property
    def address(self) -> str:
        return "{}:{}".format(*self.listener.address)

    @property
    def port(self) -> int:
        return self.listener.address[1]

    def partitions(self) -> Iterator[FakePartition]:
        return iter(list(self.local.values()))

    def partition(self, tp: TopicPartition) -> FakePartition:
        if tp not in self.local:
            raise PartitionNotFound(str(tp))
        return self.local[tp]

    async def add_stream(self, name: str, partitions: int = 1, **settings: object) -> FakePartition:
        """The stream's first partition."""
        await self.metadata.create_stream(
            StreamConfig.of(name=name, partitions=partitions, **settings)
        )
        return self.local[TopicPartition(name, 0)]

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    async def __aenter__(self) -> "KafkaNode":
        self.listener.open()
        self.metadata.register(self.port)
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._tasks.create_task(self.listener.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.listener.stop()
            await self._tasks.__aexit__(kind, error, traceback)  # raises what the body raised
        finally:
            self.close()  # else the files are found open in the middle of another test

    def close(self) -> None:
        """Of who has not listened, too."""
        for partition in self.local.values():
            partition.close()
        self._directory.cleanup()
