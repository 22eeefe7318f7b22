"""One partition's log of segment files (Kafka's UnifiedLog)."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from streamlog.condition import CRITICAL, REPAIR_DISK, Condition
from streamlog.errors import (
    BrokenInvariant,
    CorruptBatch,
    CorruptData,
    OffsetOutOfRange,
    Overloaded,
    StorageFailed,
    StorageFull,
    Unavailable,
)
from streamlog.log.compiled.log_end import LogEnd
from streamlog.log.control_load import read_again
from streamlog.log.encryption.key_file import NO_SCOPE
from streamlog.log.erasure.erasures import Erasures
from streamlog.log.layout import EPOCHS_NAME, TEMPORARY_SUFFIX
from streamlog.log.manifest import ManifestFile, SyncedManifest
from streamlog.log.recovery.quarantine import keep_aside
from streamlog.log.recovery.recovery import DeferredSyncs, Recovered, Recovery
from streamlog.log.recovery.report import telling_of
from streamlog.log.retention import LogState, Retention, Trim, local_count
from streamlog.log.segment.append_validation import from_offset, next_run
from streamlog.log.segment.batch_scan import BatchPlace
from streamlog.log.segment.end_checksums import EndChecksums
from streamlog.log.segment.file_slice import FileSlice
from streamlog.log.segment.segment import ActiveSegment, Segment, cut_segment, place_of_cut
from streamlog.log.segment.segments import Segments
from streamlog.log.segment.time_search import (
    TimedOffset,
    Verify,
    first_batch_since,
    first_record_since,
    latest_record,
    latest_time,
    time_at,
)
from streamlog.log.settings import UNLIMITED, LogSettings
from streamlog.log.sidecar_files import SidecarFiles
from streamlog.log.storage.disk import (
    Disk,
    DiskFile,
    FileState,
    OsFile,
    is_full,
    storage_error,
    storage_errors,
    with_descriptors,
    write_all,
)
from streamlog.log.storage.file_pool import FilePool, PooledFile
from streamlog.log.transactions.transactions import Transactions
from streamlog.record.offset_set import OffsetSet

logger = logging.getLogger(__name__)

NOT_TIERED: Final = 2**63 - 1

LOG_FAILED: Final = Condition(
    "SL-0306",
    "log failed",
    REPAIR_DISK,
    meaning="The disk refused a write or a sync. The partition is offline on this node until a "
    "restart.",
    severity=CRITICAL,
)
CLOSED_WITHOUT_SYNC: Final = Condition(
    "SL-0321",
    "log closed without a sync",
    "the next start recovers it; look at the disk",
    meaning="A log was closed and its end was not synced.",
)
CLOSED_WITHOUT_INDEXES: Final = Condition(
    "SL-0322",
    "log closed without indexes",
    "the next start builds them again; look at the disk",
    meaning="A log was closed and its indexes were not written.",
)


class SyncTicket:
    """One sync of what a log had not synced at a moment: made by the owner, run by a worker thread.

    Content first, then what refers to it (epochs, the folder's entries, the manifest). All below
    ``end_offset`` is synced once ``run`` has returned and the log has taken the ticket back.
    """

    __slots__ = (
        "_directory", "_disk", "_epochs", "_files", "_is_staged", "_manifest", "_on_failure",
        "_placed_in", "_pool", "done", "end_offset", "epochs_are_stored", "manifest_is_stored",
    )  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        pool: FilePool,
        files: list[PooledFile],
        *,
        end_offset: int,
        epochs: tuple[str, bytes] | None,
        directory: str | None,
        manifest: tuple[ManifestFile, SyncedManifest] | None,
        on_failure: Callable[[str], None],
    ) -> None:
        """Takes over one pin of each file. ``epochs``: the checkpoint's path and new content;
        ``manifest``: what it is to say.
        """
        self.end_offset = end_offset  # lowered by the owner if the log is cut meanwhile
        self.done = False
        self.epochs_are_stored = True
        self.manifest_is_stored = True
        self._disk = disk
        self._pool = pool
        self._files = files
        self._epochs = epochs
        self._directory = directory
        self._manifest = manifest
        self._on_failure = on_failure
        self._placed_in: str | None = None  # the folder in which they have replaced it
        self._is_staged = False  # the new epochs are in a file beside the old one

    @property
    def files(self) -> list[DiskFile]:
        """What is to be synced, while they are open: up to ``release``."""
        return [pooled.file for pooled in self._files]

    @property
    def descriptor(self) -> int | None:
        """Of the one file of the machine's own file system that is all there is to sync, as usual; the
        sync ends by ``ended`` then, and not by ``run``. None: there is more to do.
        """
        if len(self._files) != 1 or self._epochs or self._directory or self._manifest:
            return None
        file = self._files[0].file
        return file.fileno() if type(file) is OsFile else None

    def ended(self, error: OSError | None) -> None:
        """The sync of ``descriptor`` has ended; ``release`` is to follow. Raises as ``run``."""
        if error is not None:
            raise self._failed(error) from error
        self.done = True

    @property
    def needs_own_syncs(self) -> bool:
        """A manifest is written after all else is durable, and others may write it at any time."""
        return self._manifest is not None

    @property
    def is_placed(self) -> bool:
        """New epochs have their name, and the folder is not synced yet."""
        return self._placed_in is not None

    def stage(self) -> None:
        """Write the new epochs beside the old ones, and sync nothing. Blocking; what fails here is
        tried again by ``run``.
        """
        if self._epochs is None:
            return
        path, content = self._epochs
        with contextlib.suppress(OSError):
            file = self._disk.create(path + TEMPORARY_SUFFIX)
            try:
                write_all(file, content, 0)
                self._is_staged = True
            finally:
                file.close()

    def put_in_place(self) -> None:
        """What was staged, and has been synced, replaces the old file. The folder is yet to be
        synced. Blocking; raises StorageFailed as ``run``.
        """
        if not self._is_staged or self._epochs is None:
            return
        path = self._epochs[0]
        try:
            self._disk.rename(path + TEMPORARY_SUFFIX, path)
        except OSError as error:
            self.release()
            raise self._failed(error) from error
        self._placed_in, self._epochs = path.rpartition("/")[0], None

    def _failed(self, error: OSError) -> StorageFailed:
        problem = f"sync failed: {error.strerror or error}"
        self._on_failure(problem)
        return StorageFailed(problem)

    def run(self, *, is_synced: bool = False, are_placed: bool = True) -> None:
        """Blocking; from any thread. Raises StorageFailed, after which the log takes no appends.

        ``is_synced``: the files and the folder are already; not ``are_placed``: but for epochs that
        were put in place since.
        """
        try:
            if not is_synced:
                for pooled in self._files:
                    pooled.file.sync()
            if self._epochs is not None:
                with_descriptors(partial(self._write_epochs, *self._epochs))
            if self._directory is not None and not is_synced:
                with_descriptors(partial(self._disk.sync_directory, self._directory))
            elif self._placed_in is not None and not are_placed:
                with_descriptors(partial(self._disk.sync_directory, self._placed_in))
            if self._manifest is not None:
                with_descriptors(partial(self._write_manifest, *self._manifest))
        except OSError as error:
            raise self._failed(error) from error
        finally:
            self.release()
        self.done = True

    def release(self) -> None:
        """Let go of the files; may be called again, by owner and worker at the same time."""
        files = self._files
        while files:
            with contextlib.suppress(IndexError):  # the other one was quicker
                self._pool.unpin(files.pop())

    def _write_epochs(self, path: str, content: bytes) -> None:
        """A full disk is no failure here.

        The batches tell their epochs as well, and the next ticket tries again.
        """
        try:
            self._disk.write_small(path, content)
        except OSError as error:
            if not is_full(error):
                raise
            self.epochs_are_stored = False

    def _write_manifest(self, manifest: ManifestFile, synced: SyncedManifest) -> None:
        """Nor here: less is known of the folder until the next ticket tries again."""
        end_offset = min(synced.end_offset, self.end_offset)
        try:
            manifest.note_synced(synced._replace(end_offset=end_offset))
        except OSError as error:
            if not is_full(error):
                raise
            self.manifest_is_stored = False


class DirtyState:
    """What a log has written and not yet synced, and the ticket that is out for some of it."""

    __slots__ = ("epochs", "folder", "manifest", "segments", "ticket")

    def __init__(self) -> None:
        self.folder = False  # entries have come or gone
        self.epochs = False  # the checkpoint is behind
        self.manifest = False  # so is it
        self.segments: dict[Segment, None] = {}  # written, or sealed, since the last ticket
        self.ticket: SyncTicket | None = None

    def __bool__(self) -> bool:
        return bool(self.segments) or self.folder or self.epochs or self.manifest

    def abandon(self, segments: list[Segment]) -> None:
        """The ticket that is out will not be run, or its end not be reported: all is unsynced again."""
        if self.ticket is not None:
            self.ticket.release()
            self.ticket = None
            self.segments |= dict.fromkeys(segments)
            for segment in segments:
                if segment.key is not None:
                    segment.key.is_unsynced = True
            self.folder = self.epochs = self.manifest = True

    def clear(self) -> None:
        """A ticket has all of it."""
        for segment in self.segments:
            segment.is_dirty = False
            if segment.key is not None:
                segment.key.is_unsynced = False
        self.segments.clear()
        self.folder = self.epochs = self.manifest = False

    def pin_files(self, pool: FilePool) -> list[PooledFile]:
        """A sealed segment's indexes are synced with it, a new data key always. Raises OSError."""
        pinned: list[PooledFile] = []
        try:
            for segment in self.segments:
                paths = segment.paths if segment.sealed else segment.written_paths
                pinned.extend(map(pool.pin, paths))
        except OSError:
            for pooled in pinned:
                pool.unpin(pooled)
            raise
        return pinned


class PartitionLog(LogEnd):
    """One partition's records. Made by ``open``; one owner, who alone calls it."""

    __slots__ = (
        "_directory", "_disk", "_first_position", "_first_time", "_key_scope", "_pool", "_retention", "_segments",
        "beside", "erasures", "first_dirty_offset", "is_swapping", "lost_end", "manifest", "recovery",
        "recovery_limit", "tier_start", "transactions",
    )  # fmt: skip

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
        self.recovery_limit = recovered.recovery_limit  # of the checkpoint
        self.lost_end = recovered.lost_end
        self.manifest = recovered.manifest  # what its folder must hold
        self.epochs = recovered.epochs
        self.erasures = Erasures()  # who opens the log has them loaded ...
        self.transactions = Transactions()  # ... and these
        self.failure = ""  # why nothing can be appended until the log is opened again
        self.log_start_offset = recovered.log_start_offset  # nothing below is read
        self.tier_start = NOT_TIERED  # of a tiered log: what is from there on can be read
        self.log_end_offset = recovered.active.segment.next_offset
        self.recovery_point = self.log_end_offset  # all below is synced
        self.first_dirty_offset = 0  # all below has been compacted
        self.is_swapping = False  # segments are being replaced: none may go otherwise
        self._directory = directory
        self.beside = SidecarFiles(
            disk, directory, files.keys, files.key_scope(f"{directory}/")
        )  # what others keep in its folder
        self._disk = disk
        self._pool = files
        self._key_scope: str | None = files.key_scope(f"{directory}/")  # None: it was let go
        self._segments = recovered.segments
        self._active = recovered.active
        self._unsynced = DirtyState()
        self._unsynced.epochs = not recovered.epochs_are_stored
        self._unsynced.manifest = self.manifest_is_behind
        self._owed_limit = None  # see ``_limit``
        self._first_time: tuple[int, int | None] | None = None  # log start, its record's time
        self._first_position: tuple[int, Segment, int] | None = (
            None  # log start, where its batch is
        )
        self._retention = Retention()

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
        high_watermark: int = 0,
        first_dirty_offset: int = 0,
        syncs: DeferredSyncs | None = None,
        power_lost: bool = True,
        key_scope: str = NO_SCOPE,
        is_new: bool = False,
    ) -> "PartitionLog":
        """Open or create the log in ``directory``; see ``recovery``. Raises Unavailable.

        The offsets are what the checkpoints say. A log that ends below its recovery point or its
        high watermark has lost its end, and notes so in its folder: the next checkpoint does not
        have these offsets any more.

        ``key_scope``: of the partition; data keys of another one open nothing here.

        ``power_lost``: the machine may have been started again since the log was closed, or since
        its process was killed.

        ``is_new``: the folder was made just now. The log may be used once it has been synced.
        """
        recovery = Recovery(
            str(directory),
            settings,
            disk=disk,
            files=files,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            syncs=syncs,
            power_lost=power_lost,
        )
        files.bind_keys(str(directory), key_scope)
        try:
            recovered = recovery.begin() if is_new else recovery.run()
            log = cls(str(directory), settings, disk, files, recovered)
            if log.log_end_offset < high_watermark:  # ``Recovery`` notes the same of the other one
                log.recovery.lost_end = True
                log.lost_end.note(high_watermark)
            log.first_dirty_offset = min(first_dirty_offset, log.log_end_offset)
            return log
        except BaseException as error:
            files.release_keys(str(directory), key_scope)
            if isinstance(error, OSError):
                raise storage_error(error, error.filename or str(directory)) from error
            raise

    @property
    def failed(self) -> bool:
        return bool(self.failure)

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def kept_bytes(self) -> int:
        """From the log start's batch on. Files have more, of what is not read any more, until a whole segment is."""
        start, first = self.log_start_offset, self._segments.first
        if start <= first.base_offset:
            return self.size_bytes
        known = self._first_position
        if known is None or known[0] != start or known[1] is not first:
            self._first_position = known = start, first, self._position(start)
        return self.size_bytes - known[2]

    def _position(self, offset: int) -> int:
        """How many bytes are before the batch with ``offset``; where it is damaged, before its segment."""
        if offset >= self.log_end_offset:
            return self.size_bytes
        segment, before = self._segments.floor(offset), 0
        for earlier in self._segments:
            if earlier is segment:
                break
            before += earlier.size_bytes
        try:
            return before + segment.locate(offset)[0]
        except (CorruptBatch, OSError):
            return before

    @property
    def known_start(self) -> int:
        """From there on it is known what is erased, and which transactions are aborted: from the log start, or of a
        tiered log from where the partition begins.
        """
        return min(self.log_start_offset, self.tier_start)

    @property
    def segments(self) -> Segments:
        """To be looked at."""
        return self._segments

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def sealed_end(self) -> int:
        """All below is in sealed segments: where the active segment begins."""
        return self._active.segment.base_offset

    @property
    def damaged_from(self) -> int | None:
        """The first offset that is known to be damaged: segments are checked when first read."""
        return self._segments.damaged_from(self.log_start_offset)

    def lost_files(self) -> list[tuple[Segment, str | None]]:
        """Segments whose files are not there any more, are too short, or are too long for a sealed
        segment (another log's, then), with what is wrong. None: the first or the last batch has
        another checksum; a reader of the file finds whether it is another one.

        A file whose ends were compared is not read again before it changes: a cold log must not
        cost the disk two reads a segment each time. From any thread, beside whatever else is done:
        who asks has to look whether they are still the log's. Raises OSError.
        """
        segments = [
            (it, it.path, it.sealed, it.size_bytes, it.ends) for it in tuple(self._segments)
        ]
        try:
            files = self._disk.states(self._directory)
        except FileNotFoundError:  # the folder itself: writes go to files that will not be found
            files = {}
        lost: list[tuple[Segment, str | None]] = []
        for segment, path, is_sealed, size_bytes, ends in segments:
            state = files.get(path.rpartition("/")[2])
            if state is None:
                lost.append((segment, "the file is missing"))
                continue
            found = state.size_bytes
            if found < size_bytes or (is_sealed and found > size_bytes):
                lost.append((segment, f"the file has {found} bytes, and {size_bytes} were stored"))
            elif self._has_other_batches(segment, path, ends, state):
                lost.append((segment, None))
        return lost

    def _has_other_batches(
        self, segment: Segment, path: str, ends: EndChecksums, state: FileState
    ) -> bool:
        """A file that cannot be read, or has gone meanwhile, is for its readers to tell. ``state``
        is older than what is read: a file that changes meanwhile is compared the next time, too.
        """
        if segment.damages or not ends.is_known or segment.compared == state:
            return False
        try:
            is_other = bool(ends.differing_at(self._disk, path))
        except OSError:
            return False
        if not is_other:
            segment.compared = state
        return is_other

    def append_fetched(self, records: memoryview, *, epoch_max: int | None = None) -> int:
        """Write batches as another node wrote them, as many as are good for one go; how many bytes.

        A cut last one is left, and so are those of a later epoch than ``epoch_max``. Raises
        CorruptBatch, when nothing was written, if they are damaged or do not follow; else as
        ``append``.
        """
        if self.failure:
            raise StorageFailed(self.failure)
        if self._owed_limit is not None:
            self._pay_limit(self._owed_limit)
        if self.size_bytes:
            records = from_offset(records, self.log_end_offset)
        places = next_run(
            records,
            end_offset=self.log_end_offset,
            epoch=self.epochs.latest,
            is_empty=self.size_bytes == 0,
            directory=self._directory,
            epoch_max=epoch_max,
        )
        if not places:
            return 0
        if places[0].base_offset < self.log_end_offset:
            start = self.log_start_offset
            self.truncate_fully_to(places[0].base_offset, waits=False)
            self.log_start_offset = start
        places = self._roll_for(places)
        active, size = self._active, places[-1].end_position
        if active.segment.key is not None and not self.settings.encrypts:
            active = self._without_key()
        try:
            active.append_run(records[:size], places, encrypts=self.settings.encrypts)
        except StorageFailed as error:
            self.fail(str(error))
            raise
        self._unsynced.segments[active.segment] = None
        for place in places:
            if place.leader_epoch > self.epochs.latest:
                self.epochs.assign(place.leader_epoch, place.base_offset)
                self._unsynced.epochs = True
        self.log_end_offset = places[-1].next_offset
        return size

    def _roll_for(self, places: list[BatchPlace]) -> list[BatchPlace]:
        """Those that go into the active segment, which is a new one if the first wants that.

        The batches' own times decide, so that the segments are the leader's.
        """
        for _ in range(2):
            fitting = self._active.fitting(self.settings, places)
            if fitting:
                break
            self.roll()
        return fitting

    def roll(self) -> None:
        """Seal the active segment and begin a new one, unless it is empty. Raises Unavailable."""
        if self.failure:
            raise StorageFailed(self.failure)
        old = self._active
        if not old.segment.size_bytes:
            return
        segment = self._new_segment(self.log_end_offset)
        with storage_errors(segment.path):
            self._pool.create(segment.path)
            try:
                old.seal()
            except OSError:
                self._pool.remove(segment.path)
                raise
        self._append_segment(segment)
        self._unsynced.segments[old.segment] = None  # its indexes, and what no ticket has covered

    def _without_key(self) -> ActiveSegment:
        """For batches in the clear: in a segment with a data key they would count as forged. Raises
        Unavailable.
        """
        self.roll()
        self._active.unbind()  # of a segment that was empty
        return self._active

    def roll_if_old(self, now_ms: int) -> None:
        """As an append would that came now. Raises Unavailable."""
        first_ms = self._active.first_timestamp_ms
        if first_ms is not None and now_ms - first_ms >= self.settings.segment_age_ms:
            self.roll()

    def _new_segment(self, base_offset: int) -> Segment:
        interval_bytes = self.settings.index_interval_bytes
        return Segment.empty(self._pool, self._directory, base_offset, interval_bytes)

    def _append_segment(self, segment: Segment) -> None:
        self._segments.add(segment)
        self._active = ActiveSegment.empty(self._pool, segment)
        self._unsynced.folder = True

    def begin_sync(self) -> SyncTicket | None:
        """A ticket for all that is not synced; None: all is. One at a time. Raises Unavailable."""
        if self.failure:
            raise StorageFailed(self.failure)
        dirty, end = self._unsynced, self.log_end_offset
        if not dirty:
            return None
        self._active.segment.hint(end, self._active.segment.size_bytes)  # a high watermark soon
        if dirty.ticket is not None:
            raise BrokenInvariant("the last ticket has not been taken back")
        for segment in dirty.segments:
            dirty.folder |= segment.key is not None and segment.key.is_unsynced
        try:
            files = dirty.pin_files(self._pool)
        except OSError as error:
            raise storage_error(error, self._directory) from error
        dirty.ticket = SyncTicket(
            self._disk,
            self._pool,
            files,
            end_offset=end,
            epochs=self._encoded_epochs() if dirty.epochs else None,
            directory=self._directory if dirty.folder else None,
            manifest=(self.manifest, self._synced()) if self._writes_manifest else None,
            on_failure=self.fail,
        )
        dirty.clear()
        return dirty.ticket

    def _encoded_epochs(self) -> tuple[str, bytes]:
        return f"{self._directory}/{EPOCHS_NAME}", self.epochs.encode()

    @property
    def manifest_is_behind(self) -> bool:
        """It does not say what the folder holds, or where the log begins."""
        return self.manifest.is_behind(
            log_start_offset=self.log_start_offset,
            active_offset=self._active.segment.base_offset,
            first_offset=self._segments.first.base_offset,
        )

    @property
    def _writes_manifest(self) -> bool:
        """Not for the log start alone, unless that is to be noted: each would cost a sync of its own."""
        known = self.manifest.stored
        has_new_files = known is None or known.active_offset != self._active.segment.base_offset
        return (has_new_files or self._unsynced.manifest) and self.manifest_is_behind

    def _synced(self) -> SyncedManifest:
        """What the manifest says once all is synced."""
        known = self.manifest.stored
        new = self._segments.since(known.active_offset) if known else list(self._segments)
        return SyncedManifest(
            self.manifest.era,
            self.log_start_offset,
            self._active.segment.base_offset,
            self.log_end_offset,
            tuple(segment.as_sealed() for segment in new if segment.sealed),
        )

    def finish_sync(self, ticket: SyncTicket) -> int:
        """Take back the ticket, which has run; all below the offset returned is synced."""
        dirty = self._unsynced
        if ticket is not dirty.ticket:
            raise BrokenInvariant("not the ticket that is out")
        if not ticket.done:
            dirty.abandon([])
            self.fail("a sync was given up")
            raise StorageFailed(self.failure)
        dirty.epochs |= not ticket.epochs_are_stored
        dirty.manifest |= not ticket.manifest_is_stored
        dirty.ticket = None
        self.recovery_point = max(self.recovery_point, ticket.end_offset)
        return self.recovery_point

    def aborted_at(self, marker_offset: int) -> OffsetSet:
        """The records that the marker at that offset aborts, as far as they are there. From any thread."""
        found = self.erasures.pending_at(marker_offset)
        if found is not None:
            return found
        first = self.transactions.first_aborted_at(marker_offset)
        return OffsetSet() if first is None else self.erasures.erased.between(first, marker_offset)

    def fail(self, problem: str) -> None:
        """Take no more appends until it is opened again. From a worker thread, too."""
        if not self.failure:
            self.failure = problem
            logger.error(LOG_FAILED, extra={"directory": self._directory, "problem": problem})

    @property
    def files_start(self) -> int:
        """Files still have all from there on; the log may begin later, in the middle of a segment."""
        return self._segments.first.base_offset

    def read(
        self,
        offset: int,
        max_bytes: int,
        upper_offset: int,
        *,
        verify: Verify = Segment.verify,
        from_files_start: bool = False,
    ) -> FileSlice:
        """Whole batches from the one with ``offset`` on, all of them below ``upper_offset``.
        ``from_files_start``: also those before the log start that files still have.

        The first comes whole even if it is larger than ``max_bytes``; empty if there is none. They
        all lie in one segment, verified first, which blocks: who minds gives a ``verify`` that
        raises. Raises OffsetOutOfRange, Unavailable, CorruptBatch where ``offset`` is damaged.
        """
        start = self.files_start if from_files_start else self.log_start_offset
        if not start <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(offset, start, self.log_end_offset)
        if offset >= upper_offset or offset == self.log_end_offset:
            return self.nothing()
        segment = self._active.segment
        if offset < segment.base_offset:
            segment = self._segments.floor(offset)
        try:
            if segment.unverified_bytes or segment.rebuilt is not None:
                self._verify(segment, verify)
            return segment.slice(offset, max_bytes, upper_offset)
        except OSError as error:
            raise storage_error(error, segment.path) from error

    def _verify(self, segment: Segment, verify: Verify) -> None:
        """By ``verify``, and with its indexes. Raises OSError, and what ``verify`` does."""
        verify(segment)
        if segment.rebuilt is None:
            return
        if segment is self._active.segment:
            self._active.mend_indexes()
            return
        # It was sealed while it was verified, with the indexes that were wrong.
        segment.rebuilt, segment.unverified_bytes = None, segment.size_bytes
        verify(segment)

    def nothing(self) -> FileSlice:
        """An empty slice."""
        return FileSlice(self._pool, None, 0, 0)

    def segment_for_read(self, offset: int) -> Segment | None:
        """The segment that ``read`` would read from; None if it would not read."""
        if not self.log_start_offset <= offset < self.log_end_offset:
            return None
        return self._segments.floor(offset)

    def offset_for_timestamp(
        self,
        timestamp_ms: int,
        upper_offset: int,
        *,
        verify: Verify = Segment.verify,
        from_files_start: bool = False,
    ) -> TimedOffset | None:
        """The first record of that time or later below ``upper_offset``, with its time. ``from_files_start``: as
        ``read``.

        Has the segments that it reads verified, which blocks like ``read``; a caller that must not block gives a
        ``verify`` that raises, and comes again. Raises CorruptData, Unavailable.
        """
        start = self.files_start if from_files_start else self.log_start_offset
        segments = self._segments
        repairing = partial(self._verify, verify=verify)
        with storage_errors(self._directory):
            return first_record_since(segments, timestamp_ms, start, upper_offset, verify=repairing)

    def latest_timestamp(
        self, upper_offset: int, *, verify: Verify = Segment.verify
    ) -> TimedOffset | None:
        """The first record of the latest time below ``upper_offset``; as above."""
        start = self.log_start_offset
        with storage_errors(self._directory):
            return latest_record(
                self._segments, start, upper_offset, verify=partial(self._verify, verify=verify)
            )

    def first_timestamp_ms(self) -> int | None:
        """The time of the first record, if there is one; damaged batches are passed over."""
        start = self.log_start_offset
        if start == self.log_end_offset:
            return None
        if self._first_time is None or self._first_time[0] != start:
            with storage_errors(self._directory):
                time_ms = time_at(self._segments.floor(start), start)
            self._first_time = start, time_ms
        return self._first_time[1]

    def last_timestamp_ms(self) -> int | None:
        """The time of the last record, if there is one; of the latest one after a roll."""
        if self.log_start_offset == self.log_end_offset:
            return None
        if self._active.last_timestamp_ms is not None or len(self._segments) == 1:
            return self._active.last_timestamp_ms
        with storage_errors(self._directory):
            return latest_time(self._segments.sealed()[-1])

    def advance_log_start(
        self, offset: int, *, is_kept: bool = False, is_noted_soon: bool = True
    ) -> list[str]:
        """Nothing below ``offset`` is read any more, and segments wholly below are removed; their
        file names.

        ``is_kept``: the caller has made the offset durable, so what is missing below it is no
        damage; else this does, before any file goes. The next sync writes it to the manifest, too; not
        ``is_noted_soon``: only where files have gone, or after ``note_log_start``.
        Raises Unavailable where a file cannot be removed; the offset has advanced all the same.
        """
        if offset > self.log_end_offset:
            raise BrokenInvariant(
                f"the log start offset {offset} is past the log end offset {self.log_end_offset}"
            )
        first_offset = self._segments.first.base_offset
        self.log_start_offset = max(self.log_start_offset, offset)
        try:
            return self._remove_below(self.log_start_offset, is_kept=is_kept)
        finally:
            if is_noted_soon or self._segments.first.base_offset != first_offset:
                self.note_log_start()

    @property
    def has_unsynced_manifest(self) -> bool:
        """The next sync writes it."""
        return self._unsynced.manifest

    def note_log_start(self) -> None:
        """The next sync writes to the manifest where the log begins, if it does not say so yet."""
        self._unsynced.manifest |= self.manifest_is_behind

    def retained_start(self, now_ms: int, high_watermark: int, *, erased: OffsetSet) -> int:
        """Where the log begins once the messages are gone that are too many, and the segments that bytes and age no
        longer keep. ``erased`` are no messages. Raises Unavailable.

        Never past the high watermark, and the active one goes only if it is all too old.
        """
        if not self.settings.is_limited:
            return self.log_start_offset
        start = self.start_by_messages(high_watermark, erased)
        with storage_errors(self._directory):
            if self._active.segment.rebuilt is not None:
                self._active.mend_indexes()
                self._retention.forget()
            by_segments = self._retention.start_offset(
                self._segments,
                self.settings,
                LogState(
                    self.log_start_offset,
                    self.log_end_offset,
                    high_watermark,
                    len(self._segments),
                ),
                now_ms=now_ms,
                latest_time=latest_time,
            )
        return max(start, by_segments)

    def local_start(self, now_ms: int, tier_end: int) -> int:
        """Where a tiered log may begin here by its local limits; ``tier_end``: all below is in the object store, and is
        committed. Raises Unavailable.
        """
        start, segments = self.log_start_offset, self._segments
        if segments.first.next_offset > tier_end or len(segments) == 1:
            return start
        with storage_errors(self._directory):
            count = local_count(
                list(segments),
                self.settings,
                now_ms=now_ms,
                tier_end=tier_end,
                latest_time=latest_time,
            )
        return max(start, segments[count - 1].next_offset) if count else start

    def start_by_messages(self, high_watermark: int, erased: OffsetSet) -> int:
        """Where the log begins once there are no more messages below the high watermark than the limit says."""
        start, messages_max = self.log_start_offset, self.settings.retention_messages
        if UNLIMITED < messages_max < high_watermark - start:
            return erased.start_of_last_absent(messages_max, start, high_watermark)
        return start

    def trimmed_start(
        self,
        now_ms: int,
        high_watermark: int,
        *,
        erased: OffsetSet,
        verify: Verify = Segment.verify,
    ) -> Trim:
        """Where the log begins once all is gone that the limits no longer keep; never past the high watermark.
        ``erased`` are no messages. Has the segment that stays verified, as ``offset_for_timestamp`` does; a damaged
        one goes only whole. Raises Unavailable, and what ``verify`` does.
        """
        settings, due_ms = self.settings, None
        start = self.retained_start(now_ms, high_watermark, erased=erased)
        if not settings.is_limited or start >= high_watermark:
            return Trim(start, None)
        with storage_errors(self._directory):
            try:
                if settings.retention_bytes != UNLIMITED:
                    start = min(self._start_by_bytes(start, verify), high_watermark)
                if settings.retention_ms != UNLIMITED and start < high_watermark:
                    start, due_ms = self._start_by_age(start, now_ms, high_watermark, verify)
            except CorruptData:
                pass
        return Trim(start, due_ms)

    def _start_by_bytes(self, start: int, verify: Verify) -> int:
        """Raises CorruptData, OSError, and what ``verify`` does."""
        segment = self._segments.floor(start)
        left_bytes = sum(it.size_bytes for it in self._segments.since(start))
        surplus_bytes = left_bytes - self.settings.retention_bytes
        if surplus_bytes <= 0:
            return start
        self._verify(segment, verify)
        return start if segment.damages else max(start, segment.offset_at(surplus_bytes))

    def _start_by_age(self, start: int, now_ms: int, high_watermark: int, verify: Verify) -> Trim:
        """As above."""
        retention_ms = self.settings.retention_ms
        time_ms = self.first_timestamp_ms() if start == self.log_start_offset else None
        if time_ms is None or now_ms - time_ms > retention_ms:
            segment = self._segments.floor(start)
            self._verify(segment, verify)
            if segment.damages:
                return Trim(start, None)
            place = first_batch_since(segment, now_ms - retention_ms, start, high_watermark)
            if place is None:
                return Trim(min(segment.next_offset, high_watermark), None)
            start, time_ms = max(start, place.base_offset), place.max_timestamp_ms
        return Trim(start, time_ms + retention_ms + 1)

    def _remove_below(self, offset: int, *, is_kept: bool = False) -> list[str]:
        """Remove the segments wholly below ``offset``, oldest first; a crash leaves no hole."""
        removed: list[str] = []
        if self.is_swapping:
            return removed  # they go the next time
        with storage_errors(self._directory):
            first = self._segments.first
            if first.size_bytes and first.next_offset <= offset and not is_kept:
                self._keep_log_start(offset)
            while len(self._segments) > 1 and self._segments.first.next_offset <= offset:
                removed.append(self._discard(self._segments.drop_first()))
            active = self._active.segment
            if active.size_bytes and active.next_offset <= offset and not self.failure:
                segment = self._new_segment(self.log_end_offset)
                self._pool.create(segment.path)
                # Its name alone says from now on which offset comes next.
                self._disk.sync_directory(self._directory)
                self._append_segment(segment)
                removed.append(self._discard(self._segments.drop_first()))
        if self.epochs.advance_start(self.log_start_offset):
            self._unsynced.epochs = True
        return removed

    def _keep_log_start(self, offset: int) -> None:
        """Where the disk is full files go all the same: that is what makes room. Raises OSError."""
        try:
            self.manifest.begin_at(offset)
        except OSError as error:
            if not is_full(error):
                raise

    def _discard(self, segment: Segment) -> str:
        """On the event loop: its room is freed elsewhere."""
        self._unsynced.segments.pop(segment, None)
        segment.retire()
        self._pool.discard(*segment.paths)
        return segment.path.rpartition("/")[2]

    def _remove(self, segment: Segment) -> None:
        """By a cut, in a worker thread: its room is free then for what the cut writes."""
        self._unsynced.segments.pop(segment, None)
        segment.retire()
        self._pool.remove(*segment.paths)

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Read ``new`` in place of ``old``, whose offsets it has; their slices stay readable."""
        self._segments.replace(old, new)
        for segment in old:
            self._unsynced.segments.pop(segment, None)
        self._first_time = self._first_position = None
        self._retention.forget()

    def truncate_to(self, offset: int) -> None:
        """Forget the batches that end above ``offset``, durably. Blocking.

        Raises StorageFull or Overloaded, and nothing has changed then: a full disk, and a lack of
        file descriptors, pass. Raises StorageFailed, and has failed then.

        What needs a descriptor is done before the first record goes, as far as that can be. A full
        disk is no hindrance, for a cut makes room: a file that would say too much is removed, and
        made again by the next sync; what limits the recovery point is owed, see ``_limit``.
        """
        if offset >= self.log_end_offset:
            return
        if offset < self._segments.first.base_offset:
            self.truncate_fully_to(offset)
            return
        segment = self._segments.floor(offset)
        with self._cutting(), contextlib.ExitStack() as stack:
            with self._unchanged():
                segment.verify()
                pooled = self._pool.pin(segment.path)  # so that it need not be opened any more
                stack.callback(self._pool.unpin, pooled)
                position, end = place_of_cut(segment, offset)
                self._limit(end)
                with_descriptors(lambda: self.manifest.end_at(offset, segment.base_offset))
            while self._segments.last is not segment:
                self._remove(self._segments.drop_last())
            self._active = cut_segment(self._pool, segment, position, end)
            with_descriptors(lambda: self._disk.sync_directory(self._directory))
        self._unsynced.manifest |= self.manifest_is_behind
        self._end_at(end, epochs_kept_to=end)

    def cut_damage(self) -> None:
        """Forget the first damaged batch and all after it, durably; damaged files are kept aside.

        Raises StorageFailed, and has failed then.
        """
        damaged_from = self.damaged_from
        for segment in self._segments:
            if segment.damages and segment.size_bytes:
                keep_aside(self._pool, self._directory, segment)
        if damaged_from is None:
            return
        self._make_missing()
        if damaged_from <= self.log_start_offset:
            self.truncate_fully_to(self.log_start_offset)
        else:
            self.truncate_to(damaged_from)

    def _make_missing(self) -> None:
        """Empty files in place of those that are gone, which can be cut. Raises StorageFailed."""
        try:
            self._disk.make_directory(self._directory)
            sizes = self._disk.sizes(self._directory)
            for segment in self._segments:
                if segment.path.rpartition("/")[2] not in sizes:
                    self._pool.create(segment.path)
        except OSError as error:
            self.fail(f"{self._directory}: truncation failed: {error}")
            raise StorageFailed(self.failure) from error

    def truncate_fully_to(self, offset: int, *, waits: bool = True) -> None:
        """Forget all records; the next one gets ``offset``. Raises as above. Blocks, unless it is
        not to wait for file descriptors.
        """
        patiently = with_descriptors if waits else _at_once
        segment = self._new_segment(offset)
        with self._cutting():
            with self._unchanged():
                self._limit(offset)
                patiently(lambda: self.manifest.begin_anew(offset))
            while len(self._segments) > 1:
                self._remove(self._segments.drop_last())
            self._remove(self._segments.last)
            patiently(lambda: self._pool.create(segment.path))
            patiently(lambda: self._disk.sync_directory(self._directory))
        self._segments = Segments([segment])
        self._active = ActiveSegment.empty(self._pool, segment)
        self.log_start_offset = offset
        self.transactions.clear()
        self._end_at(offset, epochs_kept_to=0, patiently=patiently)
        self.recovery_point = offset  # there is nothing to be synced

    @contextlib.contextmanager
    def _cutting(self) -> Iterator[None]:
        """What fails in there leaves the log half cut: it has failed."""
        try:
            yield
        except (StorageFull, Overloaded):
            raise  # of ``_unchanged``
        except (OSError, Unavailable, CorruptBatch) as error:
            self.fail(f"{self._directory}: truncation failed: {error}")
            raise StorageFailed(self.failure) from error

    @contextlib.contextmanager
    def _unchanged(self) -> Iterator[None]:
        """What fails in there has changed nothing. Raises StorageFull, Overloaded, or
        StorageFailed.
        """
        try:
            yield
        except OSError as error:
            raise storage_error(error, error.filename or self._directory) from error

    def _limit(self, offset: int) -> None:
        """No checkpoint of before may say that records from ``offset`` on are synced. On a full
        disk that is owed, and nothing is appended before it is written. Raises Unavailable.
        """
        if offset < self.recovery_point:
            try:
                self.recovery_limit.lower(offset)
            except StorageFull:
                self._owed_limit = offset
            else:
                self._owed_limit = None

    def _pay_limit(self, offset: int) -> None:
        """Raises Unavailable."""
        self.recovery_limit.lower(offset)
        self._owed_limit = None

    def _end_at(
        self,
        offset: int,
        *,
        epochs_kept_to: int,
        patiently: Callable[[Callable[[], None]], None] = with_descriptors,
    ) -> None:
        """The log ends there now, also for a sync that is running and for the epochs."""
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        self.first_dirty_offset = min(self.first_dirty_offset, offset)
        self._first_time = self._first_position = None  # other batches may come in their place
        self.erasures.cut(offset)
        is_known = self.transactions.cut(offset)
        if self._unsynced.ticket is not None:
            self._unsynced.ticket.end_offset = min(self._unsynced.ticket.end_offset, offset)
        try:  # at once: what is of no use any more could pass for what is
            if self._owed_limit is not None:
                with contextlib.suppress(StorageFull):
                    self._pay_limit(self._owed_limit)
            patiently(lambda: self.manifest.lower_start(self.log_start_offset))
            if self.epochs.truncate(epochs_kept_to):
                patiently(self._store_epochs)
            if not is_known:
                self.erasures, self.transactions = read_again(self)
        except (OSError, Unavailable) as error:
            self.fail(str(error))
            raise StorageFailed(self.failure) from error

    def _store_epochs(self) -> None:
        """Without the file a start reads them out of the batches. Raises OSError."""
        path = f"{self._directory}/{EPOCHS_NAME}"
        try:
            self._disk.write_small(path, self.epochs.encode())
        except OSError as error:
            if not is_full(error):
                raise
            self._unsynced.epochs = True
            self._pool.remove(path)
            self._disk.sync_directory(self._directory)

    @property
    def is_resting(self) -> bool:
        """Since ``rest``: nothing was appended."""
        return self._active.is_resting

    def rest(self) -> bool:
        """Close the files, and have the indexes in files alone, until the next append; reads open
        what they need. False where there is something to be synced before. Raises Unavailable.
        """
        if self._unsynced or self._unsynced.ticket or self.failure or self.is_swapping:
            return False
        with storage_errors(self._directory):
            self._active.rest()
        self._segments.let_go()
        return True

    def close(self) -> None:
        """Sync what is left and let go of the files. Slices that are out stay readable.

        What cannot be synced is logged, not raised: the next opening will read it again.
        """
        self._unsynced.abandon(self._segments.since(self.recovery_point))
        if not self.failure:
            self.note_log_start()
            with telling_of(CLOSED_WITHOUT_SYNC, self._directory):
                ticket = self.begin_sync()
                if ticket is not None:
                    ticket.run()
                    self.finish_sync(ticket)
            with telling_of(CLOSED_WITHOUT_INDEXES, self._directory):
                self._active.mend_indexes()
                self._active.store_indexes()
        self.failure = self.failure or "the log is closed"
        for segment in self._segments:  # the next log of that name has its files there
            segment.retire()
        self._segments.let_go()
        if self._key_scope is not None:
            self._pool.release_keys(self._directory, self._key_scope)
            self._key_scope = None


def _at_once(call: Callable[[], None]) -> None:
    """As ``with_descriptors``, for who cannot wait."""
    call()
