"""How a log is opened: what may be torn is read and cut, what is damaged is rebuilt.

The folder is held against its manifest first; see ``manifest``. For a file that is missing an empty
one is made, so that the log is in one piece: reads of its offsets end with an error.
"""

import contextlib
import errno
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from streamlog.condition import ANOTHER_REPLICA, CRITICAL, Condition
from streamlog.errors import CorruptFile, StorageFailed
from streamlog.log.compaction.crash_recovery import settle_cleanings
from streamlog.log.layout import (
    EPOCHS_NAME,
    INDEX_SUFFIX,
    KEY_SUFFIX,
    LOG_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    base_offset_of,
    segment_base_offsets,
    segment_stem,
)
from streamlog.log.leader_epochs import LeaderEpochs
from streamlog.log.manifest import (
    NO_SEGMENT,
    UNKNOWN_BYTES,
    LogManifest,
    ManifestFile,
    SealedSegment,
)
from streamlog.log.recovery.lost_end import LostEnd
from streamlog.log.recovery.recovery_limit import RecoveryLimit
from streamlog.log.recovery.report import RecoveryReport
from streamlog.log.recovery.tail_scan import CutRules, TailScan, rescan, resume
from streamlog.log.segment.batch_scan import BatchPlace, Damage, scan
from streamlog.log.segment.end_checksums import OTHER_BATCHES
from streamlog.log.segment.segment import MISSING, ActiveSegment, Segment, tell_damage
from streamlog.log.segment.segments import Segments
from streamlog.log.settings import LogSettings
from streamlog.log.sidecar_files import SidecarFiles
from streamlog.log.storage.disk import Disk, is_full, write_all
from streamlog.log.storage.file_pool import FilePool
from streamlog.model import NO_EPOCH
from streamlog.record.batch import OFFSET_MAX

logger = logging.getLogger(__name__)

LOG_CUT_AT_START: Final = Condition(
    "SL-0307",
    "log cut",
    "nothing where the machine went down; otherwise look at the disk",
    meaning="The start cut off an incomplete end of a log. That is usual after a power cut or a "
    "kill.",
)
MANIFEST_DAMAGED: Final = Condition(
    "SL-0308",
    "manifest damaged",
    "nothing: it is made again from the folder; look at the disk",
    meaning="The list of the segments of a partition is damaged.",
)
ACTIVE_SEGMENT_MISSING: Final = Condition(
    "SL-0309",
    "active segment missing",
    "it is fetched again from the other replicas; look at the disk",
    meaning="The newest segment of a log is not in its folder.",
    severity=CRITICAL,
)
END_LOST: Final = Condition(
    "SL-0310",
    "end of a log lost",
    ANOTHER_REPLICA,
    meaning="The log ends before what was written to it. The replica leaves the in-sync sets "
    "until it has caught up.",
    severity=CRITICAL,
)
SYNCED_RECORDS_MISSING: Final = Condition(
    "SL-0311",
    "synced records are missing",
    "the disk lost what it had said to keep; " + ANOTHER_REPLICA,
    meaning="Records that the disk had confirmed are gone, or do not match their checksum.",
    severity=CRITICAL,
)
FILE_REBUILT: Final = Condition(
    "SL-0312",
    "file rebuilt",
    "nothing; look at the disk if it happens again",
    meaning="An index or another file beside a log was missing or damaged.",
)

FORGED: Final = "it has records in the clear, and no data key, and all of the stream is encrypted"
_REWRITE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True)
class Recovered:
    """A log that may be used. All of it is synced, but perhaps the epochs."""

    segments: Segments
    active: ActiveSegment
    epochs: LeaderEpochs
    epochs_are_stored: bool
    log_start_offset: int
    recovery_limit: RecoveryLimit
    lost_end: LostEnd
    manifest: ManifestFile
    report: RecoveryReport


