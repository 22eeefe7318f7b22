import contextlib
import logging
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streamlog.errors import (
    CorruptBatch,
    OffsetOutOfRange,
    StorageFailed,
    Unavailable,
)
from streamlog.log.active import ActiveSegment
from streamlog.log.disk import Disk, storage_error
from streamlog.log.files import FilePool, PooledFile
from streamlog.log.index import RELATIVE_OFFSET_MAX
from streamlog.log.indexer import Indexer
from streamlog.log.layout import EPOCHS_NAME, segment_stem
from streamlog.log.recovery import Recovered, Recovery
from streamlog.log.segment import Segment
from streamlog.log.settings import LogSettings
from streamlog.log.slice import FileSlice
from streamlog.log.sync import SyncTicket
from streamlog.record.batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC

logger = logging.getLogger(__name__)

_HEAD: Final = struct.Struct(">qiib6xi8xq")
"""Of a batch: base offset, length, leader epoch, magic, last offset delta, max timestamp."""


@dataclass(frozen=True)
class LogStatistics:
    """A log at one moment."""

    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    size_bytes: int
    segment_count: int
    damage_count: int
    failed: bool


class PartitionLog:
    """One partition's records. Made by ``open``; one owner, who alone calls it."""

    def __init__(
        self,
        directory: str,
        settings: LogSettings,
        disk: Disk,
        files: FilePool,
        recovered: Recovered,
    ) -> None:
        self.settings = settings  # may be replaced at any time
        self.recovery = recovered.report
        self.epochs = recovered.epochs
        self.failure = ""  # why nothing can be appended until the log is opened again
        self._directory = directory
        self._disk = disk
        self._pool = files
        self._segments = recovered.segments
        self._active = recovered.active
        self.log_start_offset = recovered.log_start_offset  # nothing below is read
        self.log_end_offset = self._active.segment.next_offset
        self.recovery_point = self.log_end_offset  # all below is synced
        self._unsynced: dict[Segment, None] = {}  # written since the last ticket was begun
        self._folder_is_synced = recovered.folder_is_synced
        self._epochs_are_stored = recovered.epochs_are_stored
        self._ticket: SyncTicket | None = None  # the one that is out; at most one

    @classmethod
    def open(
        cls,
        directory: Path,
        settings: LogSettings,
        *,
        disk: Disk,
        files: FilePool,
        log_start_offset: int = 0,
        recovery_point: int = 0,
    ) -> "PartitionLog":
        """Open or create the log in ``directory``; see ``recovery``. Raises Unavailable."""
        recovery = Recovery(
            str(directory),
            settings,
            disk=disk,
            files=files,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
        )
        try:
            return cls(str(directory), settings, disk, files, recovery.run())
        except OSError as error:
            raise storage_error(error, error.filename or str(directory)) from error

    @property
    def failed(self) -> bool:
        return bool(self.failure)

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    def append(self, batch: bytes, now_ms: int) -> None:
        """Write one batch, which must begin at the log end offset; all of it or nothing.

        Raises StorageFull or Overloaded, after which it may be tried again; StorageFailed, after
        which every append fails until the log is opened anew; CorruptBatch if it is no such batch.
        """
        if self.failure:
            raise StorageFailed(self.failure)
        next_offset, epoch, timestamp_ms = self._check(batch)
        active = self._active
        size = active.segment.size_bytes
        if size:
            first_ms = active.first_timestamp_ms
            if (
                size + len(batch) > self.settings.segment_bytes
                or (first_ms is not None and now_ms - first_ms >= self.settings.segment_age_ms)
                or next_offset - active.segment.base_offset > RELATIVE_OFFSET_MAX
            ):
                self.roll()
                active = self._active
        try:
            active.append(batch, next_offset, timestamp_ms)
        except StorageFailed as error:
            self._fail(str(error))
            raise
        self._unsynced[active.segment] = None
        if epoch > self.epochs.latest and self.epochs.assign(epoch, self.log_end_offset):
            self._epochs_are_stored = False
        self.log_end_offset = next_offset

    def _check(self, batch: bytes) -> tuple[int, int, int]:
        """The batch's next offset, leader epoch and time."""
        if len(batch) < HEADER_BYTES:
            raise CorruptBatch(f"{self._directory}: a batch of {len(batch)} bytes")
        base_offset, length, epoch, magic, last_delta, timestamp_ms = _HEAD.unpack_from(batch)
        if (
            base_offset != self.log_end_offset
            or length + LENGTH_PREFIX_BYTES != len(batch)
            or magic != MAGIC
            or last_delta < 0
            or epoch < self.epochs.latest
        ):
            raise CorruptBatch(
                f"{self._directory}: a batch of {len(batch)} bytes with base offset {base_offset}, "
                f"length {length}, magic {magic}, epoch {epoch} cannot follow at "
                f"{self.log_end_offset} in epoch {self.epochs.latest}"
            )
        return base_offset + last_delta + 1, epoch, timestamp_ms

    def roll(self) -> None:
        """Seal the active segment and begin a new one, unless it is empty. Raises Unavailable."""
        old = self._active.segment
        if not old.size_bytes:
            return
        segment = self._new_segment(self.log_end_offset)
        try:
            self._pool.create(segment.path)
            try:
                self._active.seal()
            except OSError:
                self._unlink((segment.path,))
                raise
        except OSError as error:
            raise storage_error(error, segment.path) from error
        self._segments.add(segment)
        self._activate(segment)
        self._unsynced[old] = None  # its indexes, and what no ticket has covered yet
        self._folder_is_synced = False

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment(
            self._pool,
            f"{self._directory}/{segment_stem(base_offset)}",
            base_offset=base_offset,
            next_offset=base_offset,
            size_bytes=0,
            interval_bytes=self.settings.index_interval_bytes,
        )

    def _activate(self, segment: Segment) -> None:
        indexer = Indexer(segment.base_offset, segment.interval_bytes)
        self._active = ActiveSegment(self._pool, segment, indexer)

    def begin_sync(self) -> SyncTicket | None:
        """A ticket for all that is not synced; None if there is nothing. One at a time.

        Raises Unavailable.
        """
        assert self._ticket is None, "the last ticket has not been taken back"
        if self.failure:
            raise StorageFailed(self.failure)
        if not self._unsynced and self._folder_is_synced and self._epochs_are_stored:
            return None
        end = self.log_end_offset
        self._active.segment.hint(end, self._active.segment.size_bytes)  # a high watermark soon
        epochs = (f"{self._directory}/{EPOCHS_NAME}", self.epochs.encode())
        self._ticket = ticket = SyncTicket(
            self._pool,
            self._pin_unsynced(),
            end_offset=end,
            epochs=None if self._epochs_are_stored else epochs,
            directory=None if self._folder_is_synced else self._directory,
            on_failure=self._fail,
        )
        self._unsynced.clear()
        self._folder_is_synced = self._epochs_are_stored = True
        return ticket

    def _pin_unsynced(self) -> list[PooledFile]:
        pinned: list[PooledFile] = []
        try:
            for segment in self._unsynced:
                active = segment is self._active.segment
                paths = (segment.path,) if active else segment.paths
                pinned.extend(self._pool.pin(path) for path in paths)
        except OSError as error:
            for pooled in pinned:
                self._pool.unpin(pooled)
            raise storage_error(error, segment.path) from error
        return pinned

    def finish_sync(self, ticket: SyncTicket) -> int:
        """Take back a ticket that has run; all below the offset returned is synced."""
        assert ticket is self._ticket, "not the ticket that is out"
        self._ticket = None
        if not ticket.done:
            ticket.release()
            self._fail(self.failure or "a sync was given up")
            raise StorageFailed(self.failure)
        self._epochs_are_stored &= ticket.epochs_are_stored
        self.recovery_point = max(self.recovery_point, ticket.end_offset)
        return self.recovery_point

    def _fail(self, problem: str) -> None:
        """From a worker thread, too."""
        if not self.failure:
            self.failure = problem
            logger.error("log failed", extra={"directory": self._directory, "problem": problem})

    def read(self, offset: int, max_bytes: int, upper_offset: int) -> FileSlice:
        """Whole batches from the one with ``offset`` on, all of them below ``upper_offset``.

        The first comes whole even if it is larger than ``max_bytes``; empty if there is none. They
        all lie in one segment. A segment not verified yet is verified first, which blocks: whoever
        minds calls ``verify`` of ``segment_for_read`` in a worker thread before. Raises
        OffsetOutOfRange, CorruptBatch if the batch with ``offset`` is damaged, Unavailable.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        if offset >= upper_offset or offset == self.log_end_offset:
            return FileSlice(self._pool, None, 0, 0)
        segment = self._active.segment
        if offset < segment.base_offset:
            segment = self._segments.floor(offset)
        try:
            if segment.unverified_bytes:
                segment.verify()
            return segment.slice(offset, max_bytes, upper_offset)
        except OSError as error:
            raise storage_error(error, segment.path) from error

    def segment_for_read(self, offset: int) -> Segment | None:
        """The segment that ``read`` would read from; None if it would not read."""
        if not self.log_start_offset <= offset < self.log_end_offset:
            return None
        return self._segments.floor(offset)

    def statistics(self) -> LogStatistics:
        return LogStatistics(
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            recovery_point=self.recovery_point,
            size_bytes=self.size_bytes,
            segment_count=len(self._segments),
            damage_count=sum(len(segment.damages) for segment in self._segments),
            failed=self.failed,
        )

    def close(self) -> None:
        """Sync what is left and let go of the files. Slices that are out stay readable.

        What cannot be synced is logged, not raised: the next opening will read it again.
        """
        if self._ticket is not None:
            self._ticket.release()
            self._ticket = None
            for segment in self._segments.since(self.recovery_point):
                self._unsynced[segment] = None
            self._folder_is_synced = self._epochs_are_stored = False
        if not self.failure:
            try:
                self._sync_all()
            except (OSError, Unavailable) as error:
                logger.warning(
                    "log closed without a sync",
                    extra={"directory": self._directory, "problem": str(error)},
                )
        self._forget_files()

    def _sync_all(self) -> None:
        if self._unsynced:
            self._active.write_indexes()
            self._unsynced[self._active.segment] = None
            self._folder_is_synced = False
        ticket = self.begin_sync()
        if ticket is not None:
            ticket.run()
            self.finish_sync(ticket)

    def _forget_files(self) -> None:
        for segment in self._segments:
            for path in segment.paths:
                self._pool.forget(path)

    def _unlink(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._pool.forget(path)
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(path)
