# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Messages of a partition, compiled. ``message_run.pyi`` says what it means.

Memory: entries and data grow only in ``_reserve`` and ``_begin``, and an entry's parts lie within what was
written. Records may be anything: each length is checked before it is used. Of an encoded run each part is
checked against what is there before anything of it is kept.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from streamlog.record.compiled.codec cimport Span
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES, read_varlong, skip_bytes

from streamlog.errors import CorruptBatch, CorruptData
from streamlog.record.compiled.subjects import matches

SOURCES = STREAMLOG_SOURCES

cdef enum:
    ENTRIES_FIRST = 64
    DATA_FIRST = 4096
    NUMBER_BYTES = 8
    NUMBERS = 5  # of an encoded entry: offset, time, three sizes
    TURN_RECORDS = 4096


cdef inline void put_number(uint8_t* out, int64_t number) noexcept nogil:
    cdef uint64_t value = <uint64_t>number
    cdef int i
    for i in range(NUMBER_BYTES):
        out[i] = <uint8_t>(value >> (8 * i))


cdef inline int64_t number_at(const uint8_t* at) noexcept nogil:
    cdef uint64_t value = 0
    cdef int i
    for i in range(NUMBER_BYTES):
        value |= <uint64_t>at[i] << (8 * i)
    return <int64_t>value


cdef inline bint is_subject_text(const uint8_t* data, int64_t size) noexcept nogil:
    """A subject of NATS: nothing in it ends a word or a line, no token is empty."""
    cdef int64_t i
    cdef uint8_t before = 46
    if size <= 0:
        return False
    for i in range(size):
        if data[i] <= 32 or data[i] == 127 or (data[i] == 46 and before == 46):
            return False
        before = data[i]
    return before != 46