class DeferredSyncs:
    """For logs that are opened together, on a file system of which all was synced since the process
    ended that wrote to them last: what it has renamed or removed is durable, and their folders need
    no sync. What recoveries write again, ``run`` syncs for all of them at once; until then none of
    these logs may be used.
    """

    def __init__(self) -> None:
        self._paths: dict[str, list[str]] = {}

    def add(self, directory: str, paths: list[str]) -> None:
        """Files in there are to be synced; the folder as well."""
        if paths:
            self._paths[directory] = paths

    def run(self, disk: Disk, files: FilePool, sync_all: Callable[[], bool]) -> dict[str, OSError]:
        """``sync_all``: whether the file system is synced now; else each file is. What failed, by
        folder. Blocking.
        """
        failed: dict[str, OSError] = {}
        if self._paths and not sync_all():
            for directory, paths in self._paths.items():
                try:
                    sync_files(disk, files, directory, paths)
                except OSError as error:
                    failed[directory] = error
        return failed


def sync_files(disk: Disk, files: FilePool, directory: str, paths: Iterable[str]) -> None:
    """Content, then names. Raises OSError."""
    for path in paths:
        pooled = files.pin(path)
        try:
            pooled.file.sync()
        finally:
            files.unpin(pooled)
    disk.sync_directory(directory)


