# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""What a nats-server sends to its client. ``server_connection.pyi`` says what it means.

A message goes from the socket's bytes to the endpoint of its subscription without becoming a Python object.
A subscription that ends within its own delivery is held by that delivery.
"""

from libc.stdint cimport int64_t, uint8_t

from streamlog.nats.connection cimport Connection
from streamlog.nats.lexer cimport find, is_word, number, span, split, to_bytes
from streamlog.nats.router cimport Message, Router, Subscription
from streamlog.record.compiled.codec cimport Span
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

from streamlog.errors import MalformedFrame

SOURCES = STREAMLOG_SOURCES
LINE_BYTES_MAX = 1 << 20

cdef enum:
    FIELDS_MAX = 6  # HMSG subject sid reply header-bytes total-bytes
    SHOWN_BYTES = 24  # of what cannot be understood


cdef class ServerConnection(Connection):
    """A client's connection to a nats-server."""

    cdef readonly int64_t dropped
    cdef dict _subscriptions
    cdef int64_t _last_sid
    cdef Subscription _last  # of ``_last_sid``; None: it is to be looked up

    def __init__(self, Router router not None, *, int64_t line_bytes_max=LINE_BYTES_MAX, **options):
        super().__init__(router, line_bytes_max=line_bytes_max, **options)
        self._subscriptions = {}

    def bind(self, int64_t sid, Subscription subscription not None):
        """Messages of ``sid`` go to the endpoint of ``subscription``."""
        self._subscriptions[sid] = subscription
        self._last = None

    def unbind(self, int64_t sid):
        """Messages of ``sid`` are dropped, and counted."""
        self._subscriptions.pop(sid, None)
        self._last = None

    cdef Py_ssize_t frame(self, const uint8_t* start, const uint8_t* end) except -1:
        cdef const uint8_t* body = find(start, end, 10)
        cdef Span[FIELDS_MAX] fields
        cdef int count
        self.needed = 0
        self.check_line((end if body == NULL else body) - start)
        if body == NULL:
            return 0
        if body == start or (body - 1)[0] != 13:
            raise MalformedFrame("line does not end with CRLF")
        body += 1
        count = split(start, body - 2, fields, FIELDS_MAX)
        if count and is_word(fields[0], b"msg", 3):
            return self._message(start, fields, count, body, end, False)
        if count and is_word(fields[0], b"hmsg", 4):
            return self._message(start, fields, count, body, end, True)
        self._control(start, fields, count, body - 2)
        return body - start

    cdef Py_ssize_t _message(
        self, const uint8_t* start, Span* fields, int count, const uint8_t* body, const uint8_t* end,
        bint has_headers
    ) except -1:
        cdef Message message
        cdef Subscription subscription
        cdef int sizes = 1 + has_headers
        cdef int64_t sid
        cdef Py_ssize_t size
        if count != 3 + sizes and count != 4 + sizes:
            raise MalformedFrame(f"message with {count} fields")
        sid = number(fields[2])
        if sid < 0:
            raise MalformedFrame(f"{to_bytes(fields[2])[:SHOWN_BYTES]!r} is no subscription's number")
        size = self.take_body(
            start, body, end, &fields[count - sizes], has_headers,
            fields[1], fields[3] if count == 4 + sizes else span(body, body), &message,
        )
        if not size:
            return 0
        subscription = self._last
        if subscription is None or sid != self._last_sid:
            subscription = self._subscriptions.get(sid)
            if subscription is None:
                self.dropped += 1
                return size
            self._last_sid = sid
            self._last = subscription
        message.is_routed = False
        message.passed = self.passed
        subscription.endpoint.deliver(subscription, &message)
        return size

    cdef int _control(
        self, const uint8_t* start, Span* fields, int count, const uint8_t* end
    ) except -1:
        cdef const uint8_t* argument
        if not count:
            raise MalformedFrame("a line without an operation")
        argument = fields[0].data + fields[0].size
        if is_word(fields[0], b"ping", 4):
            self.put_bytes(b"PONG\r\n", 6)
        elif is_word(fields[0], b"pong", 4):
            self.take_pong()
        elif is_word(fields[0], b"info", 4):
            self.session.informed(to_bytes(span(argument, end)))
        elif is_word(fields[0], b"-err", 4):
            self.session.refused(to_bytes(span(argument, end)))
        elif not is_word(fields[0], b"+ok", 3):
            raise MalformedFrame(f"{to_bytes(span(start, end))[:SHOWN_BYTES]!r} is no operation")
        return 0

    def close(self):
        """Take and send nothing more."""
        self._subscriptions = {}
        self._last = None
        self.router.leave_marks(self)
        super().close()
