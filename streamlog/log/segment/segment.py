"""A segment (Kafka's LogSegment): a run of batches in a file named by its base offset, with two sparse
indexes.

- ``Indexer`` makes the indexes out of the batches, one after the other.
- ``scrub`` and ``IndexCheck`` check all batches, and the stored indexes against them. Blocking; meant for
  a worker thread.
- ``Segment`` reads, and is verified before what this process did not write is believed.
- ``ActiveSegment`` writes to the last one of a log, until it is sealed.
"""

import contextlib
import errno
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from streamlog.condition import RECORDS_DAMAGED, Condition
from streamlog.errors import BrokenInvariant, CorruptBatch, CorruptData, CorruptFile, StorageFailed
from streamlog.log.compiled.log_end import (
    ActiveEnd,
    IndexerEnd,
    SegmentEnd,
    wants_new_segment,
)
from streamlog.log.encryption.cipher import BatchCipher
from streamlog.log.encryption.segment_key import KEY_MISSING, NEVER, SegmentKey, key_problem
from streamlog.log.layout import (
    INDEX_SUFFIX,
    KEY_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_stem,
)
from streamlog.log.manifest import UNKNOWN_BYTES, SealedSegment
from streamlog.log.segment.batch_scan import (
    BatchPlace,
    Damage,
    base_offset_at,
    find_batch,
    find_boundary,
    scan,
    scan_past_damage,
)
from streamlog.log.segment.end_checksums import (
    OTHER_BATCHES,
    UNKNOWN_ENDS,
    EndChecksums,
    read_end_checksums,
)
from streamlog.log.segment.file_slice import DECRYPTED_BYTES_MAX, FileSlice
from streamlog.log.segment.index import (
    FIRST,
    OFFSET_ENTRY,
    SECOND,
    TIME_ENTRY,
    Entry,
    Index,
    IndexEntries,
    IndexFile,
)
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import Disk, DiskFile, FileState, is_full, storage_error
from streamlog.log.storage.file_pool import FilePool
from streamlog.record.batch import ENCRYPTED, HEADER_BYTES

logger = logging.getLogger(__name__)

INDEX_REBUILT: Final = Condition(
    "SL-0313",
    "index rebuilt",
    "nothing; look at the disk if it happens again",
    meaning="The index of a segment did not fit its batches.",
)
INDEX_WRONG: Final = Condition(
    "SL-0314",
    "index entry is wrong",
    "nothing: it was found in the log; look at the disk",
    meaning="An entry of an index pointed to another batch.",
)

_HINTS_MAX: Final = 64


NO_TIMESTAMP: Final = -1


class Indexer(IndexerEnd):
    """Builds a segment's two indexes from its batches, one after the other."""

    __slots__ = ("_stored",)

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.offsets = IndexEntries(OFFSET_ENTRY)
        self.times = IndexEntries(TIME_ENTRY)
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset  # last offset of the batch that first reached it
        self._bytes_since_entry = 0
        self._stored = (0, 0)  # how many entries were let go

    def add_place(self, place: BatchPlace) -> None:
        self.add(place.position, place.end_position, place.next_offset, place.max_timestamp_ms)

    def let_go(self) -> None:
        """Of the entries, which are stored; nothing is added before ``take_back``."""
        self._stored = len(self.offsets), len(self.times)
        self.offsets, self.times = IndexEntries(OFFSET_ENTRY), IndexEntries(TIME_ENTRY)

    def take_back(self, offsets: IndexEntries, times: IndexEntries) -> None:
        """What was let go, from where it was stored. Raises CorruptFile if it is not that."""
        last = times.last()
        told = NO_TIMESTAMP if last is None else last[0]
        if self._stored != (len(offsets), len(times)) or told != self.max_timestamp_ms:
            raise CorruptFile(f"{len(offsets)} and {len(times)} entries are not what was stored")
        self.offsets, self.times = offsets, times

    @classmethod
    def resume(
        cls, base_offset: int, interval_bytes: int, offsets: IndexEntries, times: IndexEntries
    ) -> "Indexer":
        """Go on from entries that were stored, at the batch of the last offset entry."""
        indexer = cls(base_offset, interval_bytes)
        indexer.offsets = offsets
        indexer.times = times
        if last := times.last():
            indexer.max_timestamp_ms = last[0]
            indexer.max_timestamp_offset = base_offset + last[1]
        return indexer


MISSING: Final = "is missing"

_MISSING_TAIL_MAX: Final = 2
"""A sealed index counts as cut short if so many entries are missing at its end."""


