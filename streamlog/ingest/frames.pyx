# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""NATS frames to records, compiled. ``frames.pyi`` says what it means.

A message goes from the socket's bytes into its run without becoming a Python object, unless a header
of it asks for a decision.

Memory: spans point into the bytes of the feed under way, or into ``FrameParser._rest``, which does not
move while a frame in it is parsed: a feed within a feed is refused. A message's spans are good for the
frame only.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from streamlog.ingest.admission.publish_checks cimport (
    Asked, PublishChecks, ask_nothing, note_asked
)
from streamlog.ingest.liftbridge.envelope_codec cimport (
    AckAddresses, PlainEnvelope, read_envelope
)
from streamlog.nats.lexer cimport (
    Buffer, add, begins_with, clear, find, find_crlf, is_word, literal, number, of_bytes,
    release, reserve, span, split, to_bytes,
)
from streamlog.nats.router cimport Endpoint, Message, Router, Subscription
from streamlog.record.compiled.codec cimport RecordRun, Span
from streamlog.record.compiled.primitives cimport hashed
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

from streamlog.errors import FrameTooLarge, MalformedFrame
from streamlog.record.batch import PUBLISHED

SOURCES = STREAMLOG_SOURCES
FRAME_BYTES_MAX = 64 << 20
LINE_BYTES_MAX = 1 << 20

cdef dict CONTROLS = {b"PING": "PING", b"PONG": "PONG", b"INFO": "INFO", b"+OK": "OK", b"-ERR": "ERR"}

cdef enum:
    FIELDS_MAX = 6  # HMSG subject sid reply header-bytes total-bytes
    REPLY_ENTRY_BYTES = 6  # u32 offset delta, u16 length, both little-endian
    REPLY_BYTES_MAX = 65535
    ROUTED = 0  # before a reply subject that the router answers; no subject has such a byte
    RECORD_OVERHEAD_BYTES = 64  # more than the lengths and counts in a record take, its headers' apart
    HEADER_GROWTH = 3  # more than a header block grows when it becomes headers and a key
    PAIR_OVERHEAD_BYTES = 16  # more than the lengths of a header out of an envelope take
    POLICY_ALL = 1  # of an envelope's acks; 0 and 2 are the others
    POLICY_NONE = 2

cdef Py_ssize_t line_bytes_max = LINE_BYTES_MAX


# Messages and their headers

cdef inline bint is_like_an_envelope(Span payload) noexcept nogil:
    return payload.size >= 8 and memcmp(payload.data, b"\xb9\x0e\x43\xb4", 4) == 0


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


cdef inline bint is_ours(Span name) noexcept nogil:
    """A header that says what NATS has said; one of that name in an envelope is left out."""
    return (name.size == 7 and memcmp(name.data, b"subject", 7) == 0) or (
        name.size == 5 and memcmp(name.data, b"reply", 5) == 0
    )


@cython.final
cdef class Headers:
    """Of the record that is being made: name, value, name, value, ..."""

    cdef Span* spans
    cdef Py_ssize_t count  # of headers; <= capacity
    cdef Py_ssize_t capacity
    cdef Span key  # of the record
    cdef bint asks  # for a decision
    cdef Asked asked  # what for
    cdef int64_t turn  # of the parser: it is another one after each decision that Python code made

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
        ask_nothing(&self.asked)
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

    cdef int take_opened(self, object key, object pairs) except -1:
        """What was in an envelope, as well; the caller keeps it."""
        cdef bytes name, content
        for name, content in pairs:
            self.take_pair(of_bytes(name), of_bytes(content))
        if key is not None:
            self.key = of_bytes(key)
        return 0

    cdef int take_plain(self, PlainEnvelope* envelope) except -1:
        """As ``take_opened``, what was in an ordinary envelope."""
        cdef int i
        for i in range(envelope.pair_count):
            if not is_ours(envelope.names[i]):
                self.take_pair(envelope.names[i], envelope.contents[i])
        if envelope.key.size:
            self.key = envelope.key
        return 0

    cdef int take_pair(self, Span name, Span content) except -1:
        self.add(name, content)
        if begins_with(name, b"nats-", 5) or begins_with(name, b"streamlog-ack", 13):
            self.asks = True
            note_asked(&self.asked, name, content)
        elif self.key.size < 0 and is_word(name, b"streamlog-key", 13):
            self.key = content
        return 0


cdef inline bytes packed_address(Span reply, bint is_routed):
    """As an entry of the replies has it."""
    return b"\0" + to_bytes(reply) if is_routed else to_bytes(reply)


