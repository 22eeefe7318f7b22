"""The metadata folder on disk: the log, the vote, the snapshots. Blocking calls, no asyncio.

Single owner, not thread-safe. After a failed sync nothing more is appended: what is on the disk is
in doubt until the next start reads it.
"""

import contextlib
import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from crc32c import crc32c

from streamlog.condition import CORRECT_THEN_RESTART, Condition
from streamlog.errors import (
    CorruptBatch,
    CorruptData,
    CorruptFile,
    OffsetOutOfRange,
    StorageFailed,
    Unavailable,
)
from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.log.layout import LOG_SUFFIX, segment_base_offsets, segment_stem
from streamlog.log.log import PartitionLog
from streamlog.log.segment.batch_scan import Damage, scan_past_damage
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import (
    Disk,
    DiskFile,
    storage_errors,
    with_descriptors,
    write_all,
)
from streamlog.log.storage.file_pool import FilePool
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.metadata.image.records import MetadataRecord, decode_record, encode_record
from streamlog.metadata.image.snapshot import (
    SNAPSHOTS_KEPT,
    find_snapshots,
    read_snapshot,
    snapshot_id,
    snapshot_path,
    write_snapshot,
)
from streamlog.metadata.quorum.quorum_state_file import StoredVote, read_vote, write_vote
from streamlog.model import EpochEnd, LogId, TopicPartition
from streamlog.raft.messages import SnapshotId
from streamlog.record.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    batches,
    check_batch,
)
from streamlog.record.codec import RecordRun, iter_records

logger = logging.getLogger(__name__)

METADATA_CHECKPOINT_FAILED: Final = Condition(
    "SL-0123",
    "metadata checkpoint failed",
    CORRECT_THEN_RESTART,
    meaning="The position in the metadata log was not noted. The next start reads more of the log.",
)
METADATA_CHECKPOINT_DAMAGED: Final = Condition(
    "SL-0124",
    "metadata checkpoint damaged",
    "nothing: it is read from the log; look at the disk",
    meaning="The file with the position in the metadata log is damaged.",
)
SNAPSHOT_FAILED: Final = Condition(
    "SL-0125",
    "metadata snapshot failed",
    CORRECT_THEN_RESTART,
    meaning="A snapshot of the metadata was not written. The metadata log grows until one is.",
)
SNAPSHOT_DAMAGED: Final = Condition(
    "SL-0126",
    "metadata snapshot damaged",
    "an older one, or the leader's, is used; look at the disk",
    meaning="A snapshot of the metadata does not match its checksum.",
)
VOTE_DAMAGED: Final = Condition(
    "SL-0129",
    "vote damaged",
    "this node does not vote until it has caught up; look at the disk",
    meaning="The file with this node's vote is damaged. Without it the node could vote twice in "
    "an epoch, so it does not vote.",
)

_OFFSET_MAX: Final = 2**63 - 1
METADATA_LOG: Final = TopicPartition("__cluster_metadata", 0)
METADATA_LOG_ID: Final = LogId(METADATA_LOG, UUID(int=1))
"""With Kafka's id of that topic."""
_READ_BYTES: Final = 1 << 20
SEGMENT_BYTES: Final = 1 << 20
_PAGE_BYTES: Final = 4096


class StoredBatch(NamedTuple):
    """One change: all of its records hold, or none."""

    base_offset: int
    epoch: int
    records: tuple[MetadataRecord, ...]
    time_ms: int = 0
    """By the clock of the controller that decided it."""

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.records)


