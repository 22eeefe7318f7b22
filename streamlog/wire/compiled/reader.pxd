"""Reads forward through a frame, for compiled code: what ``cursor.Cursor`` does, but that nothing is said of what does
not fit. Whoever finds a reader that has failed leaves the frame to the cursor.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, int8_t, uint8_t, uint64_t


cdef struct Reader:
    const uint8_t* at
    const uint8_t* end
    bint failed  # something is missing, or is not what is read here


cdef inline int64_t get_number(Reader* reader, int size) noexcept nogil:
    """Big-endian and signed."""
    cdef uint64_t value = 0
    cdef int i
    if reader.end - reader.at < size:
        reader.failed = True
        return 0
    for i in range(size):
        value = (value << 8) | reader.at[i]
    reader.at += size
    if size == 1:
        return <int8_t>value
    if size == 2:
        return <int16_t>value
    return <int32_t>value if size == 4 else <int64_t>value


cdef inline int64_t get_uvarint(Reader* reader) noexcept nogil:
    """At most 32 bits, in as few bytes as they take."""
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while reader.at < reader.end and shift < 35:
        byte = reader.at[0]
        reader.at += 1
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            if (byte == 0 and shift) or value > 0x7FFFFFFF:
                break
            return <int64_t>value
        shift += 7
    reader.failed = True
    return 0


cdef inline void no_tags(Reader* reader, bint flexible) noexcept nogil:
    if flexible and get_uvarint(reader) != 0:
        reader.failed = True


cdef inline int64_t get_length(Reader* reader, bint flexible, int size) noexcept nogil:
    """Of a string, of bytes or of an array; -1: null. What it says is there, or the reader has failed."""
    cdef int64_t length = get_uvarint(reader) - 1 if flexible else get_number(reader, size)
    if length > reader.end - reader.at:
        reader.failed = True
        return 0
    return length
