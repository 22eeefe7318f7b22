"""The window's inside, for compiled code that judges messages without making objects of their ids."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from streamlog.record.compiled.codec cimport Span


cdef struct Entry:
    int64_t offset  # -1: its id came again within the slot, and has another entry
    int64_t start  # of its id in the arena
    uint32_t size
    uint32_t hash  # never 0


cdef class WindowSlot:
    cdef readonly int64_t end_ms
    cdef uint32_t first  # the ordinal of its first entry
    cdef bint frozen  # others hold it as well: it is copied before it is changed
    cdef Py_ssize_t count  # of entries
    cdef Py_ssize_t holes  # those of them without an offset
    cdef Py_ssize_t capacity
    cdef Entry* entries
    cdef Py_ssize_t arena_size
    cdef Py_ssize_t arena_capacity
    cdef uint8_t* arena

    cdef bint has_room(self, Py_ssize_t size) noexcept nogil
    cdef WindowSlot copied(self)


cdef class DuplicateWindow:
    cdef public int64_t window_ms
    cdef public int64_t ids_max
    cdef public int64_t complete_since_ms
    cdef uint64_t k0
    cdef uint64_t k1
    cdef list _slots
    cdef WindowSlot _youngest  # the last of the slots; None: there is none
    cdef list _expired  # slots whose entries are to be taken out of the table
    cdef Py_ssize_t _swept  # so many entries of the first of those are out
    cdef Py_ssize_t _count  # of ids
    cdef uint32_t _oldest  # ordinals from there ...
    cdef uint32_t _next  # ... to there are those of the slots
    cdef uint64_t* _table  # each: hash, then ordinal, of 32 bits; 0: empty
    cdef Py_ssize_t _table_used
    cdef int _table_bits  # -1: there is no table
    cdef uint8_t* _last_id
    cdef Py_ssize_t _last_size
    cdef Py_ssize_t _last_capacity
    cdef int64_t _last_offset  # -1: there is none

    cdef uint32_t hash_of(self, Span message_id) noexcept nogil
    cdef int64_t find_hashed(self, Span message_id, uint32_t hashed) noexcept
    cdef int add_hashed(
        self, Span message_id, uint32_t hashed, int64_t offset, int64_t now_ms, bint is_new
    ) except -1
    cdef int expire_to(self, int64_t now_ms) except -1
    cdef bint is_last(self, Span message_id, int64_t offset) noexcept nogil
    cdef Entry* _entry_of(self, uint32_t age, WindowSlot slot) noexcept
    cdef WindowSlot _slot_of(self, uint32_t age)
    cdef int _begin_slot(self, int64_t now_ms) except -1
    cdef int _own_youngest(self) except -1
    cdef int _make_room_in_table(self, Py_ssize_t more) except -1
    cdef int _resize_table(self, int bits) except -1
    cdef void _put(self, uint32_t hashed, uint32_t ordinal) noexcept nogil
    cdef void _take_out(self, uint32_t hashed, uint32_t ordinal) noexcept nogil
    cdef void _fit_table(self)
    cdef int _note_last(self, const uint8_t* data, Py_ssize_t size, int64_t offset) except -1
    cdef int _close_holes(self) except -1
    cdef int _sweep(self, Py_ssize_t limit) except -1
    cdef int _take_slot(self, WindowSlot slot) except -1