class _Audit:
    """Holds stored indexes against the batches of their segment, one batch after the other."""

    def __init__(
        self, base_offset: int, offsets: IndexEntries | None, times: IndexEntries | None
    ) -> None:
        """None stands for a file that is missing or cannot be read."""
        self.offsets_are_true = offsets is not None
        self.times_are_true = times is not None
        self._base_offset = base_offset
        self._offsets: Iterator[Entry] = iter(offsets or ())
        self._times: Iterator[Entry] = iter(times or ())
        self._offset_entry = next(self._offsets, None)
        self._time_entry = next(self._times, None)
        self._latest_ms = NO_TIMESTAMP
        self._told_ms = NO_TIMESTAMP
        self._to_be_told_ms = NO_TIMESTAMP

    @property
    def lacks_times(self) -> bool:
        """With each offset entry comes one for the latest time, unless there is one."""
        return self._told_ms < self._to_be_told_ms

    def add(self, place: BatchPlace) -> None:
        last_offset = place.next_offset - 1 - self._base_offset
        entry = self._offset_entry
        if entry is not None and entry[1] <= place.position:
            self.offsets_are_true &= entry == (last_offset, place.position)
            self._offset_entry = next(self._offsets, None)
        timed = self._time_entry
        if timed is not None and timed[1] <= last_offset:
            self.times_are_true &= timed == (place.max_timestamp_ms, last_offset)
            self.times_are_true &= timed[0] > self._latest_ms
            self._told_ms = timed[0]
            self._time_entry = next(self._times, None)
        self._latest_ms = max(self._latest_ms, place.max_timestamp_ms)
        if entry is not None and entry[0] == last_offset:
            self._to_be_told_ms = self._latest_ms

    def finish(self) -> None:
        """An entry that no batch has claimed is wrong."""
        self.offsets_are_true &= self._offset_entry is None
        self.times_are_true &= self._time_entry is None


class IndexCheck:
    """Builds a segment's indexes from its batches, and says what is wrong with the files'."""

    def __init__(self, disk: Disk, stem_path: str, base_offset: int, interval_bytes: int) -> None:
        self.indexer = Indexer(base_offset, interval_bytes)
        self.problems: dict[str, str] = {}  # by path
        self._offset_path = stem_path + INDEX_SUFFIX
        self._time_path = stem_path + TIME_INDEX_SUFFIX
        self._offsets = self._load(disk, self._offset_path, OFFSET_ENTRY)
        self._times = self._load(disk, self._time_path, TIME_ENTRY)
        self._audit = _Audit(base_offset, self._offsets, self._times)

    def _load(self, disk: Disk, path: str, entry: Struct) -> IndexEntries | None:
        try:
            return IndexEntries.load(disk.read_small(path), entry, path)
        except FileNotFoundError:
            self.problems[path] = MISSING
        except CorruptFile as error:
            self.problems[path] = str(error)
        return None

    def add(self, place: BatchPlace) -> None:
        self.indexer.add_place(place)
        self._audit.add(place)

    def contradictions(self) -> dict[str, str]:
        """What is wrong so far, by path: of a segment that grows the files may know more by now."""
        if self._offsets is not None and not self._audit.offsets_are_true:
            self.problems[self._offset_path] = "an entry points to no such batch"
        if self._times is not None and not self._audit.times_are_true:
            self.problems[self._time_path] = "an entry tells a wrong time"
        elif self._times is not None and self._offsets is not None and self._audit.lacks_times:
            self.problems[self._time_path] = "its end is missing"
        return {path: problem for path, problem in self.problems.items() if problem != MISSING}

    def finish(self, *, sealed: bool) -> dict[str, str]:
        """What is wrong, by path.

        Only a sealed segment's indexes must be there and reach its end.
        """
        self._audit.finish()
        found = self.contradictions()
        if sealed:
            self.indexer.note_time()
            self._check_ends()
            return self.problems
        return found

    def _check_ends(self) -> None:
        ours, theirs = self.indexer, self._offsets
        if theirs is not None:
            last = theirs.last()
            reached = ours.offsets.count_up_to(SECOND, last[1] if last else -1)
            missing = len(ours.offsets) - reached
            if missing >= _MISSING_TAIL_MAX or (missing and not reached):
                self.problems.setdefault(self._offset_path, "its end is missing")
        if self._times is not None and self._times.last() != ours.times.last():
            self.problems.setdefault(self._time_path, "its end is missing")


def without_key(
    found: Iterable[BatchPlace | Damage], key_problem: str
) -> Iterator[BatchPlace | Damage]:
    """What was ``found``, but encrypted batches are damages if there is a problem with their key;
    those next to each other are one.
    """
    pending: Damage | None = None
    for item in found:
        if key_problem and isinstance(item, BatchPlace) and item.attributes & ENCRYPTED:
            first = pending or Damage(item.position, 0, item.base_offset, 0, key_problem)
            pending = first._replace(end_position=item.end_position, end_offset=item.next_offset)
            continue
        if pending is not None:
            yield pending
            pending = None
        yield item
    if pending is not None:
        yield pending


def scrub(
    file: DiskFile,
    size_bytes: int,
    end_offset: int | None,
    check: IndexCheck,
    *,
    key_problem: str,
) -> tuple[Damage, ...]:
    """The damages in a segment's first ``size_bytes``, which should end at ``end_offset`` if known.

    ``key_problem``: see ``without_key``. Raises OSError.
    """
    damages = []
    found = scan_past_damage(file, 0, size_bytes, check.indexer.base_offset, end_offset)
    for item in without_key(found, key_problem):
        if isinstance(item, Damage):
            damages.append(item)
        else:
            check.add(item)
    return tuple(damages)


def tell_damage(path: str, damage: Damage) -> None:
    """The log line by which an operator learns of it."""
    logger.error(
        RECORDS_DAMAGED.logged_as("damaged batch, not served"),
        extra={
            "file": path,
            "position": damage.position,
            "offset": damage.offset,
            "end_offset": damage.end_offset,
            "problem": damage.problem,
        },
    )


