"""A record's offset and subject, and nothing else of it, for the compiled index of subjects."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp

from streamlog.record._varint cimport read_varlong


cdef struct Found:
    const uint8_t* end
    const uint8_t* subject
    int64_t size  # -1: there is none
    int64_t delta


cdef inline bint skip_bytes(
    const uint8_t** at, const uint8_t* end, const uint8_t** start, int64_t* size
) noexcept nogil:
    if not read_varlong(at, end, size) or size[0] < -1 or size[0] > end - at[0]:
        return False
    start[0] = at[0]
    if size[0] > 0:
        at[0] += size[0]
    return True


cdef inline bint find_record(const uint8_t* at, const uint8_t* end, Found* found) noexcept nogil:
    cdef int64_t size, count
    cdef const uint8_t* name
    found.size = -1
    if not read_varlong(&at, end, &size) or size <= 0 or size > end - at:
        return False
    found.end = end = at + size
    at += 1
    if not read_varlong(&at, end, &size) or not read_varlong(&at, end, &found.delta):
        return False
    if not skip_bytes(&at, end, &name, &size) or not skip_bytes(&at, end, &name, &size):
        return False
    if not read_varlong(&at, end, &count):
        return False
    if count <= 0:
        return True
    if not skip_bytes(&at, end, &name, &size):
        return False
    if size != 7 or memcmp(name, b"subject", 7) != 0:
        return True
    if not skip_bytes(&at, end, &found.subject, &found.size):
        return False
    return True
