"""Names and the small numbers that stand for them, for the compiled index of subjects.

A hash table with linear probing over an arena of names. Numbers begin at 1; one whose name is dropped is given to
another.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from streamlog.record.compiled.primitives cimport siphash

cdef enum:
    SLOTS_FIRST = 64
    ARENA_SLACK = 65536  # so many dead bytes are no reason to move all names


cdef struct Entry:
    int64_t first  # <= that of its first message
    int64_t last   # >= that of its last message
    int64_t count  # of its messages; 0: the number is free
    uint64_t hash
    int64_t name   # where it begins in the arena; of a free number: the next free one
    int64_t size


cdef struct NameTable:
    uint64_t k0
    uint64_t k1
    uint32_t* slots  # numbers; 0: empty
    uint64_t slot_count  # a power of two
    Entry* entries  # from 1 on
    int64_t entry_end  # the first number that was never given
    int64_t entry_capacity
    int64_t free  # the first free number; 0: there is none
    int64_t count  # of names
    uint8_t* arena
    int64_t arena_size
    int64_t arena_capacity
    int64_t arena_dead
    int64_t size_bytes


cdef inline uint64_t hash_of(NameTable* self, const uint8_t* data, int64_t size) noexcept nogil:
    cdef uint64_t low = 0, high = 0
    siphash(data, size, self.k0, self.k1, &low, &high)
    return low


cdef inline int64_t find_name(NameTable* self, const uint8_t* data, int64_t size) noexcept nogil:
    """The number of the subject; 0: it has no messages."""
    cdef uint64_t hashed, at
    cdef Entry* entry
    if not self.count:
        return 0
    hashed = hash_of(self, data, size)
    at = hashed & (self.slot_count - 1)
    while self.slots[at]:
        entry = self.entries + self.slots[at]
        if entry.hash == hashed and entry.size == size:
            if memcmp(self.arena + entry.name, data, size) == 0:
                return self.slots[at]
        at = (at + 1) & (self.slot_count - 1)
    return 0


cdef inline int64_t find_or_make_name(NameTable* self, const uint8_t* data, int64_t size) noexcept nogil:
    """0: there is no memory."""
    cdef int64_t number = find_name(self, data, size)
    cdef Entry* entry
    if number:
        return number
    if not has_slots(self) or not has_arena(self, size):
        return 0
    if self.free:
        number = self.free
        self.free = self.entries[number].name
    else:
        if not has_entries(self):
            return 0
        number = self.entry_end
        self.entry_end += 1
    entry = self.entries + number
    entry.hash = hash_of(self, data, size)
    entry.size = size
    entry.name = self.arena_size
    entry.count = 0
    memcpy(self.arena + self.arena_size, data, size)
    self.arena_size += size
    put_slot(self, entry.hash, number)
    self.count += 1
    return number


cdef inline void put_slot(NameTable* self, uint64_t hashed, int64_t number) noexcept nogil:
    cdef uint64_t at = hashed & (self.slot_count - 1)
    while self.slots[at]:
        at = (at + 1) & (self.slot_count - 1)
    self.slots[at] = <uint32_t>number


cdef inline bint has_slots(NameTable* self) noexcept nogil:
    """Room for one more, at most three quarters of them taken."""
    cdef uint64_t count = max(<uint64_t>SLOTS_FIRST, 2 * self.slot_count)
    cdef uint32_t* slots
    cdef int64_t number
    if 4 * <uint64_t>(self.count + 1) <= 3 * self.slot_count:
        return True
    slots = <uint32_t*>calloc(count, sizeof(uint32_t))
    if slots == NULL:
        return False
    free(self.slots)
    self.size_bytes += (count - self.slot_count) * sizeof(uint32_t)
    self.slots = slots
    self.slot_count = count
    for number in range(1, self.entry_end):
        if self.entries[number].count:
            put_slot(self, self.entries[number].hash, number)
    return True


cdef inline bint has_entries(NameTable* self) noexcept nogil:
    cdef int64_t capacity = max(32, self.entry_capacity + (self.entry_capacity >> 1))
    cdef Entry* entries
    if self.entry_end < self.entry_capacity:
        return True
    if capacity > <int64_t>0x7FFFFFFF:
        return False
    entries = <Entry*>realloc(self.entries, capacity * sizeof(Entry))
    if entries == NULL:
        return False
    self.size_bytes += (capacity - self.entry_capacity) * <int64_t>sizeof(Entry)
    self.entries = entries
    self.entry_capacity = capacity
    return True


cdef inline bint has_arena(NameTable* self, int64_t size) noexcept nogil:
    cdef int64_t capacity
    cdef uint8_t* arena
    if self.arena_dead > ARENA_SLACK and 2 * self.arena_dead > self.arena_size:
        if not move_names(self):
            return False
    if self.arena_size + size <= self.arena_capacity:
        return True
    capacity = max(self.arena_capacity + (self.arena_capacity >> 1), self.arena_size + size, 1024)
    arena = <uint8_t*>realloc(self.arena, capacity)
    if arena == NULL:
        return False
    self.size_bytes += capacity - self.arena_capacity
    self.arena = arena
    self.arena_capacity = capacity
    return True


cdef inline bint move_names(NameTable* self) noexcept nogil:
    """Without those that no record has."""
    cdef int64_t size = 0, number, capacity = self.arena_size - self.arena_dead + 1024
    cdef uint8_t* arena = <uint8_t*>malloc(capacity)
    cdef Entry* entry
    if arena == NULL:
        return False
    for number in range(1, self.entry_end):
        entry = self.entries + number
        if entry.count:
            memcpy(arena + size, self.arena + entry.name, entry.size)
            entry.name = size
            size += entry.size
    free(self.arena)
    self.size_bytes += capacity - self.arena_capacity
    self.arena = arena
    self.arena_size = size
    self.arena_capacity = capacity
    self.arena_dead = 0
    return True


cdef inline void drop_name(NameTable* self, int64_t number) noexcept nogil:
    """Its last message has gone. Those after it in the table move up."""
    cdef Entry* entry = self.entries + number
    cdef uint64_t mask = self.slot_count - 1, at = entry.hash & mask, other, home
    while self.slots[at] != <uint32_t>number:
        at = (at + 1) & mask
    other = at
    while True:
        other = (other + 1) & mask
        if not self.slots[other]:
            break
        home = self.entries[self.slots[other]].hash & mask
        if ((other - home) & mask) >= ((other - at) & mask):
            self.slots[at] = self.slots[other]
            at = other
    self.slots[at] = 0
    self.arena_dead += entry.size
    entry.name = self.free
    self.free = number
    self.count -= 1