class Rebuilt(NamedTuple):
    """True indexes of the batches up to a position of a segment that grows."""

    indexer: Indexer
    end_position: int
    next_offset: int


class Segment(SegmentEnd):
    """Reads from one segment. Its log's owner alone uses it, but for ``verify``.

    Bytes that this process did not write are not trusted before ``verify`` has checked them; until
    then the indexes may be wrong as well.
    """

    __slots__ = (
        "_hints",
        "_index_writing",
        "_lock",
        "_pool",
        "compared",
        "cuts",
        "damages",
        "ends",
        "interval_bytes",
        "is_retired",
        "offsets",
        "rebuilt",
        "sealed",
        "stem_path",
        "times",
        "unverified_bytes",
        "unverified_end",
    )

    def __init__(
        self,
        pool: FilePool,
        stem_path: str,
        *,
        base_offset: int,
        next_offset: int,
        size_bytes: int,
        interval_bytes: int,
        has_key: bool = False,
        is_hidden: bool = False,
    ) -> None:
        """``has_key``: there is a file of its data key. ``is_hidden``: all of it is encrypted."""
        self.stem_path = stem_path
        self.path = stem_path + LOG_SUFFIX
        self.base_offset = base_offset
        self.next_offset = next_offset  # the base offset of the next segment, once sealed
        self.size_bytes = size_bytes
        self.interval_bytes = interval_bytes
        self.sealed = True  # nothing more is written; an ``ActiveSegment`` says otherwise
        self.cuts = 0  # how often it was cut
        self.ends = UNKNOWN_ENDS  # of a sealed segment, as it was stored
        self.compared: FileState | None = None  # the file that was last found to have these
        self.damages: tuple[Damage, ...] = ()  # in order; what is in them is never served
        self.rebuilt: Rebuilt | None = None  # those in use were found wrong; see ``ActiveSegment``
        self.unverified_bytes = size_bytes  # the first so many bytes are not yet checked
        self.unverified_end = next_offset  # ... and should end at this offset
        self.offsets: Index = IndexFile(pool, self.index_path, OFFSET_ENTRY)
        self.times: Index = IndexFile(pool, self.time_index_path, TIME_ENTRY)
        self.key = None  # of encrypted batches
        if has_key:
            since_max = base_offset if is_hidden else NEVER
            self.key = SegmentKey(pool, self.key_path, since_max=since_max)
        self._pool = pool
        self._hints: dict[int, int] = {}  # base offset -> position, where reads ended
        self.is_retired = False  # its files are gone, or another segment's
        self._lock = threading.Lock() if size_bytes else None  # of ``verify``
        self._index_writing = threading.Lock() if size_bytes else None  # ``retire`` waits for it

    @classmethod
    def empty(
        cls, pool: FilePool, directory: str, base_offset: int, interval_bytes: int
    ) -> "Segment":
        """One whose file is yet to be made."""
        return cls(
            pool,
            f"{directory}/{segment_stem(base_offset)}",
            base_offset=base_offset,
            next_offset=base_offset,
            size_bytes=0,
            interval_bytes=interval_bytes,
        )

    @property
    def index_path(self) -> str:
        return self.stem_path + INDEX_SUFFIX

    @property
    def time_index_path(self) -> str:
        return self.stem_path + TIME_INDEX_SUFFIX

    @property
    def key_path(self) -> str:
        return self.stem_path + KEY_SUFFIX

    @property
    def paths(self) -> tuple[str, ...]:
        paths = self.path, self.index_path, self.time_index_path
        return paths if self.key is None else (*paths, self.key.path)

    @property
    def written_paths(self) -> tuple[str, ...]:
        """What an active segment has in files, and not only in memory, since the last sync."""
        is_new = self.key is not None and self.key.is_unsynced
        return (self.path, self.key_path) if is_new else (self.path,)

    def has_clear_records(self) -> bool:
        """Some whole batch with records is not encrypted. Raises OSError.

        The header of one that is not whole tells nothing: power that is lost while an encrypted batch is
        written may leave a header whose attributes are zeros, and no file of its key. No reader takes
        such a batch for one, so that none can be forged with it.
        """
        pooled = self._pool.pin(self.path)
        try:
            places = scan_past_damage(pooled.file, 0, self.size_bytes, self.base_offset)
            return any(
                isinstance(it, BatchPlace)
                and not it.attributes & ENCRYPTED
                and it.end_position - it.position > HEADER_BYTES
                for it in places
            )
        finally:
            self._pool.unpin(pooled)

    @property
    def verified(self) -> bool:
        return not self.unverified_bytes

    @property
    def is_lost(self) -> bool:
        """All of it is damaged: its file is missing, or is not the one that was stored."""
        return any(it.position == 0 and it.end_position >= self.size_bytes for it in self.damages)

    def as_sealed(self) -> SealedSegment:
        """As the manifest names it. One that is known to be damaged is looked at by each start."""
        size_bytes = UNKNOWN_BYTES if self.damages else self.size_bytes
        has_key, ends = self.key is not None, UNKNOWN_ENDS if self.damages else self.ends
        return SealedSegment(self.base_offset, self.next_offset, size_bytes, has_key, ends)

    def read_ends(self) -> EndChecksums:
        """What its file has; unknown where that does not end as the segment does, is gone, or the
        disk does not read it: its readers tell that. Raises OSError.
        """
        try:
            return self._read_ends()
        except OSError as error:
            if error.errno not in (errno.EIO, errno.ENOENT):
                raise
            return UNKNOWN_ENDS

    def has_other_ends(self) -> bool:
        """Its first or last batch is not the one that was stored. Raises OSError."""
        if not self.ends.is_known:
            return False
        pooled = self._pool.pin(self.path)
        try:
            return bool(self.ends.differing(pooled.file))
        finally:
            self._pool.unpin(pooled)

    def _read_ends(self) -> EndChecksums:
        last = next(reversed(list(self.tail())), None)
        if last is None or last.end_position != self.size_bytes:
            return UNKNOWN_ENDS
        if last.next_offset != self.next_offset:
            return UNKNOWN_ENDS
        pooled = self._pool.pin(self.path)
        try:
            return read_end_checksums(pooled.file, last.position)
        finally:
            self._pool.unpin(pooled)

    def key_problem(self) -> str:
        """Why what is encrypted in it cannot be read; see ``segment_key``. Raises OSError."""
        return key_problem(self._pool.disk, self.key_path) if self.key else KEY_MISSING

    def verify(self) -> None:
        """Check all batches that are not known to be good, and the indexes.

        Blocking; from any thread; needed once. A segment that is retired meanwhile stays as it was:
        what was read may be another one's. Raises StorageFailed if the file cannot be read.
        """
        if self._lock is None:
            return
        with self._lock:
            if not self.unverified_bytes:
                return
            try:
                self._verify()
            except OSError as error:
                if not self.is_retired:
                    raise storage_error(error, self.path) from error

    def retire(self) -> None:
        """The files are about to be removed, or to be another segment's. A check that runs neither
        believes what it reads of them from now on, nor writes any. Waits while one writes an index.
        """
        if self._index_writing is None:
            self.is_retired = True
            return
        with self._index_writing:
            self.is_retired = True

    def _verify(self) -> None:
        sealed = self.sealed
        size_bytes, end_offset = self.unverified_bytes, self.unverified_end
        if sealed:  # perhaps since then; its indexes tell of all of it
            size_bytes, end_offset = self.size_bytes, self.next_offset
        check = IndexCheck(self._pool.disk, self.stem_path, self.base_offset, self.interval_bytes)
        pooled = self._pool.pin(self.path)
        try:
            problem = self.key_problem()
            damages = self._widened(
                scrub(pooled.file, size_bytes, end_offset, check, key_problem=problem)
            )
            if sealed:
                damages = self._held_against_ends(pooled.file, damages)
        finally:
            self._pool.unpin(pooled)
        assert self._index_writing is not None, "a segment with bytes has it"
        with self._index_writing:
            if self.is_retired:
                return
            for damage in damages:
                tell_damage(self.path, damage)
            if sealed:
                self.max_timestamp_ms = check.indexer.max_timestamp_ms
                problems = check.finish(sealed=True)
                self.mend_indexes(check.indexer, problems)
            else:
                problems = check.contradictions()
                if problems:
                    self.rebuilt = Rebuilt(check.indexer, size_bytes, end_offset)
            for path, problem in problems.items():
                logger.warning(INDEX_REBUILT, extra={"file": path, "problem": problem})
            end = self.size_bytes + 1 if sealed else self.unverified_bytes  # it may have been cut
            self.damages = tuple(damage for damage in damages if damage.position < end)
            self.unverified_bytes = 0

    def recheck(self, pause: Callable[[int], None]) -> tuple[Damage, ...]:
        """What is damaged now, good once or not, in what is there by now. Nothing is noted.

        Blocking; from any thread, beside whatever else is done. ``pause`` is called before so many
        bytes are read. Raises OSError, where the segment was removed as well.
        """
        size_bytes, end_offset = self.size_bytes, self.next_offset if self.sealed else None
        next_offset = self.next_offset
        pooled = self._pool.pin(self.path)
        try:
            file = _PacedFile(pooled.file, pause)
            found = scan_past_damage(file, 0, size_bytes, self.base_offset, end_offset)
            problem = self.key_problem()
            damages = self._widened(
                tuple(
                    # what reaches to the end hides all to the end, also where its header is gone
                    it._replace(end_offset=max(it.end_offset, next_offset))
                    if it.end_position == size_bytes
                    else it
                    for it in without_key(found, problem)
                    if isinstance(it, Damage)
                )
            )
            return self._held_against_ends(pooled.file, damages)
        finally:
            self._pool.unpin(pooled)

    def _widened(self, damages: tuple[Damage, ...]) -> tuple[Damage, ...]:
        """Bytes behind the batch that ends at the segment's end were never written, so the batches
        are another log's, whose checksums are right, too: all of the segment is damaged. Cutting
        behind its last record would repair nothing.
        """
        end = self.next_offset
        behind = next(
            (
                it
                for it in damages
                if it.offset >= end > self.base_offset and it.end_position > it.position
            ),
            None,
        )
        if behind is None:
            return damages
        return (Damage(0, self.size_bytes, self.base_offset, end, behind.problem),)

    def _held_against_ends(self, file: DiskFile, damages: tuple[Damage, ...]) -> tuple[Damage, ...]:
        """``damages``, which were found in ``file``; all of it, if it is not what was stored.

        It is the stored one, in spite of a checksum that differs, where that batch is damaged and
        the other end fits.
        """
        ends = self.ends
        differing = ends.differing(file)
        unexplained = [
            it for it in differing if not any(d.position <= it < d.end_position for d in damages)
        ]
        if unexplained or (differing and differing == ends.positions):
            start, end = self.base_offset, self.next_offset
            return (Damage(0, self.size_bytes, start, end, OTHER_BATCHES),)
        return damages

    def note_damages(self, damages: tuple[Damage, ...]) -> None:
        """What was good once, and is no more."""
        for damage in damages:
            tell_damage(self.path, damage)
        self.damages = damages
        self._hints.clear()

    def mend_indexes(self, indexer: Indexer, paths: Iterable[str]) -> None:
        """Replace the index files that are wrong; where the disk is full, by indexes in memory.

        Raises OSError.
        """
        packed = {
            self.index_path: indexer.offsets.packed(),
            self.time_index_path: indexer.times.packed(),
        }
        try:
            for path in paths:
                self._pool.disk.write_small(path, packed[path])
                self._pool.forget(path)
            self.open_indexes()
        except OSError as error:
            if not is_full(error):
                raise
            self.offsets, self.times = indexer.offsets, indexer.times

    def let_go(self) -> None:
        """Of the files; one that is needed is opened again."""
        for path in self.paths:
            self._pool.forget(path)

    def open_indexes(self) -> None:
        """Search the index files from now on."""
        self.offsets = IndexFile(self._pool, self.index_path, OFFSET_ENTRY)
        self.times = IndexFile(self._pool, self.time_index_path, TIME_ENTRY)

    def slice(self, offset: int, max_bytes: int, upper_offset: int) -> FileSlice:
        """Whole batches, first the one with ``offset``, none that ends above ``upper_offset``.

        About ``max_bytes`` at most, but the first batch comes whole. Raises CorruptBatch and
        OSError.
        """
        if self.unverified_bytes:
            raise BrokenInvariant("a segment is verified before it is read")
        if self.key is not None:
            max_bytes = min(max_bytes, DECRYPTED_BYTES_MAX)
        position, _ = self.locate(offset)
        pooled = self._pool.pin(self.path)
        try:
            stop, stop_offset = self.size_bytes, self.next_offset
            for damage in self.damages:
                if damage.position > position:
                    stop, stop_offset = damage.position, damage.offset
                    break
            if upper_offset < stop_offset:
                stop, stop_offset = self.locate(upper_offset)
            bound, limit = stop, position + max_bytes
            if bound > limit and bound > position:
                stop, stop_offset = self._boundary(pooled.file, position, bound, limit)
            # One that was cut under the node must not end an answer in the middle. Where the slice
            # ends before both, the header of the next batch was read there.
            if stop >= min(limit, bound) and pooled.file.size() < stop:
                raise CorruptBatch(f"{self.path}: the file is too short")
            if not self.damages:  # or the hint could lead into one
                self.hint(stop_offset, stop)
        except BaseException:
            self._pool.unpin(pooled)
            raise
        if stop == position:
            self._pool.unpin(pooled)
            return FileSlice(self._pool, None, 0, 0)
        return FileSlice(
            self._pool, pooled, position, stop - position, self.key, end_offset=stop_offset
        )

    def part(self, position: int, length: int) -> FileSlice:
        """Of a segment that is not encrypted, any bytes that are known to be there. Raises OSError."""
        return FileSlice(self._pool, self._pool.pin(self.path), position, length)

    def read_batch(self, place: BatchPlace) -> bytes | memoryview:
        """A batch as it was appended. Raises CorruptData, OSError, EncryptionKeyMissing."""
        pooled = self._pool.pin(self.path)
        try:
            batch = pooled.file.pread(place.end_position - place.position, place.position)
        finally:
            self._pool.unpin(pooled)
        return self.opened(batch)

    def opened(self, batch: bytes | memoryview) -> bytes | memoryview:
        """One of its batches, whole, as it was appended. Raises as above."""
        if self.key is None:
            return batch
        try:
            return self.key.cipher.decrypted(batch)
        except CorruptBatch as error:
            raise CorruptBatch(f"{self.path}: {error}") from None

    def locate(self, offset: int) -> tuple[int, int]:
        """Position and base offset of the batch with ``offset``. Raises CorruptBatch, OSError."""
        hint = self._hints.get(offset)
        if hint is not None:
            return hint, offset
        if offset == self.base_offset and not self.damages:
            return 0, offset
        low, high = self._whole_range(offset)
        entry = self.offsets.floor(FIRST, offset - self.base_offset)
        start = max(low, entry[1]) if entry else low
        try:
            position, _, base_offset, _ = self._find(start, high, offset)
        except CorruptBatch:
            if start == low:
                raise
            logger.warning(INDEX_WRONG, extra={"file": self.index_path, "offset": offset})
            position, _, base_offset, _ = self._find(low, high, offset)
        return position, base_offset

    def places(self, offset: int) -> Iterator[BatchPlace]:
        """The undamaged batches from the one with ``offset`` on. Raises CorruptBatch, OSError.

        Headers only; nothing may be written to the segment before the last one was taken.
        """
        for damage in (*self.damages, None):
            end = damage.position if damage else self.size_bytes
            end_offset = damage.offset if damage else self.next_offset
            if offset < end_offset:
                position, base_offset = self.locate(offset)
                yield from self._places(position, base_offset, end)
            if damage:
                offset = max(offset, damage.end_offset)

    def _places(self, position: int, base_offset: int, end: int) -> Iterator[BatchPlace]:
        pooled = self._pool.pin(self.path)
        try:
            for place in scan(pooled.file, position, end, base_offset, check_crc=False):
                if not isinstance(place, BatchPlace):
                    raise CorruptBatch(f"{self.path} position {place.position}: {place.problem}")
                yield place
        finally:
            self._pool.unpin(pooled)

    def head(self) -> Iterator[BatchPlace]:
        """The batches from the first one on, up to a damage; verified or not. Raises OSError."""
        yield from self.since(0, self.base_offset)

    def since(self, position: int, base_offset: int) -> Iterator[BatchPlace]:
        """The same, from the batch that begins there on."""
        pooled = self._pool.pin(self.path)
        try:
            yield from self._headers(pooled.file, position, base_offset)
        finally:
            self._pool.unpin(pooled)

    def tail(self) -> Iterator[BatchPlace]:
        """The batches from the last one in the offset index on, up to a damage. Raises OSError.

        Verified or not: where the index does not fit, all batches come.
        """
        try:
            last = self.offsets.last()
        except CorruptData:
            last = None
        pooled = self._pool.pin(self.path)
        try:
            position, base_offset = 0, self.base_offset
            if last is not None and last[1] < self.size_bytes:
                found = base_offset_at(pooled.file, last[1])
                place = next(self._headers(pooled.file, last[1], found), None)
                if place is not None and place.next_offset == self.base_offset + last[0] + 1:
                    position, base_offset = last[1], found
            yield from self._headers(pooled.file, position, base_offset)
        finally:
            self._pool.unpin(pooled)

    def _headers(self, file: DiskFile, position: int, base_offset: int) -> Iterator[BatchPlace]:
        for place in scan(file, position, self.size_bytes, base_offset, check_crc=False):
            if isinstance(place, Damage):
                return
            yield place

    def _whole_range(self, offset: int) -> tuple[int, int]:
        """The bytes between damages in which ``offset`` is. Raises CorruptBatch if it is in one."""
        low, high = 0, self.size_bytes
        for damage in self.damages:
            if offset < damage.offset:
                return low, damage.position
            if offset < damage.end_offset:
                raise CorruptBatch(
                    f"{self.path} position {damage.position}: offsets [{damage.offset}, "
                    f"{damage.end_offset}) are damaged: {damage.problem}"
                )
            low = damage.end_position
        return low, high

    def _find(self, start: int, end: int, offset: int) -> tuple[int, int, int, int]:
        pooled = self._pool.pin(self.path)
        try:
            found = find_batch(pooled.file, start, end, offset)
        except CorruptBatch as error:
            raise CorruptBatch(f"{self.path}: {error}") from None
        finally:
            self._pool.unpin(pooled)
        if found[2] > offset:
            raise CorruptBatch(f"{self.path} position {found[0]}: offset {offset} is missing")
        return found

    def _boundary(self, file: DiskFile, position: int, bound: int, limit: int) -> tuple[int, int]:
        """The last end of a batch up to ``limit``, or of the first batch; with the next offset."""
        entry = None
        if limit - position > self.interval_bytes:  # else it is found as soon without the index
            entry = self.offsets.floor(SECOND, limit)
        start = max(position, entry[1]) if entry else position
        try:
            found = find_boundary(file, start, bound, limit)
            if found[0] > position:
                return found
            _, stop, _, next_offset = find_batch(file, position, bound, -1)
            return stop, next_offset
        except CorruptBatch as error:
            raise CorruptBatch(f"{self.path}: {error}") from None

    def offset_at(self, position: int) -> int:
        """The base offset of the batch that has the byte at ``position``, of a verified segment without damage.
        Raises CorruptData, OSError.
        """
        entry = self.offsets.floor(SECOND, position)
        pooled = self._pool.pin(self.path)
        try:
            return find_boundary(pooled.file, entry[1] if entry else 0, self.size_bytes, position)[
                1
            ]
        except CorruptBatch as error:
            raise CorruptBatch(f"{self.path}: {error}") from None
        finally:
            self._pool.unpin(pooled)

    def hint(self, base_offset: int, position: int) -> None:
        """A batch with this base offset starts there, or will: the next read needs no index."""
        if len(self._hints) >= _HINTS_MAX:
            self._hints.clear()
        self._hints[base_offset] = position

    def cut(self, position: int, next_offset: int) -> None:
        """Nothing from ``position`` on is there any more."""
        self.cuts += 1
        self.size_bytes = position
        self.next_offset = next_offset
        self.unverified_bytes = min(self.unverified_bytes, position)
        self.unverified_end = min(self.unverified_end, next_offset)
        self.rebuilt = None  # a cut makes its indexes again
        self.damages = tuple(d for d in self.damages if d.position < position)
        self._hints.clear()


