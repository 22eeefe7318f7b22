# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What an append does to a log, compiled. ``log_end.pyi`` says what it means.

Each class is the part of one in ``streamlog.log`` that an append reads and changes: its fields are numbers in
one place, and not objects all over the memory. Rare branches are methods of the class built on it.
"""

from libc.stdint cimport INT64_MIN, int64_t

from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

from streamlog.errors import CorruptBatch, StorageFailed
from streamlog.log.segment.append_validation import next_batch
from streamlog.log.segment.index import RELATIVE_OFFSET_MAX
from streamlog.log.storage.disk import storage_error

SOURCES = STREAMLOG_SOURCES

cdef enum:
    NO_EPOCH = -1
    NO_TIMESTAMP = -1

cdef int64_t UNKNOWN = INT64_MIN  # a time that is None
cdef int64_t relative_offset_max = RELATIVE_OFFSET_MAX


cdef inline object known(int64_t time_ms):
    return None if time_ms == UNKNOWN else time_ms


cdef inline int64_t packed(time_ms) except? -1:
    return UNKNOWN if time_ms is None else time_ms


cdef class EpochsEnd:
    """The epoch of the last batch."""

    def __cinit__(self):
        self.latest = NO_EPOCH


cdef class IndexerEnd:
    """Builds a segment's two indexes from its batches, one after the other."""

    cpdef add(self, int64_t position, int64_t end_position, int64_t next_offset, int64_t timestamp_ms):
        """Take note of a batch that ends with offset ``next_offset - 1``."""
        if timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
            self.max_timestamp_offset = next_offset - 1
        if self._bytes_since_entry > self.interval_bytes:
            self.offsets.append(next_offset - 1 - self.base_offset, position)
            self.note_time()
            self._bytes_since_entry = 0
        self._bytes_since_entry += end_position - position

    def note_time(self):
        """An entry for the latest time, unless there is one; a sealed segment ends with it."""
        last = self.times.last()
        if self.max_timestamp_ms > (last[0] if last else NO_TIMESTAMP):
            self.times.append(self.max_timestamp_ms, self.max_timestamp_offset - self.base_offset)


cdef class SegmentEnd:
    """How far a segment goes."""

    def __cinit__(self):
        self._max_timestamp_ms = UNKNOWN

    @property
    def max_timestamp_ms(self):
        """Of all batches; None: see ``times.latest_time``."""
        return known(self._max_timestamp_ms)

    @max_timestamp_ms.setter
    def max_timestamp_ms(self, time_ms):
        self._max_timestamp_ms = packed(time_ms)


cdef inline bint is_full(
    SegmentEnd segment, int64_t size_bytes, int64_t first_ms, int64_t batch_bytes, int64_t next_offset,
    int64_t now_ms, SegmentLimits limits,
) noexcept:
    cdef int64_t age_ms = now_ms - first_ms if first_ms != UNKNOWN else 0
    return size_bytes > 0 and (
        size_bytes + batch_bytes > limits.size_bytes
        or age_ms >= limits.age_ms
        or next_offset - 1 - segment.base_offset > relative_offset_max
        or size_bytes >= limits.early_bytes and (
            age_ms >= limits.early_age_ms or next_offset - segment.base_offset > limits.early_records
        )
    )


cdef SegmentLimits limits_of(settings):
    cdef SegmentLimits limits
    limits.size_bytes = settings.segment_bytes
    limits.age_ms = settings.segment_age_ms
    limits.early_bytes = settings.early_bytes
    limits.early_age_ms = settings.early_age_ms
    limits.early_records = settings.early_records
    return limits


def wants_new_segment(
    settings,
    SegmentEnd segment,
    int64_t size_bytes,
    first_ms,
    *,
    int64_t batch_bytes,
    int64_t next_offset,
    int64_t now_ms,
):
    """Whether a batch that ends before ``next_offset`` goes into a new segment, where the active
    one, whose first batch is of ``first_ms``, has ``size_bytes`` before it.
    """
    return is_full(
        segment, size_bytes, packed(first_ms), batch_bytes + settings.overhead_bytes, next_offset, now_ms,
        limits_of(settings),
    )


