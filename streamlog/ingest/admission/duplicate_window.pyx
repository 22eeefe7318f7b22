# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The duplicate window: recent ``Nats-Msg-Id``s, compiled. ``duplicate_window.pyi`` says what it means.

Layout. A slot has its ids one after the other in an arena, and an entry for each in the order of
offsets. One hash table for all slots has, for each entry, 32 bits of the id's hash and the entry's
ordinal, of 32 bits as well: the number of the entry since the window began. An id that the table
seems to have is compared byte by byte. So two ids are never taken for one another, whatever
their hashes are, and a message is never dropped as a duplicate by chance; the hash is SipHash
under a random key, so that no publisher can choose ids which all lie in one place of the table.

The table is open addressing with linear probing. The home of a hash is its upper bits: so a table
that grows is read and written from its start to its end, and not all over memory. A place is
emptied by moving back what follows it, so there are no tombstones.

Forgetting a slot is one step, whatever the slot has: ordinals below ``_oldest`` count no more. Its
entries leave the table later, some at each ``expire``; or with the table, once no id is left.

An id may have an entry in several slots, as where a log is read that has it twice; that of the
highest ordinal counts, and when that one is taken back the one before it does again.

Copies for a snapshot cost nothing: slots are handed out as they are, ``frozen``. One that has to
change after that is replaced by a copy.

