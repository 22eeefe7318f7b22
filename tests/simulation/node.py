"""A node of one partition, of the real parts, with events in the place of loop and threads."""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from streamlog.config import SyncPolicy
from streamlog.errors import StorageFailed, Unavailable
from streamlog.ingest.answers import Answers
from streamlog.ingest.frames import FrameParser
from streamlog.ingest.inlet import Inlet
from streamlog.ingest.inlet_settings import InletSettings
from streamlog.ingest.room import Room
from streamlog.ingest.sequencer import Sequencer
from streamlog.ingest.staging import Staging
from streamlog.log.files import FilePool
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.log.sync import SyncTicket
from streamlog.metrics import NodeMetrics
from streamlog.model import NodeId, TopicPartition
from streamlog.partition.checkpoints import Checkpoints, Offsets
from streamlog.partition.state import Acknowledgement, PartitionState
from streamlog.record.batch import batches
from streamlog.record.codec import RecordRun, iter_records
from tests.log_folder import a_key_ring
from tests.simulation.checkers import Checkers, Stored
from tests.simulation.disk import SimDisk
from tests.simulation.events import Events

ONE = NodeId(1)
TP = TopicPartition("s", 0)
DATA_DIR = Path("/data")
WINDOW_MS = 60_000
SETTINGS = LogSettings(segment_bytes=4096, index_interval_bytes=256)
METRICS = NodeMetrics()


class SimAnswers(Answers):
    """Waits for ``flush`` instead of the end of a loop's turn."""

    def _send(self, data: bytes) -> None:
        self._waiting.append(data)


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
    ) -> None:
        self.alive = True
        self._disk = disk
        self._events = events
        self._rng = rng
        self._checkers = checkers
        self._checkpoints = Checkpoints(DATA_DIR, disk)
        self._files = FilePool(disk, 4, a_key_ring())
        self._socket = b""
        self._reading = False
        self._watchers: dict[Callable[[], None], None] = {}
        disk.make_directory(str(DATA_DIR))
        self._checkpoints.load()
        known = self._checkpoints.get(TP)
        self.log = PartitionLog.open(
            DATA_DIR / "streams" / "s" / "0",
            replace(SETTINGS, encrypts=encrypts),
            disk=disk,
            files=self._files,
            log_start_offset=known.log_start,
            recovery_point=known.recovery_point,
        )
        self.state = PartitionState(
            TP, self.log, node_id=ONE, high_watermark=known.high_watermark, sync=sync
        )
        self.state.lead(epoch, (ONE,))
        self._answers = SimAnswers(answer, METRICS)
        self._inlet = self._make_inlet()
        self._parser = FrameParser()
        self._parser.bind(1, self._inlet.inflow)
        checkers.watermark.restarted()
        checkers.watermark.moved(self.state.high_watermark)

    # What the inlet needs of a partition

    @property
    def tp(self) -> TopicPartition:
        return TP

    @property
    def is_leader(self) -> bool:
        return self.state.is_leader

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
    def high_watermark(self) -> int:
        return self.state.high_watermark

    @property
    def below_min_isr(self) -> bool:
        return False

    def add_watcher(self, watcher: Callable[[], None]) -> None:
        self._watchers[watcher] = None

    def remove_watcher(self, watcher: Callable[[], None]) -> None:
        self._watchers.pop(watcher, None)

    def append(self, run: RecordRun, ack: Acknowledgement, *, leader_epoch: int) -> int:
        base_offset = self.state.append(run, self._events.now_ms, ack, leader_epoch=leader_epoch)
        if self.state.sync == "commit":
            self.sync()
        else:
            self._events.after(0, self._if_alive(self._settle))
        return base_offset

    # Events

    def receive(self, frame: bytes) -> None:
        """Bytes come in; they are read a little later, with whatever else has come by then."""
        self._socket += frame
        if not self._reading:
            self._reading = True
            self._events.after(self._rng.randint(1, 300), self._if_alive(self._read))

    def sync(self) -> None:
        """Begin a sync, unless one runs."""
        try:
            ticket = self.state.begin_sync()
        except Unavailable:
            return
        if ticket is not None:
            delay_us = self._rng.choice((100, 500, 3_000))
            self._events.after(delay_us, self._if_alive(lambda: self._run(ticket)))

    def write_checkpoints(self) -> None:
        offsets = Offsets(self.high_watermark, self.log.log_start_offset, self.log.recovery_point)
        with suppress(OSError):
            self._checkpoints.write({TP: offsets})

    def purge(self, offset: int) -> None:
        """As ``Partition.purge``: first the checkpoint, then the files."""
        target = min(offset, self.high_watermark)
        if target <= self.log.log_start_offset:
            return
        offsets = Offsets(self.high_watermark, target, self.log.recovery_point)
        with suppress(OSError, Unavailable):
            self._checkpoints.write({TP: offsets})
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

    def _read(self) -> None:
        self._reading = False
        data, self._socket = self._socket, b""
        cut = self._rng.choice((len(data), len(data), self._rng.randint(0, len(data))))
        for part in (data[:cut], data[cut:]):
            for inflow in self._parser.feed(part):
                assert inflow is self._inlet.inflow
                self._inlet.take()
        self._answers.flush()

    def _run(self, ticket: SyncTicket) -> None:
        try:
            ticket.run()
        except StorageFailed as error:
            self.state.sync_failed(error)
        else:
            self.state.finish_sync()
            self._moved()
            if self.log.recovery_point < self.log.log_end_offset and self.state.sync == "commit":
                self.sync()
        self._answers.flush()

    def _settle(self) -> None:
        if self.state.failure is None:
            self.state.settle()
            self._moved()
            self._answers.flush()

    def _moved(self) -> None:
        self._checkers.watermark.moved(self.high_watermark)
        for watcher in tuple(self._watchers):
            watcher()

    def _if_alive(self, call: Callable[[], None]) -> Callable[[], None]:
        return lambda: call() if self.alive else None

    def _make_inlet(self) -> Inlet:
        sequencer = Sequencer(TP.stream, duplicate_window_ms=WINDOW_MS)
        for offset, message_id in self.records():
            sequencer.remember(message_id.encode(), offset, self._events.now_ms)
        room = Room(inflight_bytes_max=1 << 20, stall_ms_max=0, metrics=METRICS)
        return Inlet(
            self,
            leader_epoch=self.state.leader_epoch,
            sequencer=sequencer,
            settings=InletSettings(value_bytes_max=1 << 20),
            answers=self._answers,
            room=room,
            staging=Staging(room, inflight_bytes_max=1 << 20),
            metrics=METRICS,
            now_ms=lambda: self._events.now_ms,
        )