class _PacedFile:
    """A file that is read with pauses; nothing is written."""

    def __init__(self, file: DiskFile, pause: Callable[[int], None]) -> None:
        self._file = file
        self._pause = pause

    def pread(self, length: int, position: int) -> bytes:
        self._pause(length)
        return self._file.pread(length, position)


class ActiveSegment(ActiveEnd):
    """The writing side of a log's last segment, until it is sealed.

    While it is resting the index entries are in the files alone, as those of a sealed one.
    """

    __slots__ = ()

    def __init__(self, pool: FilePool, segment: Segment, indexer: Indexer) -> None:
        self.segment = segment
        self.indexer = indexer
        self.indexes_are_stored = False  # the index files have just what ``indexer`` has
        self.is_resting = False
        self._pool = pool
        self._file = None  # as last written to
        segment.sealed = False
        segment.ends = UNKNOWN_ENDS
        segment.offsets, segment.times = indexer.offsets, indexer.times
        segment.max_timestamp_ms = indexer.max_timestamp_ms if segment.size_bytes else None

    @classmethod
    def empty(cls, pool: FilePool, segment: Segment) -> "ActiveSegment":
        """Of a segment of which no batch is noted."""
        return cls(pool, segment, Indexer(segment.base_offset, segment.interval_bytes))

    def fitting(self, settings: LogSettings, places: list[BatchPlace]) -> list[BatchPlace]:
        """See ``fitting_run``."""
        return fitting_run(settings, places, self.segment, first_ms=self.first_timestamp_ms)

    def append_run(
        self,
        batches: bytes | memoryview,
        places: list[BatchPlace],
        *,
        encrypts: bool = False,
    ) -> None:
        """Write some whole batches, or nothing; their positions are those in ``batches``. Raises as
        above.
        """
        if self.is_resting:
            self._wake()
        segment = self.segment
        if encrypts:
            batches, places = self._encrypted(batches, places)
        position = segment.size_bytes
        try:
            self._file = self._pool.write(segment.path, batches, position, self._file)
        except OSError as error:
            raise storage_error(error, segment.path) from error
        segment.size_bytes = position + len(batches)
        segment.next_offset = places[-1].next_offset
        for place in places:
            self.add(
                place._replace(
                    position=position + place.position, end_position=position + place.end_position
                )
            )
        self.indexes_are_stored = False

    def _encrypted(
        self, batches: bytes | memoryview, places: list[BatchPlace]
    ) -> tuple[bytes, list[BatchPlace]]:
        """The same for the disk."""
        parts = self._cipher().encrypted_all(batches, (place.end_position for place in places))
        position, moved = 0, []
        for place, part in zip(places, parts, strict=True):
            end = position + len(part)
            moved.append(place._replace(position=position, end_position=end))
            position = end
        return b"".join(parts), moved

    def unbind(self) -> None:
        """Of an empty segment: what is written to it need not be encrypted. Raises as ``append``,
        and EncryptionKeyMissing.
        """
        segment = self.segment
        if segment.key is None:
            return
        try:
            segment.key.unbind()
            segment.key = SegmentKey(self._pool, segment.key_path)
        except OSError as error:
            raise storage_error(error, segment.key_path) from error
        except CorruptFile as error:
            raise StorageFailed(str(error)) from error

    def _cipher(self) -> BatchCipher:
        """By the segment's data key, which is made for its first encrypted batch. Raises as above,
        and EncryptionKeyMissing.

        Where the log was cut below the offset from which on all was encrypted, or encryption was
        off for a while, all is encrypted from here on: the key says so from now on. What was cut
        off is gone for good before that, else it would count as forged if it came back.
        """
        segment = self.segment
        try:
            if segment.key is None:
                segment.key = SegmentKey.made(self._pool, segment.key_path, segment.next_offset)
            elif segment.key.cipher.since > segment.next_offset:
                self._sync_file()
                segment.key = segment.key.bound_from(segment.next_offset)
            return segment.key.cipher
        except OSError as error:
            raise storage_error(error, segment.key_path) from error
        except CorruptFile as error:
            raise StorageFailed(str(error)) from error

    def _sync_file(self) -> None:
        pooled = self._pool.pin(self.segment.path)
        try:
            pooled.file.sync()
        finally:
            self._pool.unpin(pooled)

    def add(self, place: BatchPlace) -> None:
        """Take note of a batch that is in the file already."""
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = place.max_timestamp_ms
        self.last_timestamp_ms = place.max_timestamp_ms
        self.indexer.add_place(place)
        self.segment.max_timestamp_ms = self.indexer.max_timestamp_ms

    def write_indexes(self) -> None:
        """The index files, as a sealed segment has them.

        Raises OSError; what was written is removed then.
        """
        segment, indexer = self.segment, self.indexer
        indexer.note_time()
        try:
            self._pool.write_new(segment.index_path, indexer.offsets.packed())
            self._pool.write_new(segment.time_index_path, indexer.times.packed())
        except OSError:
            for path in (segment.index_path, segment.time_index_path):
                with contextlib.suppress(OSError):
                    self._pool.remove(path)
            raise
        self.indexes_are_stored = True

    def mend_indexes(self) -> None:
        """Use those that the segment was found to need when it was verified. Raises OSError.

        At the start the stored ones were believed after a few samples. Lookups by time and
        retention rest on them, and they are stored again at the next stop.
        """
        segment, rebuilt = self.segment, self.segment.rebuilt
        if rebuilt is None:
            return
        indexer = rebuilt.indexer
        for place in list(segment.since(rebuilt.end_position, rebuilt.next_offset)):
            indexer.add_place(place)
        self.indexer, segment.rebuilt = indexer, None
        segment.offsets, segment.times = indexer.offsets, indexer.times
        segment.max_timestamp_ms = indexer.max_timestamp_ms
        self.indexes_are_stored = self.is_resting = False

    def store_indexes(self) -> None:
        """For the next start, where they are not stored yet. A segment that is too short for an
        offset entry has a few batches, whose headers are read anyway: files would spare nothing,
        and a node may have very many such logs. Raises OSError.
        """
        if not self.indexes_are_stored and len(self.indexer.offsets):
            self.write_indexes()

    def rest(self) -> None:
        """Have the indexes in files alone, until the next batch. Raises OSError."""
        self.mend_indexes()
        if self.segment.size_bytes and not self.is_resting:
            self.write_indexes()
            self.segment.open_indexes()
            self.indexer.let_go()
        self._file = None
        self.is_resting = True

    def _wake(self) -> None:
        """Have them in memory again. Raises as ``append``."""
        segment, indexer = self.segment, self.indexer
        if segment.size_bytes:
            try:
                indexer.take_back(*self._stored_indexes())
            except (CorruptFile, OSError) as error:
                logger.warning(
                    INDEX_REBUILT, extra={"file": segment.index_path, "problem": str(error)}
                )
                self._rebuild()
        segment.offsets, segment.times = self.indexer.offsets, self.indexer.times
        self.is_resting = False

    def _stored_indexes(self) -> tuple[IndexEntries, IndexEntries]:
        """Raises CorruptFile, OSError."""
        segment, disk = self.segment, self._pool.disk
        paths = {segment.index_path: OFFSET_ENTRY, segment.time_index_path: TIME_ENTRY}
        offsets, times = (
            IndexEntries.load(disk.read_small(path), entry, path) for path, entry in paths.items()
        )
        return offsets, times

    def _rebuild(self) -> None:
        """Out of the batches' headers, up to a damage. Raises as ``append``."""
        segment = self.segment
        indexer = Indexer(segment.base_offset, segment.interval_bytes)
        try:
            for place in segment.head():
                indexer.add_place(place)
        except OSError as error:
            raise storage_error(error, segment.path) from error
        self.indexer = indexer

    def seal(self) -> None:
        """Nothing more is written. Raises OSError, and may be tried again then."""
        self.mend_indexes()
        if not self.is_resting:
            self.write_indexes()
        segment = self.segment
        segment.ends = segment.read_ends()
        segment.open_indexes()
        segment.sealed = True