@cython.final
cdef class MessageRun:
    def __dealloc__(self):
        free(self._entries)
        free(self._data)

    def __len__(self):
        return self.count

    @property
    def next_offset(self):
        return self._entries[self.count - 1].offset + 1 if self.count else 0

    @classmethod
    def of(cls, messages):
        cdef MessageRun run = MessageRun()
        cdef bytes text, head, data
        cdef int64_t sequence, timestamp_ms
        for subject, sequence, timestamp_ms, head, data in messages:
            text = subject.encode()
            if sequence <= (run._entries[run.count - 1].offset + 1 if run.count else 0):
                raise ValueError(f"sequence {sequence} does not rise")
            run._begin(sequence - 1, timestamp_ms)
            run._put(<const uint8_t*>PyBytes_AS_STRING(text), len(text))
            run._entries[run.count - 1].subject_bytes = len(text)
            run._put(<const uint8_t*>PyBytes_AS_STRING(head), len(head))
            run._entries[run.count - 1].block_bytes = len(head)
            run._put(<const uint8_t*>PyBytes_AS_STRING(data), len(data))
            run._entries[run.count - 1].payload_bytes = len(data)
        return run

    # Gathering

    cdef int _reserve(self, Py_ssize_t extra) except -1 nogil:
        cdef Py_ssize_t needed = self.size_bytes + extra
        cdef Py_ssize_t size = max(2 * self._data_max, <Py_ssize_t>DATA_FIRST)
        cdef uint8_t* data
        if needed <= self._data_max:
            return 0
        if size < needed:
            size = needed
        data = <uint8_t*>realloc(self._data, size)
        if data == NULL:
            with gil:
                raise MemoryError
        self._data = data
        self._data_max = size
        return 0

    cdef int _begin(self, int64_t offset, int64_t timestamp_ms) except -1 nogil:
        """One more message, without parts so far."""
        cdef Py_ssize_t size = max(2 * self._entries_max, <Py_ssize_t>ENTRIES_FIRST)
        cdef RunEntry* entries
        cdef RunEntry* made
        if self.count == self._entries_max:
            entries = <RunEntry*>realloc(self._entries, size * sizeof(RunEntry))
            if entries == NULL:
                with gil:
                    raise MemoryError
            self._entries = entries
            self._entries_max = size
        made = self._entries + self.count
        made.offset = offset
        made.timestamp_ms = timestamp_ms
        made.place = self.size_bytes
        made.subject_bytes = made.block_bytes = made.payload_bytes = 0
        self.count += 1
        return 0

    cdef int _put(self, const uint8_t* data, Py_ssize_t size) except -1 nogil:
        if size > 0:
            self._reserve(size)
            memcpy(self._data + self.size_bytes, data, size)
            self.size_bytes += size
        return 0

    cdef int _put_in_a_line(self, const uint8_t* data, Py_ssize_t size) except -1 nogil:
        cdef Py_ssize_t i, start = self.size_bytes
        self._put(data, size)
        for i in range(start, self.size_bytes):
            if self._data[i] == 13 or self._data[i] == 10:
                self._data[i] = 32
        return 0

    cdef int _drop_last(self) except -1 nogil:
        self.count -= 1
        self.size_bytes = self._entries[self.count].place
        return 0

    def add_records(self, body, header, wanted, *, patterns=(), Py_ssize_t bytes_max):
        cdef Py_buffer view
        cdef Scan scan
        cdef int64_t i, end_offset
        cdef Py_ssize_t index = 0, wanted_count = len(wanted)
        cdef int64_t range_start = 0, range_stop = 0
        cdef bint is_range = isinstance(wanted, range)
        cdef bytes subject
        if is_range:
            if wanted.step != 1:
                raise ValueError("offsets are consecutive in a range")
            range_start, range_stop = wanted.start, wanted.stop
        scan.base_offset, scan.last_delta = header.base_offset, header.last_offset_delta
        scan.is_append_time = header.is_log_append_time
        scan.base_ms = header.max_timestamp_ms if scan.is_append_time else header.base_timestamp_ms
        scan.left, scan.before, scan.is_half_added = header.record_count, -1, False
        if scan.base_offset < 0 or scan.last_delta < 0 or scan.base_offset > INT64_MAX - 1 - scan.last_delta:
            raise CorruptBatch(f"offsets from {scan.base_offset}, {scan.last_delta} more")
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            scan.at = <const uint8_t*>view.buf
            scan.end = scan.at + view.len
            if is_range and not patterns:
                with nogil:  # the event loop goes on meanwhile
                    end_offset = add_range(self, &scan, range_start, range_stop, bytes_max)
                return end_offset
            i = 0
            while next_place(&scan):
                i += 1
                if i % TURN_RECORDS == 0:
                    with nogil:  # the event loop has its turn
                        pass
                if is_range:
                    if scan.offset >= range_stop:
                        return scan.offset
                    is_wanted = scan.offset >= range_start
                else:
                    while index < wanted_count and wanted[index] < scan.offset:
                        index += 1
                    if index == wanted_count:
                        return scan.offset
                    is_wanted = wanted[index] == scan.offset
                if is_wanted:
                    add_record(self, &scan)
                    if patterns:  # what has no subject matches none
                        subject = PyBytes_FromStringAndSize(
                            <const char*>self._data + self._entries[self.count - 1].place,
                            self._entries[self.count - 1].subject_bytes,
                        )
                        for pattern in patterns:
                            if subject and matches(pattern, subject):
                                break
                        else:
                            self._drop_last()
                    if self.size_bytes >= bytes_max:
                        return scan.offset + 1
            return scan.base_offset + scan.last_delta + 1
        except BaseException:
            if scan.is_half_added:
                self._drop_last()
            raise
        finally:
            PyBuffer_Release(&view)

    def leave_out(self, offsets):
        cdef Py_ssize_t i, kept = 0
        for i in range(self.count):
            if self._entries[i].offset not in offsets:
                self._entries[kept] = self._entries[i]
                kept += 1
        self.count = kept

    # Reading

    cdef RunEntry* entry(self, Py_ssize_t index) except NULL:
        if not 0 <= index < self.count:
            raise IndexError(f"{index} of {self.count} messages")
        return self._entries + index

    cdef Span subject(self, const RunEntry* entry) noexcept nogil:
        cdef Span made
        made.data = self._data + entry.place
        made.size = entry.subject_bytes
        return made

    cdef Span block(self, const RunEntry* entry) noexcept nogil:
        cdef Span made
        made.data = self._data + entry.place + entry.subject_bytes
        made.size = entry.block_bytes
        return made

    cdef Span payload(self, const RunEntry* entry) noexcept nogil:
        cdef Span made
        made.data = self._data + entry.place + entry.subject_bytes + entry.block_bytes
        made.size = entry.payload_bytes
        return made

    def index_of(self, int64_t offset):
        cdef Py_ssize_t low = 0, high = self.count, middle
        while low < high:
            middle = (low + high) // 2
            if self._entries[middle].offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def offset_at(self, Py_ssize_t index):
        return self.entry(index).offset

    def offsets(self, Py_ssize_t start, Py_ssize_t stop):
        cdef Py_ssize_t i
        if not 0 <= start <= stop <= self.count:
            raise IndexError(f"[{start}, {stop}) of {self.count} messages")
        return [self._entries[i].offset for i in range(start, stop)]

    def message(self, Py_ssize_t index):
        cdef const RunEntry* entry = self.entry(index)
        cdef Span subject = self.subject(entry), block = self.block(entry), payload = self.payload(entry)
        cdef bytes text = PyBytes_FromStringAndSize(<const char*>subject.data, subject.size)
        return (
            text.decode("utf-8", "replace"),
            entry.offset + 1,
            entry.timestamp_ms,
            PyBytes_FromStringAndSize(<const char*>block.data, block.size),
            PyBytes_FromStringAndSize(<const char*>payload.data, payload.size),
        )

    # As bytes

    def encode(self):
        """The number of messages, their numbers, and their parts."""
        cdef Py_ssize_t i, table = NUMBER_BYTES * (1 + NUMBERS * self.count), size = 0
        cdef bytes data
        cdef uint8_t* out
        cdef RunEntry* entry
        for i in range(self.count):
            size += parts_bytes(self._entries + i)
        data = PyBytes_FromStringAndSize(NULL, table + size)
        out = <uint8_t*>PyBytes_AS_STRING(data)
        put_number(out, self.count)
        out += NUMBER_BYTES
        for i in range(self.count):
            entry = self._entries + i
            put_number(out, entry.offset)
            put_number(out + NUMBER_BYTES, entry.timestamp_ms)
            put_number(out + 2 * NUMBER_BYTES, entry.subject_bytes)
            put_number(out + 3 * NUMBER_BYTES, entry.block_bytes)
            put_number(out + 4 * NUMBER_BYTES, entry.payload_bytes)
            out += NUMBERS * NUMBER_BYTES
        for i in range(self.count):
            entry = self._entries + i
            size = parts_bytes(entry)
            if size:
                memcpy(out, self._data + entry.place, size)
            out += size
        return data

    @classmethod
    def decode(cls, bytes data not None):
        cdef MessageRun run = MessageRun()
        cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef Py_ssize_t i, size = len(data), left
        cdef int64_t count, offset, before = -1, subject, block, payload
        count = number_at(at) if size >= NUMBER_BYTES else -1
        if count < 0 or count > (size - NUMBER_BYTES) // (NUMBERS * NUMBER_BYTES):
            raise CorruptData("a run of messages is cut")
        at += NUMBER_BYTES
        left = size - NUMBER_BYTES * (1 + NUMBERS * count)
        for i in range(count):
            offset = number_at(at)
            subject = number_at(at + 2 * NUMBER_BYTES)
            block = number_at(at + 3 * NUMBER_BYTES)
            payload = number_at(at + 4 * NUMBER_BYTES)
            if offset <= before or offset == INT64_MAX or subject < 0 or block < 0 or payload < 0:
                raise CorruptData("a run of messages has no order")
            if subject > left or block > left - subject or payload > left - subject - block:
                raise CorruptData("a run of messages is cut")
            run._begin(offset, number_at(at + NUMBER_BYTES))
            run._entries[i].place = size - NUMBER_BYTES * (1 + NUMBERS * count) - left
            run._entries[i].subject_bytes = subject
            run._entries[i].block_bytes = block
            run._entries[i].payload_bytes = payload
            left -= subject + block + payload
            before = offset
            at += NUMBERS * NUMBER_BYTES
        if left:
            raise CorruptData(f"{left} bytes follow a run of messages")
        run._put(at, size - NUMBER_BYTES * (1 + NUMBERS * count))
        return run


