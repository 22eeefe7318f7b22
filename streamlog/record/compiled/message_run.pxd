"""Messages of a partition, for compiled code that hands them to clients."""

from libc.stdint cimport int64_t, uint8_t

from streamlog.record.compiled.codec cimport Span


cdef struct RunEntry:
    int64_t offset
    int64_t timestamp_ms
    Py_ssize_t place  # where its subject begins; then the block, then the payload
    Py_ssize_t subject_bytes
    Py_ssize_t block_bytes
    Py_ssize_t payload_bytes


cdef class MessageRun:
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t size_bytes
    cdef RunEntry* _entries
    cdef Py_ssize_t _entries_max
    cdef uint8_t* _data
    cdef Py_ssize_t _data_max

    cdef RunEntry* entry(self, Py_ssize_t index) except NULL
    cdef Span subject(self, const RunEntry* entry) noexcept nogil
    cdef Span block(self, const RunEntry* entry) noexcept nogil
    cdef Span payload(self, const RunEntry* entry) noexcept nogil
    cdef int _reserve(self, Py_ssize_t extra) except -1 nogil
    cdef int _begin(self, int64_t offset, int64_t timestamp_ms) except -1 nogil
    cdef int _put(self, const uint8_t* data, Py_ssize_t size) except -1 nogil
    cdef int _put_in_a_line(self, const uint8_t* data, Py_ssize_t size) except -1 nogil
    cdef int _drop_last(self) except -1 nogil
