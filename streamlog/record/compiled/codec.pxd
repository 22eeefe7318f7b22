"""The record encoder, for compiled code that writes records straight into a run."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t


cdef struct Span:
    const uint8_t* data  # borrowed: the maker of the span keeps the bytes
    Py_ssize_t size  # -1: null


cdef struct Header:
    int64_t base_offset
    int32_t leader_epoch
    int attributes
    Py_ssize_t count
    int64_t timestamp_ms
    int64_t max_timestamp_ms
    int64_t producer_id
    int16_t producer_epoch
    int32_t sequence


cdef class RecordRun:
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t bytes_max
    cdef readonly int attributes  # of its batches, beside those that ``seal`` says
    cdef uint8_t* _body  # the ``count`` records, back to back
    cdef Py_ssize_t _size  # of what is written of it; <= _capacity, <= bytes_max
    cdef Py_ssize_t _capacity

    cdef int add(
        self,
        int64_t timestamp_delta_ms,
        Span key,
        Span value,
        const Span* headers,
        Py_ssize_t header_count,
    ) except -1
    cdef bytes sealed(
        self, int64_t base_offset, int leader_epoch, int64_t timestamp_ms, int compression
    )
    cdef bytes _sealed(self, Header* header, int compression)
    cpdef clear(self)
    cdef int _reserve(self, Py_ssize_t extra) except -1
