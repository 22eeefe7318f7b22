"""A led partition of ``__consumer_offsets``, or of another internal stream, in memory."""

import asyncio
from collections.abc import Callable

from streamlog.errors import (
    InvalidTransactionState,
    NotEnoughReplicas,
    NotLeader,
    OffsetOutOfRange,
    StreamlogError,
)
from streamlog.metadata.stream.stream_config import OFFSETS_STREAM
from streamlog.model import TopicPartition
from streamlog.partition.producer_state_manager import VerifiedTransaction
from streamlog.partition.state import Acknowledgement
from streamlog.record.batch import batches
from streamlog.record.codec import RecordRun
from streamlog.record.transaction_marker import (
    TransactionMarker,
    as_transactional,
    marker_batch,
)


class MemorySlice:
    """Bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read(self) -> bytes:
        return self._data

    def close(self) -> None:
        pass

    def __enter__(self) -> "MemorySlice":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class OffsetsPartition:
    """What is appended is committed soon, or, if ``commits`` is False, by ``commit``."""

    def __init__(
        self, number: int = 0, *, leader_epoch: int = 1, stream: str = OFFSETS_STREAM
    ) -> None:
        self.tp = TopicPartition(stream, number)
        self.is_leader = True
        self.leader_epoch = leader_epoch
        self.high_watermark = 0
        self.high_watermark_known = True
        self.log_start_offset = 0
        self.below_min_isr = False
        self.commits = True
        self.fault: StreamlogError | None = None
        """What becomes of appends."""
        self.read_faults: list[StreamlogError] = []
        """What becomes of the next reads."""
        self.data = b""
        self.waiting: list[tuple[int, Acknowledgement]] = []
        self.watchers: list[Callable[[], None]] = []
        self.open: set[tuple[int, int]] = set()
        """Producers and epochs of transactions that are open here."""
        self._end = 0

    def leads(self, leader_epoch: int) -> bool:
        return self.is_leader and self.leader_epoch == leader_epoch

    def check_min_isr(self) -> None:
        if self.below_min_isr:
            raise NotEnoughReplicas(f"{self.tp} has fewer replicas in sync than min_isr")

    def append(
        self, run: RecordRun, ack: Acknowledgement, *, leader_epoch: int | None = None
    ) -> int:
        if self.fault is not None:
            raise self.fault
        if not self.is_leader or leader_epoch not in (None, self.leader_epoch):
            raise NotLeader(f"led in epoch {self.leader_epoch}, not {leader_epoch}")
        base_offset, self._end = self._end, self._end + run.count
        batch = run.seal(
            base_offset=base_offset, leader_epoch=self.leader_epoch, timestamp_ms=1_000
        )
        self._appended(batch, base_offset, ack)
        return base_offset

    async def know_producers(self) -> None:
        pass

    def verify_producer(self, producer_id: int, producer_epoch: int) -> VerifiedTransaction | None:
        if (producer_id, producer_epoch) in self.open:
            return None
        return VerifiedTransaction(producer_id, producer_epoch, -1)

    def append_to_transaction(
        self,
        run: RecordRun,
        producer_id: int,
        producer_epoch: int,
        ack: Acknowledgement,
        *,
        verified: object,
    ) -> int:
        if self.fault is not None:
            raise self.fault
        if (producer_id, producer_epoch) not in self.open and verified is None:
            raise InvalidTransactionState("not verified")
        self.open.add((producer_id, producer_epoch))
        base_offset, self._end = self._end, self._end + run.count
        batch = run.seal(
            base_offset=base_offset,
            leader_epoch=self.leader_epoch,
            timestamp_ms=1_000,
            producer=(producer_id, producer_epoch, -1),
        )
        self._appended(as_transactional(batch), base_offset, ack)
        return base_offset

    async def end_transaction(self, marker: TransactionMarker) -> None:
        if self.fault is not None:
            raise self.fault
        self.open = {it for it in self.open if it[0] != marker.producer_id}
        base_offset, self._end = self._end, self._end + 1
        self.data += marker_batch(
            marker, base_offset=base_offset, leader_epoch=self.leader_epoch, timestamp_ms=1_000
        )
        self.commit()

    def _appended(self, batch: bytes, base_offset: int, ack: Acknowledgement) -> None:
        self.data += batch
        self.waiting.append((base_offset, ack))
        if self.commits:
            asyncio.get_running_loop().call_soon(self.commit)

    def commit(self) -> None:
        self.high_watermark = self._end
        waiting, self.waiting = self.waiting, []
        for base_offset, ack in waiting:
            ack.committed(base_offset)

    def resign(self) -> None:
        """Another node leads; what waits may be in its log."""
        self.is_leader = False
        self.leader_epoch += 1
        waiting, self.waiting = self.waiting, []
        for _, ack in waiting:
            ack.failed(NotLeader("led by another node now"))
        self.changed()

    def lead(self) -> None:
        """Again, with all that is in the log."""
        self.is_leader = True
        self.high_watermark = self._end
        self.changed()

    def changed(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()

    async def read(self, offset: int, max_bytes: int) -> MemorySlice:
        """One batch at a time."""
        if self.read_faults:
            raise self.read_faults.pop(0)
        if not self.log_start_offset <= offset <= self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        for header, batch in batches(self.data):
            if header.next_offset > offset and header.next_offset <= self.high_watermark:
                return MemorySlice(bytes(batch))
        return MemorySlice(b"")

    def add_watcher(self, watcher: Callable[[], None]) -> None:
        self.watchers.append(watcher)

    def remove_watcher(self, watcher: Callable[[], None]) -> None:
        self.watchers.remove(watcher)


class OffsetsPartitions:
    """All of a node's, made when they are asked for."""

    def __init__(self) -> None:
        self.made: dict[TopicPartition, OffsetsPartition] = {}

    def partition(self, tp: TopicPartition) -> OffsetsPartition:
        return self.made.setdefault(
            tp, OffsetsPartition(tp.partition, leader_epoch=0, stream=tp.stream)
        )