@cython.final
cdef class RecordCollector:
    """What one subscription gathered since the last take. Not thread-safe; one owner."""

    cdef readonly RecordRun run
    cdef readonly Py_ssize_t reply_count
    cdef readonly bint enveloped
    cdef readonly Py_ssize_t oversize_count
    cdef readonly Py_ssize_t keyless_count
    cdef public bint keyed
    cdef public int64_t message_bytes_max
    cdef public object admit
    cdef public PublishChecks checks
    cdef public AckAddresses addresses
    cdef public object wish
    cdef public object open_envelope
    cdef public object transform
    cdef public object owner
    cdef bint touched  # it is in the list that the feed under way returns
    cdef Buffer _replies
    cdef list _oversize
    cdef list _keyless

    def __cinit__(self, *, int64_t message_bytes_max, admit=None, open_envelope=None, owner=None):
        self.message_bytes_max = message_bytes_max
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
        """Those of messages that must have a key, and have none."""
        keyless = self._keyless
        self._keyless = []
        self.keyless_count = 0
        return keyless

    cdef bint is_sound(self, Message* message, Headers headers, bint enveloped) except -1:
        """Whether the message needs no decision, or all that it asks for holds."""
        if enveloped:
            return False
        if not headers.asks:
            return True
        return self.checks is not None and self.checks.hold(
            &headers.asked, message.subject, self.run.count, headers, headers.turn
        )

    cdef int gather(self, Message* message, Headers headers) except -1:
        """One message becomes one record, if it may."""
        cdef Span value = message.payload
        cdef Span reply = message.reply
        cdef object opened = None  # what was in an envelope: it keeps what spans point into
        cdef bytes changed  # so does this
        cdef Py_ssize_t extra_bytes = 0
        cdef bint is_routed = message.is_routed and message.reply.size
        if not message.is_routed and reply.size and reply.data[0] == ROUTED:
            reply.size = 0  # it would be answered where its publisher may not publish
        if self.transform is not None:
            changed = self.transform(to_bytes(message.subject))
            message.subject = of_bytes(changed)
        if is_like_an_envelope(message.payload) and self.open_envelope is not None:
            if self.gather_plain(message, headers):
                return 0
            opened = self.open_envelope(
                to_bytes(message.payload),
                to_bytes(message.block),
                to_bytes(message.subject),
                packed_address(reply, message.is_routed),
            )
            if opened is not None:
                value = of_bytes(opened[1])
                extra_bytes = PAIR_OVERHEAD_BYTES * len(opened[2])
                reply = of_bytes(opened[4])
                is_routed = False  # the address tells
        if is_too_large(self, message, reply.size + is_routed, extra_bytes):
            self._oversize.append(packed_address(reply, is_routed))
            self.oversize_count += 1
            return 0
        headers.take(message)
        if opened is not None:
            headers.take_opened(opened[0], opened[2])
        if self.keyed and headers.key.size < 0:
            self._keyless.append(packed_address(reply, is_routed))
            self.keyless_count += 1
            return 0
        if self.admit is not None and not self.is_sound(message, headers, opened is not None):
            admitted = self.admit(
                to_bytes(message.block) if opened is None else opened[3],
                to_bytes(message.subject),
                packed_address(reply, is_routed),
                self.run.count,
            )
            headers.turn += 1
            if not admitted:
                return 0
            if isinstance(admitted, RecordRun):  # it is answered by ``admit``, in its time
                if self.keyed and value.size == 0:
                    value.size = -1
                (<RecordRun>admitted).add(0, headers.key, value, headers.spans, headers.count)
                return 0
        return self.keep(value, reply, headers, opened is not None, is_routed)

    cdef bint gather_plain(self, Message* message, Headers headers) except -1:
        """A message in an ordinary envelope, without Python objects; False: it is gathered as others
        are, for nothing has changed.
        """
        cdef PlainEnvelope envelope
        cdef PublishChecks checks = self.checks
        cdef Span reply = message.reply
        cdef int policy, i, extra_bytes = 0
        cdef bint is_addressed, is_routed = message.is_routed and message.reply.size
        if not message.is_routed and reply.size and reply.data[0] == ROUTED:
            reply.size = 0  # as above
        if checks is None or self.addresses is None or not read_envelope(message.payload, &envelope):
            return False
        if not checks.is_open(headers, headers.turn):
            return False
        policy = envelope.ack_policy
        if not 0 <= policy <= POLICY_NONE:
            policy = POLICY_ALL
        is_addressed = envelope.ack_inbox.size or policy == POLICY_NONE
        if is_addressed:
            reply = self.addresses.packed(
                &envelope, policy, message.subject, reply, checks.now_ms, checks.look,
                message.is_routed,
            )
            is_routed = False  # the address tells
        for i in range(envelope.pair_count):
            if not is_ours(envelope.names[i]):
                extra_bytes += PAIR_OVERHEAD_BYTES
        if is_too_large(self, message, reply.size + is_routed, extra_bytes):
            return False
        headers.take(message)
        headers.take_plain(&envelope)
        if self.keyed and headers.key.size < 0:
            return False
        if headers.asks and not checks.hold(
            &headers.asked, message.subject, self.run.count, headers, headers.turn
        ):
            return False
        if is_addressed and policy != checks.default_policy:
            self.wish(self.run.count, policy)
        self.keep(envelope.value, reply, headers, True, is_routed)
        return True

    cdef int keep(
        self, Span value, Span reply, Headers headers, bint enveloped, bint is_routed
    ) except -1:
        """In the run, and among the replies."""
        cdef RecordRun run = self.run
        cdef Py_ssize_t position = run.count
        cdef uint8_t* out
        cdef int i
        if self.keyed and value.size == 0:
            value.size = -1
        reserve(&self._replies, REPLY_ENTRY_BYTES + reply.size + 1)  # may fail, so before the run
        if enveloped:
            self.enveloped = True
        run.add(0, headers.key, value, headers.spans, headers.count)
        if reply.size:
            out = self._replies.start + self._replies.size
            for i in range(4):
                out[i] = (position >> (8 * i)) & 0xFF
            out[4] = (reply.size + is_routed) & 0xFF
            out[5] = (reply.size + is_routed) >> 8
            out += REPLY_ENTRY_BYTES
            if is_routed:
                out[0] = ROUTED
                out += 1
            memcpy(out, reply.data, reply.size)
            self._replies.size += REPLY_ENTRY_BYTES + is_routed + reply.size
            self.reply_count += 1
        return 0