Memory: an id takes its bytes, 24 of an entry, and 13 to 26 of the table (8 at a load between 5/16 and
5/8). The slot that ids are added to may have as much again in reserve; a slot that has ended has
none. With ids of 16 bytes, 5,000,000 of them take at most 330 MB and the reserve of one slot in
eight.
"""

import os

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove

from streamlog.record.compiled.codec cimport Span
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES, siphash

from streamlog.errors import BrokenInvariant

SOURCES = STREAMLOG_SOURCES
SLOTS_PER_WINDOW = 8

cdef enum:
    ENTRIES_FIRST = 8
    ARENA_FIRST = 192
    BITS_FIRST = 4
    BITS_MAX = 30
    SWEPT_AT_ONCE = 16384  # entries; about a millisecond
    HOLES_KEPT = 1024
    NO_OFFSET = -1


cdef inline Span of_bytes(bytes text):
    """Good for as long as ``text`` is kept."""
    cdef Span made
    made.data = <const uint8_t*>PyBytes_AS_STRING(text)
    made.size = len(text)
    return made


cdef inline uint64_t packed(uint32_t hashed, uint32_t ordinal) noexcept nogil:
    return <uint64_t>hashed << 32 | ordinal


cdef inline void put_number(uint8_t* out, uint64_t value, int size) noexcept nogil:
    """Big-endian."""
    cdef int i
    for i in range(size):
        out[i] = <uint8_t>(value >> (8 * (size - 1 - i)))


cdef inline uint64_t number_at(const uint8_t* data, int size) noexcept nogil:
    cdef uint64_t value = 0
    cdef int i
    for i in range(size):
        value = value << 8 | data[i]
    return value


@cython.final
cdef class WindowSlot:
    """The ids of a part of the window."""

    def __dealloc__(self):
        free(self.entries)
        free(self.arena)

    def __len__(self):
        return self.count - self.holes

    def __eq__(self, other):
        if not isinstance(other, WindowSlot):
            return NotImplemented
        return self.end_ms == other.end_ms and list(self.ids().items()) == list(other.ids().items())

    __hash__ = None

    def __repr__(self):
        return f"<WindowSlot of {len(self)} ids, ends at {self.end_ms}>"

    def ids(self):
        """Each with its offset, in the order of offsets."""
        cdef Py_ssize_t i
        cdef Entry* entry
        cdef dict found = {}
        for i in range(self.count):
            entry = self.entries + i
            if entry.offset != NO_OFFSET:
                name = PyBytes_FromStringAndSize(<char*>self.arena + entry.start, entry.size)
                found[name] = entry.offset
        return found

    def columns(self):
        """Big-endian: the offsets, of 8 bytes each, the sizes, of 4, and the ids."""
        cdef Py_ssize_t i, live = self.count - self.holes, size = 12 * live
        cdef bytes made
        cdef uint8_t* offsets
        cdef uint8_t* sizes
        cdef uint8_t* ids
        cdef Entry* entry
        with nogil:
            for i in range(self.count):
                if self.entries[i].offset != NO_OFFSET:
                    size += self.entries[i].size
        made = PyBytes_FromStringAndSize(NULL, size)
        offsets = <uint8_t*>PyBytes_AS_STRING(made)
        sizes = offsets + 8 * live
        ids = sizes + 4 * live
        with nogil:
            for i in range(self.count):
                entry = self.entries + i
                if entry.offset != NO_OFFSET:
                    put_number(offsets, entry.offset, 8)
                    put_number(sizes, entry.size, 4)
                    memcpy(ids, self.arena + entry.start, entry.size)
                    offsets += 8
                    sizes += 4
                    ids += entry.size
        return made

    @staticmethod
    def of_columns(int64_t end_ms, Py_ssize_t count, const uint8_t[::1] data not None):
        """Out of the beginning of ``data``, which has ``columns`` of so many ids; and their size.

        Raises ValueError where the data is shorter, or no slot's.
        """
        cdef WindowSlot slot = WindowSlot()
        cdef Py_ssize_t i, size, arena_size = 0
        cdef const uint8_t* start
        cdef Entry* entry
        if count < 0 or count > data.shape[0] // 12:
            raise ValueError(f"{count} message ids in {data.shape[0]} bytes")
        slot.end_ms = end_ms
        if count == 0:
            return slot, 0
        start = &data[0]
        slot.entries = <Entry*>malloc(count * sizeof(Entry))
        if slot.entries == NULL:
            raise MemoryError
        slot.capacity = count
        with nogil:
            for i in range(count):
                entry = slot.entries + i
                entry.offset = <int64_t>number_at(start + 8 * i, 8)
                entry.size = <uint32_t>number_at(start + 8 * count + 4 * i, 4)
                entry.start = arena_size
                entry.hash = 1
                arena_size += entry.size
                if entry.offset < 0 or arena_size > data.shape[0]:
                    arena_size = -1
                    break
        size = 12 * count + arena_size
        if arena_size < 0 or size > data.shape[0]:
            raise ValueError("columns of message ids are cut")
        slot.arena = <uint8_t*>malloc(max(arena_size, 1))
        if slot.arena == NULL:
            raise MemoryError
        slot.arena_size = slot.arena_capacity = arena_size
        with nogil:
            memcpy(slot.arena, start + 12 * count, arena_size)
        slot.count = count
        return slot, size

    cdef bint has_room(self, Py_ssize_t size) noexcept nogil:
        """For one entry more, with an id of that size; False: there is no memory."""
        cdef Py_ssize_t capacity
        cdef void* moved
        if self.count == self.capacity:
            capacity = max(2 * self.capacity, <Py_ssize_t>ENTRIES_FIRST)
            moved = realloc(self.entries, capacity * sizeof(Entry))
            if moved == NULL:
                return False
            self.entries = <Entry*>moved
            self.capacity = capacity
        if size > self.arena_capacity - self.arena_size or self.arena == NULL:
            capacity = max(2 * self.arena_capacity, <Py_ssize_t>ARENA_FIRST)
            capacity = max(capacity, self.arena_size + size)
            moved = realloc(self.arena, capacity)
            if moved == NULL:
                return False
            self.arena = <uint8_t*>moved
            self.arena_capacity = capacity
        return True

    cdef WindowSlot copied(self):
        """With no more room than it needs."""
        cdef WindowSlot made = WindowSlot()
        made.end_ms, made.first = self.end_ms, self.first
        made.entries = <Entry*>malloc(max(self.count, 1) * sizeof(Entry))
        made.arena = <uint8_t*>malloc(max(self.arena_size, 1))
        if made.entries == NULL or made.arena == NULL:
            raise MemoryError
        memcpy(made.entries, self.entries, self.count * sizeof(Entry))
        memcpy(made.arena, self.arena, self.arena_size)
        made.count, made.holes = self.count, self.holes
        made.capacity, made.arena_size = max(self.count, 1), self.arena_size
        made.arena_capacity = max(self.arena_size, 1)
        return made


cdef void tighten(WindowSlot slot) noexcept:
    """Give back what its arrays have in reserve. Where that fails they stay as they are."""
    cdef void* moved
    if slot.count and slot.capacity > slot.count:
        moved = realloc(slot.entries, slot.count * sizeof(Entry))
        if moved != NULL:
            slot.entries = <Entry*>moved
            slot.capacity = slot.count
    if slot.arena_size and slot.arena_capacity > slot.arena_size:
        moved = realloc(slot.arena, slot.arena_size)
        if moved != NULL:
            slot.arena = <uint8_t*>moved
            slot.arena_capacity = slot.arena_size


@cython.final
cdef class DuplicateWindow:
    """Ids with their offsets. Offsets must come in ascending order, as a log gives them."""

    def __cinit__(self, int64_t window_ms, *, int64_t ids_max):
        cdef bytes key = os.urandom(16)
        self.window_ms = window_ms
        self.ids_max = ids_max
        self.k0 = number_at(<const uint8_t*>PyBytes_AS_STRING(key), 8)
        self.k1 = number_at(<const uint8_t*>PyBytes_AS_STRING(key) + 8, 8)
        self._slots = []
        self._expired = []
        self._table_bits = -1
        self._last_offset = NO_OFFSET

    def __dealloc__(self):
        free(self._table)
        free(self._last_id)

    def __len__(self):
        return self._count

    def is_full(self):
        return self._count >= self.ids_max

    @property
    def size_bytes(self):
        """Of memory."""
        cdef WindowSlot slot
        cdef Py_ssize_t size = self._last_capacity
        if self._table_bits >= 0:
            size += sizeof(uint64_t) << self._table_bits
        for slot in self._slots + self._expired:
            size += slot.capacity * sizeof(Entry) + slot.arena_capacity
        return size

    def find(self, bytes message_id not None):
        """The offset of the first message with this id, if it is known."""
        cdef Span name = of_bytes(message_id)
        cdef int64_t age = self.find_hashed(name, self.hash_of(name))
        if age < 0:
            return None
        return self._entry_of(age, self._slot_of(age)).offset

    def add(self, bytes message_id not None, int64_t offset, int64_t now_ms):
        """Remember an id, which is found here from now on where it was known before."""
        cdef Span name = of_bytes(message_id)
        if offset < 0:
            raise ValueError(f"offset {offset}")
        self.add_hashed(name, self.hash_of(name), offset, now_ms, False)

    def expire(self, int64_t now_ms):
        """Forget slots whose youngest id is older than the window."""
        self.expire_to(now_ms)

    def forget(self, int64_t from_offset):
        """Take back every id at or above ``from_offset``: those messages were not stored."""
        cdef WindowSlot slot
        cdef Entry* entry
        cdef bint is_over = False
        while self._youngest is not None and not is_over:
            slot = self._youngest
            if slot.count and slot.frozen:
                entry = slot.entries + slot.count - 1
                if 0 <= entry.offset < from_offset:
                    break
                self._own_youngest()
                slot = self._youngest
            while slot.count:
                entry = slot.entries + slot.count - 1
                if 0 <= entry.offset < from_offset:
                    is_over = True
                    break
                slot.count -= 1
                self._next -= 1
                slot.arena_size = entry.start
                if entry.offset == NO_OFFSET:
                    slot.holes -= 1
                else:
                    self._take_out(entry.hash, self._next)
                    self._count -= 1
            if not slot.count:
                self._slots.pop()
                self._youngest = self._slots[len(self._slots) - 1] if self._slots else None
        if self._last_offset >= from_offset:
            self._last_offset = NO_OFFSET
            found = self.last()
            if found is not None:
                self._note_last(<const uint8_t*>PyBytes_AS_STRING(found[0]), len(found[0]), found[1])
        self._fit_table()

    @property
    def youngest(self):
        """The youngest id and its offset, also once the window has forgotten it."""
        if self._last_offset == NO_OFFSET:
            return None
        return PyBytes_FromStringAndSize(<char*>self._last_id, self._last_size), self._last_offset

    def last(self):
        """The youngest id that the window has, and its offset."""
        cdef WindowSlot slot
        cdef Entry* entry
        cdef Py_ssize_t i
        for slot in reversed(self._slots):
            for i in range(slot.count - 1, -1, -1):
                entry = slot.entries + i
                if entry.offset != NO_OFFSET:
                    name = PyBytes_FromStringAndSize(<char*>slot.arena + entry.start, entry.size)
                    return name, entry.offset
        return None

    def slots(self):
        """The youngest last. They do not change any more."""
        cdef WindowSlot slot
        for slot in self._slots:
            slot.frozen = True
        return list(self._slots)

    def restore(self, slots, youngest):
        """What ``slots`` and ``youngest`` of a window gave; nothing was known before."""
        cdef WindowSlot slot
        cdef bytes name
        if self._slots or self._last_offset != NO_OFFSET:
            raise BrokenInvariant("message ids are restored into an empty window")
        for slot in slots:
            self._take_slot(slot.copied() if slot.frozen else slot)
        if youngest is not None:
            name = youngest[0]
            self._note_last(<const uint8_t*>PyBytes_AS_STRING(name), len(name), youngest[1])

    def adopt(self, DuplicateWindow other not None):
        """All ids of ``other``, which is empty afterwards; nothing was known before."""
        if self._slots or self._last_offset != NO_OFFSET:
            raise BrokenInvariant("message ids are restored into an empty window")
        free(self._table)
        free(self._last_id)
        self.k0, self.k1 = other.k0, other.k1
        self._slots, self._youngest = other._slots, other._youngest
        self._expired, self._swept = other._expired, other._swept
        self._count, self._oldest, self._next = other._count, other._oldest, other._next
        self._table, self._table_bits = other._table, other._table_bits
        self._table_used = other._table_used
        self._last_id, self._last_size = other._last_id, other._last_size
        self._last_capacity, self._last_offset = other._last_capacity, other._last_offset
        other._slots, other._youngest, other._expired = [], None, []
        other._count = other._swept = other._table_used = 0
        other._oldest = other._next
        other._table = NULL
        other._table_bits = -1
        other._last_id = NULL
        other._last_size = other._last_capacity = 0
        other._last_offset = NO_OFFSET

    cdef uint32_t hash_of(self, Span message_id) noexcept nogil:
        cdef uint64_t low = 0, high = 0
        cdef uint32_t hashed
        siphash(message_id.data, message_id.size, self.k0, self.k1, &low, &high)
        hashed = <uint32_t>(low >> 32)
        return hashed if hashed else 1

    cdef int64_t find_hashed(self, Span message_id, uint32_t hashed) noexcept:
        """The age of the youngest entry of that id, counted from the oldest one; -1: there is none."""
        cdef uint64_t place, mask
        cdef uint32_t age
        cdef int64_t found = -1
        cdef Entry* entry
        cdef WindowSlot slot
        if self._table_bits < 0:
            return -1
        mask = (<uint64_t>1 << self._table_bits) - 1
        place = hashed >> (32 - self._table_bits)
        while self._table[place]:
            if <uint32_t>(self._table[place] >> 32) == hashed:
                age = <uint32_t>self._table[place] - self._oldest  # very high where it has expired
                if age < <uint32_t>(self._next - self._oldest) and <int64_t>age > found:
                    slot = self._slot_of(age)
                    entry = self._entry_of(age, slot)
                    if entry.size == message_id.size and not memcmp(
                        slot.arena + entry.start, message_id.data, message_id.size
                    ):
                        found = age
            place = (place + 1) & mask
        return found

    cdef Entry* _entry_of(self, uint32_t age, WindowSlot slot) noexcept:
        return slot.entries + <uint32_t>(age + self._oldest - slot.first)

    cdef WindowSlot _slot_of(self, uint32_t age):
        """Of an entry that is there."""
        cdef Py_ssize_t low = 0, high = len(self._slots), middle
        cdef WindowSlot slot = self._youngest
        if age >= <uint32_t>(slot.first - self._oldest):
            return slot
        while high - low > 1:
            middle = (low + high) // 2
            slot = <WindowSlot>self._slots[middle]
            if age < <uint32_t>(slot.first - self._oldest):
                high = middle
            else:
                low = middle
        return <WindowSlot>self._slots[low]

    cdef int add_hashed(
        self, Span message_id, uint32_t hashed, int64_t offset, int64_t now_ms, bint is_new
    ) except -1:
        """``is_new``: it was not found a moment ago. Raises MemoryError; then no id has changed."""
        cdef WindowSlot slot
        cdef Entry* entry
        cdef int64_t age
        if self._youngest is None or now_ms >= self._youngest.end_ms:
            self._begin_slot(now_ms)
        elif self._youngest.frozen:
            self._own_youngest()
        elif self._youngest.holes > self._youngest.count // 2 + HOLES_KEPT:
            self._close_holes()
        slot = self._youngest
        self._make_room_in_table(1)
        if not slot.has_room(message_id.size):
            raise MemoryError
        self._note_last(message_id.data, message_id.size, offset)
        age = -1 if is_new else self.find_hashed(message_id, hashed)
        if age >= <uint32_t>(slot.first - self._oldest):
            self._take_out(hashed, <uint32_t>age + self._oldest)
            self._entry_of(age, slot).offset = NO_OFFSET
            slot.holes += 1
            self._count -= 1
        entry = slot.entries + slot.count
        entry.offset = offset
        entry.start = slot.arena_size
        entry.size = <uint32_t>message_id.size
        entry.hash = hashed
        memcpy(slot.arena + slot.arena_size, message_id.data, message_id.size)
        slot.arena_size += message_id.size
        slot.count += 1
        self._put(hashed, self._next)
        self._next += 1
        self._count += 1
        return 0

    cdef int _begin_slot(self, int64_t now_ms) except -1:
        cdef WindowSlot slot = WindowSlot()
        slot.end_ms = now_ms + max(<int64_t>1, self.window_ms // <int64_t>SLOTS_PER_WINDOW)
        if not self._slots:
            self._oldest = self._next
        elif not self._youngest.frozen:
            tighten(self._youngest)
        slot.first = self._next
        self._slots.append(slot)
        self._youngest = slot
        return 0

    cdef int _own_youngest(self) except -1:
        """In place of the one that others hold as well."""
        cdef WindowSlot slot = self._youngest.copied()
        self._slots[len(self._slots) - 1] = slot
        self._youngest = slot
        return 0

    cdef int _close_holes(self) except -1:
        """Of the youngest slot, which no other holds. The ids stay where they are in the arena's
        order; their bytes move together."""
        cdef WindowSlot slot = self._youngest
        cdef Py_ssize_t i, kept = 0, arena_size = 0
        cdef Entry entry
        for i in range(slot.count):
            entry = slot.entries[i]
            if entry.offset == NO_OFFSET:
                continue
            if kept != i:
                self._take_out(entry.hash, slot.first + <uint32_t>i)
                self._put(entry.hash, slot.first + <uint32_t>kept)
                memmove(slot.arena + arena_size, slot.arena + entry.start, entry.size)
                entry.start = arena_size
                slot.entries[kept] = entry
            arena_size += entry.size
            kept += 1
        slot.count, slot.holes, slot.arena_size = kept, 0, arena_size
        self._next = slot.first + <uint32_t>kept
        return 0

    cdef int expire_to(self, int64_t now_ms) except -1:
        cdef WindowSlot slot
        while self._slots:
            slot = <WindowSlot>self._slots[0]
            if slot.end_ms + self.window_ms > now_ms:
                break
            del self._slots[0]
            self._expired.append(slot)
            self._count -= slot.count - slot.holes
            self._oldest += <uint32_t>slot.count
            self.complete_since_ms = max(self.complete_since_ms, slot.end_ms)
            if not self._slots:
                self._youngest = None
        if self._expired:
            if self._slots:
                self._sweep(SWEPT_AT_ONCE)
            else:  # nothing of the table counts
                self._expired = []
                self._swept = self._table_used = 0
                self._fit_table()
        return 0

    cdef int _sweep(self, Py_ssize_t limit) except -1:
        """Take so many entries of expired slots out of the table."""
        cdef WindowSlot slot
        cdef Py_ssize_t end, i
        while self._expired and limit > 0:
            slot = <WindowSlot>self._expired[0]
            end = min(slot.count, self._swept + limit)
            limit -= end - self._swept
            for i in range(self._swept, end):
                if slot.entries[i].offset != NO_OFFSET:
                    self._take_out(slot.entries[i].hash, slot.first + <uint32_t>i)
            self._swept = end
            if end == slot.count:
                del self._expired[0]
                self._swept = 0
        if not self._expired:
            self._fit_table()
        return 0

    cdef bint is_last(self, Span message_id, int64_t offset) noexcept nogil:
        """Whether the youngest id is that one, of the message at that offset."""
        return (
            self._last_offset == offset != NO_OFFSET
            and self._last_size == message_id.size
            and not memcmp(self._last_id, message_id.data, message_id.size)
        )

    cdef int _note_last(self, const uint8_t* data, Py_ssize_t size, int64_t offset) except -1:
        cdef void* moved
        if size > self._last_capacity or self._last_id == NULL:
            moved = realloc(self._last_id, max(size, 1))
            if moved == NULL:
                raise MemoryError
            self._last_id = <uint8_t*>moved
            self._last_capacity = max(size, 1)
        memcpy(self._last_id, data, size)
        self._last_size = size
        self._last_offset = offset
        return 0

    cdef int _take_slot(self, WindowSlot slot) except -1:
        """As the youngest one. No other holds it."""
        cdef Py_ssize_t i
        cdef Span name
        self._make_room_in_table(slot.count)
        if not self._slots:
            self._oldest = self._next
        slot.first = self._next
        with nogil:
            for i in range(slot.count):
                name.data = slot.arena + slot.entries[i].start
                name.size = slot.entries[i].size
                slot.entries[i].hash = self.hash_of(name)
                if slot.entries[i].offset != NO_OFFSET:
                    self._put(slot.entries[i].hash, slot.first + <uint32_t>i)
        self._next += <uint32_t>slot.count
        self._count += slot.count - slot.holes
        self._slots.append(slot)
        self._youngest = slot
        return 0

    # The table

    cdef int _make_room_in_table(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t needed = self._table_used + more
        cdef int bits = max(self._table_bits, <int>BITS_FIRST)
        while needed > (<Py_ssize_t>5 << bits) >> 3:
            bits += 1
        if bits != self._table_bits:
            self._resize_table(bits)
        return 0

    cdef void _fit_table(self):
        """A table that is nearly empty is given back; where that fails it stays."""
        cdef int bits = self._table_bits
        if bits < 0:
            return
        if not self._table_used:
            free(self._table)
            self._table = NULL
            self._table_bits = -1
            return
        while bits > BITS_FIRST and self._table_used < (<Py_ssize_t>1 << bits) >> 3:
            bits -= 1
        if bits != self._table_bits:
            try:
                self._resize_table(bits)
            except MemoryError:
                pass

    cdef int _resize_table(self, int bits) except -1:
        cdef uint64_t* before = self._table
        cdef Py_ssize_t i, size_before = (<Py_ssize_t>1 << self._table_bits) if before != NULL else 0
        cdef uint64_t* made
        if bits > BITS_MAX:
            raise MemoryError
        made = <uint64_t*>calloc(<size_t>1 << bits, sizeof(uint64_t))
        if made == NULL:
            raise MemoryError
        self._table = made
        self._table_bits = bits
        self._table_used = 0
        with nogil:
            for i in range(size_before):
                if before[i]:
                    self._put(<uint32_t>(before[i] >> 32), <uint32_t>before[i])
            free(before)
        return 0

    cdef void _put(self, uint32_t hashed, uint32_t ordinal) noexcept nogil:
        """There is room for it."""
        cdef uint64_t mask = (<uint64_t>1 << self._table_bits) - 1
        cdef uint64_t place = hashed >> (32 - self._table_bits)
        while self._table[place]:
            place = (place + 1) & mask
        self._table[place] = packed(hashed, ordinal)
        self._table_used += 1

    cdef void _take_out(self, uint32_t hashed, uint32_t ordinal) noexcept nogil:
        """It is there. What follows it, and is not at home, moves up."""
        cdef uint64_t mask = (<uint64_t>1 << self._table_bits) - 1
        cdef uint64_t place = hashed >> (32 - self._table_bits), following, home
        cdef uint64_t wanted = packed(hashed, ordinal)
        while self._table[place] != wanted:
            if not self._table[place]:
                return
            place = (place + 1) & mask
        following = place
        while True:
            following = (following + 1) & mask
            if not self._table[following]:
                break
            home = <uint32_t>(self._table[following] >> 32) >> (32 - self._table_bits)
            if ((following - home) & mask) >= ((following - place) & mask):
                self._table[place] = self._table[following]
                place = following
        self._table[place] = 0
        self._table_used -= 1
