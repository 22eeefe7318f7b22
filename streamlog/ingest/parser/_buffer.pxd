"""Bytes that grow at their end. Whoever has a ``Buffer`` begins with zeros, and ends with ``release``."""

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

cdef enum:
    CAPACITY_FIRST = 512  # there may be 10,000 of them, of a message each
    CAPACITY_KEPT = 65536  # an empty one that is larger is given back


cdef struct Buffer:
    uint8_t* start
    Py_ssize_t size  # <= capacity
    Py_ssize_t capacity


cdef inline int grow(Buffer* it, Py_ssize_t needed) except -1:
    cdef Py_ssize_t capacity = max(2 * it.capacity, CAPACITY_FIRST)
    cdef uint8_t* start
    if capacity < needed:
        capacity = needed
    start = <uint8_t*>realloc(it.start, capacity)
    if start == NULL:
        raise MemoryError
    it.start = start
    it.capacity = capacity
    return 0


cdef inline int reserve(Buffer* it, Py_ssize_t extra) except -1:
    """Room for ``extra`` bytes more."""
    if it.size + extra > it.capacity:
        grow(it, it.size + extra)
    return 0


cdef inline int add(Buffer* it, const uint8_t* data, Py_ssize_t size) except -1:
    if size > 0:
        reserve(it, size)
        memcpy(it.start + it.size, data, size)
        it.size += size
    return 0


cdef inline void clear(Buffer* it) noexcept:
    it.size = 0
    if it.capacity > CAPACITY_KEPT:
        release(it)


cdef inline void release(Buffer* it) noexcept:
    free(it.start)
    it.start = NULL
    it.size = it.capacity = 0
