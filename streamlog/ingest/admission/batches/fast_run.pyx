# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What a partition's run has of fast batches, compiled. ``fast_run.pyi`` says what it means."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from streamlog.nats.lexer cimport Buffer, add, clear, number, of_bytes, release, reserve, span, to_bytes
from streamlog.record.compiled.codec cimport Span
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

from collections import deque
from typing import NamedTuple

SOURCES = STREAMLOG_SOURCES

cdef enum:
    TAIL_BYTES = 6  # of the reply of a message that is appended: ".1.$FI"


class InFlight(NamedTuple):
    awaited: int
    first: int
    last: int
    sequence: int


class Entry(NamedTuple):
    batch: FastBatch
    number: int
    position: int
    repeated_of: int


cdef struct Logged:
    uint64_t number
    int64_t position
    int64_t repeated_of
    int64_t index  # among the batches touched


@cython.final
cdef class FastBatch:
    def __cinit__(self, bytes batch_id not None, *, bint gap_ok, int flow_max):
        self.batch_id = batch_id
        self.gap_ok = gap_ok
        self.flow_max = flow_max
        self.in_flight = deque()
        self.repeated_of = -1
        self.index = -1
        self.position = -1
        self.repeated = -1

    def __dealloc__(self):
        release(&self._reply)

    @property
    def reply(self):
        return PyBytes_FromStringAndSize(<const char*>self._reply.start, self._reply.size)


@cython.final
cdef class FastRun:
    def __cinit__(self):
        self.touched = []
        self._by_prefix = {}

    def __dealloc__(self):
        release(&self._log)

    cdef FastBatch follower(self, Span reply, bint is_routed):
        """The batch of which a message with this reply is the next one; None: to be asked about."""
        cdef Py_ssize_t end = reply.size - TAIL_BYTES, start = end
        cdef FastBatch batch = self._latest
        cdef bytes prefix
        cdef Span told
        cdef int64_t value
        if not self.is_open or end < 2 or reply.data[end + 1] != 49 or reply.data[end] != 46:
            return None
        while start and reply.data[start - 1] != 46:
            start -= 1
        value = number(span(reply.data + start, reply.data + end))
        if value < 2:
            return None
        if batch is not None:
            told = of_bytes(batch._prefix)
            if is_routed:
                told.data += 1
                told.size -= 1
            if told.size != start or memcmp(told.data, reply.data, start) != 0 or (
                (PyBytes_AS_STRING(batch._prefix)[0] == 0) != is_routed
            ):
                batch = None
        if batch is None:
            prefix = PyBytes_FromStringAndSize(<const char*>reply.data, start)
            batch = self._by_prefix.get(b"\0" + prefix if is_routed else prefix)
            if batch is None:
                return None
            self._latest = batch
        if batch.commits or batch.last + 1 != <uint64_t>value:
            return None
        return batch

    cdef int keep_reply(self, FastBatch batch, Span reply, bint is_routed) except -1:
        reserve(&batch._reply, reply.size + 1 - batch._reply.size)
        batch._reply.size = 0
        if is_routed:
            batch._reply.start[0] = 0
            batch._reply.size = 1
        return add(&batch._reply, reply.data, reply.size)

    cdef int enter(
        self, FastBatch batch, uint64_t number, int64_t position, int64_t repeated_of
    ) except -1:
        cdef Logged* logged
        reserve(&self._log, sizeof(Logged))
        if batch.index < 0:
            self.touched.append(batch)
            batch.index = len(self.touched) - 1
            batch.run_first = number
        batch.run_last = number
        if repeated_of < 0:
            batch.position = position
        elif repeated_of > batch.repeated:
            batch.repeated = repeated_of
        logged = <Logged*>(self._log.start + self._log.size)
        logged.number = number
        logged.position = position
        logged.repeated_of = repeated_of
        logged.index = batch.index
        self._log.size += sizeof(Logged)
        return 0

    def hear(self, FastBatch batch not None, bytes reply not None):
        cdef bytes prefix
        cdef Py_ssize_t end = len(reply) - TAIL_BYTES
        self.keep_reply(batch, of_bytes(reply), False)
        prefix = reply[: reply.rfind(b".", 0, max(end, 0)) + 1]
        if batch._prefix != prefix:
            self._drop_prefix(batch)
            batch._prefix = prefix
            if prefix:
                self._by_prefix[prefix] = batch

    def note(
        self, FastBatch batch not None, uint64_t number, int64_t position, int64_t repeated_of=-1
    ):
        self.enter(batch, number, position, repeated_of)

    def forget(self, FastBatch batch not None):
        self._drop_prefix(batch)

    def take(self):
        cdef Logged* logged = <Logged*>self._log.start
        cdef Py_ssize_t i
        found = [
            Entry(
                self.touched[logged[i].index], logged[i].number, logged[i].position,
                logged[i].repeated_of,
            )
            for i in range(self._log.size // <Py_ssize_t>sizeof(Logged))
        ]
        self.clear()
        return found

    def clear(self):
        cdef FastBatch batch
        for batch in self.touched:
            batch.index = batch.position = batch.repeated = -1
        self.touched = []
        clear(&self._log)

    def follows(self, bytes reply not None, int64_t position):
        cdef Span text = of_bytes(reply)
        cdef bint is_routed = text.size > 0 and text.data[0] == 0
        if is_routed:
            text.data += 1
            text.size -= 1
        cdef FastBatch batch = self.follower(text, is_routed)
        if batch is None:
            return False
        batch.last += 1
        self.keep_reply(batch, text, is_routed)
        self.enter(batch, batch.last, position, -1)
        return True

    def _drop_prefix(self, FastBatch batch not None):
        if self._latest is batch:
            self._latest = None
        if batch._prefix is not None and self._by_prefix.get(batch._prefix) is batch:
            del self._by_prefix[batch._prefix]
        batch._prefix = None
