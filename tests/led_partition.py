"""A partition that is led as a test wants it."""

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any, cast

from streamlog.errors import NotEnoughReplicas, NotLeader, StreamlogError
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import EpochEnd, TopicPartition
from streamlog.partition.partition import Partition
from streamlog.partition.state import UNAWAITED, Acknowledgement
from streamlog.partition.subjects.index_build import note_batches, nothing_erased
from streamlog.record.batch import read_header
from streamlog.record.codec import RecordRun, iter_records
from streamlog.record.compiled.subjects import SubjectIndex
from streamlog.record.erasure import erasure_batches
from streamlog.record.offset_set import OffsetSet

NOWHERE = sys.maxsize


class FakeSlice:
    """Bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    position = 0
    held = None
    is_encrypted = False

    def __len__(self) -> int:
        return len(self._data)

    def fileno(self) -> int:
        raise OSError("there is no file")

    def read(self) -> bytes:
        return self._data

    def __enter__(self) -> "FakeSlice":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class FakeSubjects:
    """Of all batches of a partition, read anew where it was cut."""

    def __init__(self, partition: "FakePartition") -> None:
        self._partition = partition
        self._index = SubjectIndex(bytes(16), bytes_max=1 << 30, start_offset=10)
        self.is_known = True
        self.is_ready = True
        self.wanted = 0

    def at_hand(self, bytes_max: int = 0) -> SubjectIndex | None:
        note_batches(self._index, b"".join(self._partition.batches), nothing_erased)
        return self._index if self.is_known else None

    async def know(self) -> SubjectIndex:
        self.is_known = True
        index = self.at_hand()
        assert index is not None
        return index

    def want(self) -> None:
        self.wanted += 1

    def let_go(self) -> None:
        self.wanted = 0


class FakeErasing:
    """Into the partition's batches."""

    def __init__(self, partition: "FakePartition") -> None:
        self._partition = partition
        self.fault: StreamlogError | None = None

    def append(self, erased: OffsetSet, ack: Acknowledgement) -> None:
        if self.fault is not None:
            raise self.fault
        partition = self._partition
        base_offset, epoch = partition.log_end_offset, partition.leader_epoch
        for batch in erasure_batches(
            erased, base_offset=base_offset, leader_epoch=epoch, timestamp_ms=0
        ):
            partition.batches.append(batch)
            partition.log_end_offset += 1
        partition.erased.update(erased)
        partition.waiting.append((base_offset, ack))


class FakeReader:
    """Reads what a partition has at once."""

    def __init__(self, partition: "FakePartition") -> None:
        self._partition = partition
        self.may_read_now = True
        """Segments need not be checked first."""

    def read_now(self, offset: int, max_bytes: int, upper: Callable[[], int]) -> FakeSlice | None:
        """One batch."""
        if not self.may_read_now:
            return None
        batches = self._partition.batches
        wanted = (batch for batch in batches if read_header(batch).next_offset > offset)
        return FakeSlice(next(wanted, b""))


class NoSurplus:
    """Of a stream that keeps all."""

    def find(self) -> bool:
        return False


class FakeExpiry:
    """Nothing expires."""

    admission: Any = None


