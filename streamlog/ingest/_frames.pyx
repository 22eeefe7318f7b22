# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The frame parser, compiled. Its twin ``_frames_plain`` says what it means.

A message goes from the socket's bytes into its run without becoming a Python object, unless a header of
it asks for a decision.

Memory: spans point into the bytes of the feed under way, or into ``_rest``, which does not move while a
frame in it is parsed: a feed within a feed is refused.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from streamlog.ingest._spans cimport (
    begins_with, find, find_crlf, is_word, literal, span, split, to_bytes,
)
from streamlog.record._codec cimport RecordRun, Span

from streamlog.errors import FrameTooLarge, MalformedFrame
from streamlog.ingest import _frames_plain as plain
from streamlog.ingest._frames_plain import _CONTROLS as CONTROLS

cdef enum:
    FIELDS_MAX = 6  # HMSG subject sid reply header-bytes total-bytes
    REPLY_ENTRY_BYTES = 6
    REPLY_BYTES_MAX = 65535
    NUMBER_DIGITS_MAX = 18  # so that sums of a few of them do not overflow
    RECORD_OVERHEAD_BYTES = 64
    HEADER_GROWTH = 3
    CAPACITY_FIRST = 512  # there may be 10,000 of them, of a message each
    CAPACITY_KEPT = 65536  # an empty buffer that is larger is given back

cdef Py_ssize_t line_bytes_max = plain.LINE_BYTES_MAX

assert plain.RECORD_OVERHEAD_BYTES == RECORD_OVERHEAD_BYTES
assert plain.HEADER_GROWTH == HEADER_GROWTH


cdef int check_line(Py_ssize_t size) except -1:
    """Of a line without its line feed, which may be to come."""
    if size > line_bytes_max + 1:
        raise FrameTooLarge(f"line of more than {line_bytes_max} bytes")
    return 0


cdef int64_t number(Span text) except -1:
    cdef int64_t value = 0
    cdef Py_ssize_t i
    cdef uint8_t digit
    if 1 <= text.size <= NUMBER_DIGITS_MAX:
        for i in range(text.size):
            digit = text.data[i] - 48  # below "0" it wraps around to a large one
            if digit > 9:
                break
            value = value * 10 + digit
        else:
            return value
    raise MalformedFrame(f"{to_bytes(text)[:24]!r} is not a number")


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


@cython.final
cdef class Bytes:
    """Bytes that grow at their end."""

    cdef uint8_t* start
    cdef Py_ssize_t size  # <= capacity
    cdef Py_ssize_t capacity

    def __dealloc__(self):
        free(self.start)

    cdef int reserve(self, Py_ssize_t extra) except -1:
        """Room for ``extra`` bytes more."""
        cdef Py_ssize_t needed = self.size + extra
        cdef Py_ssize_t capacity = max(2 * self.capacity, CAPACITY_FIRST)
        cdef uint8_t* start
        if needed <= self.capacity:
            return 0
        if capacity < needed:
            capacity = needed
        start = <uint8_t*>realloc(self.start, capacity)
        if start == NULL:
            raise MemoryError
        self.start = start
        self.capacity = capacity
        return 0

    cdef int add(self, const uint8_t* data, Py_ssize_t size) except -1:
        if size > 0:
            self.reserve(size)
            memcpy(self.start + self.size, data, size)
            self.size += size
        return 0

    cdef void clear(self) noexcept:
        self.size = 0
        if self.capacity > CAPACITY_KEPT:
            free(self.start)
            self.start = NULL
            self.capacity = 0


cdef struct Message:
    Span subject
    Span reply
    Span block
    Span payload


@cython.final
cdef class Headers:
    """Of the record that is being made: name, value, name, value, ..."""

    cdef Span* spans
    cdef Py_ssize_t count  # of headers; <= capacity
    cdef Py_ssize_t capacity
    cdef Span key  # of the record
    cdef bint asks  # for a decision

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
        cdef Span content
        if not is_text(name):
            return 0
        while start < end and (start[0] == 32 or start[0] == 9):
            start += 1
        content = span(start, end)
        self.add(name, content)
        if begins_with(name, b"nats-", 5) or begins_with(name, b"streamlog-ack", 13):
            self.asks = True
        elif self.key.size < 0 and is_word(name, b"streamlog-key", 13):
            self.key = content
        return 0


