"""Zigzag varints of 64 bits, for the compiled parts. Each bounds check is before the read it guards."""

from libc.stdint cimport int64_t, uint8_t, uint64_t


cdef inline uint8_t* put_varint(uint8_t* out, int64_t value) noexcept nogil:
    """Behind what it wrote: 10 bytes at most."""
    cdef uint64_t rest = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while rest >= 0x80:
        out[0] = <uint8_t>(rest & 0x7F) | 0x80
        out += 1
        rest >>= 7
    out[0] = <uint8_t>rest
    return out + 1


cdef inline bint read_varlong(
    const uint8_t** cursor, const uint8_t* end, int64_t* value
) noexcept nogil:
    """False if it runs past ``end`` or past 64 bits; the cursor has not moved then."""
    cdef const uint8_t* place = cursor[0]
    cdef uint64_t raw
    cdef int shift = 7
    if place >= end:
        return False
    raw = place[0]
    place += 1
    if raw >= 0x80:
        raw &= 0x7F
        while True:
            if place >= end or shift > 63 or (shift == 63 and place[0] > 1):
                return False
            raw |= <uint64_t>(place[0] & 0x7F) << shift
            place += 1
            if (place - 1)[0] < 0x80:
                break
            shift += 7
    cursor[0] = place
    value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
    return True
