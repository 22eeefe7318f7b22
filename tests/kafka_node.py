"""The socket API over partitions of a few lines, for tests of the server and of its clients.

The partitions keep their batches in real segment files, so that what is sent is sent by sendfile.
"""

import asyncio
import contextlib
import struct
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple
from uuid import UUID, uuid4

from streamlog.config import KafkaSection
from streamlog.errors import OffsetOutOfRange, PartitionNotFound, StreamlogError, StreamNotFound
from streamlog.metrics import NodeMetrics
from streamlog.model import EpochEnd, NodeId, TopicPartition
from streamlog.server.context import Context
from streamlog.server.listener import Listener
from tests.record_batches import HandRecord, hand_batch

NODE = NodeId(7)
CLUSTER_ID = "c1u5t3r-of-the-tests"


class FileRange:
    """A slice of a segment file; says whether it was closed."""

    def __init__(self, file: BinaryIO, position: int, length: int) -> None:
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


class FakePartition:
    """A partition whose high watermark is its log end, unless a test says otherwise."""

    def __init__(self, directory: Path) -> None:
        self.is_leader = True
        self.leader_epoch = 5
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.batches: list[Batch] = []
        self.slices: list[FileRange] = []
        self.reads = 0
        self.failure: StreamlogError | None = None
        self.watchers: list[Callable[[], None]] = []
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

    def roll(self) -> None:
        """The next batch goes to a new file."""
        self._file = (self._directory / f"{self.log_end_offset:020d}.log").open("w+b")

    def commit(self) -> None:
        self.high_watermark = self.log_end_offset
        self.wake()

    def wake(self) -> None:
        for watcher in list(self.watchers):
            watcher()

    async def read(self, offset: int, max_bytes: int) -> FileRange:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        visible = [b for b in self.batches if offset < b.next_offset <= self.high_watermark]
        first = visible[0]
        length = first.length
        for batch in visible[1:]:
            if batch.file is not first.file or length + batch.length > max_bytes:
                break
            length += batch.length
        self.slices.append(FileRange(first.file, first.position, length))
        return self.slices[-1]

    def add_watcher(self, watcher: Callable[[], None]) -> None:
        self.watchers.append(watcher)

    def remove_watcher(self, watcher: Callable[[], None]) -> None:
        self.watchers.remove(watcher)

    async def offset_for_timestamp(self, timestamp_ms: int) -> tuple[int, int] | None:
        found = (b for b in self.batches if b.timestamp_ms >= timestamp_ms)
        return next(((b.base_offset, b.timestamp_ms) for b in found), None)

    async def latest_timestamp(self) -> tuple[int, int] | None:
        if not self.batches:
            return None
        latest = max(self.batches, key=lambda batch: batch.timestamp_ms)
        return latest.base_offset, latest.timestamp_ms

    def epoch_end(self, epoch: int) -> EpochEnd:
        known = min(epoch, self.leader_epoch)
        return EpochEnd(known, self.log_end_offset if epoch >= self.leader_epoch else 0)

    def close(self) -> None:
        for file in {batch.file for batch in self.batches} | {self._file}:
            if file is not None:
                file.close()


@dataclass
class FakeNode:
    host: str = "127.0.0.1"
    port: int = 0
    rack: str | None = None


@dataclass
class FakePartitionView:
    leader: NodeId = NODE
    leader_epoch: int = 5
    replicas: tuple[NodeId, ...] = (NODE,)
    isr: tuple[NodeId, ...] = (NODE,)


@dataclass
class FakeStream:
    partitions: tuple[FakePartitionView, ...]
    stream_id: UUID = field(default_factory=uuid4)


@dataclass
class FakeImage:
    cluster_id: str = CLUSTER_ID
    nodes: dict[NodeId, FakeNode] = field(default_factory=dict)
    streams: dict[str, FakeStream] = field(default_factory=dict)


class KafkaNode:
    """A listener on a free port, over fake partitions and fake metadata."""

    def __init__(self, **settings: Any) -> None:
        self.settings = KafkaSection(port=0, **settings)
        self.metrics = NodeMetrics()
        self.image = FakeImage()
        self.local: dict[TopicPartition, FakePartition] = {}
        self._directory = tempfile.TemporaryDirectory(prefix="streamlog-test-")
        context = Context(NODE, self.settings, self, self, self.metrics)  # type: ignore[arg-type]
        self.listener = Listener(context)

    @property
    def address(self) -> str:
        return "{}:{}".format(*self.listener.address)

    @property
    def port(self) -> int:
        return self.listener.address[1]

    def partition(self, tp: TopicPartition) -> FakePartition:
        if tp not in self.local:
            raise PartitionNotFound(str(tp))
        return self.local[tp]

    def add_stream(self, name: str, partitions: int = 1) -> FakePartition:
        """The stream's first partition."""
        self.image.streams[name] = FakeStream((FakePartitionView(),) * partitions)
        for index in range(partitions):
            directory = Path(self._directory.name) / f"{name}-{index}"
            directory.mkdir()
            self.local[TopicPartition(name, index)] = FakePartition(directory)
        return self.local[TopicPartition(name, 0)]

    async def create_stream(self, config: Any) -> tuple[FakeStream, bool]:
        self.add_stream(config.name, config.partitions)
        return self.image.streams[config.name], True

    async def delete_stream(self, name: str) -> None:
        if name not in self.image.streams:
            raise StreamNotFound(name)
        gone = self.image.streams.pop(name)
        for index in range(len(gone.partitions)):
            partition = self.local.pop(TopicPartition(name, index))
            partition.wake()
            partition.close()

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    async def __aenter__(self) -> "KafkaNode":
        self.listener.open()
        self.image.nodes[NODE] = FakeNode(port=self.port)
        self._running = asyncio.ensure_future(self.listener.run())
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        await self.listener.stop()
        await self._running
        for partition in self.local.values():
            partition.close()
        self._directory.cleanup()