class FakePartition:
    """Takes appends and commits when it is told to."""

    def __init__(self, tp: TopicPartition | None = None) -> None:
        self.tp = tp or TopicPartition("orders", 0)
        self.log_start_offset = 10
        self.log_end_offset = 10
        self.high_watermark = 10
        self.held_from = NOWHERE
        """What has messages go is not acknowledged from there on."""
        self.start_is_pending = False
        self.waiting: list[tuple[int, Acknowledgement]] = []
        self.watchers: list[Callable[[], None]] = []
        self.below_min_isr = False
        self.leader_epoch = 0
        self.is_leader = True
        self.failure: StreamlogError | None = None
        self.topic_id = bytes(16)
        self.fault: Exception | None = None
        self.commits_at_once = False
        """What is appended is committed by that."""
        self.read_fault: Exception | None = None
        self.batches: list[bytes] = []
        self.subjects: Any = FakeSubjects(self)
        self.config = StreamConfig.of(name=self.tp.stream)
        self.places: None = None
        self.erased = OffsetSet()
        self.erasing: Any = FakeErasing(self)
        self.reader = FakeReader(self)
        self.surplus = NoSurplus()
        self.expiry = FakeExpiry()
        self.beside: dict[str, bytes] = {}
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.older_bytes = 0
        """Of records that are not among ``batches``."""
        self.readings = 0
        """How often somebody began to read it."""

    def leads(self, leader_epoch: int) -> bool:
        return self.is_leader and self.leader_epoch == leader_epoch

    def check_min_isr(self) -> None:
        if self.below_min_isr:
            raise NotEnoughReplicas(f"{self.tp} has fewer replicas in sync than min_isr")

    @property
    def removals_end(self) -> int:
        return min(self.high_watermark, self.held_from)

    def hold_removals(self, offset: int) -> None:
        if self.start_is_pending:
            self.held_from = min(self.held_from, offset)

    @property
    def messages_end(self) -> int:
        headers = [read_header(batch) for batch in self.batches]
        ends = [it.next_offset for it in headers if not it.is_control]
        return ends[-1] if ends else self.log_start_offset

    def append(
        self, run: RecordRun, ack: Acknowledgement, *, leader_epoch: int | None = None
    ) -> int:
        if self.fault is not None:
            raise self.fault
        if leader_epoch not in (None, self.leader_epoch):
            raise NotLeader(f"led in epoch {self.leader_epoch}, not {leader_epoch}")
        base_offset = self.log_end_offset
        self.log_end_offset += run.count
        now_ms = time.time_ns() // 1_000_000
        self.batches.append(
            run.seal(base_offset=base_offset, leader_epoch=self.leader_epoch, timestamp_ms=now_ms)
        )
        self.waiting.append((base_offset, ack))
        return base_offset

    def append_at_once(self, run: RecordRun, *, leader_epoch: int | None = None) -> int:
        if not self.commits_at_once:
            return -1
        if self.fault is not None:
            run.clear()
            raise self.fault
        base_offset = self.append(run, UNAWAITED, leader_epoch=leader_epoch)
        self.waiting.pop()
        self.high_watermark = self.log_end_offset
        return base_offset

    def add_watcher(self, watcher: Callable[[], None]) -> None:
        self.watchers.append(watcher)

    def remove_watcher(self, watcher: Callable[[], None]) -> None:
        self.watchers.remove(watcher)

    def move(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        for watcher in tuple(self.watchers):
            watcher()

    @property
    def files_start(self) -> int:
        return self.log_start_offset

    async def read_files(self, offset: int, max_bytes: int, *, is_appended: bool = False) -> Any:
        return await (self.read_appended if is_appended else self.read)(offset, max_bytes)

    @property
    def stable_offset(self) -> int:
        return self.high_watermark

    async def offset_for_timestamp(
        self, timestamp_ms: int, *, from_files_start: bool = False, stable: bool = False
    ) -> tuple[int, int] | None:
        self.readings += 1
        await self.may_read.wait()
        headers = [read_header(batch) for batch in self.batches]
        found = [each for each in headers if each.max_timestamp_ms >= timestamp_ms]
        if not found or found[0].base_offset >= self.high_watermark:
            return None
        return found[0].base_offset, found[0].max_timestamp_ms

    async def read(self, offset: int, max_bytes: int) -> Any:
        """One batch at a time."""
        self.readings += 1
        await self.may_read.wait()
        if self.read_fault is not None:
            raise self.read_fault
        wanted = (batch for batch in self.batches if read_header(batch).next_offset > offset)
        return FakeSlice(next(wanted, b""))

    def segment_of(self, offset: int) -> None:
        return None

    @property
    def local_log_start_offset(self) -> int:
        """It is not tiered."""
        return self.log_start_offset

    def epoch_end(self, epoch: int) -> EpochEnd:
        headers = [read_header(batch) for batch in self.batches]
        of_epoch = [each for each in headers if each.leader_epoch <= epoch]
        if not of_epoch:
            return EpochEnd(-1, -1)
        return EpochEnd(of_epoch[-1].leader_epoch, of_epoch[-1].next_offset)

    async def read_appended(self, offset: int, max_bytes: int) -> Any:
        wanted = (batch for batch in self.batches if read_header(batch).next_offset > offset)
        return FakeSlice(b"".join(wanted))

    @property
    def last_epoch(self) -> int:
        return read_header(self.batches[-1]).leader_epoch if self.batches else -1

    @property
    def size_bytes(self) -> int:
        return self.older_bytes + sum(map(len, self.batches))

    def read_beside(self, name: str) -> bytes:
        return self.beside.get(name, b"")

    def write_beside(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self.beside[name] = data

    def commit(self) -> None:
        waiting, self.waiting = self.waiting, []
        self.high_watermark = self.log_end_offset
        for base_offset, ack in waiting:
            ack.committed(base_offset)
        self.move(self.log_end_offset)

    def fail(self, error: StreamlogError) -> None:
        waiting, self.waiting = self.waiting, []
        for _, ack in waiting:
            ack.failed(error)

    def values(self) -> list[bytes | None]:
        return [record.value for batch in self.batches for record in iter_records(batch)]


def as_partition(fake: object) -> Partition:
    """``fake``, typed as what it stands in for."""
    return cast(Partition, fake)
