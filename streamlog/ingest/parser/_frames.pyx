# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The frame parser, compiled. ``_frames.pyi`` says what it means.

Memory: spans point into the bytes of the feed under way, or into ``_rest``, which does not move while a
frame in it is parsed: a feed within a feed is refused.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t

from streamlog.ingest.parser._buffer cimport Buffer, add, clear, release, reserve
from streamlog.ingest.parser._collector cimport Headers, RecordCollector, Message
from streamlog.ingest.parser._partitioner cimport Partitioner
from streamlog.ingest.parser._spans cimport find, is_word, span, split, to_bytes
from streamlog.record._codec cimport Span
from streamlog.record._sources cimport STREAMLOG_SOURCES

from streamlog.errors import FrameTooLarge, MalformedFrame

SOURCES = STREAMLOG_SOURCES
FRAME_BYTES_MAX = 64 << 20
LINE_BYTES_MAX = 1 << 20

cdef dict CONTROLS = {b"PING": "PING", b"PONG": "PONG", b"INFO": "INFO", b"+OK": "OK", b"-ERR": "ERR"}

cdef enum:
    FIELDS_MAX = 6  # HMSG subject sid reply header-bytes total-bytes
    NUMBER_DIGITS_MAX = 18  # so that sums of a few of them do not overflow

cdef Py_ssize_t line_bytes_max = LINE_BYTES_MAX


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


@cython.final
cdef class FrameParser:
    """NATS protocol lines and payloads in any pieces; messages go to the inflow of their sid."""

    cdef readonly int64_t dropped
    cdef Py_ssize_t _frame_bytes_max
    cdef dict _targets
    cdef list _controls
    cdef object _error
    cdef bint _feeding
    cdef Buffer _rest  # the beginning of a frame of which the end is still to come
    cdef Py_ssize_t _needed  # the size of that frame, where its line is there; else 0
    cdef Headers _headers
    cdef int64_t _last_sid
    cdef RecordCollector _last  # of _last_sid; None: nobody's, or those of ...
    cdef Partitioner _last_spread

    def __cinit__(self, *, Py_ssize_t frame_bytes_max=FRAME_BYTES_MAX):
        self._frame_bytes_max = frame_bytes_max
        self._targets = {}
        self._controls = []
        self._headers = Headers()

    def __dealloc__(self):
        release(&self._rest)

    def bind(self, int64_t sid, target not None):
        """Messages of ``sid`` go to ``target``, or to the inflow that it chooses."""
        if not isinstance(target, (RecordCollector, Partitioner)):
            raise TypeError(f"{target!r} takes no messages")
        self._targets[sid] = target
        self._last = None
        self._last_spread = None

    def unbind(self, int64_t sid):
        """Messages of ``sid`` are dropped, and counted."""
        self._targets.pop(sid, None)
        self._last = None
        self._last_spread = None

    def take_controls(self):
        """(PING, PONG, INFO, ERR or OK; its argument) in the order in which they came."""
        controls, self._controls = self._controls, []
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
                (<RecordCollector>inflow).touched = False
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
            reserve(&self._rest, self._needed - self._rest.size)
        add(&self._rest, data, end - data)
        return 0

    cdef Py_ssize_t _complete(self, const uint8_t* data, Py_ssize_t size, list touched) except -1:
        """Add to the rest until it is a frame; how many bytes that took. No byte is looked at twice,
        however small the pieces."""
        cdef const uint8_t* found
        cdef Py_ssize_t used = 0, more
        if not self._needed:
            found = find(data, data + size, 10)
            used = size if found == NULL else found + 1 - data
            add(&self._rest, data, used)
            if found == NULL:
                check_line(self._rest.size)
                return used
            if self._frame_of_rest(touched):
                return used
        more = min(self._needed - self._rest.size, size - used)
        add(&self._rest, data + used, more)
        if self._rest.size == self._needed:
            self._frame_of_rest(touched)
        return used + more

    cdef bint _frame_of_rest(self, list touched) except -1:
        """Parse the rest if it is a frame; whether it was."""
        cdef const uint8_t* start = self._rest.start
        if not self._frame(start, start + self._rest.size, touched):
            if self._needed:
                reserve(&self._rest, self._needed - self._rest.size)
            return False
        clear(&self._rest)
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
        cdef RecordCollector inflow = self._last
        if inflow is None or sid != self._last_sid:
            inflow = self._inflow_of(sid, message)
            if inflow is None:
                return 0
        if not inflow.touched:
            inflow.touched = True
            touched.append(inflow)
        inflow.gather(message, self._headers)
        return 0

    cdef RecordCollector _inflow_of(self, int64_t sid, Message* message):
        """Whose the message is; None: nobody's here."""
        if self._last_spread is None or sid != self._last_sid:
            target = self._targets.get(sid)
            if target is None:
                self.dropped += 1
                return None
            self._last_sid = sid
            if isinstance(target, RecordCollector):
                self._last = target
                self._last_spread = None
                return self._last
            self._last = None
            self._last_spread = target
        return self._last_spread.choose(message, self._headers)
