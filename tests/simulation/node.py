"""A node of one partition, of the real parts, with events in the place of loop and threads."""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from streamlog.config import SyncPolicy
from streamlog.errors import NotLeader, StorageFailed, StorageFull, StreamlogError, Unavailable
from streamlog.ingest.admission.batches.batch_staging import BatchStagingLimit
from streamlog.ingest.admission.batches.fast_batches import FastBatchLimit
from streamlog.ingest.admission.deduplicator import Deduplicator
from streamlog.ingest.backpressure import InFlightBytes
from streamlog.ingest.dedup_recovery.hops import InThread, alone
from streamlog.ingest.dedup_recovery.scheduler import DedupRecoveryScheduler, knows_all_ids
from streamlog.ingest.dedup_recovery.snapshots import DedupSnapshots, KeptSnapshot
from streamlog.ingest.ingest_settings import IngestSettings
from streamlog.ingest.partition_ingest import ConflictAnswers, PartitionIngest
from streamlog.ingest.pub_acks import PubAcks
from streamlog.log.control_batches import note_all
from streamlog.log.control_load import load
from streamlog.log.log import PartitionLog, SyncTicket
from streamlog.log.segment.file_slice import FileSlice
from streamlog.log.settings import LogSettings
from streamlog.log.storage.file_pool import FilePool
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.metrics import NodeMetrics
from streamlog.model import EpochEnd, LogId, NodeId, TopicPartition
from streamlog.nats.router import Router
from streamlog.partition.compiled.at_once import PartitionEnd
from streamlog.partition.deletes.message_deletes import MessageDeletes
from streamlog.partition.state import UNAWAITED, Acknowledgement, PartitionState, Step
from streamlog.partition.storage.checkpoints import Checkpoints, Offsets
from streamlog.partition.subjects.index_build import erase_offsets, note_batches
from streamlog.record.batch import batches
from streamlog.record.codec import RecordRun, iter_records
from streamlog.record.compiled.subjects import SubjectIndex
from streamlog.record.erasure import erased_by, erasure_batches
from streamlog.record.offset_set import OffsetSet
from streamlog.record.produced import check_inside, check_outside, stamp
from tests.ingest_way import StrictIngest
from tests.led_partition import as_partition
from tests.log_folder import a_key_ring
from tests.nats_frames import FrameParser
from tests.simulation.checkers import Checkers, Stored
from tests.simulation.disk import SimDisk
from tests.simulation.events import Events
from tests.simulation.turns import in_turns, run_now
from tests.steps import acknowledge

ONE, ANOTHER = NodeId(1), NodeId(2)
TP = TopicPartition("s", 0)
DATA_DIR = Path("/data")
WINDOW_MS = 60_000
SETTINGS = LogSettings(segment_bytes=4096, index_interval_bytes=256)
METRICS = NodeMetrics()
CONFIG = StreamConfig.of(name=TP.stream)
TOPIC_ID = bytes(range(16))