class Recovery:
    """Opens one log. Its methods raise OSError, ``run`` Unavailable, too."""

    def __init__(
        self,
        directory: str,
        settings: LogSettings,
        *,
        disk: Disk,
        files: FilePool,
        log_start_offset: int,
        recovery_point: int,
        power_lost: bool,
        syncs: "DeferredSyncs | None" = None,
    ) -> None:
        """``power_lost``: what was written and not synced may be lost; else a process was killed at
        most. ``syncs``: see there.
        """
        self.report = RecoveryReport()
        self._syncs = syncs
        self._unsynced: list[Segment] = []
        self._directory = directory
        self._pool = files
        self._disk = disk
        self._settings = settings
        self._log_start_offset = log_start_offset
        self._recovery_point = recovery_point
        self._power_lost = power_lost
        self._limit = RecoveryLimit(SidecarFiles(disk, directory))
        self._lost_end = LostEnd(SidecarFiles(disk, directory))
        self._manifest = ManifestFile(disk, directory)
        self._expected: dict[int, SealedSegment] = {}  # by base offset
        self._keyless: set[int] = set()  # segments without a file of a data key, or an empty one
        self._told: set[str] = set()  # paths of segments whose damages are in the node's log
        self._is_known = log_start_offset > 0 or recovery_point > 0  # that it was there before
        self._segments: list[Segment] = []  # in order; what is removed is taken out
        self._epoch_starts: list[tuple[int, int]] = []  # as the batches that were read have it
        self._epochs_read_from = OFFSET_MAX  # the batches from there on have told theirs
        self._last_epoch = NO_EPOCH  # of the last batch that was read

    def run(self) -> Recovered:
        """Read, cut, rebuild, sync."""
        self._disk.make_directory(self._directory)
        if self._syncs is None:
            # What a killed process has renamed or removed counts from now on.
            self._disk.sync_directory(self._directory)
        self._bound_recovery_point()
        self._lost_end.load()
        self.report.lost_end = self._lost_end.is_noted
        self._find_segments()
        self._check_files()
        active = self._recover_tail() if self._segments else None
        end = active.segment.next_offset if active else self._log_start_offset
        self.report.lost_synced = max(0, self._recovery_point - end)
        if self.report.lost_synced:
            self._note_lost_end(self._recovery_point)
        if active is not None and end < self._log_start_offset:
            self._remove(list(reversed(self._segments)))
            active = None
        if active is None:
            active = self._create()
        self._require_keys(active.segment)
        if active.segment.next_offset < self._recovery_point:
            self._sync_now()
            self._limit.lower(active.segment.next_offset)
        segments = Segments(self._segments)
        self._store_manifest(segments)
        epochs, stored = self._recover_epochs(active.segment.next_offset)
        if self._syncs is not None:
            self._syncs.add(self._directory, self._paths_of(self._unsynced))
        _tell(self._directory, self.report, self._told)
        return Recovered(
            segments=segments,
            active=active,
            epochs=epochs,
            epochs_are_stored=stored,
            log_start_offset=max(self._log_start_offset, segments.first.base_offset),
            recovery_limit=self._limit,
            lost_end=self._lost_end,
            manifest=self._manifest,
            report=self.report,
        )

    def begin(self) -> Recovered:
        """For a folder that was made just now, and has nothing but its mark: nothing is read. Who made it
        syncs the folder when this has returned.
        """
        segment = self._create_file()
        self._require_keys(segment)
        return Recovered(
            segments=Segments(self._segments),
            active=ActiveSegment.empty(self._pool, segment),
            epochs=LeaderEpochs(),
            epochs_are_stored=True,
            log_start_offset=self._log_start_offset,
            recovery_limit=self._limit,
            lost_end=self._lost_end,
            manifest=self._manifest,
            report=self.report,
        )

    def _require_keys(self, segment: Segment) -> None:
        """Better no log than one that cannot be written, or read at its end. Raises
        EncryptionKeyMissing.
        """
        if self._settings.encrypts:
            self._pool.keys.require()
        if segment.key is not None:
            _ = segment.key.cipher

    def _bound_recovery_point(self) -> None:
        self._limit.load()
        if self._limit.bound(self._recovery_point) == self._recovery_point:
            self._limit.lift()  # the checkpoint is younger, or says no more
        self._recovery_point = self._limit.bound(self._recovery_point)

    def _find_segments(self) -> None:
        manifest = self._load_manifest()
        sizes = self._disk.sizes(self._directory)
        if settle_cleanings(self._disk, self._directory, sizes, self.report, self._manifest):
            sizes = self._disk.sizes(self._directory)
            manifest = self._manifest.stored or manifest
        sizes |= self._replace_missing(manifest, sizes)
        bases = segment_base_offsets(sizes)
        self._pool.clear_discarded(self._directory, sizes)
        self._remove_strays(sizes, set(bases))
        for base, end in zip(bases, [*bases[1:], bases[-1]] if bases else [], strict=True):
            stem = segment_stem(base)
            size, has_key = sizes[stem + LOG_SUFFIX], stem + KEY_SUFFIX in sizes
            if not sizes.get(stem + KEY_SUFFIX):
                self._keyless.add(base)
            self._segments.append(self._segment(base, end, size, has_key=has_key))
        self._remove([s for s in self._segments[:-1] if s.next_offset <= self._log_start_offset])

    def _load_manifest(self) -> LogManifest:
        """What it says; where there is none, of nothing."""
        try:
            self._manifest.load()
        except CorruptFile as error:
            self._is_known = True
            self.report.rebuilt.append(self._manifest.path)
            logger.error(MANIFEST_DAMAGED, extra={"problem": str(error)})
        known = self._manifest.stored or LogManifest()
        self._is_known |= self._manifest.stored is not None
        self._log_start_offset = max(self._log_start_offset, known.log_start_offset)
        self._recovery_point = max(self._recovery_point, known.active_offset, known.synced_end)
        return known

    def _replace_missing(self, manifest: LogManifest, sizes: dict[str, int]) -> dict[str, int]:
        """Empty files for those segments of which nothing is left, so that no offset is without
        one.
        """
        start, bases = self._log_start_offset, segment_base_offsets(sizes)
        expected = [it for it in manifest.sealed if it.end_offset > start]
        self._expected = {it.base_offset: it for it in expected}
        missing = [it.base_offset for it in expected if it.base_offset not in bases]
        active = manifest.active_offset
        if active not in (NO_SEGMENT, *bases) and not any(active < it <= start for it in bases):
            self._note_lost_end()
            logger.error(ACTIVE_SEGMENT_MISSING, extra={"file": self._path(active)})
            missing.append(active)
        first = min([*bases, *missing], default=start)
        if first > start and self._is_known:
            self._expected[start] = SealedSegment(start, first, UNKNOWN_BYTES)
            missing.append(start)
        for base in missing:
            self._disk.create(self._path(base)).close()
        if missing:
            self._disk.sync_directory(self._directory)
        return dict.fromkeys((segment_stem(base) + LOG_SUFFIX for base in missing), 0)

    def _path(self, base_offset: int) -> str:
        return f"{self._directory}/{segment_stem(base_offset)}{LOG_SUFFIX}"

    def _check_files(self) -> None:
        """Sealed segments below the recovery point that are not what they must be are damaged;
        others are read anyway. Without a manifest the ends of all are looked at.

        Names and sizes are compared here, but not the checksums of the first and last batches: a
        start must not read something of each segment. Nothing relies on a segment before they are
        compared: a first read does that, ``latest_time`` does it for retention, ``_recover_epochs``
        where it needs the batches, and the node looks at each log soon after it is open, see
        ``partition.maintenance.scrub_task``.
        """
        is_blind = self._manifest.stored is None
        for segment in self._segments[:-1]:
            expected = self._expected.get(segment.base_offset)
            if self._is_forged(segment):
                start, end = segment.base_offset, segment.next_offset
                damage = Damage(0, segment.size_bytes, start, end, FORGED)
                segment.damages, segment.unverified_bytes = (damage,), 0
                self.report.damages.append((segment.path, damage))
                continue
            if expected is not None:
                segment.ends = expected.ends
                has_key = segment.base_offset not in self._keyless
                if problem := _problem(segment, expected, has_key=has_key):
                    self._damaged(segment, expected.size_bytes, problem)
                continue
            is_synced = segment.next_offset <= self._recovery_point
            if is_blind and is_synced and not _ends_in_order(segment):
                self._damaged(segment, UNKNOWN_BYTES, "records are missing")

    def _is_forged(self, segment: Segment) -> bool:
        """It has no data key, and records in the clear, where all was encrypted. It was put there,
        whatever the manifest says, which an attacker who can do that can write, too. One that has a data
        key is looked at when it is read.
        """
        return (
            self._settings.encrypts_all
            and segment.key is None
            and segment.size_bytes > 0
            and segment.has_clear_records()
        )

    def _damaged(self, segment: Segment, size_bytes: int, problem: str) -> None:
        """Nothing is believed of a file of another size: it may be another log's, or an older one,
        whose checksums are right. One of the right size is read, to find what is left of it.
        """
        size = segment.size_bytes
        if size and size_bytes in (UNKNOWN_BYTES, size):
            segment.verify()
            self._told.add(segment.path)
        else:
            damage = Damage(0, size, segment.base_offset, segment.next_offset, problem)
            segment.damages, segment.unverified_bytes = (damage,), 0
        self.report.damages += [(segment.path, damage) for damage in segment.damages]

    def _store_manifest(self, segments: Segments) -> None:
        """As the folder is now. A full disk is no reason not to open."""
        known = self._manifest.stored
        for segment in segments.sealed():
            if not segment.damages and not segment.ends.is_known:
                segment.ends = segment.read_ends()
        sealed = tuple(
            self._expected[it.base_offset]
            if it.base_offset in self._expected and it.damages
            else it.as_sealed()
            for it in segments.sealed()
        )
        active = segments.last
        if known is None:
            is_needed = bool(sealed) or self._manifest.path in self.report.rebuilt
            is_needed |= active.base_offset > 0
        else:
            is_needed = (known.active_offset, known.sealed) != (active.base_offset, sealed)
            is_needed &= bool(sealed) or known.active_offset != NO_SEGMENT
            # The log begins again at a start that only the checkpoint of log starts knew. Should that
            # be lost, the manifest would call the records between its own start and this one missing,
            # and the log would end below offsets that it had given away.
            is_needed |= active.base_offset > known.log_start_offset and not sealed
            # Else each start would find again what is lost. Only once that is noted: until then the
            # manifest is all that knows of it.
            is_needed |= known.synced_end > active.next_offset and self._lost_end.is_noted
        if not is_needed:
            return
        start, end = self._log_start_offset, active.next_offset
        self._sync_now()
        try:
            self._manifest.write(LogManifest(start, active.base_offset, end, sealed))
        except OSError as error:
            if not is_full(error):
                raise

    def _segment(
        self, base_offset: int, next_offset: int, size_bytes: int, *, has_key: bool
    ) -> Segment:
        return Segment(
            self._pool,
            f"{self._directory}/{segment_stem(base_offset)}",
            base_offset=base_offset,
            next_offset=next_offset,
            size_bytes=size_bytes,
            interval_bytes=self._settings.index_interval_bytes,
            has_key=has_key,
            is_hidden=self._settings.encrypts_all,
        )

    def _create(self) -> ActiveSegment:
        segment = self._create_file()
        self._disk.sync_directory(self._directory)  # its name says which offset comes next
        return ActiveSegment.empty(self._pool, segment)

    def _create_file(self) -> Segment:
        interval_bytes = self._settings.index_interval_bytes
        start = self._log_start_offset
        segment = Segment.empty(self._pool, self._directory, start, interval_bytes)
        self._pool.create(segment.path)
        self._segments.append(segment)
        return segment

    def _recover_tail(self) -> ActiveSegment:
        """Read what may be torn; the last segment that is left becomes the active one."""
        at = sum(s.base_offset <= self._recovery_point for s in self._segments)
        unread = self._segments[max(at - 1, 0) :]
        for segment in unread:
            if self._is_forged(segment):
                raise StorageFailed(
                    f"{segment.path}: {FORGED}; find out who has access to it, and move the folder"
                    " away to have it fetched again"
                )
        if len(unread) == 1:
            found = resume(self._pool, unread[0], self._recovery_point)
            if found is not None and not found.key_problem:
                return self._resume(unread[0], found)
        self._epochs_read_from = unread[0].base_offset
        scanned: list[Segment] = []
        goes_on = True
        while unread and goes_on:
            segment = unread.pop(0)
            scanned.append(segment)
            found = self._rescan(segment, is_last=not unread)
            goes_on = self._settle(segment, found, is_last=not unread)
        assert found is not None
        if unread and not self._power_lost:
            self._note_lost_end()
        self._count_cut(unread)
        self._remove(list(reversed(unread)))
        self._unsynced = scanned
        if self._syncs is None or unread or self.report.cut_at is not None:
            self._sync_now()
        return self._activate(scanned[-1], found)

    def _rescan(self, segment: Segment, *, is_last: bool) -> TailScan:
        limit = None if is_last else segment.next_offset
        fences = CutRules(self._recovery_point, self._last_epoch, self._power_lost, limit)
        found = rescan(self._pool, segment, fences)
        self.report.scanned_segments += 1
        self.report.scanned_bytes += segment.size_bytes
        self._epoch_starts += found.epoch_starts
        if found.last is not None:
            self._last_epoch = found.last.leader_epoch
        if found.is_loss:
            self._note_lost_end()
        if found.cut is not None:
            self._cut(segment, found, found.cut)
        self._rewrite(segment, found.synced_position)
        if segment.key is not None and found.key_problem:
            self._pool.remove(segment.key.path)  # nothing opens by it, and a new one may come
            self.report.removed.append(segment_stem(segment.base_offset) + KEY_SUFFIX)
            segment.key = None
        return found

    def _note_lost_end(self, until: int = 0) -> None:
        """Before the folder forgets it. ``until``: see ``LostEnd``."""
        self.report.lost_end = True
        self._lost_end.note(until)

    def _cut(self, segment: Segment, found: TailScan, damage: Damage) -> None:
        if self.report.cut_at is None:
            self.report.cut_at = found.next_offset
            self.report.cut_file = segment.path
            self.report.cut_position = found.end_position
            self.report.cut_problem = damage.problem
        self.report.cut_bytes += segment.size_bytes - found.end_position
        pooled = self._pool.pin(segment.path)
        try:
            pooled.file.truncate(found.end_position)
        finally:
            self._pool.unpin(pooled)
        segment.size_bytes = found.end_position

    def _settle(self, segment: Segment, found: TailScan, *, is_last: bool) -> bool:
        """Note what is known of a segment now; whether the next one goes on where it ends."""
        hole = segment.next_offset - found.next_offset
        was_kept = found.next_offset < self._recovery_point or not self._power_lost
        if not is_last and hole > 0 and was_kept:
            end = segment.size_bytes
            lost = Damage(end, end, found.next_offset, segment.next_offset, "records are missing")
            found.damages.append(lost)
            found.next_offset = segment.next_offset
        self.report.damages += [(segment.path, damage) for damage in found.damages]
        segment.damages = tuple(found.damages)
        segment.unverified_bytes = 0
        goes_on = not is_last and found.next_offset == segment.next_offset
        problems = {
            path: problem
            for path, problem in found.index_problems.items()
            if goes_on or problem != MISSING
        }
        if goes_on:
            segment.mend_indexes(found.indexer, problems)
        else:
            self._pool.remove(*problems)
        self.report.rebuilt += problems
        return goes_on

    def _count_cut(self, segments: list[Segment]) -> None:
        if segments and self.report.cut_at is None:
            before = self._segments[self._segments.index(segments[0]) - 1]
            self.report.cut_at = segments[0].base_offset
            self.report.cut_file = before.path
            self.report.cut_position = before.size_bytes
            self.report.cut_problem = "the next segment does not begin where this one ends"
        self.report.cut_bytes += sum(segment.size_bytes for segment in segments)

    def _rewrite(self, segment: Segment, position: int) -> None:
        """Write again, as it is, what is not known to be on the disk.

        After a failed sync the page cache may hold as clean what the disk does not have: a sync
        alone would then succeed without writing anything. That goes for the size as well: a start
        that cut the file, and whose sync failed, leaves one that is longer on the disk.
        """
        pooled = self._pool.pin(segment.path)
        try:
            while position < segment.size_bytes:
                piece = pooled.file.pread(
                    min(_REWRITE_BYTES, segment.size_bytes - position), position
                )
                if not piece:
                    raise OSError(errno.EIO, f"it is shorter than {segment.size_bytes} bytes now")
                write_all(pooled.file, piece, position)
                position += len(piece)
        finally:
            self._pool.unpin(pooled)
        self._rewrite_size(segment)

    def _rewrite_size(self, segment: Segment) -> None:
        """So that the next sync writes it, whether it is known to be on the disk or not."""
        pooled = self._pool.pin(segment.path)
        try:
            pooled.file.truncate(segment.size_bytes + 1)
            pooled.file.truncate(segment.size_bytes)
        finally:
            self._pool.unpin(pooled)

    def _sync_now(self) -> None:
        """What a killed process left in the page cache counts as synced from now on."""
        segments, self._unsynced = self._unsynced, []
        if segments:
            sync_files(self._disk, self._pool, self._directory, self._paths_of(segments))

    def _paths_of(self, segments: list[Segment]) -> list[str]:
        keys = [segment.key.path for segment in segments if segment.key is not None]
        return [*(segment.path for segment in segments), *keys]

    def _resume(self, segment: Segment, found: TailScan) -> ActiveSegment:
        """The stored indexes are believed; the batches are verified when they are first read.

        It ends where all is synced. But a process before this one, or this one, may have cut it there, and
        failed to sync that: the kernel then takes the size for written, and the disk has a longer file, which
        would be damaged once it is sealed.
        """
        self._rewrite_size(segment)
        active = self._activate(segment, found)
        segment.unverified_bytes = segment.size_bytes
        active.indexes_are_stored = found.indexes_are_stored
        if segment.key is not None:
            # Its file may be there, and not on the disk: made for a batch that found no room.
            segment.key.is_unsynced = True
        return active

    def _activate(self, segment: Segment, found: TailScan) -> ActiveSegment:
        segment.next_offset = segment.unverified_end = found.next_offset
        segment.unverified_bytes = 0
        active = ActiveSegment(self._pool, segment, found.indexer)
        if found.last is not None:
            active.last_timestamp_ms = found.last.max_timestamp_ms
        if segment.size_bytes:
            active.first_timestamp_ms = self._first_timestamp(segment)
        return active

    def _first_timestamp(self, segment: Segment) -> int | None:
        pooled = self._pool.pin(segment.path)
        try:
            size, base = segment.size_bytes, segment.base_offset
            place = next(scan(pooled.file, 0, size, base, check_crc=False), None)
        finally:
            self._pool.unpin(pooled)
        return place.max_timestamp_ms if isinstance(place, BatchPlace) else None

    def _recover_epochs(self, end_offset: int) -> tuple[LeaderEpochs, bool]:
        """The epochs, and whether the checkpoint has just these."""
        path = f"{self._directory}/{EPOCHS_NAME}"
        epochs, data, known = None, b"", None
        with contextlib.suppress(FileNotFoundError, CorruptFile):
            data = self._disk.read_small(path)
            epochs = LeaderEpochs.decode(data, path)
            known = epochs.entries
        if epochs is not None:
            epochs.truncate(min(end_offset, self._epochs_read_from))
            before = self._epoch_before(self._epochs_read_from)
            if before not in (NO_EPOCH, epochs.latest) or self._begins_before(epochs):
                epochs = None
        if epochs is not None:
            for epoch, offset in self._epoch_starts:
                epochs.assign(epoch, offset)
        else:
            self._compare_ends()
            epochs = epochs_of_batches(self._pool, [it for it in self._segments if not it.is_lost])
            if end_offset > self._segments[0].base_offset:
                self.report.rebuilt.append(path)
        is_true = known is not None and epochs.entries[: len(known)] == known
        epochs.advance_start(max(self._log_start_offset, self._segments[0].base_offset))
        if self._syncs is not None and (is_true or not data):
            # The file lacks epochs, as it does after any append of a new one, and all that it has
            # is so. The next sync of the log stores them, together with those of other logs.
            return epochs, epochs.encode() == data or not (data or epochs.entries)
        return epochs, self._store(epochs, path, data)

    def _compare_ends(self) -> None:
        """So that no epoch is taken from another log's batches. What the disk does not read is for
        its readers to tell.
        """
        for segment in self._segments[:-1]:
            if segment.damages or segment.verified:
                continue
            with contextlib.suppress(OSError):
                if segment.has_other_ends():
                    self._damaged(segment, segment.size_bytes, OTHER_BATCHES)

    def _begins_before(self, epochs: LeaderEpochs) -> bool:
        """Whether there are batches of epochs that the checkpoint does not have.

        It forgets the epochs below a log start, and that may be lost: the metadata log keeps none,
        and a damaged checkpoint of log starts counts as empty. Such a log would tell a follower
        that an epoch it never had ended where the first known one begins, and the follower would
        keep records that are not the leader's. A compacted log may begin with a gap, though.
        """
        start = max(self._log_start_offset, self._segments[0].base_offset)
        if not epochs.entries or epochs.entries[0].start_offset <= start:
            return False
        segment = self._segments[0]
        pooled = self._pool.pin(segment.path)
        try:
            for place in scan(
                pooled.file, 0, segment.size_bytes, segment.base_offset, check_crc=False
            ):
                if not isinstance(place, BatchPlace):
                    return False
                if place.next_offset > start:
                    return place.base_offset < epochs.entries[0].start_offset
        finally:
            self._pool.unpin(pooled)
        return False

    def _epoch_before(self, offset: int) -> int:
        """The epoch of the last batch in the segments that begin below ``offset``."""
        for segment in reversed(self._segments):
            if segment.base_offset < offset and (tail := list(segment.tail())):
                return tail[-1].leader_epoch
        return NO_EPOCH

    def _store(self, epochs: LeaderEpochs, path: str, data: bytes) -> bool:
        """Whether the checkpoint has these epochs now; a full disk is no reason not to open."""
        encoded = epochs.encode()
        if encoded != data and (data or epochs.entries):
            try:
                self._disk.write_small(path, encoded)
            except OSError as error:
                if not is_full(error):
                    raise
                return False
        return True

    def _remove_strays(self, sizes: dict[str, int], bases: set[int]) -> None:
        """Half-written small files, and indexes and keys whose segment is gone."""
        for name in sizes:
            base = base_offset_of(name)
            is_beside = name.endswith((INDEX_SUFFIX, TIME_INDEX_SUFFIX, KEY_SUFFIX))
            orphan = is_beside and base is not None and base not in bases
            if orphan or name.endswith(TEMPORARY_SUFFIX):
                with contextlib.suppress(FileNotFoundError):  # replaced since it was listed
                    self._disk.unlink(f"{self._directory}/{name}")
                self.report.removed.append(name)

    def _remove(self, segments: list[Segment]) -> None:
        """In this order, which is from an end of the log inwards: a crash leaves no hole."""
        for segment in segments:
            self._pool.discard(*segment.paths)
            self._segments.remove(segment)
            if segment in self._unsynced:
                self._unsynced.remove(segment)
            self.report.removed.append(segment_stem(segment.base_offset) + LOG_SUFFIX)


