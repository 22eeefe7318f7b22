# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Acknowledgements as they come, compiled. ``ack_intake.pyi`` says what it means, ``acks.py`` what their
subjects have.

Memory: the subject is borrowed for as long as its delivery takes; names are copied into bytes.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.string cimport memcmp

from streamlog.nats.lexer cimport find, span, to_bytes
from streamlog.nats.router cimport Endpoint, Message, Router, Subscription
from streamlog.record.compiled.codec cimport Span
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

from typing import NamedTuple

SOURCES = STREAMLOG_SOURCES

cdef enum:
    HEAD_BYTES = 8  # "$JS.ACK."
    NUMBERS = 5
    DIGITS_MAX = 19
    MS_NS = 1_000_000
    MARKS = 100


class AckRun(NamedTuple):
    partition: int
    mark: int
    start: int
    stop: int


cdef inline int64_t number(const uint8_t* start, const uint8_t* end) noexcept nogil:
    """-1 where it is none, or one that 64 bits cannot hold."""
    cdef int64_t value = 0
    cdef uint8_t digit
    if start == end or end - start > DIGITS_MAX:
        return -1
    while start < end:
        digit = start[0] - 48  # below "0" it wraps around to a large one
        if digit > 9 or value > (INT64_MAX - digit) // 10:
            return -1
        value = value * 10 + digit
        start += 1
    return value


cdef inline bint is_positive(const Message* message) noexcept nogil:
    """And no client waits for an answer."""
    cdef Span payload = message.payload
    if message.reply.size:
        return False
    return payload.size == 0 or (payload.size == 4 and memcmp(payload.data, b"+ACK", 4) == 0) or (
        payload.size == 3 and memcmp(payload.data, b"+OK", 3) == 0
    )


cdef class AckIntake(Endpoint):
    cdef object _gathered
    cdef object _told
    cdef object _failed
    cdef dict _runs  # by stream and consumer, with a dot between them
    cdef bytes _key  # of the last run, which may go on
    cdef int64_t _partition
    cdef int64_t _mark
    cdef int64_t _start
    cdef int64_t _stop  # 0: there is no such run

    def __init__(self, Router router not None, *, gathered, told, failed):
        self._gathered, self._told, self._failed = gathered, told, failed
        self._runs = {}

    cdef int deliver(self, Subscription subscription, const Message* message) except -1:
        if is_positive(message) and self._take(message.subject):
            return self.router.touch(self)
        self._flush()
        try:
            self._told(
                to_bytes(message.subject), to_bytes(message.reply), to_bytes(message.block), to_bytes(message.payload)
            )
        except Exception as error:
            self._failed(error)
        return 0

    cdef bint _take(self, Span subject) except -1:
        """False: the subject is not one of an acknowledgement."""
        cdef const uint8_t* end = subject.data + subject.size
        cdef const uint8_t* names = subject.data + HEAD_BYTES
        cdef const uint8_t* names_end
        cdef const uint8_t* at
        cdef const uint8_t* dot
        cdef int64_t[NUMBERS] numbers
        cdef int64_t offset, partition, mark
        cdef int i
        if subject.size <= HEAD_BYTES:
            return False
        at = find(names, end, 46)
        if at == NULL or at == names:
            return False
        names_end = find(at + 1, end, 46)
        if names_end == NULL or names_end == at + 1:
            return False
        at = names_end
        for i in range(NUMBERS):
            dot = find(at + 1, end, 46)
            if (dot == NULL) != (i == NUMBERS - 1):
                return False
            if dot == NULL:
                dot = end
            numbers[i] = number(at + 1, dot)
            if numbers[i] < 0:
                return False
            at = dot
        offset = numbers[1] - 1
        partition = numbers[3] % MS_NS // MARKS
        mark = numbers[3] % MARKS
        if offset < 0:
            return False
        if self._stop and offset == self._stop and partition == self._partition and mark == self._mark and (
            len(self._key) == names_end - names
            and memcmp(PyBytes_AS_STRING(self._key), names, names_end - names) == 0
        ):
            self._stop += 1
            return True
        self._close_run()
        self._key = to_bytes(span(names, names_end))
        self._partition, self._mark, self._start, self._stop = partition, mark, offset, offset + 1
        return True

    cdef int _close_run(self) except -1:
        cdef list runs
        if self._stop:
            runs = self._runs.get(self._key)
            if runs is None:
                runs = self._runs[self._key] = []
            runs.append(AckRun(self._partition, self._mark, self._start, self._stop))
            self._stop = 0
        return 0

    cdef int _flush(self) except -1:
        cdef dict gathered
        cdef bytes key
        self._close_run()
        gathered, self._runs = self._runs, {}
        for key, runs in gathered.items():
            try:
                stream, _, consumer = key.decode("utf-8", "replace").partition(".")
                self._gathered(stream, consumer, runs)
            except Exception as error:
                self._failed(error)
        return 0

    cdef int end_turn(self) except -1:
        return self._flush()