class SimConnection:
    """Waits for ``flush`` instead of the end of a loop's turn."""

    def __init__(self, say: Callable[[bytes], None]) -> None:
        self._say = say
        self._waiting: list[bytes] = []

    def write(self, lines: bytes) -> None:
        self._waiting.append(lines)

    def flush(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._say(b"".join(waiting))


class SimSubjects:
    """An index of the whole log."""

    is_ready = True

    def __init__(self, life: "Life") -> None:
        self._life = life
        self._index: SubjectIndex | None = None

    def at_hand(self, bytes_max: int = 0) -> SubjectIndex:
        log = self._life.log
        if self._index is None:
            start = log.log_start_offset
            self._index = SubjectIndex(bytes(16), bytes_max=1 << 24, start_offset=start)
        while self._index.next_offset < log.log_end_offset:
            with log.read(self._index.next_offset, 2_000, log.log_end_offset) as piece:
                note_batches(self._index, piece.read(), erase_offsets)
        return self._index

    async def know(self) -> SubjectIndex:
        return self.at_hand()

    def forget(self) -> None:
        """The log was cut."""
        self._index = None

    def want(self) -> None: ...
    def let_go(self) -> None: ...


class SimErasing:
    """Of the partition, by its leader; ``fails``: there is no room for it."""

    def __init__(self, life: "Life") -> None:
        self._life = life
        self.own = MessageDeletes(life.state, appended=life.appended, failed=life.disk_refused)
        self.fails = False

    def append(self, erased: OffsetSet, ack: Acknowledgement) -> None:
        if self.fails:
            raise StorageFull("no room for an erasure")
        if self._life.another is None:
            self.own.append(erased, ack)
        else:
            self._life.another.erase(erased, ack)


class SimPartitionEnd(PartitionEnd):
    """A partition, as far as an append goes that is committed at once; it stands for all that such an
    append tells."""

    def __init__(self, life: "Life") -> None:
        self._life = life
        self.state, self._log = life.state, life.log
        self._metrics = METRICS
        self._surroundings = cast(Any, self)
        self._commit_watchers = life.watchers
        self._end_watchers, self._waiting = {}, []
        self.upkeep = self.flusher = self

    def append_failed(self, error: StreamlogError) -> None:
        self._life.disk_refused(error)

    def offsets_changed(self, _partition: object) -> None:
        """The life writes checkpoints now and then."""

    def unsynced(self, _partition: object) -> None:
        """And syncs."""

    def sync(self, _partition: object) -> None:
        self._life.sync()


class Another:
    """The node that leads while this one follows. What it stores is in this one's log at once, and
    acknowledged when it is synced here, too.
    """

    def __init__(self, life: "Life", leader_epoch: int) -> None:
        self._life = life
        self._leader_epoch = leader_epoch

    def append(self, run: RecordRun, ack: Acknowledgement, now_ms: int) -> int:
        base_offset = self._life.log.log_end_offset
        batch = run.seal(
            base_offset=base_offset, leader_epoch=self._leader_epoch, timestamp_ms=now_ms
        )
        self._store(batch, ack, base_offset)
        return base_offset

    def erase(self, erased: OffsetSet, ack: Acknowledgement) -> None:
        base_offset = self._life.log.log_end_offset
        data = b"".join(
            erasure_batches(
                erased,
                base_offset=base_offset,
                leader_epoch=self._leader_epoch,
                timestamp_ms=0,
            )
        )
        self._store(data, ack, base_offset)
        note_all(self._life.log.erasures, self._life.log.transactions, data)

    def _store(self, data: bytes, ack: Acknowledgement, base_offset: int) -> None:
        try:
            self._life.log.append_fetched(memoryview(data))
        except StorageFailed as error:
            acknowledge(self._life.state.disk_failed(error))
            raise
        self._life.kept_by_another(base_offset, ack)


class Life:
    """One run of the process, from opening the log to its end. Nothing of it outlives a crash."""

    def __init__(
        self,
        disk: SimDisk,
        *,
        epoch: int,
        sync: SyncPolicy,
        events: Events,
        rng: random.Random,
        checkers: Checkers,
        answer: Callable[[bytes], None],
        encrypts: bool,
        config: StreamConfig = CONFIG,
    ) -> None:
        self.alive = True
        self.config = config
        self.another: Another | None = None
        """Who leads now, if it is not this node."""
        self._disk = disk
        self._events = events
        self._rng = rng
        self._checkers = checkers
        self._checkpoints = Checkpoints(DATA_DIR, disk)
        self._files = FilePool(disk, 4, a_key_ring())
        self._socket = b""
        self._reading = False
        self.watchers: dict[Callable[[], None], bool] = {}
        disk.make_directory(str(DATA_DIR))
        self._checkpoints.load()
        known = self._checkpoints.get(LogId(TP))
        self.log = PartitionLog.open(
            DATA_DIR / "streams" / "s" / "0",
            replace(SETTINGS, encrypts=encrypts, encrypts_all=encrypts),
            disk=disk,
            files=self._files,
            log_start_offset=known.log_start,
            recovery_point=known.recovery_point,
        )
        self.state = PartitionState(
            TP, self.log, node_id=ONE, high_watermark=known.high_watermark, sync=sync
        )
        self.log.erasures, self.log.transactions = load(
            self.log, known_offset=self.log.log_start_offset
        )
        self.subjects, self.surplus = SimSubjects(self), NoSurplus()
        self.erasing = SimErasing(self)
        self._end = SimPartitionEnd(self)
        self._snapshots = DedupSnapshots(list)
        self._saving = False
        self._connection = SimConnection(answer)
        self._answers = PubAcks(self._connection, METRICS, Router())
        self._parser = FrameParser()
        acknowledge(self.state.lead(epoch, (ONE,)))
        self._ingest = self._open_ingest(epoch, self._snapshots)
        checkers.watermark.restarted()
        checkers.watermark.moved(self.state.high_watermark)

    # What the ingest needs of a partition

    @property
    def tp(self) -> TopicPartition:
        return TP

    @property
    def is_leader(self) -> bool:
        """Or what stands for another, which has its ingest here, too."""
        return self.state.is_leader or self.another is not None

    def leads(self, leader_epoch: int) -> bool:
        return self.is_leader and self.leader_epoch == leader_epoch

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def messages_end(self) -> int:
        return self.log.log_end_offset

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """It is not tiered."""
        return self.log_start_offset

    @property
    def last_epoch(self) -> int:
        return self.log.epochs.latest

    @property
    def failure(self) -> StreamlogError | None:
        return self.state.failure

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    @property
    def erased(self) -> OffsetSet:
        return self.erasing.own.erased

    topic_id = TOPIC_ID

    def epoch_end(self, epoch: int) -> EpochEnd:
        return self.state.epoch_end(epoch)

    @property
    def files_start(self) -> int:
        return self.log.files_start

    async def offset_for_timestamp(
        self, _timestamp_ms: int, *, from_files_start: bool = False
    ) -> tuple[int, int] | None:
        """All is young here."""
        return self.log.files_start if from_files_start else self.log.log_start_offset, 0

    async def read_files(
        self, offset: int, max_bytes: int, *, is_appended: bool = False
    ) -> FileSlice:
        upper = self.log.log_end_offset if is_appended else self.high_watermark
        return self.log.read(offset, max_bytes, upper, from_files_start=True)

    async def read_appended(self, offset: int, max_bytes: int) -> FileSlice:
        return self.log.read(offset, max_bytes, self.log.log_end_offset)

    def read_beside(self, name: str) -> bytes:
        return self.log.beside.read(name)

    def write_beside(self, name: str, data: bytes, *, durable: bool = True) -> None:
        self.log.beside.write(name, data, encrypts=self.log.settings.encrypts)

    @property
    def high_watermark(self) -> int:
        return self.state.high_watermark

    @property
    def removals_end(self) -> int:
        return self.state.removals_end

    def hold_removals(self, offset: int) -> None:
        self.state.hold_removals(offset)

    @property
    def below_min_isr(self) -> bool:
        return False

    def add_watcher(self, watcher: Callable[[], None]) -> None:
        self.watchers[watcher] = False

    def remove_watcher(self, watcher: Callable[[], None]) -> None:
        self.watchers.pop(watcher, None)

    def append(self, run: RecordRun, ack: Acknowledgement, *, leader_epoch: int) -> int:
        if self.another is not None:
            if leader_epoch != self.leader_epoch or self.failure is not None:
                run.clear()
                raise self.failure or NotLeader("another epoch")
            return self.another.append(run, ack, self._now_ms())
        try:
            base_offset = self.state.append(run, self._now_ms(), ack, leader_epoch=leader_epoch)
        except StreamlogError as error:
            self.disk_refused(error)
            raise
        self.appended()
        return base_offset

    def append_at_once(self, run: RecordRun, *, leader_epoch: int) -> int:
        """By the real partition's own, over this core and log."""
        if self.another is not None:
            return -1
        now_ms = self._now_ms()
        base_offset = self._end.append_at_once(run, leader_epoch=leader_epoch, now_ms=now_ms)
        if base_offset >= 0:
            self._checkers.watermark.moved(self.high_watermark)
            self._events.after(0, self._if_alive(self._connection.flush))
        return base_offset

    def disk_refused(self, error: StreamlogError) -> None:
        if isinstance(error, StorageFailed):
            acknowledge(self.state.disk_failed(error))

    def appended(self) -> None:
        if self.state.sync == "commit":
            self.sync()
        else:
            self._events.after(0, self._if_alive(self._settle))

    def produce(self, data: bytes) -> None:
        """A Kafka producer's batch, in a topic with LogAppendTime."""
        state, log, now_ms = self.state, self.log, self._now_ms()
        with suppress(StreamlogError):
            state.check_writable()
            stored = stamp(
                check_inside(check_outside(data), data),
                base_offset=log.log_end_offset,
                leader_epoch=state.leader_epoch,
                append_time_ms=now_ms,
            )
            base_offset = log.log_end_offset
            try:
                state.write(stored, now_ms)
            except StorageFailed as error:
                self.disk_refused(error)
                return
            state.await_commit(base_offset, len(stored), 0.0, UNAWAITED)
            self.appended()

    # Leadership

    def follow(self, leader_epoch: int, *, cuts: bool) -> bool:
        """Have another node lead from now on. ``cuts``: it does not have what is not committed."""
        state = self.state
        if state.failure is not None or state.syncing is not None or self.another is not None:
            return False
        acknowledge(state.follow(leader_epoch, leader=ANOTHER))
        self._close_ingest()
        if cuts:
            with suppress(StorageFailed):
                self.subjects.forget()
                self.log.truncate_to(self.high_watermark)
                self.log.erasures, self.log.transactions = load(
                    self.log, known_offset=self.log.log_start_offset
                )
        self.another = Another(self, leader_epoch)
        self._ingest = self._open_ingest(leader_epoch, NoSnapshots(list))
        return True

    def _now_ms(self) -> int:
        """The window began after the beginning of time."""
        return 10 * WINDOW_MS + self._events.now_ms

    def _close_ingest(self) -> None:
        self._parser.unbind(1)
        self._ingest.close()
        self._connection.flush()

    def lead_again(self, leader_epoch: int) -> None:
        if self.another is None or self.state.failure is not None:
            return
        self._close_ingest()
        self.another = None
        acknowledge(self.state.lead(leader_epoch, (ONE,)))
        self._snapshots = DedupSnapshots(list)
        self._ingest = self._open_ingest(leader_epoch, self._snapshots)

    def kept_by_another(self, base_offset: int, ack: Acknowledgement) -> None:
        """What it stored is synced here, and committed."""
        state = self.state
        ticket = state.begin_sync()
        if isinstance(ticket, Step):
            acknowledge(ticket)
            assert ticket.error is not None
            raise ticket.error
        try:
            ticket.run()
        except StorageFailed as error:
            acknowledge(state.sync_failed(error))
            raise
        acknowledge(state.finish_sync())
        state.high_watermark = self.log.log_end_offset
        self.erasing.own.committed()

        def tell() -> None:
            ack.committed(base_offset)
            self._moved()
            self._connection.flush()

        self._events.after(0, self._if_alive(tell))

    def save_ids(self) -> None:
        """A snapshot of another partition's ids is written, and then one of this one's."""
        if self._saving or self.another is not None or not self._ingest.opened:
            return
        other = Deduplicator("other", duplicate_window_ms=WINDOW_MS)
        kept = KeptSnapshot(
            as_partition(self), self._ingest.deduplicator, self._ingest.leader_epoch
        )
        first = KeptSnapshot(as_partition(OtherPartition()), other, 1)
        self._saving = True

        def saved() -> None:
            self._saving = False

        in_turns(
            self._snapshots.save([first, kept]),
            lambda turn: self._events.after(self._rng.randint(100, 4_000), self._if_alive(turn)),
            saved,
        )

    # Events

    def receive(self, frame: bytes) -> None:
        """Bytes come in; they are read a little later, with whatever else has come by then."""
        self._socket += frame
        if not self._reading:
            self._reading = True
            self._events.after(self._rng.randint(1, 300), self._if_alive(self._read))

    def sync(self) -> None:
        """Begin a sync, unless one runs."""
        if self.another is not None:
            return
        try:
            ticket = self.state.begin_sync()
        except Unavailable:
            return
        if isinstance(ticket, Step):
            acknowledge(ticket)
            return
        delay_us = self._rng.choice((100, 500, 3_000))
        self._events.after(delay_us, self._if_alive(lambda: self._run(ticket)))

    def write_checkpoints(self) -> None:
        offsets = Offsets(self.high_watermark, self.log.log_start_offset, self.log.recovery_point)
        with suppress(OSError):
            self._checkpoints.write({LogId(TP): offsets})

    def purge(self, offset: int) -> None:
        """As ``Partition.purge``: first the checkpoint, then the files."""
        target = min(offset, self.high_watermark)
        if target <= self.log.log_start_offset:
            return
        offsets = Offsets(self.high_watermark, target, self.log.recovery_point)
        with suppress(OSError, Unavailable):
            self._checkpoints.write({LogId(TP): offsets})
            self.log.advance_log_start(target)

    def records(self) -> list[Stored]:
        """The whole log, the uncommitted end included."""
        found: list[Stored] = []
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            with self.log.read(offset, 2_000, self.log.log_end_offset) as piece:
                data = piece.read()
            for header, batch in batches(data):
                found += [
                    Stored(record.offset, (record.value or b"").decode().rstrip("."))
                    for record in iter_records(batch)
                    if record.offset >= offset
                ]
                offset = header.next_offset
        return found

    def erasures(self) -> list[tuple[int, OffsetSet]]:
        """Where each is in the log, and what it erases."""
        found: list[tuple[int, OffsetSet]] = []
        offset = self.log.log_start_offset
        while offset < self.log.log_end_offset:
            with self.log.read(offset, 2_000, self.log.log_end_offset) as piece:
                data = piece.read()
            for header, batch in batches(data):
                erased = erased_by(batch, header)
                if erased is not None and header.base_offset >= offset:
                    found.append((header.base_offset, erased))
                offset = header.next_offset
        return found

    def _read(self) -> None:
        self._reading = False
        data, self._socket = self._socket, b""
        cut = self._rng.choice((len(data), len(data), self._rng.randint(0, len(data))))
        for part in (data[:cut], data[cut:]):
            for inflow in self._parser.feed(part):
                assert inflow is self._ingest.inflow
                self._ingest.take()
        self._connection.flush()

    def _run(self, ticket: SyncTicket) -> None:
        try:
            ticket.run()
        except StorageFailed as error:
            acknowledge(self.state.sync_failed(error))
        else:
            step = self.state.finish_sync()
            acknowledge(step)
            self._moved()
            if step.wants_sync:
                self.sync()
        self._connection.flush()

    def _settle(self) -> None:
        if self.state.failure is None:
            acknowledge(self.state.settle())
            self._moved()
            self._connection.flush()

    def _moved(self) -> None:
        self.erasing.own.committed()
        self._checkers.watermark.moved(self.high_watermark)
        for watcher in tuple(self.watchers):
            watcher()

    def _if_alive(self, call: Callable[[], None]) -> Callable[[], None]:
        return lambda: call() if self.alive else None

    def _open_ingest(self, leader_epoch: int, snapshots: DedupSnapshots) -> PartitionIngest:
        """As a leader's, with what the snapshot and the log tell; another node has only the log."""
        room = InFlightBytes(
            in_flight_bytes_max=1 << 20, backpressure_timeout_ms=0, metrics=METRICS
        )
        ingest = StrictIngest(
            as_partition(self),
            leader_epoch=leader_epoch,
            deduplicator=Deduplicator(TP.stream, duplicate_window_ms=WINDOW_MS),
            settings=IngestSettings(
                message_bytes_max=1 << 20,
                bounded=self.config.discard == "new",
                batches=self.config.allow_atomic,
                fast_batches=self.config.allow_batched,
                rollups=self.config.allow_rollup,
            ),
            answers=self._answers,
            conflicts=ConflictAnswers(self._answers, room, None),
            room=room,
            staging=BatchStagingLimit(room, in_flight_bytes_max=1 << 20),
            fast_batches=FastBatchLimit(),
            metrics=METRICS,
            now_ms=self._now_ms,
            grown={},
        )
        openings = DedupRecoveryScheduler(self._opened, snapshots=snapshots, now_ms=self._now_ms)
        if knows_all_ids(ingest, as_partition(self)):
            self._opened(ingest)
        else:
            openings.add(ingest, as_partition(self))
        self._ingest = ingest
        self._go_on_opening(ingest, openings)
        return ingest

    def _opened(self, ingest: PartitionIngest) -> None:
        ingest.erase_owed()
        ingest.opened = True
        self._parser.bind(1, ingest.inflow)

    def _go_on_opening(self, ingest: PartitionIngest, openings: DedupRecoveryScheduler) -> None:
        """Where the disk failed, again in a while."""
        if not ingest.opened and not ingest.closed:
            openings.try_again()
            run_now(openings._work())
        if not ingest.opened and not ingest.closed:
            again = self._if_alive(lambda: self._go_on_opening(ingest, openings))
            self._events.after(1_000, again)


class NoSnapshots(DedupSnapshots):
    """Of a node that has none."""

    async def recall(self, kept: KeptSnapshot, since_ms: int, in_thread: InThread = alone) -> int:
        return 0


class OtherPartition:
    """Whose snapshot is written first."""

    tp = TopicPartition("other", 0)
    log_start_offset, log_end_offset, last_epoch, leader_epoch = 0, 1, 1, 1
    local_log_start_offset = 0
    is_leader, failure, topic_id, size_bytes = True, None, TOPIC_ID, 100

    def leads(self, leader_epoch: int) -> bool:
        return self.is_leader and self.leader_epoch == leader_epoch

    def epoch_end(self, epoch: int) -> EpochEnd:
        return EpochEnd(epoch, 1)

    def read_beside(self, name: str) -> bytes:
        return b""

    def write_beside(self, name: str, data: bytes, *, durable: bool = True) -> None: ...


class NoSurplus:
    """Of a stream that keeps all."""

    def find(self) -> bool:
        return False
