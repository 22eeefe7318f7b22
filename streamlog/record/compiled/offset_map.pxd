"""A small number for each offset, for the compiled index of subjects: 0 where there is none.

In chunks of 4,096 offsets, each as wide as its largest number needs.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memchr, memmove, memset

cdef enum:
    CHUNK_BITS = 12
    CHUNK = 4096
    NO_OFFSET = -1  # in place of an offset


cdef struct Chunk:
    uint8_t* data  # NULL: all are 0
    int64_t width  # in bytes


cdef struct OffsetMap:
    Chunk* chunks
    int64_t base  # the number of the first chunk
    int64_t count
    int64_t capacity
    int64_t size_bytes


cdef inline int64_t read_number(const Chunk* chunk, int64_t place) noexcept nogil:
    if chunk.width == 1:
        return chunk.data[place]
    if chunk.width == 2:
        return (<uint16_t*>chunk.data)[place]
    return (<uint32_t*>chunk.data)[place]


cdef inline void write_number(Chunk* chunk, int64_t place, int64_t number) noexcept nogil:
    if chunk.width == 1:
        chunk.data[place] = <uint8_t>number
    elif chunk.width == 2:
        (<uint16_t*>chunk.data)[place] = <uint16_t>number
    else:
        (<uint32_t*>chunk.data)[place] = <uint32_t>number


cdef inline int64_t number_at(OffsetMap* self, int64_t offset) noexcept nogil:
    cdef int64_t at = (offset >> CHUNK_BITS) - self.base
    cdef Chunk* chunk
    if offset < 0 or at < 0 or at >= self.count:
        return 0
    chunk = self.chunks + at
    if chunk.data == NULL:
        return 0
    return read_number(chunk, offset & (CHUNK - 1))


cdef inline bint put_number_at(OffsetMap* self, int64_t offset, int64_t number) noexcept nogil:
    """False: there is no memory. Of an offset at or above all chunks but the last, or of one that has a
    number already, which 0 takes the place of."""
    cdef int64_t at, place = offset & (CHUNK - 1)
    cdef int64_t width = 1 if number < 256 else 2 if number < 65536 else 4
    cdef Chunk* chunk
    cdef uint8_t* data
    cdef Chunk wide
    cdef int64_t i
    if not self.count:
        self.base = offset >> CHUNK_BITS
    at = (offset >> CHUNK_BITS) - self.base
    if at >= self.count and not extend(self, at + 1):
        return False
    chunk = self.chunks + at
    if chunk.data == NULL or chunk.width < width:
        data = <uint8_t*>calloc(CHUNK, width)
        if data == NULL:
            return False
        wide.data = data
        wide.width = width
        if chunk.data != NULL:
            for i in range(CHUNK):
                write_number(&wide, i, read_number(chunk, i))
            self.size_bytes -= CHUNK * chunk.width
            free(chunk.data)
        chunk[0] = wide
        self.size_bytes += CHUNK * width
    write_number(chunk, place, number)
    return True


cdef inline bint extend(OffsetMap* self, int64_t count) noexcept nogil:
    cdef int64_t capacity = max(2 * self.capacity, count, 8)
    cdef Chunk* chunks
    if count > self.capacity:
        chunks = <Chunk*>realloc(self.chunks, capacity * sizeof(Chunk))
        if chunks == NULL:
            return False
        self.chunks = chunks
        self.size_bytes += (capacity - self.capacity) * <int64_t>sizeof(Chunk)
        self.capacity = capacity
    memset(self.chunks + self.count, 0, (count - self.count) * sizeof(Chunk))
    self.count = count
    return True


cdef inline int64_t scan(
    OffsetMap* self, int64_t low, int64_t high, int64_t number, const uint8_t* marks
) noexcept nogil:
    """The first offset in [low, high) with that number, or, of number 0, with one that is marked."""
    cdef int64_t at, end, place, found
    cdef Chunk* chunk
    cdef const void* hit
    low = max(low, self.base << CHUNK_BITS)
    high = min(high, (self.base + self.count) << CHUNK_BITS)
    while low < high:
        at = (low >> CHUNK_BITS) - self.base
        end = min(high, (low | (CHUNK - 1)) + 1)
        chunk = self.chunks + at
        if chunk.data != NULL and chunk.width == 1 and number:
            place = low & (CHUNK - 1)
            hit = NULL
            if number < 256:
                hit = memchr(chunk.data + place, <int>number, end - low)
            if hit != NULL:
                return low + (<const uint8_t*>hit - (chunk.data + place))
        elif chunk.data != NULL:
            for place in range(low & (CHUNK - 1), (low & (CHUNK - 1)) + end - low):
                found = read_number(chunk, place)
                if (found == number) if number else (found != 0 and marks[found] != 0):
                    return (low & ~<int64_t>(CHUNK - 1)) + place
        low = end
    return NO_OFFSET


cdef inline int64_t scan_back(
    OffsetMap* self, int64_t low, int64_t high, int64_t number, const uint8_t* marks
) noexcept nogil:
    """The last offset in [low, high) with that number, or, of number 0, with one that is marked."""
    cdef int64_t start, place, found
    cdef Chunk* chunk
    low = max(low, self.base << CHUNK_BITS)
    high = min(high, (self.base + self.count) << CHUNK_BITS)
    while low < high:
        start = max(low, (high - 1) & ~<int64_t>(CHUNK - 1))
        chunk = self.chunks + (((high - 1) >> CHUNK_BITS) - self.base)
        if chunk.data != NULL:
            place = (high - 1) & (CHUNK - 1)
            while high > start:
                found = read_number(chunk, place)
                if (found == number) if number else (found != 0 and marks[found] != 0):
                    return high - 1
                high -= 1
                place -= 1
        high = start
    return NO_OFFSET


cdef inline void free_chunk(OffsetMap* self, int64_t at) noexcept nogil:
    cdef Chunk* chunk = self.chunks + at
    if chunk.data != NULL:
        self.size_bytes -= CHUNK * chunk.width
        free(chunk.data)
        chunk.data = NULL


cdef inline void free_first(OffsetMap* self, int64_t count) noexcept nogil:
    cdef int64_t at
    for at in range(count):
        free_chunk(self, at)
    self.count -= count
    self.base += count
    memmove(self.chunks, self.chunks + count, self.count * sizeof(Chunk))
