import contextlib
import logging

from streamlog.errors import CorruptBatch, CorruptFile, StorageFailed
from streamlog.log.encryption.cipher import BatchCipher
from streamlog.log.encryption.segment_key import SegmentKey
from streamlog.log.segment.append_validation import fitting_run, wants_new_segment
from streamlog.log.segment.end_checksums import UNKNOWN_ENDS
from streamlog.log.segment.index import OFFSET_ENTRY, TIME_ENTRY, IndexEntries, Indexer
from streamlog.log.segment.scan import BatchPlace
from streamlog.log.segment.segment import Segment
from streamlog.log.settings import LogSettings
from streamlog.log.storage.disk import storage_error
from streamlog.log.storage.file_pool import FilePool, PooledFile

logger = logging.getLogger(__name__)


class ActiveSegment:
    """The writing side of a log's last segment, until it is sealed.

    While it is resting the index entries are in the files alone, as those of a sealed one.
    """

    __slots__ = (
        "_file",
        "_pool",
        "first_timestamp_ms",
        "indexer",
        "indexes_are_stored",
        "is_resting",
        "last_timestamp_ms",
        "segment",
    )

    def __init__(self, pool: FilePool, segment: Segment, indexer: Indexer) -> None:
        self.segment = segment
        self.indexer = indexer
        self.first_timestamp_ms: int | None = None  # of the first batch; None while there is none
        self.last_timestamp_ms: int | None = None  # of the last batch, likewise
        self.indexes_are_stored = False  # the index files have just what ``indexer`` has
        self.is_resting = False
        self._pool = pool
        self._file: PooledFile | None = None  # as last written to
        segment.sealed = False
        segment.ends = UNKNOWN_ENDS
        segment.offsets, segment.times = indexer.offsets, indexer.times
        segment.max_timestamp_ms = indexer.max_timestamp_ms if segment.size_bytes else None

    @classmethod
    def empty(cls, pool: FilePool, segment: Segment) -> "ActiveSegment":
        """Of a segment of which no batch is noted."""
        return cls(pool, segment, Indexer(segment.base_offset, segment.interval_bytes))

    def is_full(
        self, settings: LogSettings, batch_bytes: int, next_offset: int, now_ms: int
    ) -> bool:
        """A batch that comes now, and ends before ``next_offset``, goes into a new segment."""
        segment = self.segment
        return wants_new_segment(
            settings,
            size_bytes=segment.size_bytes,
            first_ms=self.first_timestamp_ms,
            base_offset=segment.base_offset,
            batch_bytes=batch_bytes,
            next_offset=next_offset,
            now_ms=now_ms,
        )

    def fitting(self, settings: LogSettings, places: list[BatchPlace]) -> list[BatchPlace]:
        """See ``intake.fitting_run``."""
        return fitting_run(settings, places, self.segment, first_ms=self.first_timestamp_ms)

    def append(
        self, batch: bytes, next_offset: int, timestamp_ms: int, *, encrypts: bool = False
    ) -> None:
        """Write one whole batch, or nothing.

        Raises StorageFull or Overloaded when the file is as it was before, else StorageFailed.
        """
        if self.is_resting:
            self._wake()
        segment = self.segment
        if encrypts:
            batch = self._cipher().encrypted(batch)
        position = segment.size_bytes
        end_position = position + len(batch)
        self._write(batch, position)
        segment.size_bytes = end_position
        segment.next_offset = next_offset
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = timestamp_ms
        self.last_timestamp_ms = timestamp_ms
        self.indexer.add(position, end_position, next_offset, timestamp_ms)
        segment.max_timestamp_ms = self.indexer.max_timestamp_ms
        self.indexes_are_stored = False

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
        self._write(batches, position)
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

    def _write(self, data: bytes | memoryview, position: int) -> None:
        try:
            pooled = self._file
            if pooled is None or not self._pool.pin_again(pooled):
                pooled = self._file = self._pool.pin(self.segment.path)
            try:
                written = pooled.file.pwrite(data, position)
                if written < len(data):
                    _write_rest(pooled, data, position, written)
            except OSError:
                _undo(pooled, position)
                raise
            finally:
                self._pool.unpin(pooled)
        except OSError as error:
            raise storage_error(error, self.segment.path) from error

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
                    "index rebuilt", extra={"file": segment.index_path, "problem": str(error)}
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


def _write_rest(pooled: PooledFile, batch: bytes | memoryview, position: int, written: int) -> None:
    rest = memoryview(batch)[written:]
    while rest:
        count = pooled.file.pwrite(rest, position + len(batch) - len(rest))
        if not count:
            raise StorageFailed(f"{pooled.path}: nothing of {len(rest)} bytes was written")
        rest = rest[count:]


def _undo(pooled: PooledFile, position: int) -> None:
    try:
        pooled.file.truncate(position)
    except OSError as error:
        raise StorageFailed(f"{pooled.path}: cannot be cut back to {position}") from error


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
