"""What the frame parser needs of an inflow."""

cimport cython
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp

from streamlog.ingest.parser._buffer cimport Buffer
from streamlog.record._codec cimport RecordRun, Span


cdef struct Message:
    Span subject
    Span reply
    Span block
    Span payload


cdef inline bint is_like_an_envelope(Span payload) noexcept nogil:
    return payload.size >= 8 and memcmp(payload.data, b"\xb9\x0e\x43\xb4", 4) == 0


@cython.final
cdef class Headers:
    """Of the record that is being made: name, value, name, value, ..."""

    cdef Span* spans
    cdef Py_ssize_t count  # of headers; <= capacity
    cdef Py_ssize_t capacity
    cdef Span key  # of the record
    cdef bint asks  # for a decision

    cdef int add(self, Span name, Span content) except -1
    cdef int take(self, Message* message) except -1
    cdef int take_block(self, Span block) except -1
    cdef int take_line(self, Span name, const uint8_t* start, const uint8_t* end) except -1
    cdef int take_pair(self, Span name, Span content) except -1


@cython.final
cdef class RecordCollector:
    cdef readonly RecordRun run
    cdef readonly Py_ssize_t reply_count
    cdef readonly bint enveloped
    cdef readonly Py_ssize_t oversize_count
    cdef readonly Py_ssize_t keyless_count
    cdef public bint keyed
    cdef public int64_t value_bytes_max
    cdef public object admit
    cdef public object open_envelope
    cdef public object transform
    cdef public object owner
    cdef bint touched  # it is in the list that the feed under way returns
    cdef Buffer _replies
    cdef list _oversize
    cdef list _keyless

    cdef int gather(self, Message* message, Headers headers) except -1
    cdef object _opened(self, Message* message)
    cdef int _gather_opened(self, Message* message, object opened, Headers headers) except -1
    cdef int _store_apart(self, RecordRun run, Headers headers, Span value) except -1
    cdef int _store(self, Headers headers, Span value, Span reply) except -1
    cdef bint _is_oversize(self, Message* message) noexcept
    cdef bint _has_no_room(
        self, Message* message, Py_ssize_t answer_bytes, Py_ssize_t extra_bytes
    ) noexcept
    cdef void _add_reply(self, Py_ssize_t position, Span reply) noexcept
