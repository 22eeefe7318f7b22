"""The metadata log on disk: what is appended, synced, snapshotted and replayed. Blocking calls.

Single owner, not thread-safe. After a failed sync nothing more is appended: what is on the disk is
in doubt until the next start reads it.
"""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID

from streamlog.errors import (
    CorruptBatch,
    CorruptData,
    CorruptFile,
    StorageFailed,
    Unavailable,
)
from streamlog.log.checkpoint import OffsetCheckpoint
from streamlog.log.disk import Disk
from streamlog.log.files import FilePool
from streamlog.log.log import PartitionLog
from streamlog.log.settings import LogSettings
from streamlog.metadata.damage import check_tail
from streamlog.metadata.image import Image
from streamlog.metadata.records import (
    MetadataRecord,
    StreamDeleted,
    decode_record,
    encode_record,
)
from streamlog.metadata.snapshot import (
    SNAPSHOTS_KEPT,
    find_snapshots,
    read_epoch,
    read_snapshot,
    write_epoch,
    write_snapshot,
)
from streamlog.model import TopicPartition
from streamlog.record.batch import batches
from streamlog.record.codec import RecordRun, iter_records

logger = logging.getLogger(__name__)

METADATA_LOG: Final = TopicPartition("__cluster_metadata", 0)
SNAPSHOT_RECORDS_MIN: Final = 1_000
_READ_BYTES: Final = 1 << 20
_SETTINGS: Final = LogSettings(segment_bytes=1 << 20)


