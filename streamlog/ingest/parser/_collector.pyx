# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What a subscription gathers, compiled. ``_collector.pyi`` says what it means.

A message goes from the socket's bytes into its run without becoming a Python object, unless a header of
it asks for a decision. The spans of a message are the parser's, and good for the call only.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from streamlog.ingest.parser._buffer cimport clear, release, reserve
from streamlog.ingest.parser._spans cimport (
    begins_with, find, find_crlf, is_word, literal, of_bytes, span, to_bytes,
)
from streamlog.record._codec cimport RecordRun, Span
from streamlog.record._sources cimport STREAMLOG_SOURCES

from streamlog.record.batch import PUBLISHED

SOURCES = STREAMLOG_SOURCES

cdef enum:
    REPLY_ENTRY_BYTES = 6
    REPLY_BYTES_MAX = 65535
    RECORD_OVERHEAD_BYTES = 64  # more than the lengths and counts in a record take, its headers' apart
    HEADER_GROWTH = 3  # more than a header block grows when it becomes headers and a key
    PAIR_OVERHEAD_BYTES = 16  # more than the lengths of a header out of an envelope take


cdef bint is_text(Span name) except -1:
    """A name that is not UTF-8 is none. Nearly all are ASCII."""
    cdef Py_ssize_t i
    for i in range(name.size):
        if name.data[i] >= 0x80:
            break
    else:
        return True
    try:
        to_bytes(name).decode()
    except UnicodeDecodeError:
        return False
    return True


cdef class Headers:
    """Of the record that is being made: name, value, name, value, ..."""

    def __dealloc__(self):
        free(self.spans)

    cdef int add(self, Span name, Span content) except -1:
        cdef Py_ssize_t capacity
        cdef Span* spans
        if self.count == self.capacity:
            capacity = 2 * self.capacity + 16
            spans = <Span*>realloc(self.spans, 2 * capacity * sizeof(Span))
            if spans == NULL:
                raise MemoryError
            self.spans = spans
            self.capacity = capacity
        self.spans[2 * self.count] = name
        self.spans[2 * self.count + 1] = content
        self.count += 1
        return 0

    cdef int take(self, Message* message) except -1:
        """Those of a message, in place of what was there."""
        self.count = 0
        self.asks = False
        self.key.data = NULL
        self.key.size = -1
        self.add(literal(b"subject", 7), message.subject)
        if message.reply.size and not (
            message.reply.size >= 7 and memcmp(message.reply.data, b"_INBOX.", 7) == 0
        ):
            self.add(literal(b"reply", 5), message.reply)
        if message.block.size:
            self.take_block(message.block)
        return 0

    cdef int take_block(self, Span block) except -1:
        """The well-formed lines after the status line."""
        cdef const uint8_t* end = block.data + block.size
        cdef const uint8_t* line_end
        cdef const uint8_t* line
        cdef const uint8_t* colon
        if block.size < 8 or memcmp(block.data, b"NATS/1.0", 8) != 0:
            return 0
        line_end = find_crlf(block.data, end)
        while line_end != NULL:
            line = line_end + 2
            line_end = find_crlf(line, end)
            if line_end == NULL or line_end == line:
                break
            colon = find(line, line_end, 58)
            if colon != NULL and colon > line:
                self.take_line(span(line, colon), colon + 1, line_end)
        return 0

    cdef int take_line(self, Span name, const uint8_t* start, const uint8_t* end) except -1:
        if not is_text(name):
            return 0
        while start < end and (start[0] == 32 or start[0] == 9):
            start += 1
        return self.take_pair(name, span(start, end))

    cdef int take_pair(self, Span name, Span content) except -1:
        self.add(name, content)
        if begins_with(name, b"nats-", 5) or begins_with(name, b"streamlog-ack", 13):
            self.asks = True
        elif self.key.size < 0 and is_word(name, b"streamlog-key", 13):
            self.key = content
        return 0