class MetadataStore:
    """``<data_dir>/metadata/`` of one node. A ``raft.node.RaftLog``."""

    def __init__(
        self,
        directory: Path,
        cluster_id: str,
        *,
        disk: Disk,
        files: FilePool,
        segment_bytes: int = SEGMENT_BYTES,
        power_lost: bool = True,
    ) -> None:
        """``power_lost``: since the log was written, or that is not known; see ``damage``."""
        self.snapshot: SnapshotId | None = None
        """The newest one here."""
        self.high_watermark = 0
        """All below was known to be committed when the checkpoint was written; it may be more."""
        self.vote: StoredVote | None = None
        """None: there was no file, or it is damaged (``vote_damage``)."""
        self.vote_damage = ""
        self.directory = directory
        self._cluster_id = cluster_id
        self._power_lost = power_lost
        self._disk = disk
        self._files = files
        self._settings = LogSettings(segment_bytes=segment_bytes)
        self._log: PartitionLog | None = None
        self._run = RecordRun()
        self._recovery = OffsetCheckpoint(directory / "recovery-point-offset-checkpoint", disk)
        self._installing = directory / "installing-snapshot"
        """There while the log is being replaced by the snapshot of that offset."""
        self._prepared = directory / "prepared-snapshot"
        self._fetched = directory / "fetched-snapshot"
        """Neither counts before it has a snapshot's name."""
        self._committed = OffsetCheckpoint(directory / "high-watermark-checkpoint", disk)

    def open(self) -> MetadataImage:
        """The image of the newest snapshot, which ``batches_from`` its offset continue.

        Raises CorruptData, StorageFailed.
        """
        try:
            self._disk.make_directory(str(self.directory))
            image = self._newest_snapshot()
            self._remove_unfinished()
            self._open_log(image.offset)
            self.high_watermark = max(image.offset, self._checkpointed(self._committed))
            self._read_vote()
        except OSError as error:
            raise StorageFailed(f"{self.directory}: {error.strerror}") from error
        return image

    # What the quorum's core looks at

    @property
    def start_offset(self) -> int:
        return self._opened().log_start_offset

    @property
    def end_offset(self) -> int:
        return self._opened().log_end_offset

    @property
    def last_epoch(self) -> int:
        """Of the last batch; of the snapshot at whose end an empty log begins."""
        log = self._opened()
        if log.log_end_offset == log.log_start_offset and self.snapshot is not None:
            return max(self.snapshot.epoch, log.epochs.latest)
        return log.epochs.latest

    def epoch_end(self, epoch: int) -> EpochEnd:
        """The newest epoch up to ``epoch`` that has records here, and where it ends."""
        log = self._opened()
        if epoch >= self.last_epoch:
            return EpochEnd(self.last_epoch, log.log_end_offset)
        return log.epochs.end_offset_for(epoch, log.log_end_offset)

    # The vote

    def save_vote(self, vote: StoredVote) -> None:
        """Durable when it returns. Raises StorageFailed."""
        try:
            with_descriptors(lambda: write_vote(self._disk, self.directory, vote))
        except OSError as error:
            raise StorageFailed(f"{self.directory}: {error.strerror}") from error
        self.vote = vote

    # The log

    def append(self, records: Sequence[MetadataRecord], epoch: int, now_ms: int) -> int:
        """Write one batch, not yet synced; the end of the log.

        StorageFull: nothing of it was kept. StorageFailed: whether it is kept shows at the next
        start.
        """
        log = self._opened()
        self._run.clear()
        for record in records:
            self._run.append(None, encode_record(record))
        batch = self._run.seal(
            base_offset=log.log_end_offset, leader_epoch=epoch, timestamp_ms=now_ms
        )
        log.append(batch, now_ms)
        return log.log_end_offset

    def append_fetched(self, data: memoryview, now_ms: int) -> Iterator[StoredBatch]:
        """Write, and sync, batch by batch: a crash then tears the last one at most.

        Raises CorruptData for what is no record, StorageFull, StorageFailed.
        """
        for header, batch in batches(data):
            check_batch(batch)
            records = tuple(_records_of(batch, 0))
            self._opened().append(bytes(batch), now_ms)
            self.sync()
            yield StoredBatch(
                header.base_offset, header.leader_epoch, records, header.max_timestamp_ms
            )

    def sync(self) -> None:
        """All that is written is on the disk when this returns. Raises StorageFailed."""
        log = self._opened()
        try:
            ticket = log.begin_sync()
            if ticket is not None:
                ticket.run()
                log.finish_sync(ticket)
        except (
            Unavailable
        ) as error:  # in the log, and no node has heard of it: not one step further
            log.failure = log.failure or str(error)
            raise StorageFailed(log.failure) from error

    def truncate(self, end_offset: int) -> None:
        """Forget what stands at ``end_offset`` and above, durably. Raises StorageFailed."""
        self._lower_recovery_point(end_offset)
        with _failing(self._opened()) as log:
            log.truncate_to(end_offset)

    def read(self, offset: int, end_offset: int, max_bytes: int) -> bytes:
        """Whole batches from ``offset`` on, at least one. Raises OffsetOutOfRange, Unavailable."""
        with (
            storage_errors(str(self.directory)),
            self._opened().read(offset, max_bytes, end_offset) as piece,
        ):
            return piece.read()

    def batches_from(self, offset: int) -> Iterator[StoredBatch]:
        """What is in the log. Raises CorruptData, StorageFailed."""
        end = self.end_offset
        while offset < end:
            data = self.read(offset, end, _READ_BYTES)
            for batch in decode_batches(data, offset, str(self.directory)):
                yield batch
                offset = batch.end_offset

    def checkpoint(self, high_watermark: int) -> None:
        """Note how far all is synced, and committed. A full disk is no harm: less is known then."""
        log = self._opened()
        try:
            self._recovery.write({METADATA_LOG_ID: log.recovery_point})
            self._committed.write({METADATA_LOG_ID: high_watermark})
            log.recovery_limit.lift()
        except (OSError, Unavailable) as error:
            logger.warning(METADATA_CHECKPOINT_FAILED, extra={"error": str(error)})
        else:
            self.high_watermark = high_watermark

    def close(self) -> None:
        """May be called again."""
        log, self._log = self._log, None
        if log is not None:
            log.close()

    # Snapshots

    def add_snapshot(self, image: MetadataImage) -> None:
        """Keep ``image``, all of which is committed; see ``prepare_snapshot``, ``keep_snapshot``."""
        if self.prepare_snapshot(image):
            self.keep_snapshot(snapshot_id(image))

    def prepare_snapshot(self, image: MetadataImage) -> bool:
        """Write it, durably, under a name that does not count yet; whether that could be done.

        That takes seconds where there are very many streams, and touches nothing else: it may be
        done in another thread, one at a time.
        """
        try:
            file = self._disk.create(str(self._prepared))
            try:
                write_snapshot(file, image)
                file.sync()
            finally:
                file.close()
        except (OSError, Unavailable) as error:
            _tell_snapshot_failed(snapshot_id(image), error)
            with contextlib.suppress(OSError):
                self._disk.unlink(str(self._prepared))
            return False
        return True

    def keep_snapshot(self, snapshot: SnapshotId) -> None:
        """The prepared one counts; the log below the one before is let go.

        A full or failing disk leaves things as they were; the log has it all. Nothing is done where
        a newer one was installed while this was made: the log begins there now.
        """
        log = self._opened()
        if self.snapshot is not None and snapshot.end_offset <= self.snapshot.end_offset:
            return
        try:
            self._name_snapshot(self._prepared, snapshot)
            self.snapshot = snapshot
            kept = self._drop_old_snapshots()
            if len(kept) == SNAPSHOTS_KEPT:
                log.advance_log_start(kept[-1].end_offset)
        except (OSError, Unavailable) as error:
            _tell_snapshot_failed(snapshot, error)

    def take_piece(self, position: int, data: bytes) -> None:
        """A piece of the leader's snapshot, in order; the one at 0 begins another. Raises StorageFailed.

        What has come of it survives no restart.
        """
        path = str(self._fetched)
        try:
            file = self._disk.open(path) if position else self._disk.create(path)
            try:
                write_all(file, data, position)
            finally:
                file.close()
        except OSError as error:
            raise StorageFailed(f"{path}: {error.strerror}") from error

    def install_snapshot(self, snapshot: SnapshotId, data: bytes | None = None) -> MetadataImage:
        """Begin again at the end of a snapshot that the leader gave; ``data``: the whole of it, where
        it was not taken in pieces. Raises CorruptFile and StorageFailed.
        """
        where = f"the snapshot of the leader at {snapshot.end_offset}"
        if data is not None:
            self.take_piece(0, data)
        try:
            file = self._disk.open(str(self._fetched))
            try:
                image = read_snapshot(file, where)
                file.sync()
            finally:
                file.close()
            _check_id(image, snapshot, where)
            self._check_cluster(image, "the leader's snapshot")
            # From here to the end a crash may leave less of the log than was synced.
            self._disk.write_small(str(self._installing), b"%d\n" % snapshot.end_offset)
            self._name_snapshot(self._fetched, snapshot)
            self._begin_log_at(self._opened(), snapshot.end_offset)
            self.snapshot = snapshot
            self._drop_old_snapshots()
        except OSError as error:
            raise StorageFailed(f"{self.directory}: {error.strerror}") from error
        self.high_watermark = snapshot.end_offset
        return image

    def snapshots(self) -> list[SnapshotId]:
        """Those that are here, the newest first. Raises StorageFailed."""
        try:
            return find_snapshots(self._disk, self.directory)
        except OSError as error:
            raise StorageFailed(f"{self.directory}: {error.strerror}") from error

    def read_snapshot(self, snapshot: SnapshotId) -> MetadataImage:
        """In any thread. Raises OffsetOutOfRange where it is gone, CorruptFile, StorageFailed."""
        path = str(snapshot_path(self.directory, snapshot))
        with self._snapshot_file(snapshot) as file:
            return read_snapshot(file, path)

    def read_snapshot_piece(
        self, snapshot: SnapshotId, position: int, max_bytes: int
    ) -> tuple[bytes, int]:
        """A part of the file, and the size of the whole. Raises as ``read_snapshot`` does.

        A snapshot of hundreds of MiB is sent in pieces of one: each costs a read of that one.
        """
        with self._snapshot_file(snapshot) as file:
            return file.pread(max_bytes, position), file.size()

    @contextlib.contextmanager
    def _snapshot_file(self, snapshot: SnapshotId) -> Iterator[DiskFile]:
        try:
            file = self._disk.open(str(snapshot_path(self.directory, snapshot)), writable=False)
            try:
                yield file
            finally:
                file.close()
        except FileNotFoundError:
            end = 0 if self.snapshot is None else self.snapshot.end_offset
            raise OffsetOutOfRange(snapshot.end_offset, end, end) from None
        except OSError as error:
            raise StorageFailed(f"{self.directory}: {error.strerror}") from error

    def _name_snapshot(self, path: Path, snapshot: SnapshotId) -> None:
        """It is on the disk, whole."""
        self._disk.rename(str(path), str(snapshot_path(self.directory, snapshot)))
        self._disk.sync_directory(str(self.directory))

    def _drop_old_snapshots(self) -> list[SnapshotId]:
        found = find_snapshots(self._disk, self.directory)
        for snapshot in found[SNAPSHOTS_KEPT:]:
            self._disk.unlink(str(snapshot_path(self.directory, snapshot)))
        return found[:SNAPSHOTS_KEPT]

    # Opening

    def _opened(self) -> PartitionLog:
        if self._log is None:
            raise StorageFailed(f"{self.directory}: the metadata log is closed")
        return self._log

    def _newest_snapshot(self) -> MetadataImage:
        """The newest one that is whole, else the empty image."""
        for snapshot in find_snapshots(self._disk, self.directory):
            path = snapshot_path(self.directory, snapshot)
            try:
                image = self.read_snapshot(snapshot)
                _check_id(image, snapshot, str(path))
            except CorruptFile as error:
                logger.error(SNAPSHOT_DAMAGED, extra={"problem": str(error)})
                continue
            self._check_cluster(image, str(path))
            self.snapshot = snapshot
            return image
        return MetadataImage(self._cluster_id)

    def _remove_unfinished(self) -> None:
        for path in (self._prepared, self._fetched):
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(str(path))

    def _check_cluster(self, image: MetadataImage, where: str) -> None:
        if image.cluster_id != self._cluster_id:
            raise CorruptData(f"{where} is of cluster {image.cluster_id}")

    def _open_log(self, offset: int) -> None:
        directory = self.directory / "log"
        installing = self._is_installing(offset)
        synced = 0 if installing else self._checkpointed(self._recovery)
        check_tail(self._disk, directory, synced_end=synced, power_lost=self._power_lost)
        log = PartitionLog.open(
            directory, self._settings, disk=self._disk, files=self._files, recovery_point=synced
        )
        if installing:
            self._begin_log_at(log, offset)
        for (
            segment,
            _,
        ) in log.lost_files():  # another node's, perhaps: it is read, and the log short
            segment.verify()
        _pass_over_damage(log, offset)
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise CorruptData(
                f"{directory} has offsets {log.log_start_offset} to {log.log_end_offset}, and the"
                f" newest whole snapshot ends at {offset}: metadata is missing"
            )
        self._log = log
        self.sync()

    def _is_installing(self, offset: int) -> bool:
        """Killed in the middle of it: the log goes, for the snapshot at ``offset`` has it all."""
        try:
            noted = self._disk.read_small(str(self._installing))
        except FileNotFoundError:
            return False
        if noted == b"%d\n" % offset:
            return True
        self._remove_mark()  # it was noted, and no more
        return False

    def _begin_log_at(self, log: PartitionLog, offset: int) -> None:
        with _failing(log):
            log.truncate_fully_to(offset)
        self._recovery.write({METADATA_LOG_ID: offset})
        self._remove_mark()

    def _remove_mark(self) -> None:
        """For good: coming back with a power cut it would empty the log that has grown since."""
        self._disk.unlink(str(self._installing))
        self._disk.sync_directory(str(self.directory))

    def _checkpointed(self, checkpoint: OffsetCheckpoint) -> int:
        try:
            return checkpoint.read().get(METADATA_LOG_ID, 0)
        except CorruptFile as error:
            logger.warning(METADATA_CHECKPOINT_DAMAGED, extra={"problem": str(error)})
            return 0

    def _lower_recovery_point(self, offset: int) -> None:
        """A log that is cut on purpose must not look like one that has lost its end."""
        try:
            if self._recovery_point() > offset:
                self._recovery.write({METADATA_LOG_ID: offset})
        except OSError as error:
            raise StorageFailed(f"{self._recovery.path}: {error}") from error

    def _recovery_point(self) -> int:
        """As the file has it. A damaged one may have said anything, and is written again."""
        try:
            return self._recovery.read().get(METADATA_LOG_ID, 0)
        except CorruptFile:
            return _OFFSET_MAX

    def _read_vote(self) -> None:
        try:
            self.vote = read_vote(self._disk, self.directory)
        except CorruptFile as error:
            logger.error(VOTE_DAMAGED, extra={"problem": str(error)})
            self.vote_damage = str(error)


