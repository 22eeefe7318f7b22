"""Looking into bytes that others own. Each function reads from its start to its end, never at it."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t
from libc.string cimport memchr

from streamlog.record._codec cimport Span


cdef inline Span span(const uint8_t* start, const uint8_t* end) noexcept nogil:
    cdef Span made
    made.data = start
    made.size = end - start
    return made


cdef inline Span literal(const char* text, Py_ssize_t size) noexcept nogil:
    cdef Span made
    made.data = <const uint8_t*>text
    made.size = size
    return made


cdef inline bytes to_bytes(Span text):
    return PyBytes_FromStringAndSize(<const char*>text.data, text.size)


cdef inline Span of_bytes(bytes text):
    """Good for as long as ``text`` is kept."""
    cdef Span made
    made.data = <const uint8_t*>PyBytes_AS_STRING(text)
    made.size = len(text)
    return made


cdef inline bint begins_with(Span text, const char* small, Py_ssize_t size) noexcept nogil:
    """Whether in small letters it begins with ``small``, which has ``size`` bytes, none of A to Z."""
    cdef Py_ssize_t i
    cdef uint8_t byte
    if text.size < size:
        return False
    for i in range(size):
        byte = text.data[i]
        if 65 <= byte <= 90:
            byte += 32
        if byte != <uint8_t>small[i]:
            return False
    return True


cdef inline bint is_word(Span text, const char* small, Py_ssize_t size) noexcept nogil:
    return text.size == size and begins_with(text, small, size)


cdef inline const uint8_t* find(const uint8_t* start, const uint8_t* end, uint8_t byte) noexcept nogil:
    """Where ``byte`` is, else NULL."""
    if start >= end:
        return NULL
    return <const uint8_t*>memchr(start, byte, end - start)


cdef inline const uint8_t* find_crlf(const uint8_t* start, const uint8_t* end) noexcept nogil:
    """Where the next CRLF begins, else NULL."""
    cdef const uint8_t* found = start
    while True:
        found = find(found, end, 13)
        if found == NULL or found + 1 == end:
            return NULL
        if found[1] == 10:
            return found
        found += 1


cdef inline int split(
    const uint8_t* at, const uint8_t* end, Span* fields, int fields_max
) noexcept nogil:
    """The fields between spaces and tabs; their number, or ``fields_max`` + 1 for more than that."""
    cdef const uint8_t* start
    cdef int count = 0
    while True:
        while at < end and (at[0] == 32 or at[0] == 9):
            at += 1
        if at == end:
            return count
        if count == fields_max:
            return fields_max + 1
        start = at
        while at < end and at[0] != 32 and at[0] != 9:
            at += 1
        fields[count] = span(start, at)
        count += 1
