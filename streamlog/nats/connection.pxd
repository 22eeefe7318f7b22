"""One connection of the NATS protocol, for compiled code that knows its frames."""

from libc.stdint cimport int64_t, uint8_t

from streamlog.nats.lexer cimport Buffer
from streamlog.nats.router cimport Endpoint, Message
from streamlog.record.compiled.codec cimport Span


cdef struct Line:
    const uint8_t* start  # of the frame
    Span word  # the operation
    const uint8_t* fields  # where they begin, with what is between the operation and the first
    const uint8_t* end  # of the fields
    const uint8_t* body  # what follows the line


cdef enum BodyFault:
    NO_SIZE
    TOO_LARGE
    NO_CRLF


cdef class Connection(Endpoint):
    cdef readonly int fd
    cdef public object session
    cdef public object blocked
    cdef public object flushed
    cdef public int64_t pending_bytes_max
    cdef public int64_t payload_bytes_max
    cdef public bytes domain_prefix
    cdef public Py_ssize_t sealed_bytes
    cdef readonly bint is_closed
    cdef readonly bint is_blocked
    cdef readonly int64_t messages_in
    cdef readonly int64_t bytes_in
    cdef readonly int64_t messages_out
    cdef readonly int64_t bytes_out
    cdef Py_ssize_t line_bytes_max
    cdef readonly bint is_suspended  # frames wait in ``_rest``
    cdef Py_ssize_t needed  # the size of the frame that begins ``_rest``, where its line is there; else 0
    cdef Buffer out
    cdef Buffer _rest  # the beginning of a frame of which the end is still to come
    cdef Py_ssize_t _sent  # of ``out``
    cdef list _pings  # without an answer yet: the number of a mark, or 0
    cdef bint _feeding

    cdef Py_ssize_t frame(self, const uint8_t* start, const uint8_t* end) except -1
    cdef bint take_line(self, const uint8_t* start, const uint8_t* end, Line* line) except -1
    cdef Py_ssize_t take_body(
        self, const uint8_t* start, const uint8_t* body, const uint8_t* end, const Span* sizes, bint has_headers,
        Span subject, Span reply, Message* message
    ) except -1
    cdef Span mapped(self, Span subject) except *
    cdef int check_line(self, Py_ssize_t size) except -1
    cdef int refuse_body(self, BodyFault fault, int64_t size) except -1
    cdef int wrote(self) except -1
    cdef int take_pong(self) except -1
    cdef int put_bytes(self, const char* data, Py_ssize_t size) except -1
    cdef int _take(self, const uint8_t* start, Py_ssize_t size) except -1
    cdef Py_ssize_t _complete(self, const uint8_t* data, Py_ssize_t size) except -1
    cdef bint _frame_of_rest(self) except -1
    cdef int _written(self) except -1
