# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The record codec, compiled. ``codec.pyi`` says what it means.

Memory: a run's buffer is its own and written only after ``_reserve``; what is decoded may be anything, so
each length is checked against the end of what holds it before it is used.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from streamlog.record.compiled.batch_header cimport (
    ATTRIBUTES_POSITION, BASE_OFFSET_POSITION, BASE_SEQUENCE_POSITION, BASE_TIMESTAMP_POSITION, CONTROL,
    CRC_POSITION, CRC_START, HEADER_BYTES, LAST_OFFSET_DELTA_POSITION, LEADER_EPOCH_POSITION, LENGTH_POSITION,
    LENGTH_PREFIX_BYTES, LOG_APPEND_TIME, MAGIC, MAGIC_POSITION, MAX_TIMESTAMP_POSITION,
    PRODUCER_EPOCH_POSITION, PRODUCER_ID_POSITION, RECORD_COUNT_POSITION,
)
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES
from streamlog.record.compiled.primitives cimport put_varint

from crc32c import crc32c

from streamlog.errors import CorruptBatch, RecordTooLarge
from streamlog.record.batch import Record
from streamlog.record.compression import UNCOMPRESSED_BYTES_MAX, compress

SOURCES = STREAMLOG_SOURCES
RUN_BYTES_MAX = UNCOMPRESSED_BYTES_MAX
HEADERS_MAX = 65_536
NO_PRODUCER = (-1, -1, -1)

cdef enum:
    VARINT_BYTES_MAX = 10
    TURN_RECORDS = 4096
    CAPACITY_FIRST = 512  # there may be 10,000 of them, of a message each
    CAPACITY_KEPT = 65536  # an empty run gives a larger buffer back: there may be 10,000 of them

cdef Py_ssize_t run_bytes_max = RUN_BYTES_MAX
cdef int64_t headers_max = HEADERS_MAX
cdef object new_record = tuple.__new__


cdef inline Py_ssize_t varint_size(int64_t value) noexcept nogil:
    cdef uint64_t rest = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef Py_ssize_t size = 1
    while rest >= 0x80:
        rest >>= 7
        size += 1
    return size


cdef inline Py_ssize_t span_size(Span span) noexcept nogil:
    return 1 if span.size < 0 else varint_size(span.size) + span.size


cdef inline uint8_t* put_span(uint8_t* out, Span span) noexcept nogil:
    if span.size <= 0:
        return put_varint(out, span.size)
    out = put_varint(out, span.size)
    memcpy(out, span.data, span.size)
    return out + span.size


cdef inline uint8_t* put_number(uint8_t* out, uint64_t value, int size) noexcept nogil:
    """Big-endian."""
    cdef int i
    for i in range(size - 1, -1, -1):
        out[i] = value & 0xFF
        value >>= 8
    return out + size


cdef int span_of(object data, bint nullable, Span* span) except -1:
    """Of bytes, which the caller keeps."""
    if data is None and nullable:
        span.data = NULL
        span.size = -1
    elif PyBytes_Check(data):
        span.data = <const uint8_t*>PyBytes_AS_STRING(data)
        span.size = PyBytes_GET_SIZE(data)
    else:
        raise TypeError(f"bytes are wanted, not {type(data).__name__}")
    return 0