def _tell_snapshot_failed(snapshot: SnapshotId, error: Exception) -> None:
    logger.warning(SNAPSHOT_FAILED, extra={"offset": snapshot.end_offset, "error": str(error)})


@contextlib.contextmanager
def _failing(log: PartitionLog) -> Iterator[PartitionLog]:
    """A cut that is refused is not tried again: the core goes on as if it had been made. Raises
    StorageFailed.
    """
    try:
        yield log
    except Unavailable as error:
        log.failure = log.failure or str(error)
        raise StorageFailed(log.failure) from error


def _check_id(image: MetadataImage, snapshot: SnapshotId, where: str) -> None:
    """The file is named by what it holds. An older one under a later name would make a node that begins
    at it forget what was decided in between. Raises CorruptFile.
    """
    if snapshot_id(image) != snapshot:
        raise CorruptFile(f"{where}: it is the snapshot at {image.offset} of epoch {image.epoch}")


def _pass_over_damage(log: PartitionLog, snapshot_end: int) -> None:
    """What a snapshot has need not be in the log as well: it begins later then. Raises CorruptData
    where more is missing.
    """
    start = log.log_start_offset
    for segment in log.segments:
        for _, _, offset, end_offset, problem in segment.damages:
            if end_offset > snapshot_end:
                raise CorruptData(
                    f"{segment.path}: offsets [{offset}, {end_offset}) are damaged: {problem}; and"
                    f" the newest whole snapshot ends at {snapshot_end}"
                )
            start = max(start, end_offset)
    if start > log.log_start_offset:
        log.advance_log_start(start)


