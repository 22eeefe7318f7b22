"""What the compiled parts share to read and write frames of NATS: looks into borrowed bytes, bytes that grow,
numbers as text."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcpy

from streamlog.record.compiled.codec cimport Span


cdef extern from *:
    """
    static const char DIGIT_PAIRS[201] =
        "000102030405060708091011121314151617181920212223242526272829"
        "303132333435363738394041424344454647484950515253545556575859"
        "606162636465666768697071727374757677787980818283848586878889"
        "90919293949596979899";
    """
    const char DIGIT_PAIRS[]


cdef enum:
    NUMBER_DIGITS_MAX = 18  # so that sums of a few of them do not overflow
    CAPACITY_FIRST = 512  # there may be 10,000 of them, of a message each
    CAPACITY_KEPT = 65536  # an empty one that is larger is given back


# Looking into bytes that others own: from a start to an end, never at the end

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


# Bytes that grow at their end: a ``Buffer`` begins with zeros, and ends with ``release``

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


# Numbers as text

cdef inline int64_t number(Span text) noexcept nogil:
    """-1 where it is none, or one of too many digits."""
    cdef int64_t value = 0
    cdef Py_ssize_t i
    cdef uint8_t digit
    if not 1 <= text.size <= NUMBER_DIGITS_MAX:
        return -1
    for i in range(text.size):
        digit = text.data[i] - 48  # below "0" it wraps around to a large one
        if digit > 9:
            return -1
        value = value * 10 + digit
    return value


cdef inline int digits(int64_t value) noexcept nogil:
    """Of one that is not negative."""
    cdef int count = 1
    while value >= 10_000:
        value //= 10_000
        count += 4
    return count + (value >= 10) + (value >= 100) + (value >= 1_000)


cdef inline uint8_t* put(uint8_t* out, const void* data, Py_ssize_t size) noexcept nogil:
    memcpy(out, data, size)
    return out + size


cdef inline uint8_t* put_number(uint8_t* out, int64_t value, int size) noexcept nogil:
    """Two digits at a time: a division takes longer than all else here, and a message has four numbers."""
    cdef uint64_t left = <uint64_t>value
    cdef int i = size
    while i >= 2:
        i -= 2
        memcpy(out + i, &DIGIT_PAIRS[2 * (left % 100)], 2)
        left //= 100
    if i:
        out[0] = 48 + left % 10
    return out + size
