"""The end of a log, for compiled code that appends to it."""

from libc.stdint cimport int64_t


cdef class EpochsEnd:
    cdef public int64_t latest


cdef class IndexerEnd:
    cdef public int64_t base_offset
    cdef public int64_t interval_bytes
    cdef public int64_t max_timestamp_ms
    cdef public int64_t max_timestamp_offset
    cdef public int64_t _bytes_since_entry
    cdef public object offsets
    cdef public object times

    cpdef add(self, int64_t position, int64_t end_position, int64_t next_offset, int64_t timestamp_ms)


cdef struct SegmentLimits:
    int64_t size_bytes
    int64_t age_ms
    int64_t early_bytes
    int64_t early_age_ms
    int64_t early_records


cdef class SegmentEnd:
    cdef public int64_t base_offset
    cdef public int64_t next_offset
    cdef public int64_t size_bytes
    cdef int64_t _max_timestamp_ms
    cdef public str path
    cdef public object key
    cdef public bint is_dirty


cdef class ActiveEnd:
    cdef public SegmentEnd segment
    cdef public IndexerEnd indexer
    cdef public bint indexes_are_stored
    cdef public bint is_resting
    cdef int64_t _first_timestamp_ms
    cdef int64_t _last_timestamp_ms
    cdef public object _pool
    cdef public object _file

    cdef bint put(self, LogEnd log, bytes batch, int64_t next_offset, int64_t timestamp_ms, int64_t now_ms) except -1


cdef class LogEnd:
    cdef public int64_t log_start_offset
    cdef public int64_t log_end_offset
    cdef public int64_t recovery_point
    cdef public str failure
    cdef public EpochsEnd epochs
    cdef public ActiveEnd _active
    cdef public object _unsynced
    cdef public object _owed_limit
    cdef object _settings
    cdef SegmentLimits _segment_limits
    cdef bint _encrypts

    cpdef append(self, bytes batch, int64_t now_ms, tuple sealed=*)
