# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The table of keys, compiled. ``keys.pyi`` says what it means.

Both loops over a batch's records run without the interpreter's lock: a cleaning is not to be felt by
the event loop.

Memory: slots of 24 bytes, at most four fifths of them taken. What is read may be anything, so each length
is checked against the end of what holds it before it is used.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, INT64_MIN, UINT32_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from streamlog.record.compiled.primitives cimport hashed
from streamlog.record.compiled.primitives cimport siphash
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES
from streamlog.record.compiled.primitives cimport put_varint, read_varlong

from typing import NamedTuple

from streamlog.errors import CorruptBatch

SOURCES = STREAMLOG_SOURCES
SEED_BYTES = 16


class Sifted(NamedTuple):
    body: bytes | None
    kept: int
    tombstones: int


cdef enum:
    VARINT_BYTES_MAX = 10
    GROWTH_MAX = 20  # of a record whose time is shifted: two varints

cdef enum:
    SOUND = 0
    CUT = 1
    TRAILING = 2
    FULL = 3


cdef struct Slot:
    uint64_t low
    uint64_t high
    int64_t next_offset  # after the last record of the key; 0: the slot is empty


cdef struct Found:
    const uint8_t* start
    const uint8_t* time_start
    const uint8_t* delta_start
    const uint8_t* end
    const uint8_t* key
    int64_t key_size  # -1: there is none
    int64_t time_delta
    int64_t offset_delta
    bint has_value


cdef inline int find_record(const uint8_t* at, const uint8_t* end, Found* found) noexcept nogil:
    cdef int64_t size
    found.start = at
    if not read_varlong(&at, end, &size) or size <= 0 or size > end - at:
        return CUT
    found.end = end = at + size
    found.time_start = at = at + 1
    if not read_varlong(&at, end, &found.time_delta):
        return CUT
    found.delta_start = at
    if not read_varlong(&at, end, &found.offset_delta) or not read_varlong(&at, end, &size):
        return CUT
    if size < -1 or size > end - at:
        return CUT
    found.key = at
    found.key_size = size
    if size > 0:
        at += size
    if not read_varlong(&at, end, &size):
        return CUT
    found.has_value = size >= 0
    return SOUND


cdef object corrupt(int problem):
    return CorruptBatch("bytes follow the last record" if problem == TRAILING else "a record is cut")


