"""The inside of fast batches, for the parser, which follows one without a Python object a message."""

from libc.stdint cimport int64_t, uint64_t

from streamlog.nats.lexer cimport Buffer
from streamlog.record.compiled.codec cimport Span


cdef class FastBatch:
    cdef readonly bytes batch_id
    cdef readonly bint gap_ok
    cdef readonly int flow_max
    cdef public int flow
    cdef public uint64_t last
    cdef public uint64_t persisted
    cdef public uint64_t acked
    cdef public int64_t sequence
    cdef public bint commits
    cdef public bint ended
    cdef public int64_t repeated_of
    cdef public int64_t deadline_ms
    cdef public object in_flight
    cdef bytes _prefix  # of its reply subjects, up to the number of the message
    cdef Buffer _reply
    cdef readonly Py_ssize_t index
    cdef readonly int64_t position
    cdef readonly int64_t repeated
    cdef readonly uint64_t run_first
    cdef readonly uint64_t run_last


cdef class FastRun:
    cdef public bint is_open
    cdef public object admit
    cdef readonly list touched
    cdef dict _by_prefix
    cdef FastBatch _latest
    cdef Buffer _log

    cdef FastBatch follower(self, Span reply, bint is_routed)
    cdef int keep_reply(self, FastBatch batch, Span reply, bint is_routed) except -1
    cdef int enter(
        self, FastBatch batch, uint64_t number, int64_t position, int64_t repeated_of
    ) except -1


cdef inline bint is_fast(Span reply) noexcept nogil:
    """It ends in .$FI, and has something before that."""
    cdef Py_ssize_t end = reply.size
    return (
        end > 4 and reply.data[end - 1] == 73 and reply.data[end - 2] == 70
        and reply.data[end - 3] == 36 and reply.data[end - 4] == 46
    )