include "message_size_limit.pxi"
include "partitioner.pxi"


cdef int check_line(Py_ssize_t size) except -1:
    """Of a line without its line feed, which may be to come."""
    if size > line_bytes_max + 1:
        raise FrameTooLarge(f"line of more than {line_bytes_max} bytes")
    return 0


cdef int64_t checked_number(Span text) except -1:
    cdef int64_t value = number(text)
    if value < 0:
        raise MalformedFrame(f"{to_bytes(text)[:24]!r} is not a number")
    return value


cdef tuple whole_message(int64_t sid, Message* message):
    return (
        sid,
        to_bytes(message.subject),
        to_bytes(message.reply),
        to_bytes(message.block),
        to_bytes(message.payload),
    )


@cython.final
cdef class FrameParser:
    """NATS protocol lines and payloads in any pieces; messages go to the collector of their sid."""

    cdef readonly int64_t dropped
    cdef list _messages  # those of all sids, where they are kept whole; else None
    cdef Py_ssize_t _frame_bytes_max
    cdef dict _targets
    cdef list _controls
    cdef object _error
    cdef bint _feeding
    cdef Buffer _rest  # the beginning of a frame of which the end is still to come
    cdef Py_ssize_t _needed  # the size of that frame, where its line is there; else 0
    cdef Headers _headers
    cdef int64_t _last_sid
    cdef RecordCollector _last  # of _last_sid; None: none, or that of ...
    cdef Partitioner _last_spread

    def __cinit__(self, *, Py_ssize_t frame_bytes_max=FRAME_BYTES_MAX, bint whole=False):
        self._frame_bytes_max = frame_bytes_max
        self._messages = [] if whole else None
        self._targets = {}
        self._controls = []
        self._headers = Headers()

    def __dealloc__(self):
        release(&self._rest)

    def bind(self, int64_t sid, target not None):
        """Messages of ``sid`` go to ``target``, or to the collector that it chooses."""
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

    def take_messages(self):
        """(sid, subject, reply, header block, payload) of each, in the order in which they came."""
        messages = self._messages
        if messages is None:
            raise TypeError("messages are not kept whole")
        self._messages = []
        return messages

    def feed(self, const uint8_t[::1] data not None):
        """Parse; the collectors touched, in the order of the first touch.

        Raises MalformedFrame or FrameTooLarge, and what an ``admit`` raises.
        """
        cdef list touched = []
        cdef const uint8_t* start
        cdef const uint8_t* end
        cdef Py_ssize_t used
        if self._feeding:
            raise RuntimeError("a feed within a feed")
        if self._error is None and data.shape[0]:
            self._feeding = True
            self._headers.turn += 1
            start = &data[0]
            end = start + data.shape[0]
            try:
                if self._rest.size:
                    start += self._complete(start, end - start, touched)
                if not self._rest.size:  # else all of it went there
                    used = self._frame(start, end, touched)
                    while used:
                        start += used
                        used = self._frame(start, end, touched)
                    if self._needed:
                        reserve(&self._rest, self._needed - self._rest.size)
                    add(&self._rest, start, end - start)
            except Exception as error:
                self._error = error
            finally:
                self._feeding = False
            for collector in touched:
                (<RecordCollector>collector).touched = False
        if self._error is not None and not (touched or self._controls or self._messages):
            raise self._error
        return touched

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
        """The size of the frame at ``start``, which is parsed, and gathered if it is a message; 0 if
        its end is to come."""
        cdef const uint8_t* body = find(start, end, 10)
        cdef const uint8_t* body_end
        cdef Span[FIELDS_MAX] fields
        cdef Message message
        cdef RecordCollector collector
        cdef int count
        cdef bint has_headers = False
        cdef int64_t sid, total, head = 0
        self._needed = 0
        check_line((end if body == NULL else body) - start)
        if body == NULL:
            return 0
        if body == start or (body - 1)[0] != 13:
            raise MalformedFrame("line does not end with CRLF")
        body += 1
        count = split(start, body - 2, fields, FIELDS_MAX)
        if not (count and is_word(fields[0], b"msg", 3)):
            has_headers = count and is_word(fields[0], b"hmsg", 4)
            if not has_headers:
                self._control(to_bytes(span(start, body - 2)).strip(b" \t"))
                return body - start
        if count != 4 + has_headers and count != 5 + has_headers:
            raise MalformedFrame(f"message with {count} fields")
        sid, total = checked_number(fields[2]), checked_number(fields[count - 1])
        if has_headers:
            head = checked_number(fields[count - 2])
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
        message.is_routed = False
        message.subject = fields[1]
        message.reply = fields[3] if count == 5 + has_headers else span(body, body)
        message.block = span(body, body + head)
        message.payload = span(body + head, body_end)
        if self._messages is not None:
            self._messages.append(whole_message(sid, &message))
            return body_end + 2 - start
        collector = self._last
        if collector is None or sid != self._last_sid:
            collector = self._collector_of(sid, &message)
        if collector is not None:
            if not collector.touched:
                collector.touched = True
                touched.append(collector)
            collector.gather(&message, self._headers)
        return body_end + 2 - start

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

    cdef RecordCollector _collector_of(self, int64_t sid, Message* message):
        """Where the message goes; None: nowhere."""
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
        return self._last_spread.choose(message, self._headers, False)