@cython.final
cdef class KeyOffsets:
    """The last offset of each of ``keys_max`` keys at most."""

    BYTES_FOR_KEY = 30

    cdef Slot* _slots
    cdef uint64_t _slot_count
    cdef int64_t _keys_max
    cdef int64_t _count
    cdef uint64_t _k0
    cdef uint64_t _k1

    def __cinit__(self, int64_t keys_max, bytes seed not None):
        if keys_max < 1 or keys_max > 1 << 40 or len(seed) != SEED_BYTES:
            raise ValueError(f"{keys_max} keys and a seed of {len(seed)} bytes cannot be")
        self._keys_max = keys_max
        self._slot_count = keys_max + keys_max // 4 + 1
        self._slots = <Slot*>calloc(self._slot_count, sizeof(Slot))
        if self._slots == NULL:
            raise MemoryError
        memcpy(&self._k0, PyBytes_AS_STRING(seed), 8)
        memcpy(&self._k1, PyBytes_AS_STRING(seed) + 8, 8)

    def __dealloc__(self):
        free(self._slots)

    def __len__(self):
        return self._count

    cdef inline Slot* _slot(self, const uint8_t* key, int64_t size) noexcept nogil:
        """Of the key, or the empty one in which it would be; with its hash filled in, if empty."""
        cdef uint64_t low = 0, high = 0, at
        cdef Slot* slot
        siphash(key, size, self._k0, self._k1, &low, &high)
        at = low % self._slot_count
        while True:
            slot = self._slots + at
            if slot.next_offset == 0:
                slot.low = low
                slot.high = high
                return slot
            if slot.low == low and slot.high == high:
                return slot
            at += 1
            if at == self._slot_count:
                at = 0

    def note(self, body, int64_t count, int64_t base_offset, int64_t from_offset):
        cdef Py_buffer view
        cdef int64_t full_at = -1
        cdef int problem
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                problem = self._note(
                    <const uint8_t*>view.buf, view.len, count, base_offset, from_offset, &full_at
                )
        finally:
            PyBuffer_Release(&view)
        if problem == CUT or problem == TRAILING:
            raise corrupt(problem)
        return full_at

    cdef int _note(
        self, const uint8_t* at, Py_ssize_t size, int64_t count, int64_t base_offset,
        int64_t from_offset, int64_t* full_at,
    ) noexcept nogil:
        cdef const uint8_t* end = at + size
        cdef Found found
        cdef Slot* slot
        cdef int64_t i, offset
        for i in range(count):
            if find_record(at, end, &found):
                return CUT
            at = found.end
            offset = base_offset + found.offset_delta
            if found.key_size < 0 or offset < from_offset:
                continue
            slot = self._slot(found.key, found.key_size)
            if slot.next_offset == 0:
                if self._count >= self._keys_max:
                    full_at[0] = offset
                    return FULL
                self._count += 1
            if slot.next_offset <= offset:
                slot.next_offset = offset + 1
        return SOUND if at == end else TRAILING

    def sift(
        self, body, int64_t count, int64_t base_offset, int64_t upper_offset,
        *, bint drop_tombstones=False, int64_t shift_ms=0,
    ):
        cdef Py_buffer view
        cdef uint8_t* out
        cdef Py_ssize_t room, size = 0
        cdef int64_t kept = 0, tombstones = 0
        cdef int problem
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        out = NULL
        try:
            room = view.len
            if shift_ms and 0 < count <= view.len:
                room += GROWTH_MAX * count
            out = <uint8_t*>malloc(room + 1)
            if out == NULL:
                raise MemoryError
            with nogil:
                problem = self._sift(
                    <const uint8_t*>view.buf, view.len, count, base_offset, upper_offset,
                    drop_tombstones, shift_ms, out, &size, &kept, &tombstones,
                )
            if problem:
                raise corrupt(problem)
            if not shift_ms and kept == count:
                return Sifted(None, kept, tombstones)
            left = PyBytes_FromStringAndSize(<const char*>out, size)
            return Sifted(left, kept, tombstones)
        finally:
            free(out)
            PyBuffer_Release(&view)

    cdef int _sift(
        self, const uint8_t* at, Py_ssize_t size, int64_t count, int64_t base_offset,
        int64_t upper_offset, bint drop_tombstones, int64_t shift_ms,
        uint8_t* out, Py_ssize_t* out_size, int64_t* kept, int64_t* tombstones,
    ) noexcept nogil:
        cdef const uint8_t* end = at + size
        cdef uint8_t* start = out
        cdef Found found
        cdef int64_t i, offset
        cdef bint is_tombstone
        if shift_ms and count > size:
            return CUT  # each takes a byte at least
        for i in range(count):
            if find_record(at, end, &found):
                return CUT
            at = found.end
            offset = base_offset + found.offset_delta
            is_tombstone = found.key_size >= 0 and not found.has_value
            if found.key_size >= 0 and offset < upper_offset:
                if is_tombstone and drop_tombstones:
                    continue
                if self._slot(found.key, found.key_size).next_offset > offset + 1:
                    continue
            kept[0] += 1
            tombstones[0] += is_tombstone
            if shift_ms:
                out = put_shifted(out, &found, shift_ms)
            else:
                memcpy(out, found.start, found.end - found.start)
                out += found.end - found.start
        out_size[0] = out - start
        return SOUND if at == end else TRAILING


cdef inline int64_t clamped_sum(int64_t a, int64_t b) noexcept nogil:
    if b > 0 and a > INT64_MAX - b:
        return INT64_MAX
    if b < 0 and a < INT64_MIN - b:
        return INT64_MIN
    return a + b


cdef inline uint8_t* put_shifted(uint8_t* out, Found* found, int64_t shift_ms) noexcept nogil:
    cdef uint8_t time[VARINT_BYTES_MAX]
    cdef Py_ssize_t time_size = put_varint(time, clamped_sum(found.time_delta, shift_ms)) - time
    cdef Py_ssize_t rest = found.end - found.delta_start
    out = put_varint(out, 1 + time_size + rest)
    out[0] = found.time_start[-1]
    memcpy(out + 1, time, time_size)
    memcpy(out + 1 + time_size, found.delta_start, rest)
    return out + 1 + time_size + rest


