# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Record batches into the buffers of Arrow columns, compiled. ``columns.pyi`` says what it means.

What is read may be anything: each length and count is checked against the end of what holds it before it is used.
Nothing here knows pyarrow; the buffers that ``take`` returns show their bytes through the buffer protocol.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from streamlog.record.compiled.batch_header cimport (
    ATTRIBUTES_POSITION, BASE_OFFSET_POSITION, BASE_TIMESTAMP_POSITION, CODEC_MASK, CONTROL, CRC_POSITION,
    CRC_START, ENCRYPTED, HEADER_BYTES, LAST_OFFSET_DELTA_POSITION, LENGTH_POSITION, LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME, MAGIC, MAGIC_POSITION, MAX_TIMESTAMP_POSITION, PRODUCER_ID_POSITION,
    RECORD_COUNT_POSITION, TRANSACTIONAL,
)
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES
from streamlog.record.compiled.primitives cimport read_varlong

import crc32c

from streamlog.errors import CorruptBatch
from streamlog.record.compression import UNCOMPRESSED_BYTES_MAX, Compression, decompress

SOURCES = STREAMLOG_SOURCES
DATA_BYTES_MAX = 64 << 20
ROW_BYTES = 16
TIMESTAMP_MS_MAX = INT64_MAX // 1000

cdef Py_ssize_t data_bytes_max = DATA_BYTES_MAX
cdef Py_ssize_t row_bytes = ROW_BYTES
cdef int64_t timestamp_ms_max = TIMESTAMP_MS_MAX


@cython.final
cdef class Memory:
    """Bytes that grow; read-only to all but this file."""

    cdef uint8_t* start
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    def __dealloc__(self):
        free(self.start)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        if self.start == NULL:  # pyarrow refuses a null pointer, also to no bytes at all
            self.grow(0)
        PyBuffer_FillInfo(buffer, self, self.start, self.size, 1, flags)

    def __len__(self):
        return self.size

    cdef inline uint8_t* room(self, Py_ssize_t count) except NULL:
        """Where the next ``count`` bytes go; they count as written."""
        cdef uint8_t* place
        if count > self.capacity - self.size or self.start == NULL:
            self.grow(count)
        place = self.start + self.size
        self.size += count
        return place

    cdef int grow(self, Py_ssize_t count) except -1:
        cdef Py_ssize_t capacity = max(self.capacity * 2, self.size + count, 1024)
        cdef void* start = realloc(self.start, capacity)
        if start == NULL:
            raise MemoryError
        self.start = <uint8_t*>start
        self.capacity = capacity
        return 0


@cython.final
cdef class Offsets:
    """Arrow's int32 offsets with a validity bitmap: what every column of variable length has."""

    cdef Memory validity
    cdef Memory ends
    cdef Py_ssize_t count
    cdef Py_ssize_t null_count

    def __cinit__(self):
        self.validity = Memory()
        self.ends = Memory()
        memset(self.ends.room(4), 0, 4)

    cdef inline int append(self, Py_ssize_t end, bint valid) except -1:
        if self.count & 7 == 0:
            self.validity.room(1)[0] = 0
        if valid:
            self.validity.start[self.count >> 3] |= 1 << (self.count & 7)
        else:
            self.null_count += 1
        self.count += 1
        (<int32_t*>self.ends.room(4))[0] = <int32_t>end
        return 0


@cython.final
cdef class BytesColumn:
    """A column of type binary, or of type string if ``append_text`` is used."""

    cdef Offsets offsets
    cdef Memory data

    def __cinit__(self):
        self.offsets = Offsets()
        self.data = Memory()

    cdef inline int append(self, const uint8_t* value, Py_ssize_t length) except -1:
        """``length`` < 0: null."""
        if length > 0:
            memcpy(self.data.room(length), value, length)
        self.offsets.append(self.data.size, length >= 0)
        return 0

    cdef inline int append_text(self, const uint8_t* value, Py_ssize_t length) except -1:
        """Bytes that are not UTF-8 are replaced, for readers trust a string column to be UTF-8."""
        cdef bytes text
        if is_ascii(value, length):
            self.append(value, length)
        else:
            text = (<bytes>value[:length]).decode("utf-8", "replace").encode()
            self.append(text, len(text))
        return 0

    cdef tuple parts(self):
        return self.offsets.null_count, self.offsets.validity, self.offsets.ends, self.data


