# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The frames of one client of the port, in both directions. ``client_connection.pyi`` explains them.

A message goes from the socket's bytes to its receivers, and an answer into the output, without a Python
object. The session, in Python, decides about everything that is rarer.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp

from streamlog.nats.connection cimport BodyFault, Connection, Line
from streamlog.nats.lexer cimport (
    digits, find, is_word, literal, number, put, put_number, reserve, span, split, to_bytes,
)
from streamlog.nats.router cimport DeliveryTrace, Message, Router, Subscription
from streamlog.record.compiled.codec cimport Span
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

from streamlog.errors import FrameTooLarge, MalformedFrame
from streamlog.nats.auth import err

SOURCES = STREAMLOG_SOURCES

cdef enum:
    FIELDS_MAX = 4  # HPUB subject reply header-bytes total-bytes, without the first
    LINE_OVERHEAD_BYTES = 64  # more than what surrounds subject, sid and reply in a line
    PERMITTED_MAX = 10_000
    OPERATION_BYTES_MAX = 9  # "CONNECT " and a carriage return: the limit of a line is that of what is between


cdef class ClientConnection(Connection):
    """One client of the port."""

    cdef public bint verbose
    cdef public bint pedantic
    cdef public bint echo
    cdef public bint headers
    cdef public bint no_responders
    cdef public bint is_open
    cdef public bint is_restricted
    cdef public bint tracks_replies
    cdef int64_t _asked_at  # how many bytes had come when ``_rights`` were asked for
    cdef object _rights  # that ``_permitted`` was found by
    cdef dict _permitted  # subjects that may be published to
    cdef readonly dict subscriptions

    def __init__(self, Router router not None, **options):
        super().__init__(router, **options)
        self.subscriptions = {}
        self._permitted = {}
        self.verbose = self.pedantic = self.echo = True  # what nats-server takes for granted before a CONNECT

    # What comes

    cdef int check_line(self, Py_ssize_t size) except -1:
        if size > self.line_bytes_max + OPERATION_BYTES_MAX:
            raise FrameTooLarge(err.LINE_EXCEEDED)
        return 0

    cdef Py_ssize_t frame(self, const uint8_t* start, const uint8_t* end) except -1:
        cdef Line line
        if not self.take_line(start, end, &line):
            return 0
        if line.end - line.fields > self.line_bytes_max + 1:
            raise FrameTooLarge(err.LINE_EXCEEDED)
        if not self.is_open and not is_word(line.word, b"connect", 7):
            raise MalformedFrame(err.AUTHORIZATION_VIOLATION)
        if is_word(line.word, b"pub", 3):
            return self._publication(&line, end, False)
        if is_word(line.word, b"hpub", 4):
            return self._publication(&line, end, True)
        self._control(&line)
        return line.body - start

    cdef int _control(self, const Line* line) except -1:
        cdef Span[FIELDS_MAX] fields
        cdef Span word = line.word
        cdef int count
        cdef bytes sid
        cdef int64_t delivered_max
        if is_word(word, b"ping", 4):
            self.put_bytes(b"PONG\r\n", 6)
            self.session.pinged()
        elif is_word(word, b"pong", 4):
            self.take_pong()
        elif is_word(word, b"sub", 3):
            count = split(line.fields, line.end, fields, 3)
            if count != 2 and count != 3:
                raise MalformedFrame("")
            sid = to_bytes(fields[count - 1])
            self.session.subscribe(
                to_bytes(fields[0]), b"" if count == 2 else to_bytes(fields[1]), sid
            )
        elif is_word(word, b"unsub", 5):
            count = split(line.fields, line.end, fields, 2)
            if count != 1 and count != 2:
                raise MalformedFrame("")
            delivered_max = -1 if count == 1 else number(fields[1])
            self.unsubscribe(to_bytes(fields[0]), delivered_max)
            if self.verbose:
                self.put_bytes(b"+OK\r\n", 5)
        elif is_word(word, b"connect", 7):
            self._permitted.clear()  # what comes next may be another's
            self.session.connect(to_bytes(span(line.fields, line.end)))
        elif is_word(word, b"info", 4) or is_word(word, b"+ok", 3):
            pass  # of no use from a client, and nats-server takes it
        elif is_word(word, b"-err", 4):
            raise MalformedFrame("")
        else:
            raise MalformedFrame(err.UNKNOWN_OPERATION)
        return 0

    cdef Py_ssize_t _publication(
        self, const Line* line, const uint8_t* end, bint has_headers
    ) except -1:
        cdef Span[FIELDS_MAX] fields
        cdef Message message
        cdef int count = split(line.fields, line.end, fields, 3 + has_headers)
        cdef int sizes = 1 + has_headers
        cdef Py_ssize_t size
        cdef Span reply
        if has_headers and not self.headers:
            raise MalformedFrame("")
        if count != 1 + sizes and count != 2 + sizes:
            raise MalformedFrame("")
        reply = fields[1] if count == 2 + sizes else span(line.body, line.body)
        size = self.take_body(
            line.start, line.body, end, &fields[count - sizes], has_headers, fields[0], reply, &message
        )
        if size:
            if message.block.size and is_traced(message.block):
                self._publish_traced(&message, fields[0])
            else:
                self._publish(&message)
        return size

    cdef int refuse_body(self, BodyFault fault, int64_t size) except -1:
        if fault == BodyFault.TOO_LARGE:
            raise FrameTooLarge(err.PAYLOAD_EXCEEDED)
        raise MalformedFrame(err.UNKNOWN_OPERATION if fault == BodyFault.NO_CRLF else "")

    cdef int _publish_traced(self, Message* message, Span said) except -1:
        cdef DeliveryTrace deliveries
        may_go, trace = self.session.begin_trace(
            to_bytes(said), to_bytes(message.block), message.block.size + message.payload.size
        )
        if trace is not None:
            deliveries = trace.deliveries
            message.trace = <PyObject*>deliveries
        if may_go:
            self._publish(message)
        if trace is not None:
            self.session.end_trace(trace)
        return 0

    cdef int _publish(self, Message* message) except -1:
        cdef int count
        if self.pedantic and not is_literal_subject(message.subject):
            self.put_error(err.INVALID_PUBLISH_SUBJECT)
        if self.is_restricted and not self._may_publish(message.subject, message.reply):
            return refused(message, err.publish_violation, message.subject)
        if self.is_restricted and message.reply.size and not is_inbox(message.reply) and (
            not self._may_publish(message.reply, span(message.reply.data, message.reply.data))
        ):
            # the node would answer in its own name, where this client may not publish
            return refused(message, err.publish_violation, message.reply)
        if message.reply.size > 8 and memcmp(message.reply.data, b"$JS.ACK.", 8) == 0 or (
            message.reply.size >= 4 and memcmp(message.reply.data, b"_R_.", 4) == 0
        ):
            self.put_error(err.reply_violation(to_bytes(message.reply)))
            return refused(message, err.reply_violation, message.reply)
        if self.verbose:
            self.put_bytes(b"+OK\r\n", 5)
        count = self.router.deliver(message, self, self.echo)
        if not count and message.reply.size and self.no_responders:
            self._tell_no_responders(message)
        return 0

    cdef bint _may_publish(self, Span text, Span reply) except -1:
        cdef bytes subject = to_bytes(text)
        if self._asked_at != self.bytes_in:
            self._asked_at = self.bytes_in
            rights = self.session.rights
            if rights != self._rights:
                self._rights = rights
                self._permitted.clear()
        if subject in self._permitted:
            return True
        if not self.session.may_publish(subject, to_bytes(reply)):
            return False
        if self.session.may_remember:
            if len(self._permitted) >= PERMITTED_MAX:
                self._permitted.clear()
            self._permitted[subject] = True
        return True

    cdef int _tell_no_responders(self, Message* message) except -1:
        """At the first of its own subscriptions that the reply matches. It counts for no ``UNSUB``."""
        cdef Subscription subscription
        cdef bytes reply, block
        for subscription in self.router.route_of(message.reply, self.router._answered).plain:
            if subscription.endpoint is self:
                reply = to_bytes(message.reply)
                block = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % to_bytes(message.subject)
                self.send(
                    b"HMSG %b %b %d %d\r\n%b\r\n" % (
                        reply, subscription.sid, len(block), len(block), block
                    )
                )
                break
        return 0

    # Its subscriptions

    def subscribe(self, bytes subject not None, bytes queue not None, bytes sid not None, target=None):
        """A sid that is in use already keeps its subject. Raises InvalidRequest."""
        cdef Subscription subscription
        if sid in self.subscriptions:
            return None
        subscription = Subscription(self, subject, queue=queue, sid=sid, target=target)
        self.router.add(subscription)
        self.subscriptions[sid] = subscription
        return subscription

    def unsubscribe(self, bytes sid not None, int64_t delivered_max=-1):
        """At once, or once it has had ``delivered_max`` messages in all."""
        cdef Subscription subscription = self.subscriptions.get(sid)
        if subscription is None:
            return
        if delivered_max > 0 and delivered_max > subscription.delivered:
            subscription.delivered_max = delivered_max
        else:
            self._end(subscription)

    cdef int _end(self, Subscription subscription) except -1:
        del self.subscriptions[subscription.sid]
        self.router.remove(subscription)
        return 0

    # What is sent

    cdef int deliver(self, Subscription subscription, const Message* message) except -1:
        cdef Py_ssize_t size, head = message.block.size
        cdef uint8_t* out
        if subscription.ended or self.is_closed:
            return 0
        if subscription.target is not None and subscription.target(to_bytes(message.subject)):
            return 0  # denied
        if self.tracks_replies and message.reply.size:
            self.session.replied(to_bytes(message.reply))
        if head and not self.headers:
            head = 0
        size = head + message.payload.size
        reserve(
            &self.out,
            size + message.subject.size + len(subscription.sid) + message.reply.size + LINE_OVERHEAD_BYTES,
        )
        out = self.out.start + self.out.size
        out = put(out, b"HMSG ", 5) if head else put(out, b"MSG ", 4)
        out = put(out, message.subject.data, message.subject.size)
        out[0] = 32
        out = put(out + 1, <const char*>subscription.sid, len(subscription.sid))
        out[0] = 32
        out += 1
        if message.reply.size:
            out = put(out, message.reply.data, message.reply.size)
            out[0] = 32
            out += 1
        if head:
            out = put_number(out, head, digits(head))
            out[0] = 32
            out += 1
        out = put_number(out, size, digits(size))
        out = put(out, b"\r\n", 2)
        if head:
            out = put(out, message.block.data, head)
        out = put(out, message.payload.data, message.payload.size)
        out = put(out, b"\r\n", 2)
        return self._delivered(subscription, out)

    cdef int answer(
        self, Subscription subscription, Span reply, Span head, int64_t sequence
    ) except -1:
        cdef int sequence_digits = digits(sequence)
        cdef Py_ssize_t size = head.size + sequence_digits + 1
        cdef uint8_t* out
        if subscription.ended or self.is_closed:
            return 0
        if subscription.target is not None and subscription.target(to_bytes(reply)):
            return 0
        reserve(&self.out, size + reply.size + len(subscription.sid) + LINE_OVERHEAD_BYTES)
        out = put(self.out.start + self.out.size, b"MSG ", 4)
        out = put(out, reply.data, reply.size)
        out[0] = 32
        out = put(out + 1, <const char*>subscription.sid, len(subscription.sid))
        out[0] = 32
        out = put_number(out + 1, size, digits(size))
        out = put(out, b"\r\n", 2)
        out = put(out, head.data, head.size)
        out = put_number(out, sequence, sequence_digits)
        out = put(out, b"}\r\n", 3)
        return self._delivered(subscription, out)

    cdef int _delivered(self, Subscription subscription, uint8_t* end) except -1:
        """A message was written up to ``end``."""
        self.out.size = end - self.out.start
        self.messages_out += 1
        subscription.delivered += 1
        if subscription.delivered_max and subscription.delivered >= subscription.delivered_max:
            self._end(subscription)
        return self.wrote()

    def close(self):
        """Take and send nothing more; all its subscriptions end."""
        cdef Subscription subscription
        if not self.is_closed:
            for subscription in self.subscriptions.values():
                self.router.remove(subscription)
            self.subscriptions = {}
        super().close()


cdef int refused(const Message* message, violation, Span subject) except -1:
    if message.trace != NULL:
        (<DeliveryTrace>message.trace).refusal = violation(to_bytes(subject))
    return 0


cdef bint is_traced(Span block) noexcept nogil:
    """True if there is a header ``Nats-Trace-Dest``."""
    cdef const uint8_t* end = block.data + block.size
    cdef const uint8_t* at = find(block.data + 1, end, 78)  # an N, after that of NATS/1.0
    while at != NULL:
        if (at - 1)[0] == 10 and end - at >= 16 and memcmp(at, b"Nats-Trace-Dest:", 16) == 0:
            return True
        at = find(at + 1, end, 78)
    return False


cdef inline bint is_inbox(Span reply) noexcept nogil:
    return reply.size >= 7 and memcmp(reply.data, b"_INBOX.", 7) == 0


cdef bint is_literal_subject(Span subject) noexcept nogil:
    """Whether it has no empty token and no wildcard."""
    cdef Py_ssize_t i, start = 0
    for i in range(subject.size + 1):
        if i == subject.size or subject.data[i] == 46:
            if i == start:
                return False
            if i == start + 1 and (subject.data[start] == 42 or subject.data[start] == 62):
                return False
            start = i + 1
    return True