def _problem(segment: Segment, expected: SealedSegment, *, has_key: bool) -> str:
    """Why it is not the segment that was stored, as far as the folder tells that."""
    if not segment.size_bytes:
        return "the file is missing, or was emptied"
    if expected.size_bytes == UNKNOWN_BYTES:
        return "it was damaged before"
    if segment.size_bytes != expected.size_bytes:
        return f"it has {segment.size_bytes} bytes, and {expected.size_bytes} were stored"
    if expected.has_key and not has_key:
        return "its data key is missing"
    return ""


def _ends_in_order(segment: Segment) -> bool:
    """Where the next one begins, and its file with that. Raises OSError."""
    places = [(it.next_offset, it.end_position) for it in segment.tail()]
    return places[-1:] == [(segment.next_offset, segment.size_bytes)]


def _tell(directory: str, report: RecoveryReport, told: set[str]) -> None:
    """One log line for each thing that an operator should know; the damages in files that were
    ``told`` have theirs.
    """
    if report.cut_at is not None:
        logger.warning(
            LOG_CUT_AT_START,
            extra={
                "file": report.cut_file,
                "position": report.cut_position,
                "offset": report.cut_at,
                "bytes": report.cut_bytes,
                "problem": report.cut_problem,
            },
        )
    if report.lost_end:
        logger.error(END_LOST, extra={"directory": directory})
    if report.lost_synced:
        logger.error(
            SYNCED_RECORDS_MISSING,
            extra={"directory": directory, "records": report.lost_synced},
        )
    for path, damage in report.damages:
        if path not in told:
            tell_damage(path, damage)
    for path in report.rebuilt:
        logger.warning(FILE_REBUILT, extra={"file": path})


