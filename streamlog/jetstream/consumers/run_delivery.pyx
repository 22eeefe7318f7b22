# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Runs of messages on their way to a client, compiled. ``run_delivery.pyi`` says what it means.

Memory: a reply subject is written into bytes that have room for its head and four numbers of 64 bits. A
message's parts lie in its run, which is kept as long as it is delivered.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.string cimport memcpy

from streamlog.nats.lexer cimport digits, of_bytes, put_number, span
from streamlog.nats.router cimport Message, Router, message_with
from streamlog.record.compiled.codec cimport Span
from streamlog.record.compiled.message_run cimport MessageRun, RunEntry
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

SOURCES = STREAMLOG_SOURCES

cdef enum:
    NUMBERS_BYTES_MAX = 80  # four of 19 digits, three dots
    MS_NS = 1_000_000


cdef inline int64_t time_ns(int64_t timestamp_ms, int64_t mark_ns) noexcept nogil:
    """Kafka producers choose times: one that 64 bits of nanoseconds cannot hold becomes the nearest."""
    cdef int64_t latest_ms = INT64_MAX // MS_NS - 1
    return min(max(timestamp_ms, <int64_t>0), latest_ms) * MS_NS + mark_ns


def deliver_run(
    Router router not None, bytes subject not None, MessageRun run not None, Py_ssize_t start, Py_ssize_t stop, *,
    bytes head not None, int64_t sequence, int64_t time_mark_ns, int64_t pending, bytes unnamed not None
):
    cdef bytes reply = PyBytes_FromStringAndSize(NULL, len(head) + NUMBERS_BYTES_MAX)
    cdef uint8_t* begin = <uint8_t*>PyBytes_AS_STRING(reply)
    cdef uint8_t* numbers = begin + len(head)
    cdef uint8_t* out
    cdef Span target = of_bytes(subject), name
    cdef RunEntry* entry
    cdef Message message, shown
    cdef int64_t number
    cdef Py_ssize_t i
    memcpy(begin, PyBytes_AS_STRING(head), len(head))
    for i in range(start, stop):
        entry = run.entry(i)
        number = entry.offset + 1
        out = put_number(numbers, number, digits(number))
        out[0] = 46
        out = put_number(out + 1, sequence, digits(sequence))
        out[0] = 46
        number = time_ns(entry.timestamp_ms, time_mark_ns)
        out = put_number(out + 1, number, digits(number))
        out[0] = 46
        out = put_number(out + 1, pending, digits(pending))
        message = message_with(target, span(begin, out), run.block(entry), run.payload(entry))
        shown = message
        name = run.subject(entry)
        shown.subject = name if name.size else of_bytes(unnamed)
        if not router.deliver_shown(&message, &shown):
            return i - start
        sequence += 1
        pending = max(pending - 1, <int64_t>0)
    return max(stop - start, 0)


def fitting(
    MessageRun run not None, Py_ssize_t start, Py_ssize_t stop, *, Py_ssize_t head_bytes, int64_t sequence,
    int64_t pending, int64_t bytes_max
):
    cdef RunEntry* entry
    cdef int64_t size = 0
    cdef Py_ssize_t i
    for i in range(start, stop):
        if size >= bytes_max:
            return i - start, size
        entry = run.entry(i)
        size += entry.subject_bytes + entry.block_bytes + entry.payload_bytes + head_bytes + 3
        size += digits(entry.offset + 1) + digits(sequence) + digits(time_ns(entry.timestamp_ms, 0))
        size += digits(pending)
        sequence += 1
        pending = max(pending - 1, <int64_t>0)
    return max(stop - start, 0), size
