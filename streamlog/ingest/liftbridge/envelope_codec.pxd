"""Liftbridge's envelope for the compiled parser: read into spans, and its ack's address packed."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from streamlog.record.compiled.codec cimport Span

cdef enum:
    PAIRS_MAX = 16


cdef struct PlainEnvelope:
    Span key  # size 0: there is none
    Span value
    Span ack_inbox
    Span correlation_id
    int32_t ack_policy
    int pair_count
    Span[PAIRS_MAX] names
    Span[PAIRS_MAX] contents


cdef bint read_envelope(Span payload, PlainEnvelope* envelope) noexcept nogil


cdef class AckAddresses:
    cdef bytes _stream
    cdef object _pattern_of
    cdef bytes _subject  # the last one
    cdef bytes _pattern  # by which it came ...
    cdef int64_t _look  # ... as of that look at the stream
    cdef uint8_t* _address  # the last one
    cdef Py_ssize_t _capacity

    cdef Span packed(
        self, const PlainEnvelope* envelope, int policy, Span subject, Span reply, int64_t now_ms,
        int64_t look, bint is_routed,
    ) except *