def first_vote(directory_id: UUID | None, *, last_epoch: int) -> StoredVote:
    """For a folder that has none: an epoch without a batch was never seen by anybody."""
    return StoredVote(directory_id or uuid.uuid4(), max(last_epoch, 0))


def decode_batches(data: bytes, offset: int, where: str) -> Iterator[StoredBatch]:
    """What ``MetadataStore.read`` gave, from ``offset`` on. Raises CorruptData."""
    for header, batch in batches(memoryview(data)):
        try:
            records = tuple(_records_of(batch, offset))
        except CorruptBatch as error:
            raise CorruptData(f"{where}: at offset {offset}: {error}") from None
        yield StoredBatch(offset, header.leader_epoch, records, header.max_timestamp_ms)
        offset = header.next_offset


def _records_of(batch: memoryview, offset: int) -> Iterable[MetadataRecord]:
    for record in iter_records(batch):
        if record.offset >= offset:
            yield decode_record(record.value or b"")


def check_tail(disk: Disk, directory: Path, *, synced_end: int, power_lost: bool) -> None:
    """Tell a torn tail of the metadata log, which is cut, from damage, which must not be cut: raise
    CorruptData if more than an unsynced last batch is damaged. Raises OSError.

    Each batch is synced before the next one is written, so a crash can tear the last one only, and
    none that was synced. Anything else would forget streams: the node refuses to start on it.

    Whether the last batch was synced is known of the older ones only: the checkpoint is written now
    and then. A power cut may leave anything of a batch that was not synced. Where the machine has
    run on, its page cache has all that was written, so a killed process leaves the beginning of a
    batch, and a write-back that failed leaves zeros. A last batch with any other fault was damaged
    later, and it may have been synced, and counted by the quorum: to cut it would forget what is
    committed.

    ``synced_end``: all below is known to have been synced; the log must reach that far.
    ``power_lost``: what was not synced may be lost; else a process was killed at most.
    """
    try:
        sizes = disk.sizes(str(directory))
    except FileNotFoundError:
        sizes = {}
    bases = segment_base_offsets(sizes)
    end = 0
    for base, following in zip_longest(bases, bases[1:]):
        path = directory / (segment_stem(base) + LOG_SUFFIX)
        end = _check_segment(disk, path, sizes[path.name], base, following, power_lost=power_lost)
    if end < synced_end:
        raise CorruptData(f"{directory} ends at offset {end}, and {synced_end} had been synced")


