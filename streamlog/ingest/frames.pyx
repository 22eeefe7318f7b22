# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""NATS messages to records, compiled. ``frames.pyi`` says what it means.

A message goes from the socket's bytes into its run without becoming a Python object, unless a header
of it asks for a decision.

Memory: a message's spans are good for as long as its delivery takes.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memmove

from streamlog.ingest.admission.batches.fast_run cimport FastBatch, FastRun, is_fast
from streamlog.ingest.admission.publish_checks cimport (
    Asked, PublishChecks, ask_nothing, note_asked
)
from streamlog.ingest.liftbridge.envelope_codec cimport (
    AckAddresses, PlainEnvelope, read_envelope
)
from streamlog.nats.lexer cimport (
    Buffer, add, begins_with, clear, find, find_crlf, is_word, literal, of_bytes, release, reserve,
    span, to_bytes,
)
from streamlog.nats.router cimport Endpoint, Message, Router, Subscription
from streamlog.record.compiled.codec cimport RecordRun, Span
from streamlog.record.compiled.primitives cimport hashed
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

from streamlog.record.batch import PUBLISHED

SOURCES = STREAMLOG_SOURCES

cdef enum:
    REPLY_ENTRY_BYTES = 6  # u32 offset delta, u16 length, both little-endian
    REPLY_BYTES_MAX = 65535
    ROUTED = 0  # before a reply subject that the router answers; no subject has such a byte
    RECORD_OVERHEAD_BYTES = 64  # more than the lengths and counts in a record take, its headers' apart
    HEADER_GROWTH = 3  # more than a header block grows when it becomes headers and a key
    PAIR_OVERHEAD_BYTES = 16  # more than the lengths of a header out of an envelope take
    POLICY_ALL = 1  # of an envelope's acks; 0 and 2 are the others
    POLICY_NONE = 2


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
    cdef int64_t turn  # of the endpoint: it is another one after each decision that Python code made

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

    cdef int replace(self, Span name, Span content) except -1:
        """The first header of that name goes, if there is one, and another one comes to the end."""
        cdef Py_ssize_t place
        for place in range(self.count):
            if self.spans[2 * place].size == name.size and not memcmp(
                self.spans[2 * place].data, name.data, name.size
            ):
                memmove(
                    self.spans + 2 * place,
                    self.spans + 2 * (place + 1),
                    2 * (self.count - place - 1) * sizeof(Span),
                )
                self.count -= 1
                break
        return self.add(name, content)

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
    cdef public FastRun fast
    cdef public AckAddresses addresses
    cdef public object wish
    cdef public object open_envelope
    cdef public object count
    cdef public object transform
    cdef public object lifetime
    cdef public object owner
    cdef public int64_t from_mark
    cdef bint touched  # it is in the list of its endpoint
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
        cdef bytes changed, lifetime  # so do these
        cdef Py_ssize_t extra_bytes = 0
        cdef bint is_routed = message.is_routed and message.reply.size
        if not message.is_routed and reply.size and reply.data[0] == ROUTED:
            reply.size = 0  # it would be answered where its publisher may not publish
        if self.transform is not None:
            changed = self.transform(to_bytes(message.subject))
            message.subject = of_bytes(changed)
        if self.fast is not None and is_fast(reply):
            return self.gather_fast(message, headers, reply, is_routed)
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
        if self.count is not None:
            counted = self.count(
                to_bytes(message.block) if opened is None else opened[3],
                to_bytes(message.subject),
                packed_address(reply, is_routed),
                to_bytes(value),
            )
            headers.turn += 1
            if counted is not None:
                value = of_bytes(counted[1])
                if len(counted) > 2:
                    headers.replace(literal(b"Nats-Counter-Sources", 20), of_bytes(counted[2]))
                (<RecordRun?>counted[0]).add(
                    0, headers.key, value, headers.spans, headers.count
                )
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
            if self.lifetime is not None:
                lifetime, self.lifetime = self.lifetime, None
                headers.replace(literal(b"Nats-TTL", 8), of_bytes(lifetime))
            if isinstance(admitted, tuple):  # with a header besides its own
                extended = admitted
                headers.add(of_bytes(extended[1]), of_bytes(extended[2]))
                admitted = extended[0]
            if isinstance(admitted, RecordRun):  # it is answered by ``admit``, in its time
                if self.keyed and value.size == 0:
                    value.size = -1
                (<RecordRun>admitted).add(0, headers.key, value, headers.spans, headers.count)
                return 0
        return self.keep(value, reply, headers, opened is not None, is_routed)

    cdef int gather_fast(
        self, Message* message, Headers headers, Span reply, bint is_routed
    ) except -1:
        """A message of a fast batch. What it is answered is not among the replies."""
        cdef RecordRun run = self.run
        cdef FastRun fast = self.fast
        cdef FastBatch batch
        cdef Span value = message.payload
        if is_too_large(self, message, reply.size + is_routed, 0):
            self._oversize.append(packed_address(reply, is_routed))
            self.oversize_count += 1
            return 0
        message.reply.size = 0  # an address of the batch's, which is of no use to readers
        headers.take(message)
        if self.keyed and headers.key.size < 0:
            self._keyless.append(packed_address(reply, is_routed))
            self.keyless_count += 1
            return 0
        batch = fast.follower(reply, is_routed) if self.count is None else None
        if batch is not None and self.is_sound(message, headers, False):
            fast.keep_reply(batch, reply, is_routed)
            fast.enter(batch, batch.last + 1, run.count, -1)
            batch.last += 1
        else:
            admitted = fast.admit(
                to_bytes(message.block),
                to_bytes(message.subject),
                packed_address(reply, is_routed),
                value.size > 0,
            )
            headers.turn += 1
            if admitted is False:
                return 0
            if isinstance(admitted, tuple):
                extended = admitted
                headers.replace(of_bytes(extended[1]), of_bytes(extended[2]))
                admitted = True if extended[0] is None else extended[0]
            if admitted is not True:
                value = of_bytes(admitted)
        if self.keyed and value.size == 0:
            value.size = -1
        run.add(0, headers.key, value, headers.spans, headers.count)
        return 0

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
        if checks is None or self.addresses is None or self.count is not None:
            return False
        if not read_envelope(message.payload, &envelope):
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