cdef class ActiveEnd:
    """The writing side of a log's last segment, until it is sealed."""

    def __cinit__(self, *_, **__):
        self._first_timestamp_ms = self._last_timestamp_ms = UNKNOWN

    @property
    def first_timestamp_ms(self):
        """Of the first batch; None while there is none."""
        return known(self._first_timestamp_ms)

    @first_timestamp_ms.setter
    def first_timestamp_ms(self, time_ms):
        self._first_timestamp_ms = packed(time_ms)

    @property
    def last_timestamp_ms(self):
        """Of the last batch."""
        return known(self._last_timestamp_ms)

    @last_timestamp_ms.setter
    def last_timestamp_ms(self, time_ms):
        self._last_timestamp_ms = packed(time_ms)

    cdef bint put(
        self, LogEnd log, bytes batch, int64_t next_offset, int64_t timestamp_ms, int64_t now_ms
    ) except -1:
        """Write one whole batch, or nothing; False, and nothing is written, where the segment is
        full: the batch goes into a new one.

        Raises StorageFull or Overloaded when the file is as it was before, else StorageFailed.
        """
        cdef SegmentEnd segment = self.segment
        cdef int64_t position = segment.size_bytes, end_position, batch_bytes = len(batch)
        if log._encrypts:
            batch_bytes += log._settings.overhead_bytes
        if is_full(
            segment, position, self._first_timestamp_ms, batch_bytes, next_offset, now_ms,
            log._segment_limits,
        ):
            return False
        if self.is_resting:
            self._wake()
        if log._encrypts:
            batch = self._cipher().encrypted(batch)
        end_position = position + len(batch)
        try:
            self._file = self._pool.write(segment.path, batch, position, self._file)
        except OSError as error:
            raise storage_error(error, segment.path) from error
        segment.size_bytes = end_position
        segment.next_offset = next_offset
        if self._first_timestamp_ms == UNKNOWN:
            self._first_timestamp_ms = timestamp_ms
        self._last_timestamp_ms = timestamp_ms
        self.indexer.add(position, end_position, next_offset, timestamp_ms)
        segment._max_timestamp_ms = self.indexer.max_timestamp_ms
        self.indexes_are_stored = False
        return True


cdef class LogEnd:
    """One partition's records, as far as an append goes."""

    @property
    def settings(self):
        """May be replaced at any time."""
        return self._settings

    @settings.setter
    def settings(self, settings):
        self._settings = settings
        self._segment_limits = limits_of(settings)
        self._encrypts = settings.encrypts

    cpdef append(self, bytes batch, int64_t now_ms, tuple sealed=None):
        """Write one batch, which must begin at the log end offset; all of it or nothing.

        ``sealed``: base offset, next offset and leader epoch of a batch that ``RecordRun.seal`` has
        just made with the time ``now_ms``. None: it comes from elsewhere, and its header is checked.

        Raises StorageFull or Overloaded, after which it may be tried again; StorageFailed, after
        which every append fails until the log is opened again; CorruptBatch if it is no such batch.
        """
        cdef int64_t base_offset = self.log_end_offset, latest_epoch = self.epochs.latest
        cdef int64_t next_offset, epoch, timestamp_ms = now_ms
        cdef ActiveEnd active = self._active
        cdef bint is_written = False
        if self.failure:
            raise StorageFailed(self.failure)
        if self._owed_limit is not None:
            self._pay_limit(self._owed_limit)
        if sealed is None:
            next_offset, epoch, timestamp_ms = next_batch(
                batch, end_offset=base_offset, epoch=latest_epoch, directory=self._directory
            )
        else:
            base_offset, next_offset, epoch = sealed
            if base_offset != self.log_end_offset or epoch < latest_epoch:
                raise CorruptBatch(
                    f"{self._directory}: a batch with base offset {base_offset}, epoch {epoch} "
                    f"cannot follow at {self.log_end_offset} in epoch {latest_epoch}"
                )
        if active.segment.key is not None and not self._encrypts:
            active = self._without_key()
        while not is_written:
            try:
                is_written = active.put(self, batch, next_offset, timestamp_ms, now_ms)
            except StorageFailed as error:
                self.fail(str(error))
                raise
            if not is_written:
                self.roll()
                active = self._active  # an empty segment takes any batch
        if not active.segment.is_dirty:  # a mark costs less than to look into a mapping
            active.segment.is_dirty = True
            self._unsynced.segments[active.segment] = None
        if epoch > latest_epoch:
            self.epochs.assign(epoch, base_offset)
            self._unsynced.epochs = True
        self.log_end_offset = next_offset