def digest(bytes data not None, bytes seed not None):
    """The hash that keys are told apart by, for who wants to check it."""
    cdef uint64_t k0, k1, low = 0, high = 0
    assert len(seed) == SEED_BYTES
    memcpy(&k0, PyBytes_AS_STRING(seed), 8)
    memcpy(&k1, PyBytes_AS_STRING(seed) + 8, 8)
    siphash(<const uint8_t*>PyBytes_AS_STRING(data), len(data), k0, k1, &low, &high)
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


def place_of(body, int64_t count, int64_t offset_delta):
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef const uint8_t* start
    cdef Found found
    cdef int64_t i
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        start = at = <const uint8_t*>view.buf
        end = at + view.len
        for i in range(count):
            if find_record(at, end, &found):
                raise corrupt(CUT)
            if found.offset_delta == offset_delta:
                return found.start - start, found.end - start
            at = found.end
        if at != end:
            raise corrupt(TRAILING)
        return None
    finally:
        PyBuffer_Release(&view)


def marks_of(body, int64_t count, int64_t step):
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef const uint8_t* start
    cdef uint32_t* out
    cdef Found found
    cdef bytes marks
    cdef int64_t i
    if not 0 < count <= INT64_MAX // 8 or step <= 0:
        return None
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        if view.len > UINT32_MAX or count > view.len:
            return None
        marks = PyBytes_FromStringAndSize(NULL, 4 * ((count + step - 1) // step + 1))
        out = <uint32_t*>PyBytes_AS_STRING(marks)
        start = at = <const uint8_t*>view.buf
        end = at + view.len
        for i in range(count):
            if i % step == 0:
                out[0] = <uint32_t>(at - start)
                out += 1
            if find_record(at, end, &found) or found.offset_delta != i:
                return None
            at = found.end
        out[0] = <uint32_t>(at - start)
        return marks if at == end else None
    finally:
        PyBuffer_Release(&view)


def keyless_of(body, int64_t count, int64_t most):
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef Found found
    cdef int64_t i, keyless = 0
    cdef list places = []
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t*>view.buf
        end = at + view.len
        for i in range(count):
            if find_record(at, end, &found):
                raise corrupt(CUT)
            if found.key_size < 0:
                keyless += 1
                if keyless <= most:
                    places.append(i)
            at = found.end
        if at != end:
            raise corrupt(TRAILING)
        return keyless, places
    finally:
        PyBuffer_Release(&view)


def without(body, int64_t count, bytes erased not None):
    cdef Py_buffer view
    cdef uint8_t* out
    cdef const uint8_t* bits = <const uint8_t*>PyBytes_AS_STRING(erased)
    cdef Py_ssize_t size = 0, bits_size = len(erased)
    cdef int64_t kept = 0, tombstones = 0
    cdef int problem
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    out = NULL
    try:
        out = <uint8_t*>malloc(view.len + 1)
        if out == NULL:
            raise MemoryError
        with nogil:
            problem = leave_out(
                <const uint8_t*>view.buf, view.len, count, bits, bits_size,
                out, &size, &kept, &tombstones,
            )
        if problem:
            raise corrupt(problem)
        if kept == count:
            return Sifted(None, kept, tombstones)
        return Sifted(PyBytes_FromStringAndSize(<const char*>out, size), kept, tombstones)
    finally:
        free(out)
        PyBuffer_Release(&view)


cdef int leave_out(
    const uint8_t* at, Py_ssize_t size, int64_t count, const uint8_t* bits, Py_ssize_t bits_size,
    uint8_t* out, Py_ssize_t* out_size, int64_t* kept, int64_t* tombstones,
) noexcept nogil:
    cdef const uint8_t* end = at + size
    cdef uint8_t* start = out
    cdef Found found
    cdef int64_t i, delta
    for i in range(count):
        if find_record(at, end, &found):
            return CUT
        at = found.end
        delta = found.offset_delta
        if 0 <= delta and delta >> 3 < bits_size and bits[delta >> 3] >> (delta & 7) & 1:
            continue
        kept[0] += 1
        tombstones[0] += found.key_size >= 0 and not found.has_value
        memcpy(out, found.start, found.end - found.start)
        out += found.end - found.start
    out_size[0] = out - start
    return SOUND if at == end else TRAILING


def murmur2(bytes data not None):
    """As Kafka's default partitioner hashes keys; 32 bits without a sign."""
    return hashed(<const uint8_t*>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