cdef inline Py_ssize_t parts_bytes(const RunEntry* entry) noexcept nogil:
    return entry.subject_bytes + entry.block_bytes + entry.payload_bytes


cdef struct Scan:
    # The records of a batch, and the place of the one that was come to last.
    const uint8_t* at  # in that record: where its key begins; before the first one: the first one
    const uint8_t* end
    const uint8_t* next_at  # the record after it
    int64_t base_offset
    int64_t base_ms
    int64_t last_delta
    int64_t left  # records after it
    int64_t before  # its offset delta
    int64_t offset
    int64_t delta_ms
    bint is_append_time
    bint is_half_added  # its parts are not all there


cdef int corrupt(str why) except -1:
    raise CorruptBatch(why)


cdef int next_place(Scan* scan) except -1 nogil:
    """Go to the next record; 0: there is none."""
    cdef const uint8_t* at = scan.at if scan.before < 0 else scan.next_at
    cdef int64_t length, delta
    if scan.left <= 0:
        if at != scan.end:
            with gil:
                corrupt(f"{scan.end - at} bytes follow the last record")
        return 0
    scan.left -= 1
    if not read_varlong(&at, scan.end, &length) or length <= 0 or length > scan.end - at:
        with gil:
            corrupt("a record does not end within its batch")
    scan.next_at = at + length
    at += 1  # attributes: none are defined
    if not read_varlong(&at, scan.next_at, &scan.delta_ms) or not read_varlong(&at, scan.next_at, &delta):
        with gil:
            corrupt("a record is cut")
    if delta <= scan.before or delta > scan.last_delta:
        with gil:
            corrupt(f"offset delta {delta} is outside the batch, or does not rise")
    scan.at, scan.before, scan.offset = at, delta, scan.base_offset + delta
    return 1