@cython.final
cdef class IngestEndpoint(Endpoint):
    """Hands messages of the router to the collectors that are subscribed, and has these taken at the end of
    the turn: all that was readable in it is one append for each partition."""

    cdef list _touched
    cdef Headers _headers

    def __init__(self, Router router not None):
        self._touched = []
        self._headers = Headers()

    def subscribe(self, bytes subject not None, target not None, *, bytes queue not None=b""):
        """Messages go to ``target``, or to the collector that it chooses; returns what ends it."""
        if not isinstance(target, (RecordCollector, Partitioner)):
            raise TypeError(f"{target!r} takes no messages")
        subscription = Subscription(self, subject, queue=queue, target=target)
        self.router.add(subscription)
        return subscription

    cdef int deliver(self, Subscription subscription, const Message* message) except -1:
        cdef Message copied = message[0]  # a transform changes its subject
        cdef RecordCollector collector
        cdef Endpoint source
        if not self.router._in_turn:
            self._headers.turn += 1  # others may have appended since
        if isinstance(subscription.target, RecordCollector):
            collector = <RecordCollector>subscription.target
        else:
            source = self.router.source
            collector = (<Partitioner>subscription.target).choose(
                &copied, self._headers, source is None or not source.is_link
            )
            if collector is None:
                return 0
        if not collector.touched:
            collector.touched = True
            self._touched.append(collector)
            self.router.touch(self)
        return collector.gather(&copied, self._headers)

    cdef int end_turn(self) except -1:
        cdef RecordCollector collector
        touched, self._touched = self._touched, []
        self._headers.turn += 1
        for collector in touched:
            collector.touched = False
            collector.owner.take()
        return 0