@cython.final
cdef class RecordRun:
    """Records gathered until they are sealed into one batch. Not thread-safe; one owner."""

    def __cinit__(self, *, Py_ssize_t bytes_max=run_bytes_max, int attributes=0):
        if not 0 <= bytes_max <= run_bytes_max:
            raise ValueError(f"limit of {bytes_max} bytes is outside [0, {run_bytes_max}]")
        self.bytes_max = bytes_max
        self.attributes = attributes

    def __dealloc__(self):
        free(self._body)

    @property
    def size_bytes(self):
        """What the records take so far, uncompressed."""
        return self._size

    def body_from(self, Py_ssize_t position):
        """The records that begin at that byte and after it."""
        if not 0 <= position <= self._size:
            raise ValueError(f"{position} is outside of {self._size} bytes")
        return PyBytes_FromStringAndSize(<const char*>self._body + position, self._size - position)

    cdef int _reserve(self, Py_ssize_t extra) except -1:
        """Room for ``extra`` bytes more, which the caller has held against ``bytes_max``."""
        cdef Py_ssize_t needed = self._size + extra
        cdef Py_ssize_t capacity = max(2 * self._capacity, CAPACITY_FIRST)
        cdef uint8_t* body
        if needed <= self._capacity:
            return 0
        if capacity < needed:
            capacity = needed
        body = <uint8_t*>realloc(self._body, capacity)
        if body == NULL:
            raise MemoryError
        self._body = body
        self._capacity = capacity
        return 0

    cdef int add(
        self,
        int64_t timestamp_delta_ms,
        Span key,
        Span value,
        const Span* headers,
        Py_ssize_t header_count,
    ) except -1:
        """Encode one record, so much younger than the batch; ``headers``: name, value, name, ..."""
        cdef Py_ssize_t i, whole
        cdef Py_ssize_t length = 1 + varint_size(timestamp_delta_ms)
        length += varint_size(self.count) + varint_size(header_count)
        cdef uint8_t* out
        length += span_size(key) + span_size(value)
        for i in range(2 * header_count):
            length += span_size(headers[i])
            if length > self.bytes_max:
                break  # before the sum of many sizes can overflow
        whole = varint_size(length) + length
        if whole > self.bytes_max - self._size:
            raise RecordTooLarge(f"run of {self._size} bytes has no room for {length}")
        if whole > self._capacity - self._size:
            self._reserve(whole)
        out = put_varint(self._body + self._size, length)
        out[0] = 0  # no attributes
        out = put_varint(out + 1, timestamp_delta_ms)
        out = put_varint(out, self.count)
        out = put_span(put_span(out, key), value)
        out = put_varint(out, header_count)
        for i in range(2 * header_count):
            out = put_span(out, headers[i])
        self._size += whole
        self.count += 1
        return 0

    def append(self, key, value, headers=(), int64_t timestamp_delta_ms=0):
        """Add a record; its offset delta. Raises RecordTooLarge where the run has no room for it."""
        cdef tuple pairs = tuple(headers)  # no one can change it while spans point into it
        cdef tuple pair
        cdef Py_ssize_t i
        cdef Span key_span, value_span
        cdef Span* spans = <Span*>malloc((2 * len(pairs) + 1) * sizeof(Span))
        if spans == NULL:
            raise MemoryError
        try:
            for i in range(len(pairs)):
                pair = <tuple?>pairs[i]
                if pair is None or len(pair) != 2:
                    raise TypeError("a header is a name and a value")
                span_of(pair[0], False, &spans[2 * i])
                span_of(pair[1], True, &spans[2 * i + 1])
            span_of(key, True, &key_span)
            span_of(value, True, &value_span)
            self.add(timestamp_delta_ms, key_span, value_span, spans, len(pairs))
        finally:
            free(spans)
        return self.count - 1

    def seal(
        self,
        *,
        int64_t base_offset,
        int32_t leader_epoch,
        int64_t timestamp_ms,
        int compression=0,
        max_timestamp_ms=None,
        tuple producer not None=NO_PRODUCER,
    ):
        """The whole batch; the run is empty afterwards, but as it was where this raises."""
        cdef Header header
        header.base_offset = base_offset
        header.leader_epoch = leader_epoch
        header.attributes = compression
        header.timestamp_ms = header.max_timestamp_ms = timestamp_ms
        if max_timestamp_ms is None:
            header.attributes |= LOG_APPEND_TIME
        else:
            header.max_timestamp_ms = max_timestamp_ms
        header.producer_id, header.producer_epoch, header.sequence = producer
        return self._sealed(&header, compression)

    cdef bytes sealed(
        self, int64_t base_offset, int leader_epoch, int64_t timestamp_ms, int compression
    ):
        """As ``seal``, in the log's time and of no producer."""
        cdef Header header
        header.base_offset = base_offset
        header.leader_epoch = leader_epoch
        header.attributes = compression | LOG_APPEND_TIME
        header.timestamp_ms = header.max_timestamp_ms = timestamp_ms
        header.producer_id = header.producer_epoch = header.sequence = -1
        return self._sealed(&header, compression)

    cdef bytes _sealed(self, Header* header, int compression):
        cdef bytes packed, batch
        cdef Py_ssize_t size = self._size
        cdef const uint8_t* body = self._body
        cdef uint8_t* start
        if not self.count:
            raise ValueError("there is no record to seal")
        header.attributes |= self.attributes
        header.count = self.count
        if compression:
            packed = compress(compression, PyBytes_FromStringAndSize(<const char*>body, size))
            body = <const uint8_t*>PyBytes_AS_STRING(packed)
            size = len(packed)
        batch = PyBytes_FromStringAndSize(NULL, HEADER_BYTES + size)
        start = <uint8_t*>PyBytes_AS_STRING(batch)
        memcpy(start + HEADER_BYTES, body, size)
        put_header(start, size, header[0])
        # No one else has the new bytes yet, so they may still be written to.
        size += HEADER_BYTES - CRC_START
        checked = PyMemoryView_FromMemory(<char*>start + CRC_START, size, PyBUF_READ)
        put_number(start + CRC_POSITION, <uint32_t>crc32c(checked), 4)
        self.clear()
        return batch

    cpdef clear(self):
        """Forget the records."""
        self.count = 0
        self._size = 0
        if self._capacity > CAPACITY_KEPT:
            free(self._body)
            self._body = NULL
            self._capacity = 0