cdef inline bint is_ascii(const uint8_t* value, Py_ssize_t length) noexcept:
    cdef Py_ssize_t i
    cdef uint8_t seen = 0
    for i in range(length):
        seen |= value[i]
    return seen < 0x80


cdef inline bint read_varint(const uint8_t** cursor, const uint8_t* end, int64_t* value) noexcept:
    return read_varlong(cursor, end, value) and INT32_MIN <= value[0] <= INT32_MAX


cdef inline bint read_bytes(
    const uint8_t** cursor, const uint8_t* end, const uint8_t** value, int64_t* length
) noexcept:
    """A length and as many bytes; -1 stands for null."""
    if not read_varint(cursor, end, length) or length[0] < -1 or length[0] > end - cursor[0]:
        return False
    value[0] = cursor[0]
    if length[0] > 0:
        cursor[0] += length[0]
    return True


cdef inline int64_t big_endian(const uint8_t* place, int count) noexcept:
    cdef uint64_t value = 0
    cdef int i
    for i in range(count):
        value = value << 8 | place[i]
    return <int64_t>value


cdef class ColumnDecoder:
    """Record batches in, buffers of the wanted columns out; see ``streamlog.record.columns``."""

    cdef readonly Py_ssize_t position    # all of the buffer before it is decoded
    cdef readonly Py_ssize_t row_count   # rows that `take` would give
    cdef readonly int64_t next_offset    # batches below it have been read or skipped; none may come back
    cdef readonly bint finished          # a batch at or above `end_offset` was met, or the range is full

    cdef bint want_key, want_value, want_offset, want_timestamp, want_type, want_subject, want_headers
    cdef int64_t start_offset, end_offset
    cdef bint check_crc
    cdef Py_ssize_t rows_max, bytes_max
    cdef Py_ssize_t bytes                # of the rows that are waiting for `take`, roughly

    cdef public object passes_over       # whether a batch of a transaction, by producer and base offset, has no rows
    cdef object buffer                   # keeps `view` alive
    cdef const uint8_t[::1] view
    cdef object records                  # keeps `cursor` alive
    # The batch that is being decoded; `records_left` is 0 between batches.
    cdef const uint8_t* cursor
    cdef const uint8_t* records_end
    cdef int32_t records_left
    cdef Py_ssize_t batch_end
    cdef int64_t base_offset, previous_delta, last_delta, base_timestamp, append_timestamp
    cdef bint log_append_time

    cdef BytesColumn key, value, subject, header_keys, header_values
    cdef Offsets headers
    cdef Memory offsets, timestamps, types

    def __init__(
        self, columns, *, int64_t start_offset=0, int64_t end_offset=INT64_MAX, bint check_crc=True,
        Py_ssize_t rows_max=65_536, Py_ssize_t bytes_max=4 << 20,
    ):
        self.want_key = "key" in columns
        self.want_value = "value" in columns
        self.want_offset = "offset" in columns
        self.want_timestamp = "timestamp" in columns
        self.want_type = "timestampType" in columns
        self.want_subject = "subject" in columns
        self.want_headers = "headers" in columns
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.check_crc = check_crc
        self.rows_max = max(1, rows_max)
        self.bytes_max = min(max(1, bytes_max), data_bytes_max)
        self.finished = start_offset >= end_offset
        self.feed(b"")
        self.renew()

    def feed(self, buffer):
        """The next bytes; they begin with a batch. What is left of the last ones is forgotten."""
        if self.records_left:
            raise ValueError("the last buffer is not decoded yet")
        self.buffer = buffer
        self.view = memoryview(buffer).cast("B")
        self.position = 0

    @property
    def bytes_needed(self):
        """How many bytes, from ``position`` on, the next step needs at least."""
        if self.view.shape[0] - self.position < LENGTH_PREFIX_BYTES:
            return HEADER_BYTES
        return max(<int64_t>HEADER_BYTES, LENGTH_PREFIX_BYTES + self.read(self.position + LENGTH_POSITION, 4))

    def decode(self):
        """Go on until a ``take`` is due (True) or all whole batches are used up (False)."""
        while not self.finished:
            if self.records_left == 0 and not self.begin_batch():
                return False
            if self.records_left and self.decode_records():
                return True
        return False

    def take(self):
        """The rows so far: their number, and each wanted column in its parts."""
        cdef dict columns = {}
        cdef Py_ssize_t count = self.row_count
        if self.want_key:
            columns["key"] = self.key.parts()
        if self.want_value:
            columns["value"] = self.value.parts()
        if self.want_offset:
            columns["offset"] = (0, None, None, self.offsets)
        if self.want_timestamp:
            columns["timestamp"] = (0, None, None, self.timestamps)
        if self.want_type:
            columns["timestampType"] = (0, None, None, self.types)
        if self.want_subject:
            columns["subject"] = self.subject.parts()
        if self.want_headers:
            columns["headers"] = (self.headers.null_count, self.headers.validity, self.headers.ends, b"")
            columns["headers.key"] = self.header_keys.parts()
            columns["headers.value"] = self.header_values.parts()
        self.renew()
        return count, columns

    cdef int renew(self) except -1:
        self.row_count = 0
        self.bytes = 0
        self.key = BytesColumn()
        self.value = BytesColumn()
        self.subject = BytesColumn()
        self.headers = Offsets()
        self.header_keys = BytesColumn()
        self.header_values = BytesColumn()
        self.offsets = Memory()
        self.timestamps = Memory()
        self.types = Memory()
        return 0

    cdef inline int64_t read(self, Py_ssize_t position, int count) noexcept:
        cdef int64_t value = big_endian(&self.view[position], count)
        return <int64_t><int32_t>value if count == 4 else value

    cdef int corrupt(self, str problem) except -1:
        raise CorruptBatch(f"record batch at offset {self.base_offset}: {problem}")

    cdef bint begin_batch(self) except -1:
        """Read the header at ``position``. False if the batch is cut. No records: it is skipped."""
        cdef Py_ssize_t start = self.position
        cdef Py_ssize_t available = self.view.shape[0] - start
        cdef int64_t size
        if available < HEADER_BYTES:
            return False
        self.base_offset = self.read(start + BASE_OFFSET_POSITION, 8)
        size = LENGTH_PREFIX_BYTES + self.read(start + LENGTH_POSITION, 4)
        self.last_delta = self.read(start + LAST_OFFSET_DELTA_POSITION, 4)
        if self.view[start + MAGIC_POSITION] != MAGIC:
            self.corrupt("its magic is not 2")
        if size < HEADER_BYTES:
            self.corrupt("its length is too small")
        if self.last_delta < 0 or self.base_offset > INT64_MAX - INT32_MAX - 1:
            self.corrupt("its offsets are impossible")
        if self.base_offset < self.next_offset:
            self.corrupt("its offset is below that of the batch before it")
        if self.base_offset >= self.end_offset:
            self.finished = True
            return True
        if size > available:
            return False
        self.open_batch(start, start + size)
        return True

    cdef int open_batch(self, Py_ssize_t start, Py_ssize_t end) except -1:
        """Check what the header says of the records, and make them ready to be decoded."""
        cdef int64_t attributes = self.read(start + ATTRIBUTES_POSITION, 2)
        cdef int64_t count = self.read(start + RECORD_COUNT_POSITION, 4)
        self.batch_end = end
        if self.base_offset + self.last_delta < self.start_offset:
            self.end_batch()
            return 0
        cdef uint32_t crc = <uint32_t>self.read(start + CRC_POSITION, 4)
        if self.check_crc and crc32c.crc32c(self.view[start + CRC_START:end]) != crc:
            self.corrupt("its checksum is wrong")
        if not 0 <= count <= self.last_delta + 1:
            self.corrupt("its record count is impossible")
        if attributes & CONTROL or count == 0:  # a control batch is the log's own, not the user's
            self.end_batch()
            return 0
        if (
            attributes & TRANSACTIONAL
            and self.passes_over is not None
            and self.passes_over(self.read(start + PRODUCER_ID_POSITION, 8), self.base_offset)
        ):
            self.end_batch()
            return 0
        if attributes & ENCRYPTED:
            self.corrupt("it is encrypted")
        self.log_append_time = attributes & LOG_APPEND_TIME != 0
        self.base_timestamp = self.read(start + BASE_TIMESTAMP_POSITION, 8)
        self.append_timestamp = self.read(start + MAX_TIMESTAMP_POSITION, 8)
        self.open_records(attributes & CODEC_MASK, start + HEADER_BYTES, end)
        self.previous_delta = -1
        self.records_left = count
        return 0

    cdef int open_records(self, int codec, Py_ssize_t start, Py_ssize_t end) except -1:
        cdef const uint8_t[::1] view = self.view[start:end]
        if codec:
            try:
                codec = Compression.of_attributes(codec)
                self.records = decompress(codec, view, bytes_max=UNCOMPRESSED_BYTES_MAX)
            except CorruptBatch as error:
                self.corrupt(str(error))
            view = self.records
        else:
            self.records = self.buffer
        if view.shape[0] == 0:
            self.corrupt("a record runs past its end")
        self.cursor = &view[0]
        self.records_end = self.cursor + view.shape[0]
        return 0

    cdef int end_batch(self) except -1:
        self.records_left = 0
        self.records = None
        self.position = self.batch_end
        self.next_offset = self.base_offset + self.last_delta + 1
        if self.next_offset >= self.end_offset:
            self.finished = True
        return 0

    cdef bint decode_records(self) except -1:
        """Rows until the batch ends (False) or there are enough of them (True)."""
        cdef const uint8_t* place
        cdef const uint8_t* end
        cdef int64_t length = 0, timestamp_delta = 0, delta = 0, offset
        while self.records_left:
            if self.row_count >= self.rows_max or self.bytes >= self.bytes_max:
                return True
            place = self.cursor
            if not read_varint(&place, self.records_end, &length) or not 0 < length <= self.records_end - place:
                self.corrupt("a record runs past its end")
            if self.row_count and self.bytes + length > data_bytes_max:
                return True
            end = place + length
            place += 1  # attributes of a record: none are defined
            if not read_varlong(&place, end, &timestamp_delta) or not read_varint(&place, end, &delta):
                self.corrupt("a record is cut")
            if not self.previous_delta < delta <= self.last_delta:
                self.corrupt("a record's offset is impossible")
            offset = self.base_offset + delta
            if offset >= self.end_offset:
                self.end_batch()
                return False
            if offset >= self.start_offset:
                self.append_row(place, end, offset, timestamp_delta)
            self.previous_delta = delta
            self.cursor = end
            self.records_left -= 1
        if self.cursor != self.records_end:
            self.corrupt("bytes follow its last record")
        self.end_batch()
        return False

    cdef int append_row(
        self, const uint8_t* place, const uint8_t* end, int64_t offset, int64_t timestamp_delta
    ) except -1:
        cdef const uint8_t* key = NULL
        cdef const uint8_t* value = NULL
        cdef int64_t key_length = -1, value_length = -1, timestamp
        if not read_bytes(&place, end, &key, &key_length) or not read_bytes(&place, end, &value, &value_length):
            self.corrupt("a record is cut")
        if self.want_key:
            self.key.append(key, key_length)
            self.bytes += max(key_length, 0)
        if self.want_value:
            self.value.append(value, value_length)
            self.bytes += max(value_length, 0)
        if self.want_subject or self.want_headers:
            self.append_headers(place, end)
        if self.want_offset:
            (<int64_t*>self.offsets.room(8))[0] = offset
        if self.want_timestamp:
            timestamp = self.append_timestamp
            if not self.log_append_time:
                timestamp = <int64_t>(<uint64_t>self.base_timestamp + <uint64_t>timestamp_delta)
            if not -timestamp_ms_max <= timestamp <= timestamp_ms_max:
                self.corrupt("a timestamp is impossible")
            (<int64_t*>self.timestamps.room(8))[0] = timestamp * 1000
        if self.want_type:
            (<int32_t*>self.types.room(4))[0] = self.log_append_time
        self.bytes += row_bytes
        self.row_count += 1
        return 0

    cdef int append_headers(self, const uint8_t* place, const uint8_t* end) except -1:
        """The first one named ``subject`` is that column; all of them are ``headers``."""
        cdef const uint8_t* name = NULL
        cdef const uint8_t* value = NULL
        cdef const uint8_t* subject = NULL
        cdef int64_t count = 0, name_length = -1, length = -1, subject_length = -1
        cdef Py_ssize_t i
        if not read_varint(&place, end, &count) or not 0 <= count <= end - place:
            self.corrupt("a record is cut")
        for i in range(count):
            if not read_bytes(&place, end, &name, &name_length) or name_length < 0:
                self.corrupt("a header is cut")
            if not read_bytes(&place, end, &value, &length):
                self.corrupt("a header is cut")
            if self.want_headers:
                self.header_keys.append_text(name, name_length)
                self.header_values.append(value, length)
                self.bytes += row_bytes + name_length + max(length, 0)
            if subject == NULL and name_length == 7 and memcmp(name, b"subject", 7) == 0:
                subject = value
                subject_length = length
                if not self.want_headers:
                    break
        if self.want_subject:
            self.subject.append_text(subject, subject_length)
            self.bytes += max(subject_length, 0)
        if self.want_headers:
            self.headers.append(self.header_keys.offsets.count, count > 0)
        return 0
