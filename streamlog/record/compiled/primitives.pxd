"""What the compiled parts share: varints, hashes, a look into a record, the digest of their sources."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy


# Zigzag varints of 64 bits. Each bounds check is before the read it guards.

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


# Kafka's hash of keys, murmur2.

cdef enum:
    SEED = 0x9747B28C
    FACTOR = 0x5BD1E995


cdef inline uint32_t little_endian(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t value = 0
    cdef Py_ssize_t i
    for i in range(size):
        value |= <uint32_t>data[i] << (8 * i)
    return value


cdef inline uint32_t hashed(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """Kafka's murmur2."""
    cdef uint32_t value = <uint32_t>SEED ^ <uint32_t>size
    cdef uint32_t part
    cdef Py_ssize_t at = 0
    while at + 4 <= size:
        part = little_endian(data + at, 4) * <uint32_t>FACTOR
        part = (part ^ part >> 24) * <uint32_t>FACTOR
        value = value * <uint32_t>FACTOR ^ part
        at += 4
    if at < size:
        value = (value ^ little_endian(data + at, size - at)) * <uint32_t>FACTOR
    value = (value ^ value >> 13) * <uint32_t>FACTOR
    return value ^ value >> 15


# A hash whose collisions cannot be found without the key.

cdef inline uint64_t rotated(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef struct Sip:
    uint64_t a
    uint64_t b
    uint64_t c
    uint64_t d


cdef inline void stir(Sip* s, int rounds) noexcept nogil:
    cdef int i
    for i in range(rounds):
        s.a += s.b
        s.b = rotated(s.b, 13) ^ s.a
        s.a = rotated(s.a, 32)
        s.c += s.d
        s.d = rotated(s.d, 16) ^ s.c
        s.a += s.d
        s.d = rotated(s.d, 21) ^ s.a
        s.c += s.b
        s.b = rotated(s.b, 17) ^ s.c
        s.c = rotated(s.c, 32)


cdef inline void siphash(
    const uint8_t* data, int64_t size, uint64_t k0, uint64_t k1, uint64_t* low, uint64_t* high
) noexcept nogil:
    """SipHash-2-4 with 128 bits (Aumasson, Bernstein: "SipHash: a fast short-input PRF")."""
    cdef Sip s
    cdef uint64_t word
    cdef int64_t i = 0
    s.a = k0 ^ <uint64_t>0x736F6D6570736575
    s.b = k1 ^ <uint64_t>0x646F72616E646F6D ^ <uint64_t>0xEE
    s.c = k0 ^ <uint64_t>0x6C7967656E657261
    s.d = k1 ^ <uint64_t>0x7465646279746573
    while size - i >= 8:
        memcpy(&word, data + i, 8)
        s.d ^= word
        stir(&s, 2)
        s.a ^= word
        i += 8
    word = 0
    memcpy(&word, data + i, size - i)
    word |= <uint64_t>size << 56
    s.d ^= word
    stir(&s, 2)
    s.a ^= word
    s.c ^= <uint64_t>0xEE
    stir(&s, 4)
    low[0] = s.a ^ s.b ^ s.c ^ s.d
    s.b ^= <uint64_t>0xDD
    stir(&s, 4)
    high[0] = s.a ^ s.b ^ s.c ^ s.d


# A record's offset and subject, and nothing else of it.

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


# The digest of an extension's sources, which setup.py passes to the C compiler.
cdef extern from *:
    """
    #ifndef STREAMLOG_SOURCES
    #define STREAMLOG_SOURCES 0
    #endif
    """
    const unsigned long long STREAMLOG_SOURCES
