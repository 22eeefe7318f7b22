"""The record encoder, for compiled code that writes records straight into a run."""

from libc.stdint cimport int64_t, uint8_t


cdef struct Span:
    const uint8_t* data  # borrowed: the maker of the span keeps the bytes
    Py_ssize_t size  # -1: null


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
    cdef int _reserve(self, Py_ssize_t extra) except -1