@cython.final
cdef class Inflow:
    """What one subscription gathered since the last take. Not thread-safe; one owner."""

    cdef readonly RecordRun run
    cdef readonly Py_ssize_t reply_count
    cdef readonly Py_ssize_t oversize_count
    cdef readonly Py_ssize_t keyless_count
    cdef public bint keyed
    cdef public int64_t value_bytes_max
    cdef public object admit
    cdef public object owner
    cdef bint touched  # it is in the list that the feed under way returns
    cdef Bytes _replies
    cdef list _oversize
    cdef list _keyless

    def __cinit__(self, *, int64_t value_bytes_max, admit=None, owner=None):
        self.value_bytes_max = value_bytes_max
        self.admit = admit
        self.owner = owner
        self.run = RecordRun()
        self._replies = Bytes()
        self._oversize = []
        self._keyless = []

    def take_replies(self):
        """Acks wanted: repeatedly u32 offset delta, u16 length, both little-endian, reply."""
        replies = PyBytes_FromStringAndSize(<const char*>self._replies.start, self._replies.size)
        self._replies.clear()
        self.reply_count = 0
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
        cdef Py_ssize_t position
        cdef Span value
        if self._is_oversize(message):
            self._oversize.append(to_bytes(message.reply))
            self.oversize_count += 1
            return 0
        headers.take(message)
        if self.keyed and headers.key.size < 0:
            self._keyless.append(to_bytes(message.reply))
            self.keyless_count += 1
            return 0
        if headers.asks and self.admit is not None and not self.admit(
            to_bytes(message.block),
            to_bytes(message.subject),
            to_bytes(message.reply),
            self.run.count,
        ):
            return 0
        self._replies.reserve(REPLY_ENTRY_BYTES + message.reply.size)  # may fail, so before the run
        position = self.run.count
        value = message.payload
        if self.keyed and value.size == 0:
            value.size = -1
        self.run.add(headers.key, value, headers.spans, headers.count)
        if message.reply.size:
            self._add_reply(position, message.reply)
        return 0

    cdef bint _is_oversize(self, Message* message) noexcept:
        cdef Py_ssize_t size = RECORD_OVERHEAD_BYTES + HEADER_GROWTH * message.block.size
        size += message.subject.size + message.reply.size + message.payload.size
        return (
            message.block.size + message.payload.size > self.value_bytes_max
            or message.reply.size > REPLY_BYTES_MAX
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


@cython.final
cdef class FrameParser:
    """NATS protocol lines and payloads in any pieces; messages go to the inflow of their sid."""

    cdef readonly int64_t dropped
    cdef Py_ssize_t _frame_bytes_max
    cdef dict _inflows
    cdef list _controls
    cdef object _error
    cdef bint _feeding
    cdef Bytes _rest  # the beginning of a frame of which the end is still to come
    cdef Py_ssize_t _needed  # the size of that frame, where its line is there; else 0
    cdef Headers _headers
    cdef int64_t _last_sid
    cdef Inflow _last  # of _last_sid; None: nobody's

    def __cinit__(self, *, Py_ssize_t frame_bytes_max=plain.FRAME_BYTES_MAX):
        self._frame_bytes_max = frame_bytes_max
        self._inflows = {}
        self._controls = []
        self._rest = Bytes()
        self._headers = Headers()

    def bind(self, int64_t sid, Inflow inflow not None):
        """Messages of ``sid`` go to ``inflow``."""
        self._inflows[sid] = inflow
        self._last = None

    def unbind(self, int64_t sid):
        """Messages of ``sid`` are dropped, and counted."""
        self._inflows.pop(sid, None)
        self._last = None

    def take_controls(self):
        """(PING, PONG, INFO, ERR or OK; its argument) in the order in which they came."""
        controls = self._controls
        self._controls = []
        if self._error is not None and not controls:
            raise self._error
        return controls

    def feed(self, const uint8_t[::1] data not None):
        """Parse; the inflows touched, in the order of the first touch.

        Raises MalformedFrame or FrameTooLarge, and what an ``admit`` raises.
        """
        cdef list touched = []
        if self._feeding:
            raise RuntimeError("a feed within a feed")
        if self._error is None:
            self._feeding = True
            try:
                if data.shape[0]:
                    self._parse(&data[0], data.shape[0], touched)
            except Exception as error:
                self._error = error
            finally:
                self._feeding = False
            for inflow in touched:
                (<Inflow>inflow).touched = False
        if self._error is not None and not touched and not self._controls:
            raise self._error
        return touched

    cdef int _parse(self, const uint8_t* data, Py_ssize_t size, list touched) except -1:
        cdef const uint8_t* end = data + size
        cdef Py_ssize_t used
        if self._rest.size:
            data += self._complete(data, size, touched)
            if self._rest.size:
                return 0  # all of it went there
        while True:
            used = self._frame(data, end, touched)
            if used == 0:
                break
            data += used
        if self._needed:
            self._rest.reserve(self._needed - self._rest.size)
        self._rest.add(data, end - data)
        return 0

    cdef Py_ssize_t _complete(self, const uint8_t* data, Py_ssize_t size, list touched) except -1:
        """Add to the rest until it is a frame; how many bytes that took. No byte is looked at twice,
        however small the pieces."""
        cdef const uint8_t* found
        cdef Py_ssize_t used = 0, more
        if not self._needed:
            found = find(data, data + size, 10)
            used = size if found == NULL else found + 1 - data
            self._rest.add(data, used)
            if found == NULL:
                check_line(self._rest.size)
                return used
            if self._frame_of_rest(touched):
                return used
        more = min(self._needed - self._rest.size, size - used)
        self._rest.add(data + used, more)
        if self._rest.size == self._needed:
            self._frame_of_rest(touched)
        return used + more

    cdef bint _frame_of_rest(self, list touched) except -1:
        """Parse the rest if it is a frame; whether it was."""
        cdef const uint8_t* start = self._rest.start
        if not self._frame(start, start + self._rest.size, touched):
            if self._needed:
                self._rest.reserve(self._needed - self._rest.size)
            return False
        self._rest.clear()
        return True

    cdef Py_ssize_t _frame(
        self, const uint8_t* start, const uint8_t* end, list touched
    ) except -1:
        """The size of the frame at ``start``, which is parsed; 0 if its end is to come."""
        cdef const uint8_t* line_end = find(start, end, 10)
        cdef Span[FIELDS_MAX] fields
        cdef int count
        self._needed = 0
        check_line((end if line_end == NULL else line_end) - start)
        if line_end == NULL:
            return 0
        if line_end == start or (line_end - 1)[0] != 13:
            raise MalformedFrame("line does not end with CRLF")
        count = split(start, line_end - 1, fields, FIELDS_MAX)
        if count and is_word(fields[0], b"msg", 3):
            return self._message(start, line_end + 1, end, fields, count, False, touched)
        if count and is_word(fields[0], b"hmsg", 4):
            return self._message(start, line_end + 1, end, fields, count, True, touched)
        self._control(to_bytes(span(start, line_end - 1)).strip(b" \t"))
        return line_end + 1 - start

    cdef int _control(self, bytes line) except -1:
        operation = line.replace(b"\t", b" ").partition(b" ")[0]
        name = CONTROLS.get(operation.upper())
        if name is None:
            raise MalformedFrame(f"{line[:24]!r} is no operation")
        argument = line[len(operation) :].strip(b" \t")
        if name == "ERR":
            argument = argument.strip(b"'")
        self._controls.append((name, argument))
        return 0

    cdef Py_ssize_t _message(
        self,
        const uint8_t* start,
        const uint8_t* body,
        const uint8_t* end,
        Span* fields,
        int count,
        bint has_headers,
        list touched,
    ) except -1:
        cdef Message message
        cdef int64_t sid, total, head = 0
        cdef const uint8_t* body_end
        if count != 4 + has_headers and count != 5 + has_headers:
            raise MalformedFrame(f"message with {count} fields")
        sid, total = number(fields[2]), number(fields[count - 1])
        if has_headers:
            head = number(fields[count - 2])
        if head > total:
            raise MalformedFrame(f"{head} bytes of headers in a message of {total}")
        if total > self._frame_bytes_max:
            raise FrameTooLarge(f"message of {total} bytes, limit {self._frame_bytes_max}")
        if total + 2 > end - body:
            self._needed = body - start + total + 2
            return 0
        body_end = body + total
        if body_end[0] != 13 or body_end[1] != 10:
            raise MalformedFrame("payload does not end with CRLF")
        message.subject = fields[1]
        message.reply = fields[3] if count == 5 + has_headers else span(body, body)
        message.block = span(body, body + head)
        message.payload = span(body + head, body_end)
        self._deliver(sid, &message, touched)
        return body_end + 2 - start

    cdef int _deliver(self, int64_t sid, Message* message, list touched) except -1:
        cdef Inflow inflow = self._last
        if inflow is None or sid != self._last_sid:
            inflow = <Inflow>self._inflows.get(sid)
            if inflow is None:
                self.dropped += 1
                return 0
            self._last = inflow
            self._last_sid = sid
        if not inflow.touched:
            inflow.touched = True
            touched.append(inflow)
        inflow.gather(message, self._headers)
        return 0