def epochs_of_batches(pool: FilePool, segments: list[Segment]) -> LeaderEpochs:
    """The leader epochs as the batches tell them, for when the checkpoint is of no use. Raises
    OSError.

    One header of each segment is read, and all headers only of those in which the epoch changes.
    """
    epochs = LeaderEpochs()
    firsts = [_first(pool, segment) for segment in segments]
    following = [*firsts[1:], None]
    for segment, first, after in zip(segments, firsts, following, strict=True):
        if first is not None and after is not None and first.leader_epoch == after.leader_epoch:
            epochs.assign(first.leader_epoch, first.base_offset)
        else:
            _assign_all(pool, segment, epochs)
    return epochs


def _first(pool: FilePool, segment: Segment) -> BatchPlace | None:
    pooled = pool.pin(segment.path)
    try:
        place = next(
            scan(pooled.file, 0, segment.size_bytes, segment.base_offset, check_crc=False), None
        )
    finally:
        pool.unpin(pooled)
    return place if isinstance(place, BatchPlace) else None


def _assign_all(pool: FilePool, segment: Segment, epochs: LeaderEpochs) -> None:
    pooled = pool.pin(segment.path)
    try:
        for place in scan(pooled.file, 0, segment.size_bytes, segment.base_offset, check_crc=False):
            if isinstance(place, Damage):
                break
            epochs.assign(place.leader_epoch, place.base_offset)
    finally:
        pool.unpin(pooled)