@cython.final
cdef class IngestEndpoint(Endpoint):
    """Hands messages of the router to the collectors that are subscribed, and has these taken at the end of
    the turn: all that was readable in it is one append for each partition."""

    cdef list _touched
    cdef Headers _headers
    cdef object _left_out

    def __init__(self, Router router not None, *, left_out=None):
        self._left_out = left_out
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
        cdef bint is_own
        if not self.router._in_turn:
            self._headers.turn += 1  # others may have appended since
        if isinstance(subscription.target, RecordCollector):
            collector = <RecordCollector>subscription.target
        else:
            source = self.router.source
            is_own = message.is_routed and (source is None or not source.is_link)
            collector = (<Partitioner?>subscription.target).choose(&copied, self._headers, is_own)
            if collector is None:
                return 0
        if message.passed < collector.from_mark and not self._has_id(&copied):
            if self._left_out is not None:
                self._left_out()
            return 0
        if not collector.touched:
            collector.touched = True
            self._touched.append(collector)
            self.router.touch(self)
        return collector.gather(&copied, self._headers)

    cdef bint _has_id(self, Message* message) except -1:
        """Whether a copy of the message would be recognised: its id may be in an envelope."""
        cdef Headers headers = self._headers
        cdef PlainEnvelope envelope
        headers.take(message)
        if is_like_an_envelope(message.payload) and read_envelope(message.payload, &envelope):
            headers.take_plain(&envelope)
        return headers.asked.message_id.size > 0

    def take_touched(self):
        """The collectors that got something since, in the order in which they did."""
        cdef RecordCollector collector
        touched, self._touched = self._touched, []
        self._headers.turn += 1
        for collector in touched:
            collector.touched = False
        return touched

    cdef int end_turn(self) except -1:
        cdef RecordCollector collector
        cdef object failure = None
        for collector in self.take_touched():
            try:
                collector.owner.take()
            except Exception as error:  # the others must be taken, too
                failure = error
        if failure is not None:
            raise failure
        return 0
