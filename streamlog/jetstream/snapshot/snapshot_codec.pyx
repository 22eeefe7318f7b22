# cython: boundscheck=False, wraparound=False, cdivision=True
"""HighwayHash and S2's blocks, compiled; see ``snapshot_codec.pyi``."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from streamlog.errors import CorruptData
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

SOURCES = STREAMLOG_SOURCES



cdef struct State:
    uint64_t v0[4]
    uint64_t v1[4]
    uint64_t mul0[4]
    uint64_t mul1[4]


cdef inline uint64_t load(const uint8_t* data) noexcept nogil:
    cdef uint64_t value = 0
    cdef int i
    for i in range(8):
        value |= (<uint64_t>data[i]) << (8 * i)
    return value


cdef inline uint64_t halves_swapped(uint64_t value) noexcept nogil:
    return (value >> 32) | (value << 32)


cdef inline void zipper_merge(
    uint64_t high, uint64_t low, uint64_t* add_high, uint64_t* add_low
) noexcept nogil:
    add_low[0] += (
        (((low & <uint64_t>0xff000000) | (high & <uint64_t>0xff00000000)) >> 24)
        | (((low & <uint64_t>0xff0000000000) | (high & <uint64_t>0xff000000000000)) >> 16)
        | (low & <uint64_t>0xff0000)
        | ((low & <uint64_t>0xff00) << 32)
        | ((high & <uint64_t>0xff00000000000000) >> 8)
        | (low << 56)
    )
    add_high[0] += (
        (((high & <uint64_t>0xff000000) | (low & <uint64_t>0xff00000000)) >> 24)
        | (high & <uint64_t>0xff0000)
        | ((high & <uint64_t>0xff0000000000) >> 16)
        | ((high & <uint64_t>0xff00) << 24)
        | ((low & <uint64_t>0xff000000000000) >> 8)
        | ((high & <uint64_t>0xff) << 48)
        | (low & <uint64_t>0xff00000000000000)
    )


cdef void update(State* state, const uint64_t* lanes) noexcept nogil:
    cdef int i
    for i in range(4):
        state.v1[i] += state.mul0[i] + lanes[i]
        state.mul0[i] ^= (state.v1[i] & <uint64_t>0xffffffff) * (state.v0[i] >> 32)
        state.v0[i] += state.mul1[i]
        state.mul1[i] ^= (state.v0[i] & <uint64_t>0xffffffff) * (state.v1[i] >> 32)
    zipper_merge(state.v1[1], state.v1[0], &state.v0[1], &state.v0[0])
    zipper_merge(state.v1[3], state.v1[2], &state.v0[3], &state.v0[2])
    zipper_merge(state.v0[1], state.v0[0], &state.v1[1], &state.v1[0])
    zipper_merge(state.v0[3], state.v0[2], &state.v1[3], &state.v1[2])


cdef void update_packet(State* state, const uint8_t* packet) noexcept nogil:
    cdef uint64_t lanes[4]
    cdef int i
    for i in range(4):
        lanes[i] = load(packet + 8 * i)
    update(state, lanes)


cdef void update_rest(State* state, const uint8_t* data, size_t size) noexcept nogil:
    """Of the last 1 to 31 bytes."""
    cdef uint8_t packet[32]
    cdef size_t whole = size & ~<size_t>3, rest = size & 3
    cdef const uint8_t* tail = data + whole
    cdef uint32_t low, high
    cdef int i
    memset(packet, 0, 32)
    for i in range(4):
        state.v0[i] += (<uint64_t>size << 32) + size
        low, high = <uint32_t>state.v1[i], <uint32_t>(state.v1[i] >> 32)
        low = (low << size) | (low >> (32 - size))
        high = (high << size) | (high >> (32 - size))
        state.v1[i] = low | (<uint64_t>high << 32)
    memcpy(packet, data, whole)
    if size & 16:
        for i in range(4):
            packet[28 + i] = (data + size - 4)[i]
    elif rest:
        packet[16] = tail[0]
        packet[17] = tail[rest >> 1]
        packet[18] = tail[rest - 1]
    update_packet(state, packet)


cdef class HighwayHash:
    cdef State begun

    def __init__(self, bytes key):
        cdef int i
        cdef uint64_t part
        cdef uint64_t[8] first = [
            0xdbe6d5d5fe4cce2f, 0xa4093822299f31d0, 0x13198a2e03707344, 0x243f6a8885a308d3,
            0x3bd39e10cb0ef593, 0xc0acf169b5f18a8c, 0xbe5466cf34e90c6c, 0x452821e638d01377,
        ]
        if len(key) != 32:
            raise ValueError("a key has 32 bytes")
        for i in range(4):
            part = load(<const uint8_t*>PyBytes_AS_STRING(key) + 8 * i)
            self.begun.mul0[i] = first[i]
            self.begun.mul1[i] = first[4 + i]
            self.begun.v0[i] = first[i] ^ part
            self.begun.v1[i] = first[4 + i] ^ halves_swapped(part)

    cpdef bytes digest(self, const uint8_t[::1] data):
        cdef State state = self.begun
        cdef uint64_t lanes[4]
        cdef size_t size = data.shape[0], at = 0
        cdef const uint8_t* start = &data[0] if size else NULL
        cdef uint64_t found
        cdef uint8_t out[8]
        cdef int i
        with nogil:
            while at + 32 <= size:
                update_packet(&state, start + at)
                at += 32
            if at < size:
                update_rest(&state, start + at, size - at)
            for _ in range(4):
                lanes[0] = halves_swapped(state.v0[2])
                lanes[1] = halves_swapped(state.v0[3])
                lanes[2] = halves_swapped(state.v0[0])
                lanes[3] = halves_swapped(state.v0[1])
                update(&state, lanes)
            found = state.v0[0] + state.v1[0] + state.mul0[0] + state.mul1[0]
            for i in range(8):
                out[i] = <uint8_t>(found >> (8 * i))
        return PyBytes_FromStringAndSize(<char*>out, 8)


cdef Py_ssize_t decode(
    const uint8_t* source, Py_ssize_t size, uint8_t* out, Py_ssize_t out_size
) noexcept nogil:
    """How many bytes are in ``out``; -1: it is no block."""
    cdef Py_ssize_t at = 0, end = 0, length, offset = 0, distance, extra
    cdef int tag, kind, i
    while at < size:
        tag = source[at]
        kind = tag & 3
        at += 1
        if kind == 0:
            length = tag >> 2
            if length >= 60:
                extra = length - 59
                if at + extra > size:
                    return -1
                length = 0
                for i in range(extra):
                    length |= <Py_ssize_t>source[at + i] << (8 * i)
                at += extra
            length += 1
            if length > size - at or length > out_size - end:
                return -1
            memcpy(out + end, source + at, length)
            at += length
            end += length
            continue
        if kind == 1:
            if at + 1 > size:
                return -1
            distance = ((tag & 0xe0) << 3) | source[at]
            at += 1
            length = (tag >> 2) & 7
            if distance:
                offset = distance
            elif length >= 5:  # S2's repeat of the last offset, with a longer length
                extra = length - 4
                if at + extra > size:
                    return -1
                length = 4 if extra == 1 else (1 << 8) if extra == 2 else (1 << 16)
                for i in range(extra):
                    length += <Py_ssize_t>source[at + i] << (8 * i)
                at += extra
            length += 4
        else:
            extra = 2 if kind == 2 else 4
            if at + extra > size:
                return -1
            length = 1 + (tag >> 2)
            offset = 0
            for i in range(extra):
                offset |= <Py_ssize_t>source[at + i] << (8 * i)
            at += extra
        if offset <= 0 or offset > end or length > out_size - end:
            return -1
        if offset >= length:
            memcpy(out + end, out + end - offset, length)
        else:
            for extra in range(length):
                out[end + extra] = out[end + extra - offset]
        end += length
    return end


def s2_block(const uint8_t[::1] data, Py_ssize_t bytes_max):
    cdef Py_ssize_t size = data.shape[0], at = 0, length = 0, found
    cdef int shift = 0
    cdef uint8_t byte = 0x80
    cdef bytes made
    cdef uint8_t* out
    while byte & 0x80:
        if at >= size or shift > 28:
            raise CorruptData("a block of S2 does not say how long it is")
        byte = data[at]
        length |= <Py_ssize_t>(byte & 0x7f) << shift
        shift += 7
        at += 1
    if length > bytes_max:
        raise CorruptData(f"a block of S2 of {length} bytes; at most {bytes_max} are read")
    made = PyBytes_FromStringAndSize(NULL, length)
    out = <uint8_t*>PyBytes_AS_STRING(made)
    with nogil:
        found = decode(&data[0] + at, size - at, out, length) if at < size else 0
    if found != length:
        raise CorruptData("a block of S2 does not decode")
    return made
