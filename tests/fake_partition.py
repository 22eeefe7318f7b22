"""A partition of a few lines, whose batches are in real segment files: so they go by sendfile."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NamedTuple

from streamlog.errors import NotEnoughReplicas, OffsetOutOfRange, StaleNode, StreamlogError
from streamlog.log.segment.file_slice import FileSlice
from streamlog.log.transactions.transactions import AbortedTransaction
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import EpochEnd, NodeId, TopicPartition
from streamlog.partition.producer_state_manager import (
    ActiveProducer,
    ProducerAppend,
    VerifiedTransaction,
)
from streamlog.partition.state import Acknowledgement, PartitionStatistics
from streamlog.record.batch import BatchHeader
from streamlog.record.produced import ProducedBatch, stamp
from streamlog.record.transaction_marker import TransactionMarker, marker_batch
from tests.partition_statistics import partition_statistics
from tests.record_batches import HandRecord, hand_batch

NODE = NodeId(7)


class FileRange(FileSlice):
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


class FakePartition:
    """A partition whose high watermark is its log end, unless a test says otherwise."""

    def __init__(self, tp: TopicPartition, directory: Path, topic_id: bytes) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.config = StreamConfig.of(name=tp.stream)
        self.places: None = None
        self.is_leader = True
        self.in_sync = False
        """Of a follower."""
        self.high_watermark_known = True
        self.leader_epoch = 0
        self.log_start_offset = 0
        self.local_start: int | None = None
        self.cold_reads: list[tuple[int, Callable[[], None]]] = []
        """What fetches wait for that is in the object store alone, and what they want to be told by."""
        self.cold_offsets_that_came: set[int] = set()
        self.log_end_offset = 0
        self.high_watermark = 0
        self.first_unstable_offset: int | None = None
        self.aborted: list[AbortedTransaction] = []
        """What is told of the records that are read."""
        self.batches: list[Batch] = []
        self.slices: list[FileRange] = []
        self.reads = 0
        self.on_read: Callable[[], None] = lambda: None
        self.epoch_ends: dict[int, tuple[int, int]] = {}
        self.failure: Exception | None = None
        self.watchers: dict[Callable[[], None], bool] = {}
        self.end_watchers: dict[Callable[[], None], bool] = {}
        """Whether each leaves when it is called."""
        self.node_epochs: dict[int, int] = {}
        """Of the replicas that may fetch."""
        self.incarnations: set[int] = set()
        """That replicas have told."""
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

    def leads(self, leader_epoch: int) -> bool:
        return self.is_leader and self.leader_epoch == leader_epoch

    def check_min_isr(self) -> None:
        if self.below_min_isr:
            raise NotEnoughReplicas(f"{self.tp} has fewer replicas in sync than min_isr")

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

    def active_producers(self) -> list[ActiveProducer]:
        return []

    knows_producers = True

    def produce_plain(self, _batch: ProducedBatch, _ack: Acknowledgement) -> int:
        """It keeps what waits, so that a test may say when it is committed."""
        return -1

    def produce(
        self,
        batch: ProducedBatch,
        ack: Acknowledgement,
        *,
        verified: VerifiedTransaction | None = None,
    ) -> ProducerAppend:
        if self.producing_fails is not None:
            raise self.producing_fails
        base_offset = self.log_end_offset
        data = stamp(batch, base_offset=base_offset, leader_epoch=self.leader_epoch)
        self.append_bytes(data, timestamp_ms=batch.max_timestamp_ms, commit=self.commits)
        self.waiting.append((base_offset, ack))
        if self.commits:
            self.commit_produced()
        return ProducerAppend(base_offset)

    def verify_transaction(self, header: BatchHeader) -> VerifiedTransaction | None:
        """No transaction is open here, so that the coordinator is asked each time."""
        return VerifiedTransaction(header.producer_id, header.producer_epoch, header.base_sequence)

    async def end_transaction(self, marker: TransactionMarker) -> None:
        if self.producing_fails is not None:
            raise self.producing_fails
        batch = marker_batch(
            marker,
            base_offset=self.log_end_offset,
            leader_epoch=self.leader_epoch,
            timestamp_ms=1_000,
        )
        self.append_bytes(batch)

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
            self.tell(self.end_watchers)

    def roll(self) -> None:
        """The next batch goes to a new file."""
        self._file = (self._directory / f"{self.log_end_offset:020d}.log").open("w+b")

    def commit(self) -> None:
        self.high_watermark = self.log_end_offset
        self.wake()

    def wake(self) -> None:
        self.tell(self.watchers)
        self.tell(self.end_watchers)

    def tell(self, watchers: dict[Callable[[], None], bool]) -> None:
        for watcher, once in list(watchers.items()):
            if once:
                watchers.pop(watcher, None)
            watcher()

    @property
    def may_serve_reads(self) -> bool:
        return self.is_leader or self.in_sync

    async def read_for_follower(
        self,
        node_id: int,
        node_epoch: int,
        offset: int,
        last_epoch: int,
        max_bytes: int,
        *,
        log_start: int = 0,
        incarnation: int,
        partition_epoch: int = -1,
    ) -> FileRange | EpochEnd:
        self.incarnations.add(incarnation)
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

    def add_watcher(
        self, watcher: Callable[[], None], *, end: bool = False, once: bool = False
    ) -> None:
        (self.end_watchers if end else self.watchers)[watcher] = once

    def remove_watcher(self, watcher: Callable[[], None]) -> None:
        self.watchers.pop(watcher, None)
        self.end_watchers.pop(watcher, None)

    @property
    def stable_offset(self) -> int:
        first = self.first_unstable_offset
        return self.high_watermark if first is None else min(first, self.high_watermark)

    async def read_committed(
        self, offset: int, max_bytes: int
    ) -> tuple[FileRange, list[AbortedTransaction]]:
        return await self._read(offset, max_bytes, self.stable_offset), self.aborted

    async def offset_for_timestamp(
        self, timestamp_ms: int, *, stable: bool = False
    ) -> tuple[int, int] | None:
        upper = self.stable_offset if stable else self.high_watermark
        found = (
            b for b in self.batches if b.timestamp_ms >= timestamp_ms and b.next_offset <= upper
        )
        return next(((b.base_offset, b.timestamp_ms) for b in found), None)

    async def latest_timestamp(self, *, stable: bool = False) -> tuple[int, int] | None:
        if not self.batches:
            return None
        latest = max(self.batches, key=lambda batch: batch.timestamp_ms)
        return latest.base_offset, latest.timestamp_ms

    @property
    def local_log_start_offset(self) -> int:
        """As of a stream that is not tiered, unless a test says otherwise."""
        return self.log_start_offset if self.local_start is None else self.local_start

    def is_at_hand(
        self, offset: int, _max_bytes: int, _epoch: int, ready: Callable[[], None]
    ) -> bool:
        is_cold = self.log_start_offset <= offset < self.local_log_start_offset
        if not is_cold or offset in self.cold_offsets_that_came:
            return True
        self.cold_reads.append((offset, ready))
        return False

    async def find_epoch_end(self, epoch: int) -> EpochEnd:
        return self.epoch_end(epoch)

    def epoch_end(self, epoch: int) -> EpochEnd:
        return EpochEnd(*self.epoch_ends.get(epoch, (epoch, self.log_end_offset)))

    def statistics(self) -> PartitionStatistics:
        size_bytes = sum(batch.length for batch in self.batches)
        return partition_statistics(
            self.tp,
            high_watermark=self.high_watermark,
            log_end_offset=self.log_end_offset,
            size_bytes=size_bytes,
        )

    async def purge(self, up_to_offset: int, *, timeout_s: float = 0) -> int:
        if self.failure is not None:
            raise self.failure
        before = self.log_start_offset
        self.log_start_offset = max(before, min(up_to_offset, self.high_watermark))
        return self.log_start_offset - before

    def close(self) -> None:
        for file in {batch.file for batch in self.batches} | {self._file}:
            if file is not None:
                file.close()
