# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Pending records, compiled. ``pending_records.pyi`` says what it means.

Entries lie in [start, end) of an array, by ascending offset. A removed one keeps its offset, so that a search
finds its way, and has the ticket GONE; removed ones at either end leave the array.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove

from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

from typing import NamedTuple

SOURCES = STREAMLOG_SOURCES
DUE = 0

cdef enum:
    DUE_TICKET = 0
    GONE = -1
    ENTRIES_FIRST = 8  # there may be 100,000 tables
    KEPT_MAX = 1024  # an empty table gives a larger array back
    COLUMNS = 4
    VARINT_BYTES_MAX = 10


class PendingRecord(NamedTuple):
    offset: int
    sequence: int
    count: int
    deadline_ms: int
    ticket: int


class Removed(NamedTuple):
    count: int
    redelivered: int
    due: list


cdef struct Pending:
    int64_t offset
    int64_t sequence
    int64_t count
    int64_t deadline_ms
    int64_t ticket


cdef struct Out:
    uint8_t* at


cdef inline void put_number(Out* out, int64_t number) noexcept nogil:
    cdef uint64_t rest = <uint64_t>number
    while rest >= 0x80:
        out.at[0] = <uint8_t>(rest & 0x7F) | 0x80
        out.at += 1
        rest >>= 7
    out.at[0] = <uint8_t>rest
    out.at += 1


cdef inline object record_of(const Pending* it):
    return PendingRecord(it.offset, it.sequence, it.count, it.deadline_ms, it.ticket)


@cython.final
cdef class PendingRecords:
    cdef Pending* _entries
    cdef Py_ssize_t _start
    cdef Py_ssize_t _end
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _count

    def __dealloc__(self):
        free(self._entries)

    def __len__(self):
        return self._count

    cdef int _reserve(self, Py_ssize_t extra) except -1:
        """Room for so many more at the end."""
        cdef Py_ssize_t i, kept = 0, capacity = max(2 * self._capacity, <Py_ssize_t>ENTRIES_FIRST)
        cdef Pending* entries
        if self._end + extra <= self._capacity:
            return 0
        if 2 * self._count <= self._capacity:  # half of it has gone
            for i in range(self._start, self._end):
                if self._entries[i].ticket != GONE:
                    self._entries[kept] = self._entries[i]
                    kept += 1
            self._start, self._end = 0, kept
            if self._end + extra <= self._capacity:
                return 0
        if capacity < self._end + extra:
            capacity = self._end + extra
        entries = <Pending*>realloc(self._entries, capacity * sizeof(Pending))
        if entries == NULL:
            raise MemoryError
        self._entries = entries
        self._capacity = capacity
        return 0

    cdef int _add(self, int64_t offset, int64_t sequence, int64_t count, int64_t deadline_ms, int64_t ticket) except -1:
        """There is room."""
        cdef Pending* it
        if self._end > self._start and offset <= self._entries[self._end - 1].offset:
            raise ValueError(f"offset {offset} does not rise")
        it = self._entries + self._end
        it.offset, it.sequence, it.count = offset, sequence, count
        it.deadline_ms, it.ticket = deadline_ms, ticket
        self._end += 1
        self._count += 1
        return 0

    def append_run(self, offsets, int64_t sequence, int64_t deadline_ms, int64_t ticket):
        cdef int64_t offset
        self._reserve(len(offsets))
        for offset in offsets:
            self._add(offset, sequence, 1, deadline_ms, ticket)
            sequence += 1

    def append(self, record):
        self._reserve(1)
        self._add(record[0], record[1], record[2], record[3], record[4])

    cdef Py_ssize_t _index(self, int64_t offset) noexcept nogil:
        """Of the first entry at that offset or above."""
        cdef Py_ssize_t low = self._start, high = self._end, middle
        while low < high:
            middle = (low + high) // 2
            if self._entries[middle].offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    cdef Pending* _at(self, int64_t offset) noexcept nogil:
        cdef Py_ssize_t i = self._index(offset)
        if i < self._end and self._entries[i].offset == offset and self._entries[i].ticket != GONE:
            return self._entries + i
        return NULL

    def find(self, int64_t offset):
        cdef Pending* it = self._at(offset)
        return None if it == NULL else record_of(it)

    def first(self):
        return record_of(self._entries + self._start) if self._count else None

    def last_before(self, int64_t offset):
        cdef Py_ssize_t i = self._index(offset) - 1
        while i >= self._start:
            if self._entries[i].ticket != GONE:
                return record_of(self._entries + i)
            i -= 1
        return None

    def update(self, int64_t offset, *, int64_t count, int64_t deadline_ms, int64_t ticket):
        cdef Pending* it = self._at(offset)
        if it == NULL:
            raise KeyError(offset)
        it.count, it.deadline_ms, it.ticket = count, deadline_ms, ticket

    def remove(self, int64_t low, int64_t high):
        cdef Py_ssize_t i = self._index(low), removed = 0, redelivered = 0
        cdef Pending* it
        cdef list due = []
        while i < self._end and self._entries[i].offset < high:
            it = self._entries + i
            i += 1
            if it.ticket == GONE:
                continue
            if it.ticket == DUE_TICKET:
                due.append(it.sequence)
            removed += 1
            redelivered += it.count > 1
            it.ticket = GONE
        self._count -= removed
        self._trim()
        return Removed(removed, redelivered, due)

    cdef int _trim(self) except -1:
        while self._start < self._end and self._entries[self._start].ticket == GONE:
            self._start += 1
        while self._end > self._start and self._entries[self._end - 1].ticket == GONE:
            self._end -= 1
        if self._start == self._end:
            self._start = self._end = 0
            if self._capacity > KEPT_MAX:
                free(self._entries)
                self._entries = NULL
                self._capacity = 0
        return 0

    def with_ticket(self, int64_t ticket, int64_t low, int64_t high, *, Py_ssize_t limit=-1):
        cdef Py_ssize_t i = self._index(low)
        cdef list found = []
        while i < self._end and self._entries[i].offset < high and len(found) != limit:
            if self._entries[i].ticket == ticket:
                found.append(record_of(self._entries + i))
            i += 1
        return found

    def columns(self, int64_t now_ms, int64_t step_ms):
        cdef Out out
        cdef Py_ssize_t i
        cdef int column
        cdef int64_t value, run_value, times, before
        cdef uint8_t* start
        if not self._count:
            return b""
        start = <uint8_t*>malloc(self._count * COLUMNS * 2 * VARINT_BYTES_MAX)
        if start == NULL:
            raise MemoryError
        out.at = start
        try:
            for column in range(COLUMNS):
                before = run_value = times = 0
                for i in range(self._start, self._end):
                    if self._entries[i].ticket == GONE:
                        continue
                    value = number_in(self._entries + i, column, &before, now_ms, step_ms)
                    if times and value != run_value:
                        put_number(&out, run_value)
                        put_number(&out, times)
                        times = 0
                    run_value = value
                    times += 1
                put_number(&out, run_value)
                put_number(&out, times)
            return start[: out.at - start]
        finally:
            free(start)


cdef inline int64_t number_in(
    const Pending* it, int column, int64_t* before, int64_t now_ms, int64_t step_ms
) noexcept nogil:
    cdef int64_t value, left
    if column == 2:
        return it.count
    if column == 3:
        if it.ticket == DUE_TICKET:
            return 0
        left = it.deadline_ms - now_ms
        return 1 if left <= 0 else 1 + (left - 1) // step_ms + 1
    value = it.offset if column == 0 else it.sequence
    left = value - before[0]
    before[0] = value
    return left
