# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A link in NATS's leafnode protocol: interest and messages, both ways. ``leaf_connection.pyi`` says what it
means.

::

    LS+ <subject> [<queue> <weight>]       the other side has subscriptions
    LS- <subject> [<queue>]                it has none any more
    LMSG <subject> [<reply>] <size>
    LMSG <subject> + <reply> <queue>... <size>
    LMSG <subject> | <queue>... <size>     for one member of each of these queue groups, too
    HMSG ... <header size> <size>          the same with headers

A consumer of JetStream delivers a stored message to an inbox. Its client is to see the subject under which the
message is stored. Such a message has the reply ``<ack subject>@<shown subject>``: the inbox says where it goes,
and only the last server on its way takes the reply apart. The names of streams and consumers may contain ``@``;
they stand before the eighth dot of an ack subject.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp

from streamlog.nats.connection cimport Connection, Line
from streamlog.nats.lexer cimport (
    digits, is_word, put, put_number, reserve, span, split, to_bytes,
)
from streamlog.nats.router cimport Message, Router, Subscription, is_subject
from streamlog.record.compiled.codec cimport Span
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

from streamlog.errors import FrameTooLarge, MalformedFrame

SOURCES = STREAMLOG_SOURCES

cdef enum:
    FIELDS_MAX = 128  # of a message: subject, reply, queue groups, sizes
    LINE_OVERHEAD_BYTES = 64
    ACK_DOTS_MIN = 8


cdef inline bint is_ack_subject(Span reply) noexcept nogil:
    return reply.size > 8 and memcmp(reply.data, b"$JS.ACK.", 8) == 0


cdef bint split_reply(const Message* message, Message* shown) noexcept nogil:
    """True if clients are to see the message as ``shown``."""
    cdef const uint8_t* start = message.reply.data
    cdef const uint8_t* end = start + message.reply.size
    cdef const uint8_t* at = start
    cdef int dots = 0
    while at < end and not (at[0] == 64 and dots >= ACK_DOTS_MIN):
        dots += at[0] == 46
        at += 1
    if end - at < 2:
        return False
    shown[0] = message[0]
    shown.reply = span(start, at)
    shown.subject = span(at + 1, end)
    return True