cdef class RecordCollector:
    """What one subscription gathered since the last take. Not thread-safe; one owner."""

    def __cinit__(self, *, int64_t value_bytes_max, admit=None, open_envelope=None, owner=None):
        self.value_bytes_max = value_bytes_max
        self.admit = admit
        self.open_envelope = open_envelope
        self.owner = owner
        self.run = RecordRun(attributes=PUBLISHED)
        self._oversize = []
        self._keyless = []

    def __dealloc__(self):
        release(&self._replies)

    def take_replies(self):
        """Acks wanted: repeatedly u32 offset delta, u16 length, both little-endian, reply."""
        replies = PyBytes_FromStringAndSize(<const char*>self._replies.start, self._replies.size)
        clear(&self._replies)
        self.reply_count = 0
        self.enveloped = False
        return replies

    def take_oversize(self):
        """The replies, b"" for none, of messages that were too large; they are not in the run."""
        oversize = self._oversize
        self._oversize = []
        self.oversize_count = 0
        return oversize

    def take_keyless(self):
        """Likewise of messages that must have a key, and have none."""
        keyless = self._keyless
        self._keyless = []
        self.keyless_count = 0
        return keyless

    cdef int gather(self, Message* message, Headers headers) except -1:
        """One message becomes one record, if it may."""
        cdef object opened
        cdef bytes changed  # keeps what the span points into
        if self.transform is not None:
            changed = self.transform(to_bytes(message.subject))
            message.subject = of_bytes(changed)
        if is_like_an_envelope(message.payload):
            opened = self._opened(message)
            if opened is not None:
                return self._gather_opened(message, opened, headers)
        if self._is_oversize(message):
            self._oversize.append(to_bytes(message.reply))
            self.oversize_count += 1
            return 0
        headers.take(message)
        if self.keyed and headers.key.size < 0:
            self._keyless.append(to_bytes(message.reply))
            self.keyless_count += 1
            return 0
        if headers.asks and self.admit is not None:
            admitted = self.admit(
                to_bytes(message.block),
                to_bytes(message.subject),
                to_bytes(message.reply),
                self.run.count,
            )
            if not admitted:
                return 0
            if isinstance(admitted, RecordRun):
                return self._store_apart(admitted, headers, message.payload)
        return self._store(headers, message.payload, message.reply)

    cdef object _opened(self, Message* message):
        """What is in an envelope; None if it is none."""
        if self.open_envelope is None:
            return None
        return self.open_envelope(
            to_bytes(message.payload),
            to_bytes(message.block),
            to_bytes(message.subject),
            to_bytes(message.reply),
        )

    cdef int _gather_opened(self, Message* message, object opened, Headers headers) except -1:
        """The same for a message that came in an envelope; ``opened`` keeps the bytes."""
        cdef bytes value, block, address, name, content
        key, value, pairs, block, address = opened
        if self._has_no_room(message, len(address), PAIR_OVERHEAD_BYTES * len(pairs)):
            self._oversize.append(address)
            self.oversize_count += 1
            return 0
        headers.take(message)
        for name, content in pairs:
            headers.take_pair(of_bytes(name), of_bytes(content))
        if key is not None:
            headers.key = of_bytes(key)
        if self.keyed and headers.key.size < 0:
            self._keyless.append(address)
            self.keyless_count += 1
            return 0
        if self.admit is not None:
            admitted = self.admit(block, to_bytes(message.subject), address, self.run.count)
            if not admitted:
                return 0
            if isinstance(admitted, RecordRun):
                return self._store_apart(admitted, headers, of_bytes(value))
        self.enveloped = True
        return self._store(headers, of_bytes(value), of_bytes(address))

    cdef int _store(self, Headers headers, Span value, Span reply) except -1:
        cdef Py_ssize_t position = self.run.count
        reserve(&self._replies, REPLY_ENTRY_BYTES + reply.size)  # may fail, so before the run
        if self.keyed and value.size == 0:
            value.size = -1
        self.run.add(headers.key, value, headers.spans, headers.count)
        if reply.size:
            self._add_reply(position, reply)
        return 0

    cdef int _store_apart(self, RecordRun run, Headers headers, Span value) except -1:
        """In the run that whoever admitted it has named, who sees to the answer."""
        if self.keyed and value.size == 0:
            value.size = -1
        run.add(headers.key, value, headers.spans, headers.count)
        return 0

    cdef bint _is_oversize(self, Message* message) noexcept:
        return self._has_no_room(message, message.reply.size, 0)

    cdef bint _has_no_room(
        self, Message* message, Py_ssize_t answer_bytes, Py_ssize_t extra_bytes
    ) noexcept:
        cdef Py_ssize_t size = RECORD_OVERHEAD_BYTES + HEADER_GROWTH * message.block.size
        size += message.subject.size + message.reply.size + message.payload.size + extra_bytes
        return (
            message.block.size + message.payload.size > self.value_bytes_max
            or answer_bytes > REPLY_BYTES_MAX
            or size > self.run.bytes_max - self.run._size
        )

    cdef void _add_reply(self, Py_ssize_t position, Span reply) noexcept:
        """There is room for it."""
        cdef uint8_t* out = self._replies.start + self._replies.size
        cdef int i
        for i in range(4):
            out[i] = (position >> (8 * i)) & 0xFF
        out[4] = reply.size & 0xFF
        out[5] = reply.size >> 8
        memcpy(out + REPLY_ENTRY_BYTES, reply.data, reply.size)
        self._replies.size += REPLY_ENTRY_BYTES + reply.size
        self.reply_count += 1