cdef void put_header(uint8_t* out, Py_ssize_t body_bytes, Header header) noexcept nogil:
    """All but the checksum. A run's limit keeps each size in its range."""
    put_number(out + BASE_OFFSET_POSITION, <uint64_t>header.base_offset, 8)
    put_number(out + LENGTH_POSITION, HEADER_BYTES - LENGTH_PREFIX_BYTES + body_bytes, 4)
    put_number(out + LEADER_EPOCH_POSITION, <uint64_t>header.leader_epoch, 4)
    put_number(out + MAGIC_POSITION, MAGIC, 1)
    put_number(out + CRC_POSITION, 0, 4)
    put_number(out + ATTRIBUTES_POSITION, <uint64_t>header.attributes, 2)
    put_number(out + LAST_OFFSET_DELTA_POSITION, header.count - 1, 4)
    put_number(out + BASE_TIMESTAMP_POSITION, <uint64_t>header.timestamp_ms, 8)
    put_number(out + MAX_TIMESTAMP_POSITION, <uint64_t>header.max_timestamp_ms, 8)
    put_number(out + PRODUCER_ID_POSITION, <uint64_t>header.producer_id, 8)
    put_number(out + PRODUCER_EPOCH_POSITION, <uint64_t>header.producer_epoch, 2)
    put_number(out + BASE_SEQUENCE_POSITION, <uint64_t>header.sequence, 4)
    put_number(out + RECORD_COUNT_POSITION, header.count, 4)


cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end  # at <= end


