"""Kafka's hash of keys, for the compiled parts."""

from libc.stdint cimport uint8_t, uint32_t

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
