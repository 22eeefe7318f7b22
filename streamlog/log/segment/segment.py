"""A segment: a run of batches in a file named by its base offset, with two sparse indexes."""

import errno
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from streamlog.errors import BrokenInvariant, CorruptBatch, CorruptData
from streamlog.log.encryption.segment_key import KEY_MISSING, NEVER, SegmentKey, key_problem
from streamlog.log.layout import (
    INDEX_SUFFIX,
    KEY_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_stem,
)
from streamlog.log.manifest import UNKNOWN_BYTES, SealedSegment
from streamlog.log.recovery.scrub import IndexCheck, scrub, without_key
from streamlog.log.segment.end_checksums import (
    OTHER_BATCHES,
    UNKNOWN_ENDS,
    EndChecksums,
    read_end_checksums,
)
from streamlog.log.segment.index import (
    FIRST,
    OFFSET_ENTRY,
    SECOND,
    TIME_ENTRY,
    Index,
    Indexer,
    IndexFile,
)
from streamlog.log.segment.scan import (
    BatchPlace,
    Damage,
    base_offset_at,
    find_batch,
    find_boundary,
    scan,
    scan_past_damage,
)
from streamlog.log.segment.slice import DECRYPTED_BYTES_MAX, FileSlice
from streamlog.log.storage.disk import DiskFile, FileState, is_full, storage_error
from streamlog.log.storage.file_pool import FilePool
from streamlog.record.batch import ENCRYPTED, HEADER_BYTES

logger = logging.getLogger(__name__)

_HINTS_MAX: Final = 64


def tell_damage(path: str, damage: Damage) -> None:
    """The log line by which an operator learns of it."""
    logger.error(
        "damaged batch, not served",
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


class Segment:
    """Reads from one segment. Its log's owner alone uses it, but for ``verify``.

    Bytes that this process did not write are not trusted before ``verify`` has checked them; until
    then the indexes may be wrong as well.
    """

    __slots__ = (
        "_hints",
        "_lock",
        "_pool",
        "base_offset",
        "compared",
        "cuts",
        "damages",
        "ends",
        "interval_bytes",
        "key",
        "max_timestamp_ms",
        "next_offset",
        "offsets",
        "path",
        "rebuilt",
        "sealed",
        "size_bytes",
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
        self.max_timestamp_ms: int | None = None  # of all batches; None: see ``times.latest_time``
        self.cuts = 0  # how often it was cut
        self.ends = UNKNOWN_ENDS  # of a sealed segment, as it was stored
        self.compared: FileState | None = None  # the file that was last found to have these
        self.damages: tuple[Damage, ...] = ()  # in order; what is in them is never served
        self.rebuilt: Rebuilt | None = None  # those in use were found wrong; see ``ActiveSegment``
        self.unverified_bytes = size_bytes  # the first so many bytes are not yet checked
        self.unverified_end = next_offset  # ... and should end at this offset
        self.offsets: Index = IndexFile(pool, self.index_path, OFFSET_ENTRY)
        self.times: Index = IndexFile(pool, self.time_index_path, TIME_ENTRY)
        self.key: SegmentKey | None = None  # of encrypted batches
        if has_key:
            since_max = base_offset if is_hidden else NEVER
            self.key = SegmentKey(pool, self.key_path, since_max=since_max)
        self._pool = pool
        self._hints: dict[int, int] = {}  # base offset -> position, where reads ended
        self._lock = threading.Lock() if size_bytes else None  # of ``verify``

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
        """Some batch with records is not encrypted; by the headers. Raises OSError."""
        pooled = self._pool.pin(self.path)
        try:
            places = scan(pooled.file, 0, self.size_bytes, self.base_offset, check_crc=False)
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
        """Why nobody can read what is encrypted in it; see ``segment_key``. Raises OSError."""
        return key_problem(self._pool.disk, self.key_path) if self.key else KEY_MISSING

    def verify(self) -> None:
        """Check all batches that are not known to be good, and the indexes.

        Blocking; from any thread; needed once. Raises StorageFailed if the file cannot be read.
        """
        if self._lock is None:
            return
        with self._lock:
            if not self.unverified_bytes:
                return
            try:
                self._verify()
            except OSError as error:
                raise storage_error(error, self.path) from error

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
            logger.warning("index rebuilt", extra={"file": path, "problem": problem})
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
        behind its last record would mend nothing.
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
        """Of the files; whoever needs one opens it again."""
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
            stop = self._stop(pooled.file, position, max_bytes, upper_offset)
        except BaseException:
            self._pool.unpin(pooled)
            raise
        if stop == position:
            self._pool.unpin(pooled)
            return FileSlice(self._pool, None, 0, 0)
        return FileSlice(self._pool, pooled, position, stop - position, self.key)

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
            logger.warning(
                "index entry is wrong", extra={"file": self.index_path, "offset": offset}
            )
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
        """Likewise from the batch that begins there on."""
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

    def _stop(self, file: DiskFile, position: int, max_bytes: int, upper_offset: int) -> int:
        """Where a slice from ``position`` on ends. The file is that long: one that was cut under
        the node must not end an answer in its midst. Raises CorruptBatch, OSError.
        """
        bound, bound_offset = self.size_bytes, self.next_offset
        for damage in self.damages:
            if damage.position > position:
                bound, bound_offset = damage.position, damage.offset
                break
        if upper_offset < bound_offset:
            bound, bound_offset = self.locate(upper_offset)
        limit = position + max_bytes
        stop, stop_offset = bound, bound_offset
        if bound > limit and bound > position:
            stop, stop_offset = self._boundary(file, position, bound, limit)
        # Where it ends before both, the header of the next batch was read there.
        if stop >= min(limit, bound) and file.size() < stop:
            raise CorruptBatch(f"{self.path}: the file is too short")
        if not self.damages:  # or the hint could lead into one
            self.hint(stop_offset, stop)
        return stop

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
        self.rebuilt = None  # whoever cuts it makes its indexes anew
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