cdef int64_t get_varint(Cursor* cursor) except? -1:
    cdef uint64_t rest = 0
    cdef int i
    cdef uint8_t byte
    for i in range(VARINT_BYTES_MAX):
        if cursor.at == cursor.end:
            raise CorruptBatch("varint is cut")
        byte = cursor.at[0]
        cursor.at += 1
        if i == VARINT_BYTES_MAX - 1 and byte > 1:
            break  # of more than 64 bits
        rest |= <uint64_t>(byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return <int64_t>(rest >> 1) ^ -<int64_t>(rest & 1)
    raise CorruptBatch("varint is too long")


cdef bytes get_bytes(Cursor* cursor):
    cdef int64_t size = get_varint(cursor)
    cdef const uint8_t* start = cursor.at
    if size == -1:
        return None
    if size < 0 or size > cursor.end - start:
        raise CorruptBatch(f"field of {size} bytes where {cursor.end - start} are left")
    cursor.at += size
    return PyBytes_FromStringAndSize(<const char*>start, size)


cdef tuple get_headers(Cursor* cursor):
    cdef int64_t count = get_varint(cursor), i
    cdef bytes name
    cdef list headers
    if count == 0:
        return ()
    if count < 0 or count > cursor.end - cursor.at:
        raise CorruptBatch(f"{count} headers in {cursor.end - cursor.at} bytes")
    headers = []
    for i in range(count):
        name = get_bytes(cursor)
        content = get_bytes(cursor)
        if name is None:
            raise CorruptBatch("header without a name")
        headers.append((name.decode("utf-8", "replace"), content))
    return tuple(headers)


@cython.final
cdef class decode_records:
    """The records of an opened batch, one by one."""

    cdef Py_buffer _view
    cdef bint _has_view
    cdef Py_ssize_t _position  # of the next record
    cdef int64_t _left  # records still to come
    cdef int64_t _base_offset
    cdef int64_t _last_offset_delta
    cdef int64_t _base_timestamp_ms
    cdef int64_t _append_time_ms
    cdef bint _is_log_append_time

    def __cinit__(self, body, header):
        PyObject_GetBuffer(body, &self._view, PyBUF_SIMPLE)
        self._has_view = True
        self._left = header.record_count
        self._base_offset = header.base_offset
        self._last_offset_delta = header.last_offset_delta
        self._base_timestamp_ms = header.base_timestamp_ms
        self._append_time_ms = header.max_timestamp_ms
        self._is_log_append_time = header.is_log_append_time

    def __dealloc__(self):
        if self._has_view:
            PyBuffer_Release(&self._view)

    def __iter__(self):
        return self

    def __next__(self):
        cdef Cursor cursor
        cdef int64_t length
        cursor.at = <const uint8_t*>self._view.buf + self._position
        cursor.end = <const uint8_t*>self._view.buf + self._view.len
        if self._left <= 0:
            if cursor.at != cursor.end:
                raise CorruptBatch(f"{cursor.end - cursor.at} bytes follow the last record")
            raise StopIteration
        length = get_varint(&cursor)
        if length < 0 or length > cursor.end - cursor.at:
            raise CorruptBatch(f"record of {length} bytes where {cursor.end - cursor.at} are left")
        cursor.end = cursor.at + length
        record = self._record(&cursor)
        self._position = cursor.end - <const uint8_t*>self._view.buf
        self._left -= 1
        return record

    cdef object _record(self, Cursor* cursor):
        cdef int64_t timestamp_ms, offset_delta
        if cursor.at == cursor.end:
            raise CorruptBatch("record is empty")
        cursor.at += 1  # attributes: none are defined
        timestamp_ms = get_varint(cursor)
        offset_delta = get_varint(cursor)
        key = get_bytes(cursor)
        value = get_bytes(cursor)
        headers = get_headers(cursor)
        if cursor.at != cursor.end:
            raise CorruptBatch(f"{cursor.end - cursor.at} bytes follow the last header")
        if offset_delta < 0 or offset_delta > self._last_offset_delta:
            raise CorruptBatch(f"offset delta {offset_delta} is outside the batch")
        timestamp_ms = self._timestamp_ms(timestamp_ms)
        return new_record(
            Record, (self._base_offset + offset_delta, timestamp_ms, key, value, headers)
        )

    cdef int64_t _timestamp_ms(self, int64_t delta) except? -1:
        cdef int64_t start = self._base_timestamp_ms
        if self._is_log_append_time:
            return self._append_time_ms
        if start > INT64_MAX - delta if delta > 0 else start < INT64_MIN - delta:
            raise CorruptBatch("timestamp is out of range")
        return start + delta


def survey_records(body, int64_t count, int64_t base_timestamp_ms):
    cdef Py_buffer view
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        return survey(<const uint8_t*>view.buf, view.len, count, base_timestamp_ms)
    finally:
        PyBuffer_Release(&view)


cdef inline int64_t big_endian(const uint8_t* at, int size) noexcept nogil:
    """Signed."""
    cdef uint64_t value = 0
    cdef int i
    for i in range(size):
        value = (value << 8) | at[i]
    if size == 2:
        return <int16_t>value
    return <int32_t>value if size == 4 else <int64_t>value


def survey_plain(data):
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef int64_t length, attributes, last_delta, base_timestamp, producer_id, epoch, sequence, count
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t*>view.buf
        if view.len < HEADER_BYTES or at[MAGIC_POSITION] != MAGIC:
            return None
        length = big_endian(at + LENGTH_POSITION, 4)
        attributes = big_endian(at + ATTRIBUTES_POSITION, 2)
        last_delta = big_endian(at + LAST_OFFSET_DELTA_POSITION, 4)
        base_timestamp = big_endian(at + BASE_TIMESTAMP_POSITION, 8)
        producer_id = big_endian(at + PRODUCER_ID_POSITION, 8)
        epoch = big_endian(at + PRODUCER_EPOCH_POSITION, 2)
        sequence = big_endian(at + BASE_SEQUENCE_POSITION, 4)
        count = big_endian(at + RECORD_COUNT_POSITION, 4)
        if (
            length + LENGTH_PREFIX_BYTES != view.len
            or attributes & ~LOG_APPEND_TIME
            or count < 1
            or count != last_delta + 1
            or (producer_id >= 0 and (epoch < 0 or sequence < 0))
        ):
            return None
        header = (
            0, length, big_endian(at + LEADER_EPOCH_POSITION, 4), MAGIC,
            big_endian(at + CRC_POSITION, 4) & 0xFFFFFFFF, attributes, last_delta, base_timestamp,
            big_endian(at + MAX_TIMESTAMP_POSITION, 8), producer_id, epoch, sequence, count,
        )
        try:
            return header, survey(at + HEADER_BYTES, view.len - HEADER_BYTES, count, base_timestamp)
        except CorruptBatch:
            return None
    finally:
        PyBuffer_Release(&view)


cdef tuple survey(const uint8_t* start, Py_ssize_t size, int64_t count, int64_t base_timestamp_ms):
    cdef Cursor cursor
    cdef const uint8_t* end = start + size
    cdef int64_t i, length, delta, latest = INT64_MIN, largest = 0
    cursor.at = start
    for i in range(count):
        if i % TURN_RECORDS == TURN_RECORDS - 1:
            with nogil:  # the event loop has its turn: a batch may have millions of records
                pass
        cursor.end = end
        length = get_varint(&cursor)
        if length <= 0 or length > end - cursor.at:
            raise CorruptBatch(f"record of {length} bytes where {end - cursor.at} are left")
        cursor.end = cursor.at + length
        if length > largest:
            largest = length
        cursor.at += 1  # attributes: none are defined
        delta = get_varint(&cursor)
        if base_timestamp_ms > INT64_MAX - delta if delta > 0 else base_timestamp_ms < INT64_MIN - delta:
            raise CorruptBatch("timestamp is out of range")
        if base_timestamp_ms + delta > latest:
            latest = base_timestamp_ms + delta
        delta = get_varint(&cursor)
        if delta != i:
            raise CorruptBatch(f"offset delta {delta} where {i} should be")
        pass_field(&cursor, True)
        pass_field(&cursor, True)
        pass_headers(&cursor)
        if cursor.at != cursor.end:
            raise CorruptBatch(f"{cursor.end - cursor.at} bytes follow the last header")
    if cursor.at != end:
        raise CorruptBatch(f"{end - cursor.at} bytes follow the last record")
    return largest, latest


cdef int pass_headers(Cursor* cursor) except -1:
    cdef int64_t i, count = get_varint(cursor)
    if count < 0 or count > cursor.end - cursor.at:
        raise CorruptBatch(f"{count} headers in {cursor.end - cursor.at} bytes")
    if count > headers_max:
        raise CorruptBatch(f"a record with {count} headers, {headers_max} are allowed")
    for i in range(count):
        pass_field(cursor, False)
        pass_field(cursor, True)
    return 0


cdef int pass_field(Cursor* cursor, bint nullable) except -1:
    cdef int64_t size = get_varint(cursor)
    if size == -1 and nullable:
        return 0
    if size < 0 or size > cursor.end - cursor.at:
        raise CorruptBatch(f"field of {size} bytes where {cursor.end - cursor.at} are left")
    cursor.at += size
    return 0


cdef inline int64_t number_at(const uint8_t* at, int size) noexcept nogil:
    """Big-endian, without a sign."""
    cdef uint64_t value = 0
    cdef int i
    for i in range(size):
        value = value << 8 | at[i]
    return <int64_t>value


def record_sizes(body):
    cdef Py_buffer view
    cdef Cursor cursor
    cdef const uint8_t* start
    cdef int64_t length
    cdef list sizes = []
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        cursor.at = <const uint8_t*>view.buf
        cursor.end = cursor.at + view.len
        while cursor.at < cursor.end:
            start = cursor.at
            length = get_varint(&cursor)
            if length <= 0 or length > cursor.end - cursor.at:
                raise CorruptBatch(f"record of {length} bytes where {cursor.end - cursor.at} are left")
            cursor.at += length
            sizes.append(cursor.at - start)
    finally:
        PyBuffer_Release(&view)
    return sizes


def marked_batches(data):
    cdef Py_buffer view
    cdef const uint8_t* start
    cdef Py_ssize_t position = 0
    cdef int64_t length, attributes, next_offset = -1
    positions = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t*>view.buf
        while view.len - position >= HEADER_BYTES:
            length = <int32_t>number_at(start + position + LENGTH_POSITION, 4)
            if length < HEADER_BYTES - LENGTH_PREFIX_BYTES:
                raise CorruptBatch(f"length {length} is less than a header's")
            if length > view.len - position - LENGTH_PREFIX_BYTES:
                break
            attributes = number_at(start + position + ATTRIBUTES_POSITION, 2)
            if number_at(start + position + PRODUCER_ID_POSITION, 8) >= 0 or attributes & CONTROL:
                positions.append(position)
            next_offset = number_at(start + position + BASE_OFFSET_POSITION, 8) + 1
            next_offset += number_at(start + position + LAST_OFFSET_DELTA_POSITION, 4)
            position += LENGTH_PREFIX_BYTES + length
    finally:
        PyBuffer_Release(&view)
    return positions, next_offset
