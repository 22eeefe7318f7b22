# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Acks, compiled. ``_acks.pyi`` says what it means.

Each builder goes over the replies twice: first to check them and to count the bytes, then to write.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from streamlog.record._sources cimport STREAMLOG_SOURCES

SOURCES = STREAMLOG_SOURCES

cdef enum:
    ENTRY_BYTES = 6  # u32 offset delta, u16 length, both little-endian
    LINE_BYTES = 9  # "PUB ", a space, CRLF after the size and after the payload


cdef inline int64_t delta_at(const uint8_t* entry) noexcept nogil:
    return entry[0] | entry[1] << 8 | entry[2] << 16 | <int64_t>entry[3] << 24


cdef inline Py_ssize_t length_at(const uint8_t* entry) noexcept nogil:
    return entry[4] | entry[5] << 8


cdef inline int digits(int64_t value) noexcept nogil:
    cdef int count = 1
    while value >= 10:
        value //= 10
        count += 1
    return count


cdef inline uint8_t* put(uint8_t* out, const void* data, Py_ssize_t size) noexcept nogil:
    memcpy(out, data, size)
    return out + size


cdef inline uint8_t* put_number(uint8_t* out, int64_t value, int size) noexcept nogil:
    cdef int i
    for i in range(size - 1, -1, -1):
        out[i] = 48 + value % 10
        value //= 10
    return out + size


cdef inline uint8_t* put_line(
    uint8_t* out, const uint8_t* entry, Py_ssize_t payload_bytes
) noexcept nogil:
    out = put(out, b"PUB ", 4)
    out = put(out, entry + ENTRY_BYTES, length_at(entry))
    out = put(out, b" ", 1)
    out = put_number(out, payload_bytes, digits(payload_bytes))
    return put(out, b"\r\n", 2)


cdef const uint8_t* entry_after(const uint8_t* entry, const uint8_t* end) except NULL:
    if end - entry < ENTRY_BYTES or length_at(entry) > end - entry - ENTRY_BYTES:
        raise ValueError("packed replies are cut")
    return entry + ENTRY_BYTES + length_at(entry)


def build_acks(bytes replies not None, bytes head not None, int64_t base_offset):
    """A publication of a positive ack for each packed reply; its ``seq`` is the offset + 1."""
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(replies)
    cdef const uint8_t* end = start + len(replies)
    cdef const uint8_t* entry = start
    cdef const uint8_t* following
    cdef Py_ssize_t size = 0, payload
    cdef int64_t seq
    cdef bytes acks
    cdef uint8_t* out
    if not 0 <= base_offset < (1 << 63) - 1 - (1 << 32):
        raise ValueError(f"offset {base_offset} has no sequence")
    while entry < end:
        following = entry_after(entry, end)
        payload = len(head) + digits(base_offset + delta_at(entry) + 1) + 1
        size += LINE_BYTES + length_at(entry) + digits(payload) + payload
        entry = following
    acks = PyBytes_FromStringAndSize(NULL, size)
    out = <uint8_t*>PyBytes_AS_STRING(acks)
    entry = start
    while entry < end:
        seq = base_offset + delta_at(entry) + 1
        payload = len(head) + digits(seq) + 1
        out = put_line(out, entry, payload)
        out = put(out, PyBytes_AS_STRING(head), len(head))
        out = put_number(out, seq, digits(seq))
        out = put(out, b"}\r\n", 3)
        entry += ENTRY_BYTES + length_at(entry)
    return acks


def build_refusals(bytes replies not None, bytes payload not None):
    """A publication of the same ``payload`` for each packed reply."""
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(replies)
    cdef const uint8_t* end = start + len(replies)
    cdef const uint8_t* entry = start
    cdef const uint8_t* following
    cdef Py_ssize_t size = 0
    cdef bytes refusals
    cdef uint8_t* out
    while entry < end:
        following = entry_after(entry, end)
        size += LINE_BYTES + length_at(entry) + digits(len(payload)) + len(payload)
        entry = following
    refusals = PyBytes_FromStringAndSize(NULL, size)
    out = <uint8_t*>PyBytes_AS_STRING(refusals)
    entry = start
    while entry < end:
        out = put_line(out, entry, len(payload))
        out = put(out, PyBytes_AS_STRING(payload), len(payload))
        out = put(out, b"\r\n", 2)
        entry += ENTRY_BYTES + length_at(entry)
    return refusals
