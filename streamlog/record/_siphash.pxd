"""A hash that nobody can find collisions of who does not know the key, for the compiled parts."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy


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
