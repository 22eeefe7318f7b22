# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The index of subjects, compiled. ``subjects.pyi`` says what it means.

Memory, stated: for each subject an entry of 48 bytes, its name, and at most 8 bytes of a hash table; for each
offset the number of its subject, in 1 byte while there are up to 255 subjects in its chunk of 4,096 offsets, else in
2 or 4. Numbers of subjects that have no messages left are given to others.

``first`` and ``last`` of an entry are bounds: what was taken away may have moved the true ones inwards. They are
looked for when they are asked for, and then kept.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from streamlog.record.compiled.name_table cimport Entry, NameTable, drop_name, find_name, find_or_make_name
from streamlog.record.compiled.offset_map cimport (
    CHUNK, CHUNK_BITS, NO_OFFSET, OffsetMap, free_chunk, free_first, number_at, put_number_at, scan, scan_back,
)
from streamlog.record.compiled.primitives cimport Found, find_record
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

from typing import NamedTuple

from streamlog.errors import CorruptBatch

SOURCES = STREAMLOG_SOURCES
SEED_BYTES = 16
NOTHING = NO_OFFSET


class Total(NamedTuple):
    subject: bytes
    messages: int


cdef enum:
    SOUND = 0
    CUT = 1
    TRAILING = 2
    ABOVE = 3
    FULL = 4
    NO_MEMORY = 5


cdef inline bint match(
    const uint8_t* p, const uint8_t* p_end, const uint8_t* s, const uint8_t* s_end
) noexcept nogil:
    """Token by token."""
    cdef const uint8_t* token
    while True:
        token = p
        while p < p_end and p[0] != 46:
            p += 1
        if p - token == 1 and token[0] == 62 and p == p_end:
            return True
        if p - token == 1 and token[0] == 42:
            while s < s_end and s[0] != 46:
                s += 1
        else:
            if s_end - s < p - token or memcmp(token, s, p - token) != 0:
                return False
            s += p - token
        if p == p_end or s == s_end:
            return p == p_end and s == s_end
        if s[0] != 46:
            return False
        p += 1
        s += 1


def is_pattern(bytes text not None):
    return any(token in (b"*", b">") for token in text.split(b"."))


def matches(bytes pattern not None, bytes subject not None):
    cdef const uint8_t* wanted = <const uint8_t*>PyBytes_AS_STRING(pattern)
    cdef const uint8_t* found = <const uint8_t*>PyBytes_AS_STRING(subject)
    return match(wanted, wanted + len(pattern), found, found + len(subject))