cdef int64_t add_range(
    MessageRun run, Scan* scan, int64_t start, int64_t stop, Py_ssize_t bytes_max
) except -1 nogil:
    """The end of what was looked at."""
    while next_place(scan):
        if scan.offset >= stop:
            return scan.offset
        if scan.offset >= start:
            if run._data == NULL:  # at once: what grows is copied
                run._reserve(min(bytes_max, <Py_ssize_t>(scan.end - scan.at)))
            add_record(run, scan)
            if run.size_bytes >= bytes_max:
                return scan.offset + 1
    return scan.base_offset + scan.last_delta + 1


cdef int add_record(MessageRun run, Scan* scan) except -1 nogil:
    cdef int64_t delta_ms = 0 if scan.is_append_time else scan.delta_ms
    if scan.base_ms > INT64_MAX - delta_ms if delta_ms > 0 else scan.base_ms < INT64_MIN - delta_ms:
        with gil:
            corrupt("timestamp is out of range")
    run._begin(scan.offset, scan.base_ms + delta_ms)
    scan.is_half_added = True
    add_parts(run, scan.at, scan.next_at)
    scan.is_half_added = False
    return 0


cdef inline int field(
    const uint8_t** at, const uint8_t* end, const uint8_t** start, int64_t* size
) except -1 nogil:
    if not skip_bytes(at, end, start, size):
        with gil:
            corrupt("a field does not end within its record")
    return 0


cdef int add_parts(MessageRun run, const uint8_t* at, const uint8_t* end) except -1 nogil:
    """Of the record whose key begins there, to the last message."""
    cdef const uint8_t* key
    cdef const uint8_t* value = NULL
    cdef const uint8_t* name
    cdef const uint8_t* text
    cdef int64_t key_size = -1, value_size = -1, name_size = -1, text_size = -1, count = 0, i
    cdef bint is_named = False, has_block = False
    field(&at, end, &key, &key_size)
    field(&at, end, &value, &value_size)
    if not read_varlong(&at, end, &count) or count < 0 or count > end - at:
        with gil:
            corrupt("the headers do not end within their record")
    for i in range(count):
        field(&at, end, &name, &name_size)
        field(&at, end, &text, &text_size)
        if name_size < 0:
            with gil:
                corrupt("header without a name")
        if i == 0 and name_size == 7 and memcmp(name, b"subject", 7) == 0:
            is_named = True
            if is_subject_text(text, text_size):
                run._put(text, text_size)
                run._entries[run.count - 1].subject_bytes = text_size
            continue
        if i == 1 and is_named and name_size == 5 and memcmp(name, b"reply", 5) == 0:
            continue
        if not has_block:
            has_block = True
            run._put(<const uint8_t*>b"NATS/1.0\r\n", 10)
        run._put_in_a_line(name, name_size)
        run._put(<const uint8_t*>b": ", 2)
        run._put_in_a_line(text, text_size)
        run._put(<const uint8_t*>b"\r\n", 2)
    if at != end:
        with gil:
            corrupt(f"{end - at} bytes follow the last header")
    if has_block:
        run._put(<const uint8_t*>b"\r\n", 2)
    run._entries[run.count - 1].block_bytes = (
        run.size_bytes - run._entries[run.count - 1].place - run._entries[run.count - 1].subject_bytes
    )
    run._put(value, value_size)
    run._entries[run.count - 1].payload_bytes = max(value_size, <int64_t>0)
    return 0