def _check_segment(
    disk: Disk, path: Path, size: int, base: int, following: int | None, *, power_lost: bool
) -> int:
    """The offset where it ends; ``following`` is the base offset of the next segment."""
    file = disk.open(str(path), writable=False)
    try:
        end = base
        for item in scan_past_damage(file, 0, size, base, following):
            if not isinstance(item, Damage):
                end = item.next_offset
            elif following is not None or item.end_position < size:
                raise CorruptData(
                    f"{path}: damaged at byte {item.position}, offset {item.offset}: {item.problem}"
                )
            elif not power_lost and not _is_unfinished(file, item.position, size):
                raise CorruptData(
                    f"{path}: damaged at byte {item.position}, offset {item.offset}:"
                    f" {item.problem}, and no power was lost: the batch may be committed"
                )
        return end
    finally:
        file.close()


def _is_unfinished(file: DiskFile, position: int, size: int) -> bool:
    """Whether the last batch is only a beginning of one, or that and zeros to the end."""
    data = file.pread(size - position, position)
    if len(data) < HEADER_BYTES:
        return True
    _, length, _, _, crc, *_ = HEADER.unpack_from(data)
    if LENGTH_PREFIX_BYTES + length > len(data):
        return bool(crc32c(memoryview(data)[CRC_START:]) != crc)  # else only the length is wrong
    content = len(data.rstrip(b"\0"))
    pages = -(-(position + content) // _PAGE_BYTES)
    return content == 0 or pages * _PAGE_BYTES < size
