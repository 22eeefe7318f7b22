"""The end of a log: what an append reads and changes, compiled.

Where each message goes to another of very many logs, each is a batch of its own, and hardly anything of
the next log is in the processor's caches. An append then waits for memory, once for each object that it
looks at, numbers included. So each class in ``streamlog.log`` that an append goes through has a base here,
which keeps its numbers in itself, and the steps of an append, which are the only ones: appends of one batch
go no other way. What happens seldom (a roll, a wake, a key, a failure) is a method of the class built on it.
"""

from streamlog.log.encryption.segment_key import SegmentKey
from streamlog.log.log import DirtyState
from streamlog.log.segment.index import IndexEntries
from streamlog.log.settings import LogSettings
from streamlog.log.storage.file_pool import FilePool, PooledFile

SOURCES: int

class EpochsEnd:
    latest: int
    """The epoch of the last batch; -1 if there is none."""

class IndexerEnd:
    """Builds a segment's two indexes from its batches, one after the other."""

    base_offset: int
    interval_bytes: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    """The last offset of the batch that first reached it."""
    offsets: IndexEntries
    times: IndexEntries
    _bytes_since_entry: int

    def add(self, position: int, end_position: int, next_offset: int, timestamp_ms: int) -> None:
        """Take note of a batch that ends with offset ``next_offset - 1``."""

    def note_time(self) -> None:
        """An entry for the latest time, unless there is one; a sealed segment ends with it."""

class SegmentEnd:
    """How far a segment goes."""

    base_offset: int
    next_offset: int
    """The base offset of the next segment, once sealed."""
    size_bytes: int
    path: str
    key: SegmentKey | None
    """Of encrypted batches."""
    is_dirty: bool
    """It was written since the last sync began, and the log knows: ``DirtyState`` has it, too."""
    max_timestamp_ms: int | None
    """Of all batches; None: see ``times.latest_time``."""

def wants_new_segment(
    settings: LogSettings,
    segment: SegmentEnd,
    size_bytes: int,
    first_ms: int | None,
    *,
    batch_bytes: int,
    next_offset: int,
    now_ms: int,
) -> bool:
    """Whether a batch that ends before ``next_offset`` goes into a new segment, where the active
    one, whose first batch is of ``first_ms``, has ``size_bytes`` before it.
    """

class ActiveEnd:
    """The writing side of a log's last segment, until it is sealed."""

    indexes_are_stored: bool
    """The index files have just what ``indexer`` has."""
    is_resting: bool
    first_timestamp_ms: int | None
    """Of the first batch; None while there is none."""
    last_timestamp_ms: int | None
    """Of the last batch."""
    _pool: FilePool
    _file: PooledFile | None
    """As last written to."""

class LogEnd:
    """One partition's records, as far as an append goes."""

    log_start_offset: int
    """Nothing below is read."""
    log_end_offset: int
    recovery_point: int
    """All below is synced."""
    failure: str
    """Why nothing can be appended until the log is opened again."""
    settings: LogSettings
    """May be replaced at any time."""
    _unsynced: DirtyState
    _owed_limit: int | None

    def append(self, batch: bytes, now_ms: int, sealed: tuple[int, int, int] | None = None) -> None:
        """Write one batch, which must begin at the log end offset; all of it or nothing.

        ``sealed``: base offset, next offset and leader epoch of a batch that ``RecordRun.seal`` has
        just made with the time ``now_ms``. None: it comes from elsewhere, and its header is checked.

        Raises StorageFull or Overloaded, after which it may be tried again; StorageFailed, after
        which every append fails until the log is opened again; CorruptBatch if it is no such batch.
        """