def cut_segment(pool: FilePool, segment: Segment, position: int, next_offset: int) -> ActiveSegment:
    """Drop what begins at ``position``; the segment, which ends before ``next_offset``, is the
    active one then.

    A slice of what is dropped comes out short. Raises OSError, CorruptBatch.
    """
    pooled = pool.pin(segment.path)
    try:
        pooled.file.truncate(position)
        pooled.file.sync()
    finally:
        pool.unpin(pooled)
    segment.cut(position, next_offset)
    pool.remove(segment.index_path, segment.time_index_path)
    active = ActiveSegment.empty(pool, segment)
    for place in segment.places(segment.base_offset):
        active.add(place)
    return active


def place_of_cut(segment: Segment, offset: int) -> tuple[int, int]:
    """Where the batches begin that end above ``offset``, and the offset of the first of them. The
    segment is verified. Raises OSError, CorruptBatch.
    """
    if offset >= segment.next_offset:
        return segment.size_bytes, segment.next_offset
    try:
        return segment.locate(offset)
    except CorruptBatch:
        for damage in segment.damages:
            if damage.offset <= offset < damage.end_offset:
                return damage.position, damage.offset
        raise


def fitting_run(
    settings: LogSettings, places: list[BatchPlace], segment: Segment, *, first_ms: int | None
) -> list[BatchPlace]:
    """The first of ``places``, those that go into ``segment``, whose first batch is of
    ``first_ms``; none: it is to be a new one.

    The batches' own times decide, so that the segments are the leader's.
    """
    fitting: list[BatchPlace] = []
    size_bytes = segment.size_bytes
    for place in places:
        batch_bytes = place.end_position - place.position
        if wants_new_segment(
            settings,
            segment,
            size_bytes,
            first_ms,
            batch_bytes=batch_bytes,
            next_offset=place.next_offset,
            now_ms=place.max_timestamp_ms,
        ):
            break
        fitting.append(place)
        size_bytes += batch_bytes + settings.overhead_bytes
        first_ms = place.max_timestamp_ms if first_ms is None else first_ms
    return fitting
