import contextlib

from streamlog.errors import StorageFailed
from streamlog.log.disk import storage_error
from streamlog.log.files import FilePool, PooledFile
from streamlog.log.indexer import Indexer
from streamlog.log.scan import BatchPlace
from streamlog.log.segment import Segment


class ActiveSegment:
    """The writing side of a log's last segment, until it is sealed."""

    __slots__ = (
        "_file",
        "_pool",
        "first_timestamp_ms",
        "indexer",
        "indexes_are_stored",
        "last_timestamp_ms",
        "segment",
    )

    def __init__(self, pool: FilePool, segment: Segment, indexer: Indexer) -> None:
        self.segment = segment
        self.indexer = indexer
        self.first_timestamp_ms: int | None = None  # of the first batch; None while there is none
        self.last_timestamp_ms: int | None = None  # of the last batch, likewise
        self.indexes_are_stored = False  # the index files have just what ``indexer`` has
        self._pool = pool
        self._file: PooledFile | None = None  # as last written to
        segment.sealed = False
        segment.offsets, segment.times = indexer.offsets, indexer.times
        segment.max_timestamp_ms = indexer.max_timestamp_ms if segment.size_bytes else None

    def append(self, batch: bytes, next_offset: int, timestamp_ms: int) -> None:
        """Write one whole batch, or nothing.

        Raises StorageFull or Overloaded when the file is as it was before, else StorageFailed.
        """
        segment = self.segment
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

    def append_run(self, batches: memoryview, places: list[BatchPlace]) -> None:
        """Write some whole batches, or nothing; their positions are those in ``batches``. Raises as
        above.
        """
        segment = self.segment
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
            _write_file(self._pool, segment.index_path, indexer.offsets.packed())
            _write_file(self._pool, segment.time_index_path, indexer.times.packed())
        except OSError:
            for path in (segment.index_path, segment.time_index_path):
                with contextlib.suppress(OSError):
                    self._pool.remove(path)
            raise
        self.indexes_are_stored = True

    def seal(self) -> None:
        """Nothing more is written. Raises OSError, and may be tried again then."""
        self.write_indexes()
        segment = self.segment
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


def _write_file(pool: FilePool, path: str, data: bytes) -> None:
    pool.create(path)
    pooled = pool.pin(path)
    try:
        written = 0
        while written < len(data):
            written += pooled.file.pwrite(data[written:], written)
    finally:
        pool.unpin(pooled)