cdef class LeafConnection(Connection):
    """One link, of either side."""

    cdef public bint headers
    cdef public Py_ssize_t interest_max
    cdef readonly dict interest
    cdef bint _is_open

    def __init__(self, Router router not None, *, Py_ssize_t interest_max=1_000_000, **options):
        super().__init__(router, **options)
        self.is_link = True
        self.headers = True
        self.interest_max = interest_max
        self.interest = {}

    def open(self):
        """Tell the other side what this node wants; only then have it get what it wants. Else its answer to a
        message could come before the subscription that the answer is for."""
        cdef Subscription subscription
        self.router.attach(self)
        self._is_open = True
        for subscription in self.interest.values():
            self.router.add(subscription)

    # What comes

    cdef Py_ssize_t frame(self, const uint8_t* start, const uint8_t* end) except -1:
        cdef Line line
        if not self.take_line(start, end, &line):
            return 0
        self.check_line(line.body - start - 1)
        if is_word(line.word, b"lmsg", 4):
            return self._message(&line, end, False)
        if is_word(line.word, b"hmsg", 4):
            return self._message(&line, end, True)
        self._control(&line)
        return line.body - start

    cdef int _control(self, const Line* line) except -1:
        cdef Span[FIELDS_MAX] fields
        cdef Span word = line.word
        cdef int count
        if is_word(word, b"ls+", 3):
            count = split(line.fields, line.end, fields, 3)
            if count != 1 and count != 3:
                raise MalformedFrame("LS+ needs a subject, or a subject, a queue group and its weight")
            self._add_interest(to_bytes(fields[0]), b"" if count == 1 else to_bytes(fields[1]))
        elif is_word(word, b"ls-", 3):
            count = split(line.fields, line.end, fields, 2)
            if count != 1 and count != 2:
                raise MalformedFrame("LS- needs a subject, or a subject and a queue group")
            self._end_interest(to_bytes(fields[0]), b"" if count == 1 else to_bytes(fields[1]))
        elif is_word(word, b"ping", 4):
            self.put_bytes(b"PONG\r\n", 6)
        elif is_word(word, b"pong", 4):
            self.take_pong()
        elif is_word(word, b"info", 4):
            self.session.informed(to_bytes(span(line.fields, line.end)))
        elif is_word(word, b"-err", 4):
            self.session.refused(to_bytes(span(line.fields, line.end)))
        elif is_word(word, b"connect", 7) or is_word(word, b"+ok", 3):
            pass
        else:
            raise MalformedFrame(f"{to_bytes(word)[:24]!r} is no operation of a leafnode")
        return 0

    cdef int _add_interest(self, bytes subject, bytes queue) except -1:
        cdef Subscription subscription
        if (subject, queue) in self.interest:
            return 0
        if len(self.interest) >= self.interest_max:
            raise FrameTooLarge(f"interest in more than {self.interest_max} subjects")
        subscription = Subscription(self, subject, queue=queue)
        if not is_subject(subject):
            return 0  # no message has such a one
        if self._is_open:
            self.router.add(subscription)
        self.interest[subject, queue] = subscription
        return 0

    cdef int _end_interest(self, bytes subject, bytes queue) except -1:
        subscription = self.interest.pop((subject, queue), None)
        if subscription is not None and self._is_open:
            self.router.remove(subscription)
        return 0

    cdef Py_ssize_t _message(
        self, const Line* line, const uint8_t* end, bint has_headers
    ) except -1:
        cdef Span[FIELDS_MAX] fields
        cdef Message message, shown
        cdef int count = split(line.fields, line.end, fields, FIELDS_MAX)
        cdef int sizes = 1 + has_headers, named, i, first = 0
        cdef Py_ssize_t size
        cdef Span reply
        cdef list queues = None
        if count < 1 + sizes or count > FIELDS_MAX:
            raise MalformedFrame(f"message with {count} fields")
        named = count - sizes  # subject, reply and queue groups
        reply = span(line.body, line.body)
        if named == 2:
            reply = fields[1]
        elif named > 2:
            if fields[1].size == 1 and fields[1].data[0] == 43:
                reply = fields[2]
                first = 3
            elif fields[1].size == 1 and fields[1].data[0] == 124:
                first = 2
            else:
                raise MalformedFrame("a message whose reply indicator is neither + nor |")
        size = self.take_body(
            line.start, line.body, end, &fields[named], has_headers, fields[0], reply, &message
        )
        if not size:
            return 0
        message.passed = self.passed
        if named > 2:
            queues = [to_bytes(fields[i]) for i in range(first, named)]
        if is_ack_subject(reply) and split_reply(&message, &shown):
            message.reply = shown.reply
            self.router.deliver_linked(&message, &shown, self, queues)
        else:
            self.router.deliver_linked(&message, &message, self, queues)
        return size

    # What is sent

    cdef int tell_interest(self, bytes subject, bytes queue, Py_ssize_t count) except -1:
        if count and queue:
            self.send(b"LS+ %b %b %d\r\n" % (subject, queue, count))
        elif count:
            self.send(b"LS+ %b\r\n" % subject)
        elif queue:
            self.send(b"LS- %b %b\r\n" % (subject, queue))
        else:
            self.send(b"LS- %b\r\n" % subject)
        return 0

    cdef int deliver(self, Subscription subscription, const Message* message) except -1:
        return self.forward(message, None)

    cdef int forward(self, const Message* message, list queues) except -1:
        cdef Py_ssize_t size, head = message.block.size
        cdef bytes names = b""
        cdef uint8_t* out
        if self.is_closed:
            return 0
        if head and not self.headers:
            head = 0
        if queues is not None:
            names = b" ".join(queues)
        size = head + message.payload.size
        reserve(
            &self.out,
            size + message.subject.size + message.reply.size + len(names) + LINE_OVERHEAD_BYTES,
        )
        out = self.out.start + self.out.size
        out = put(out, b"HMSG " if head else b"LMSG ", 5)
        out = put(out, message.subject.data, message.subject.size)
        out = put(out, b" ", 1)
        if queues is not None:
            out = put(out, b"+ " if message.reply.size else b"| ", 2)
        if message.reply.size:
            out = put(out, message.reply.data, message.reply.size)
            out = put(out, b" ", 1)
        if queues is not None:
            out = put(out, PyBytes_AS_STRING(names), len(names))
            out = put(out, b" ", 1)
        if head:
            out = put_number(out, head, digits(head))
            out = put(out, b" ", 1)
        out = put_number(out, size, digits(size))
        out = put(out, b"\r\n", 2)
        if head:
            out = put(out, message.block.data, head)
        out = put(out, message.payload.data, message.payload.size)
        out = put(out, b"\r\n", 2)
        self.out.size = out - self.out.start
        self.messages_out += 1
        return self.wrote()

    cdef int answer(
        self, Subscription subscription, Span reply, Span head, int64_t sequence
    ) except -1:
        cdef int sequence_digits = digits(sequence)
        cdef Py_ssize_t size = head.size + sequence_digits + 1
        cdef uint8_t* out
        if self.is_closed:
            return 0
        reserve(&self.out, size + reply.size + LINE_OVERHEAD_BYTES)
        out = put(self.out.start + self.out.size, b"LMSG ", 5)
        out = put(out, reply.data, reply.size)
        out[0] = 32
        out = put_number(out + 1, size, digits(size))
        out = put(out, b"\r\n", 2)
        out = put(out, head.data, head.size)
        out = put_number(out, sequence, sequence_digits)
        out = put(out, b"}\r\n", 3)
        self.out.size = out - self.out.start
        self.messages_out += 1
        return self.wrote()

    def close(self):
        """Take and send nothing more; what the other side wants is forgotten."""
        if not self.is_closed:
            self.router.detach(self)
            if self._is_open:
                for subscription in self.interest.values():
                    self.router.remove(subscription)
            self.interest = {}
        super().close()