@cython.final
cdef class SubjectIndex:
    """Not thread-safe; ``note`` runs without the interpreter's lock."""

    BYTES_FOR_SUBJECT = 56
    BYTES_FOR_MESSAGE = 4

    cdef readonly int64_t start_offset
    cdef readonly int64_t next_offset
    cdef readonly int64_t message_count
    cdef public int64_t bytes_max
    cdef NameTable _names
    cdef OffsetMap _map

    def __cinit__(self, bytes seed not None, *, int64_t bytes_max, int64_t start_offset=0):
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a seed of {len(seed)} bytes cannot be")
        memcpy(&self._names.k0, PyBytes_AS_STRING(seed), 8)
        memcpy(&self._names.k1, PyBytes_AS_STRING(seed) + 8, 8)
        self.bytes_max = bytes_max
        self.start_offset = self.next_offset = start_offset
        self._names.entry_end = 1

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self._map.count):
            free(self._map.chunks[i].data)
        free(self._map.chunks)
        free(self._names.slots)
        free(self._names.entries)
        free(self._names.arena)

    @property
    def size_bytes(self):
        """The memory that it takes, about."""
        return self._map.size_bytes + self._names.size_bytes

    def __len__(self):
        return self._names.count

    cdef void _drop(self, int64_t offset, int64_t number) noexcept nogil:
        cdef Entry* entry = self._names.entries + number
        put_number_at(&self._map, offset, 0)  # never fails: its chunk is there, and wide enough
        self.message_count -= 1
        entry.count -= 1
        if not entry.count:
            drop_name(&self._names, number)
        elif entry.last == offset:
            entry.last = offset - 1
        elif entry.first == offset:
            entry.first = offset + 1

    # Taking in

    def note(self, body, int64_t count, int64_t base_offset, int64_t upper_offset):
        cdef Py_buffer view
        cdef int problem
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                problem = self._note(
                    <const uint8_t*>view.buf, view.len, count, base_offset, upper_offset
                )
        finally:
            PyBuffer_Release(&view)
        if problem == NO_MEMORY:
            raise MemoryError
        if problem == FULL:
            return self.next_offset
        if problem == ABOVE:
            raise CorruptBatch("a record's offset is above its batch")
        if problem:
            raise CorruptBatch("bytes follow the last record" if problem == TRAILING else "a record is cut")
        self.advance(upper_offset)
        return NO_OFFSET

    cdef int _note(
        self, const uint8_t* at, Py_ssize_t size, int64_t count, int64_t base_offset, int64_t upper_offset
    ) noexcept nogil:
        cdef const uint8_t* end = at + size
        cdef Found found
        cdef int64_t i, offset, number
        cdef Entry* entry
        for i in range(count):
            if not find_record(at, end, &found):
                return CUT
            at = found.end
            if found.delta > INT64_MAX - base_offset:
                return ABOVE
            offset = base_offset + found.delta
            if offset < self.next_offset:
                continue
            if offset >= upper_offset:
                return ABOVE
            if found.size >= 0:
                if self._map.size_bytes + self._names.size_bytes >= self.bytes_max:
                    self.next_offset = offset
                    return FULL
                number = find_or_make_name(&self._names, found.subject, found.size)
                if not number or not put_number_at(&self._map, offset, number):
                    return NO_MEMORY
                entry = self._names.entries + number
                if not entry.count:
                    entry.first = offset
                entry.last = offset
                entry.count += 1
                self.message_count += 1
            self.next_offset = offset + 1
        return SOUND if at == end else TRAILING

    def advance(self, int64_t offset):
        """There is nothing with a subject up to ``offset``."""
        if offset > self.next_offset:
            self.next_offset = offset

    # Forgetting

    cdef int64_t _map_start(self) noexcept nogil:
        """No message is noted before."""
        return max(self.start_offset, self._map.base << CHUNK_BITS)

    cdef int64_t _map_end(self) noexcept nogil:
        """No message is noted from there on."""
        return min(self.next_offset, (self._map.base + self._map.count) << CHUNK_BITS)

    def forget_below(self, int64_t offset):
        """The log begins there now. Only offsets in chunks are looked at: a mirror may begin with a gap of 10^12."""
        cdef int64_t each, number, gone
        for each in range(self._map_start(), min(offset, self._map_end())):
            number = number_at(&self._map, each)
            if number:
                self._drop(each, number)
        self.start_offset = max(self.start_offset, offset)
        self.next_offset = max(self.next_offset, offset)
        gone = min(self._map.count, max(0, (offset >> CHUNK_BITS) - self._map.base))
        if gone > 0:
            free_first(&self._map, gone)

    def cut(self, int64_t offset):
        """The log ends there now."""
        cdef int64_t each, number, kept
        offset = max(offset, self.start_offset)
        for each in range(self._map_end() - 1, max(offset, self._map_start()) - 1, -1):
            number = number_at(&self._map, each)
            if number:
                self._drop(each, number)
        self.next_offset = min(self.next_offset, offset)
        kept = max(0, ((offset + CHUNK - 1) >> CHUNK_BITS) - self._map.base)
        if kept < self._map.count:
            for each in range(kept, self._map.count):
                free_chunk(&self._map, each)
            self._map.count = kept

    def erase(self, int64_t offset):
        """Forget one message; whether it was there."""
        cdef int64_t number = number_at(&self._map, offset)
        if number:
            self._drop(offset, number)
        return number != 0

    def erase_matching(self, bytes pattern not None, int64_t below, *, int64_t keep=0):
        cdef uint8_t* marks = self._marks((pattern,))
        cdef int64_t at, number, high = min(below, self.next_offset), left = INT64_MAX, count = 0
        try:
            if keep:
                left = self._count_marked(marks, high) - keep
            at = self.start_offset
            while left > 0:
                at = scan(&self._map, at, high, 0, marks)
                if at == NO_OFFSET:
                    break
                number = number_at(&self._map, at)
                self._drop(at, number)
                at += 1
                left -= 1
                count += 1
        finally:
            free(marks)
        return count

    cdef int64_t _count_marked(self, const uint8_t* marks, int64_t below):
        cdef int64_t number, at, count = 0
        for number in range(1, self._names.entry_end):
            if marks[number]:
                count += self._names.entries[number].count
        for at in range(max(below, self._map_start()), self._map_end()):
            number = number_at(&self._map, at)
            if number and marks[number]:
                count -= 1
        return count

    def trim(self, int64_t keep, int64_t below, *, int64_t limit=INT64_MAX):
        cdef int64_t* excess = self._counts(below)
        cdef uint8_t* marks = NULL
        cdef int64_t number, at, high = min(below, self.next_offset), low = INT64_MAX
        cdef list gone = []
        try:
            marks = <uint8_t*>calloc(self._names.entry_end, 1)
            if marks == NULL:
                raise MemoryError
            for number in range(1, self._names.entry_end):
                excess[number] -= keep
                if excess[number] > 0:
                    marks[number] = 1
                    low = min(low, self._names.entries[number].first)
            at = low
            while len(gone) < limit:
                at = scan(&self._map, at, high, 0, marks)
                if at == NO_OFFSET:
                    break
                number = number_at(&self._map, at)
                excess[number] -= 1
                if not excess[number]:
                    marks[number] = 0
                self._drop(at, number)
                gone.append(at)
                at += 1
        finally:
            free(excess)
            free(marks)
        return gone

    def keep_only(self, SubjectIndex other not None):
        cdef int64_t at, number, count = 0
        for at in range(max(self.start_offset, other.start_offset), min(self.next_offset, other.next_offset)):
            number = number_at(&self._map, at)
            if number and not number_at(&other._map, at):
                self._drop(at, number)
                count += 1
        return count

    # Asking

    def subject_at(self, int64_t offset):
        """None where there is no message with a subject."""
        cdef int64_t number = number_at(&self._map, offset)
        return self._name(number) if number else None

    def count(self, bytes subject not None):
        """How many messages it has."""
        cdef int64_t number = find_name(&self._names, <const uint8_t*>PyBytes_AS_STRING(subject), len(subject))
        return self._names.entries[number].count if number else 0

    def last(self, bytes pattern not None, int64_t below, *, int64_t low=0):
        cdef const uint8_t* text = <const uint8_t*>PyBytes_AS_STRING(pattern)
        cdef int64_t number, found, best = low - 1
        cdef Entry* entry
        if not is_pattern(pattern):
            number = find_name(&self._names, text, len(pattern))
            return self._last_of(number, low - 1, below) if number else NO_OFFSET
        for number in range(1, self._names.entry_end):
            entry = self._names.entries + number
            if entry.count and entry.last > best and self._matches(entry, text, len(pattern)):
                found = self._last_of(number, best, below)
                best = max(best, found)
        return best if best >= low else NO_OFFSET

    cdef int64_t _last_of(self, int64_t number, int64_t above, int64_t below) noexcept nogil:
        """The last of its offsets above the one and below the other."""
        cdef Entry* entry = self._names.entries + number
        cdef int64_t high = min(entry.last, below - 1) + 1, found
        found = scan_back(&self._map, max(entry.first, above + 1), high, number, NULL)
        if found != NO_OFFSET and high == entry.last + 1:
            entry.last = found
        return found

    def next(self, bytes subject not None, int64_t offset, int64_t below):
        cdef int64_t number, found, low = max(offset, self.start_offset)
        cdef int64_t high = min(below, self.next_offset)
        cdef Entry* entry
        number = find_name(&self._names, <const uint8_t*>PyBytes_AS_STRING(subject), len(subject))
        if not number:
            return NO_OFFSET
        entry = self._names.entries + number
        found = scan(&self._map, max(low, entry.first), min(high, entry.last + 1), number, NULL)
        if found != NO_OFFSET and low <= entry.first:
            entry.first = found
        return found

    def bounds(self, bytes subject not None):
        cdef int64_t number = find_name(&self._names, <const uint8_t*>PyBytes_AS_STRING(subject), len(subject))
        cdef Entry* entry = self._names.entries + number
        if not number:
            return 0, 0
        return entry.first, entry.last + 1

    def number_of(self, bytes subject not None):
        cdef int64_t number = find_name(&self._names, <const uint8_t*>PyBytes_AS_STRING(subject), len(subject))
        return number if number else None

    def matching(self, patterns, *, int64_t low=0, high=None):
        cdef int64_t end = self._names.entry_end if high is None else min(high, self._names.entry_end)
        cdef int64_t number
        cdef tuple wanted = tuple(patterns)
        cdef bytes pattern
        cdef Entry* entry
        cdef list found = []
        for number in range(max(low, 1), end):
            entry = self._names.entries + number
            if not entry.count:
                continue
            for pattern in wanted:
                if self._matches(entry, <const uint8_t*>PyBytes_AS_STRING(pattern), len(pattern)):
                    found.append(number)
                    break
        return found

    def last_of_each(self, numbers, int64_t low, int64_t below):
        cdef uint8_t* marks = <uint8_t*>calloc(self._names.entry_end, 1)
        cdef int64_t number, at, left = 0
        cdef int64_t high = min(below, self.next_offset)
        cdef Entry* entry
        cdef list offsets = [], rest = []
        if marks == NULL:
            raise MemoryError
        try:
            for number in numbers:
                if not 0 < number < self._names.entry_end:
                    continue
                entry = self._names.entries + number
                if not entry.count or entry.first >= high:
                    continue
                if entry.last < high and number_at(&self._map, entry.last) == number:
                    offsets.append(entry.last)
                elif not marks[number]:
                    marks[number] = 1
                    left += 1
            at = high - 1
            while left and at >= max(low, self.start_offset):
                number = number_at(&self._map, at)
                if marks[number]:
                    marks[number] = 0
                    left -= 1
                    offsets.append(at)
                    entry = self._names.entries + number
                    if entry.last < high:
                        entry.last = at
                at -= 1
            if left:
                for number in numbers:
                    if 0 < number < self._names.entry_end and marks[number]:
                        rest.append(number)
        finally:
            free(marks)
        return offsets, rest

    @property
    def number_end(self):
        """Subjects have numbers below this one."""
        return self._names.entry_end

    def totals(self, bytes pattern not None, int64_t below, *, int64_t low=0, high=None):
        cdef int64_t end = self._names.entry_end if high is None else min(high, self._names.entry_end)
        cdef const uint8_t* text = <const uint8_t*>PyBytes_AS_STRING(pattern)
        cdef int64_t number, count
        cdef dict above = self._counts_above(below)
        cdef Entry* entry
        cdef list found = []
        for number in range(max(low, 1), end):
            entry = self._names.entries + number
            count = entry.count
            if count and self._matches(entry, text, len(pattern)):
                if above:
                    count -= <int64_t>above.get(number, 0)
                if count:
                    found.append(Total(self._name(number), count))
        return found

    def mark(self, bytes pattern not None, bytearray marks not None, *, int64_t low=0, high=None):
        cdef int64_t end = self._names.entry_end if high is None else min(high, self._names.entry_end)
        cdef const uint8_t* text = <const uint8_t*>PyBytes_AS_STRING(pattern)
        cdef uint8_t* marked = self._lengthened(marks)
        cdef int64_t number, first = INT64_MAX, last = NO_OFFSET
        cdef Entry* entry
        if not is_pattern(pattern):
            number = find_name(&self._names, text, len(pattern))
            low, end = max(low, number), min(end, number + 1)
        for number in range(max(low, 1), end):
            entry = self._names.entries + number
            if entry.count and self._matches(entry, text, len(pattern)):
                marked[number] = 1
                first = min(first, entry.first)
                last = max(last, entry.last)
        if last == NO_OFFSET:
            return 0, 0
        return first, last + 1

    def offsets(self, bytearray marks not None, int64_t low, int64_t high, *, int64_t limit=INT64_MAX):
        cdef uint8_t* marked = self._lengthened(marks)
        cdef int64_t at = max(low, self.start_offset), end = min(high, self.next_offset)
        cdef list found = []
        while len(found) < limit:
            at = scan(&self._map, at, end, 0, marked)
            if at == NO_OFFSET:
                break
            found.append(at)
            at += 1
        return found

    def last_marked(self, bytearray marks not None, int64_t low, int64_t high):
        cdef uint8_t* marked = self._lengthened(marks)
        return scan_back(&self._map, max(low, self.start_offset), min(high, self.next_offset), 0, marked)

    def message_total(self, bytearray marks not None, int64_t low, int64_t high):
        cdef uint8_t* marked = self._lengthened(marks)
        cdef int64_t at, number, count = 0
        for at in range(max(low, self._map_start()), min(high, self._map_end())):
            number = number_at(&self._map, at)
            count += number != 0 and marked[number] != 0
        return count

    cdef uint8_t* _lengthened(self, bytearray marks) except NULL:
        """With a place for each number."""
        cdef Py_ssize_t size = PyByteArray_GET_SIZE(marks)
        if size < self._names.entry_end:
            PyByteArray_Resize(marks, self._names.entry_end)
            memset(PyByteArray_AS_STRING(marks) + size, 0, self._names.entry_end - size)
        return <uint8_t*>PyByteArray_AS_STRING(marks)

    def subject_count(self, int64_t below):
        cdef int64_t count = self._names.count
        for number, above in self._counts_above(below).items():
            count -= self._names.entries[<int64_t>number].count == <int64_t>above
        return count

    cdef dict _counts_above(self, int64_t below):
        """Of each number that has any, the messages at and above."""
        cdef dict counts = {}
        cdef int64_t at, number
        for at in range(max(below, self._map_start()), self._map_end()):
            number = number_at(&self._map, at)
            if number:
                counts[number] = counts.get(number, 0) + 1
        return counts

    cdef bytes _name(self, int64_t number):
        cdef Entry* entry = self._names.entries + number
        return PyBytes_FromStringAndSize(<const char*>(self._names.arena + entry.name), entry.size)

    cdef inline bint _matches(self, Entry* entry, const uint8_t* pattern, int64_t size) noexcept nogil:
        cdef const uint8_t* name = self._names.arena + entry.name
        return match(pattern, pattern + size, name, name + entry.size)

    cdef uint8_t* _marks(self, tuple patterns) except NULL:
        """For each number whether its subject matches one of them; to be freed."""
        cdef uint8_t* marks = <uint8_t*>calloc(self._names.entry_end, 1)
        cdef int64_t number
        cdef bytes pattern
        cdef const uint8_t* text
        if marks == NULL:
            raise MemoryError
        try:
            for pattern in patterns:
                text = <const uint8_t*>PyBytes_AS_STRING(pattern)
                if not is_pattern(pattern):
                    marks[find_name(&self._names, text, len(pattern))] = 1
                    continue
                for number in range(1, self._names.entry_end):
                    if self._names.entries[number].count and self._matches(self._names.entries + number, text, len(pattern)):
                        marks[number] = 1
            marks[0] = 0
        except BaseException:
            free(marks)
            raise
        return marks

    cdef int64_t* _counts(self, int64_t below) except NULL:
        """Of each number the messages below; to be freed."""
        cdef int64_t* counts = <int64_t*>calloc(self._names.entry_end, sizeof(int64_t))
        cdef int64_t number, at
        if counts == NULL:
            raise MemoryError
        for number in range(1, self._names.entry_end):
            counts[number] = self._names.entries[number].count
        for at in range(max(below, self._map_start()), self._map_end()):
            number = number_at(&self._map, at)
            if number:
                counts[number] -= 1
        return counts