class MetadataStore:
    """``<data_dir>/metadata/`` of one node."""

    def __init__(self, directory: Path, cluster_id: str, *, disk: Disk, files: FilePool) -> None:
        self.epoch = 0
        """The epoch of this run: larger than any that a batch here was written in."""
        self.deleted: frozenset[UUID] = frozenset()
        """Streams whose deletion was replayed, and so may not have been carried out in full."""
        self._directory = directory
        self._cluster_id = cluster_id
        self._disk = disk
        self._files = files
        self._log: PartitionLog | None = None
        self._run = RecordRun()
        self._snapshot_offset = 0  # all below is in a snapshot
        self._checkpoint = OffsetCheckpoint(directory / "recovery-point-offset-checkpoint", disk)

    def open(self) -> Image:
        """Replay what is there and begin a new epoch. Raises CorruptData, StorageFailed."""
        try:
            self._disk.make_directory(str(self._directory))
            image = self._newest_snapshot()
            self._open_log(image.offset)
            image = self._replay(image)
            self._begin_epoch()
        except OSError as error:
            raise StorageFailed(f"{self._directory}: {error.strerror}") from error
        return image

    def append(self, records: Sequence[MetadataRecord], now_ms: int) -> int:
        """One batch, on the disk when this returns; its first offset.

        StorageFull: nothing of it was kept. StorageFailed: whether it is kept shows at the next
        start.
        """
        log = self._opened()
        self._run.clear()
        for record in records:
            self._run.append(None, encode_record(record))
        offset = log.log_end_offset
        batch = self._run.seal(base_offset=offset, leader_epoch=self.epoch, timestamp_ms=now_ms)
        log.append(batch, now_ms)
        try:
            self._sync(log)
        except Unavailable as error:  # in the log, and nobody has heard of it: not one step further
            log.failure = log.failure or str(error)
            raise StorageFailed(log.failure) from error
        return offset

    def snapshot_due(self, image: Image) -> bool:
        """So many records that replaying them would cost as much as a snapshot."""
        size = len(image.nodes) + 2 * len(image.streams)
        return image.offset - self._snapshot_offset > max(SNAPSHOT_RECORDS_MIN, size)

    def snapshot(self, image: Image) -> None:
        """Keep ``image``, on which all listeners have acted, and let go of the log below the one
        before.

        A full or failing disk leaves things as they were; the log has it all.
        """
        log = self._opened()
        try:
            write_snapshot(self._disk, self._directory, image)
            self._snapshot_offset = image.offset
            snapshots = find_snapshots(self._disk, self._directory)
            kept = snapshots[:SNAPSHOTS_KEPT]
            for _, path in snapshots[SNAPSHOTS_KEPT:]:
                self._disk.unlink(str(path))
            if len(kept) == SNAPSHOTS_KEPT:
                log.advance_log_start(kept[-1][0])
            self._checkpoint.write({METADATA_LOG: log.recovery_point})
        except (OSError, Unavailable) as error:
            logger.warning(
                "metadata snapshot failed",
                extra={"offset": image.offset, "error": str(error)},
            )

    def close(self) -> None:
        """Leave a mark of how far the log is whole. May be called again."""
        log, self._log = self._log, None
        if log is None:
            return
        try:
            self._checkpoint.write({METADATA_LOG: log.recovery_point})
        except OSError as error:
            logger.warning("metadata checkpoint failed", extra={"error": error.strerror})
        log.close()

    def _opened(self) -> PartitionLog:
        if self._log is None:
            raise StorageFailed(f"{self._directory}: the metadata log is closed")
        return self._log

    @staticmethod
    def _sync(log: PartitionLog) -> None:
        ticket = log.begin_sync()
        if ticket is not None:
            ticket.run()
            log.finish_sync(ticket)

    def _newest_snapshot(self) -> Image:
        """The newest one that is whole, else the empty image."""
        for offset, path in find_snapshots(self._disk, self._directory):
            try:
                image = read_snapshot(self._disk, path)
            except CorruptFile as error:
                logger.error("metadata snapshot damaged", extra={"problem": str(error)})
                continue
            if image.cluster_id != self._cluster_id:
                raise CorruptData(f"{path} is of cluster {image.cluster_id}")
            self._snapshot_offset = offset
            return image
        return Image(self._cluster_id)

    def _open_log(self, offset: int) -> None:
        directory = self._directory / "log"
        synced = self._read_checkpoint()
        check_tail(self._disk, directory, synced_end=synced)
        log = PartitionLog.open(
            directory,
            _SETTINGS,
            disk=self._disk,
            files=self._files,
            recovery_point=synced,
        )
        if log.log_start_offset > offset or log.log_end_offset < offset:
            raise CorruptData(
                f"{directory} has offsets {log.log_start_offset} to {log.log_end_offset}, and the"
                f" newest whole snapshot ends at {offset}: metadata is missing"
            )
        self._sync(log)
        self._log = log

    def _read_checkpoint(self) -> int:
        try:
            return self._checkpoint.read().get(METADATA_LOG, 0)
        except CorruptFile as error:
            logger.warning("metadata checkpoint damaged", extra={"problem": str(error)})
            return 0

    def _replay(self, image: Image) -> Image:
        deleted = set()
        for offset, epoch, record in self._records(image.offset):
            image = image.apply(record, offset=offset, epoch=epoch)
            if isinstance(record, StreamDeleted):
                deleted.add(record.stream_id)
        self.deleted = frozenset(deleted)
        return image

    def _records(self, offset: int) -> Iterator[tuple[int, int, MetadataRecord]]:
        log = self._opened()
        end = log.log_end_offset
        while offset < end:
            with log.read(offset, _READ_BYTES, end) as piece:
                data = piece.read()
            for header, batch in batches(data):
                yield from self._of_batch(header.leader_epoch, batch, offset)
                offset = header.next_offset

    def _of_batch(
        self, epoch: int, batch: memoryview, offset: int
    ) -> Iterator[tuple[int, int, MetadataRecord]]:
        try:
            for record in iter_records(batch):
                if record.offset >= offset:
                    yield record.offset, epoch, decode_record(record.value or b"")
        except CorruptBatch as error:
            raise CorruptData(f"{self._directory}: at offset {offset}: {error}") from None

    def _begin_epoch(self) -> None:
        """Never an epoch that was used: the file is synced before the first batch of the epoch."""
        path = self._directory / "quorum-state"
        latest = self._opened().epochs.latest
        try:
            noted = read_epoch(self._disk, path)
        except CorruptFile as error:
            # One voter: an epoch without a batch was never seen by anybody.
            logger.error("epoch file damaged, taken from the log", extra={"problem": str(error)})
            noted = 0
        self.epoch = max(noted, latest) + 1
        write_epoch(self._disk, path, self.epoch)
