"""A partition, as far as an append goes that is committed at once."""

from libc.stdint cimport int64_t

from streamlog.log.compiled.log_end cimport LogEnd


cdef class StateEnd:
    cdef public LogEnd log
    cdef public int64_t high_watermark
    cdef public int64_t leader_epoch
    cdef public int64_t appended_bytes
    cdef public int compression
    cdef public bint is_short
    cdef public bint is_behind_store
    cdef public object failure
    cdef public object progress
    cdef public object pending
    cdef public list starts
    cdef public object sync
    cdef public object syncing
    cdef public object _may_act
    cdef public object _has_room

    cdef _check_writable(self, leader_epoch)


cdef class PartitionEnd:
    cdef public StateEnd state
    cdef public LogEnd _log
    cdef public object _metrics
    cdef public object _surroundings
    cdef public dict _commit_watchers
    cdef public dict _end_watchers
    cdef public list _waiting
    cdef public bint _is_carrying_out

    cdef bint _has_to_wait(self)
    cdef _committed(self, int64_t count, double started)
    cdef _tell_commit_watchers(self)
    cdef _count(self, int64_t count)
