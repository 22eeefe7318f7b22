# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Subscriptions and where messages go, compiled. ``router.pyi`` says what it means.

Matching is a walk down a tree of tokens, whose results are kept. Most subjects of a busy node differ in
their last token alone (an inbox's, an order's number). Where no subscription names such a last token, the
result depends on the tokens before it only, and is kept by these: a publisher's millionth reply subject
costs a comparison with the one before it.

Memory: the spans of a message are good for as long as its delivery takes; an endpoint copies what it keeps.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from streamlog.nats.lexer cimport digits, literal, of_bytes, put, put_number, span, to_bytes
from streamlog.record.compiled.codec cimport Span
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

from streamlog.errors import InvalidRequest

SOURCES = STREAMLOG_SOURCES
ROUTES_MAX = 65_536

cdef enum:
    ENTRY_BYTES = 6  # u32 offset delta, u16 length, both little-endian
    ROUTED = 0  # the first byte of a packed reply that the router answers
    ACK_LINE_BYTES = 9  # "PUB ", a space, CRLF after the size and after the payload

cdef Py_ssize_t routes_max = ROUTES_MAX


cdef class Endpoint:
    """Takes messages, or brings them, or both."""

    def __cinit__(self, Router router not None, *args, **kwargs):
        self.router = router

    cdef int deliver(self, Subscription subscription, const Message* message) except -1:
        raise NotImplementedError

    cdef int answer(
        self, Subscription subscription, Span reply, Span head, int64_t sequence
    ) except -1:
        """A positive ack: ``head``, the sequence, and a brace."""
        cdef bytes payload = b"%b%d}" % (to_bytes(head), sequence)
        cdef Message message
        message.subject = reply
        message.reply = literal(b"", 0)
        message.block = literal(b"", 0)
        message.payload = of_bytes(payload)
        message.is_routed = True
        return self.deliver(subscription, &message)

    cdef int end_turn(self) except -1:
        """All that this turn of the event loop brought is there."""
        return 0


cdef class Callback(Endpoint):
    """Hands each message to a function, its subscription's target."""

    cdef object _failed

    def __init__(self, Router router not None, *, failed):
        self._failed = failed

    cdef int deliver(self, Subscription subscription, const Message* message) except -1:
        try:
            subscription.target(
                to_bytes(message.subject),
                to_bytes(message.reply),
                to_bytes(message.block),
                to_bytes(message.payload),
            )
        except Exception as error:
            self._failed(error)
        return 0


cdef class Subscription:
    """A subject, and who takes its messages."""

    def __init__(
        self, Endpoint endpoint not None, bytes subject not None, *, bytes queue not None=b"",
        bytes sid not None=b"", object target=None
    ):
        self.endpoint = endpoint
        self.subject = subject
        self.queue = queue
        self.sid = sid
        self.target = target

    @property
    def is_spent(self):
        return self.delivered_max and self.delivered >= self.delivered_max


cdef class Route:
    """The subscriptions that a subject has now: each of the plain ones, and one of each queue group."""


cdef class Memo:
    pass


cdef class Level:
    """What the tree has at one token: an empty one has no subscription below it."""

    cdef dict children
    cdef Level star
    cdef list here  # subscriptions that end with this token
    cdef list rest  # subscriptions whose only further token is ">"

    cdef bint is_empty(self):
        return not (self.children or self.star is not None or self.here or self.rest)


cdef list split_subject(bytes subject):
    """Raises InvalidRequest for a subject that nothing can be subscribed to by."""
    cdef list tokens = subject.split(b".")
    if b"" in tokens or b">" in tokens[: len(tokens) - 1]:
        raise InvalidRequest(f"{subject[:80]!r} is no subject")
    return tokens


cdef inline bint is_literal(list tokens):
    return b"*" not in tokens and b">" not in tokens


cdef class Router:
    """All subscriptions of a node. Not thread-safe; all is on one event loop."""

    def __init__(self, *, uint64_t seed=1):
        self._root = Level()
        self._by_subject = {}
        self._by_prefix = {}
        self._published = Memo()
        self._answered = Memo()
        self._takers = []
        self._writers = []
        self._chance = seed | 1

    def __len__(self):
        return self.count

    def add(self, Subscription subscription not None):
        cdef list tokens = split_subject(subscription.subject)
        cdef Level level = <Level>self._root
        cdef Level below
        cdef bytes token
        for token in tokens:
            if token == b">":
                if level.rest is None:
                    level.rest = []
                level.rest.append(subscription)
                break
            if token == b"*":
                if level.star is None:
                    level.star = Level()
                level = level.star
                continue
            if level.children is None:
                level.children = {}
            below = level.children.get(token)
            if below is None:
                below = level.children[token] = Level()
            level = below
        else:
            if level.here is None:
                level.here = []
            level.here.append(subscription)
        self.count += 1
        self._forget(subscription.subject, tokens)

    def remove(self, Subscription subscription not None):
        cdef list tokens, path
        cdef Level level = <Level>self._root
        cdef Level below
        cdef bytes token
        if subscription.ended:
            return
        subscription.ended = True
        tokens = split_subject(subscription.subject)
        path = []
        for token in tokens:
            if token == b">":
                level.rest.remove(subscription)
                break
            path.append(level)
            level = level.star if token == b"*" else level.children[token]
        else:
            level.here.remove(subscription)
        self.count -= 1
        while path and level.is_empty():
            below, level = level, path.pop()
            token = tokens[len(path)]
            if token == b"*":
                level.star = None
            else:
                del level.children[token]
        self._forget(subscription.subject, tokens)

    def matches(self, bytes subject not None):
        """The plain subscriptions of a subject, and its queue groups."""
        cdef Route route = self.route_of(of_bytes(subject), self._published)
        return list(route.plain), [list(group) for group in route.groups]

    def publish(
        self, bytes subject not None, bytes payload not None, *, bytes reply not None=b"",
        bytes block not None=b"", Endpoint source=None
    ):
        cdef Message message
        cdef int count
        message.subject = of_bytes(subject)
        message.reply = of_bytes(reply)
        message.block = of_bytes(block)
        message.payload = of_bytes(payload)
        message.is_routed = True
        count = self.deliver(&message, source, False)
        return count

    def acknowledge(self, bytes replies not None, bytes head not None, int64_t base_offset):
        """Give a positive ack to each packed reply; publications of those that are not for the router."""
        cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(replies)
        cdef const uint8_t* end = start + len(replies)
        cdef const uint8_t* entry = start
        cdef const uint8_t* text
        cdef Py_ssize_t length, size = 0, payload
        cdef Span head_span = of_bytes(head)
        cdef int64_t sequence
        cdef bytes acks
        cdef uint8_t* out
        if not 0 <= base_offset < (1 << 63) - 1 - (1 << 32):
            raise ValueError(f"offset {base_offset} has no sequence")
        while entry < end:  # checks them all, before any is answered
            length = length_at(entry, end)
            text = entry + ENTRY_BYTES
            if not length or text[0] != ROUTED:
                payload = head_span.size + digits(base_offset + delta_at(entry) + 1) + 1
                size += ACK_LINE_BYTES + length + digits(payload) + payload
            entry = text + length
        acks = PyBytes_FromStringAndSize(NULL, size)
        out = <uint8_t*>PyBytes_AS_STRING(acks)
        entry = start
        while entry < end:
            length = length_at(entry, end)
            text = entry + ENTRY_BYTES
            sequence = base_offset + delta_at(entry) + 1
            if length and text[0] == ROUTED:
                self.answer(span(text + 1, text + length), head_span, sequence)
            else:
                payload = head_span.size + digits(sequence) + 1
                out = put(out, b"PUB ", 4)
                out = put(out, text, length)
                out = put(out, b" ", 1)
                out = put_number(out, payload, digits(payload))
                out = put(out, b"\r\n", 2)
                out = put(out, head_span.data, head_span.size)
                out = put_number(out, sequence, digits(sequence))
                out = put(out, b"}\r\n", 3)
            entry = text + length
        return acks

    def respond(self, bytes replies not None, bytes payload not None):
        """Publish ``payload`` at each packed reply; publications of those that are not for the router."""
        cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(replies)
        cdef const uint8_t* end = start + len(replies)
        cdef const uint8_t* entry = start
        cdef const uint8_t* text
        cdef Py_ssize_t length, size = 0
        cdef Message message
        cdef bytes lines
        cdef uint8_t* out
        message.reply = message.block = literal(b"", 0)
        message.payload = of_bytes(payload)
        message.is_routed = True
        while entry < end:  # checks them all, before any is answered
            length = length_at(entry, end)
            text = entry + ENTRY_BYTES
            if not length or text[0] != ROUTED:
                size += ACK_LINE_BYTES + length + digits(len(payload)) + len(payload)
            entry = text + length
        lines = PyBytes_FromStringAndSize(NULL, size)
        out = <uint8_t*>PyBytes_AS_STRING(lines)
        entry = start
        while entry < end:
            length = length_at(entry, end)
            text = entry + ENTRY_BYTES
            if length and text[0] == ROUTED:
                message.subject = span(text + 1, text + length)
                self.deliver(&message, None, True)
            else:
                out = put(out, b"PUB ", 4)
                out = put(out, text, length)
                out = put(out, b" ", 1)
                out = put_number(out, len(payload), digits(len(payload)))
                out = put(out, b"\r\n", 2)
                out = put(out, PyBytes_AS_STRING(payload), len(payload))
                out = put(out, b"\r\n", 2)
            entry = text + length
        return lines

    cdef int answer(self, Span reply, Span head, int64_t sequence) except -1:
        cdef Route route = self.route_of(reply, self._answered)
        cdef Subscription subscription = route.only
        cdef Message message
        cdef bytes payload
        if subscription is not None:
            return subscription.endpoint.answer(subscription, reply, head, sequence)
        payload = b"%b%d}" % (to_bytes(head), sequence)
        message.subject = reply
        message.reply = literal(b"", 0)
        message.block = literal(b"", 0)
        message.payload = of_bytes(payload)
        message.is_routed = True
        self.deliver(&message, None, True)
        return 0

    def begin_turn(self):
        """Until ``end_turn`` endpoints gather what comes."""
        self._in_turn = True

    def end_turn(self):
        """Have each endpoint take, or write, what this turn brought: first those that make answers."""
        cdef list touched
        cdef Endpoint endpoint
        self._in_turn = True
        try:
            while self._takers or self._writers:
                if self._takers:
                    touched, self._takers = self._takers, []
                else:
                    touched, self._writers = self._writers, []
                for endpoint in touched:
                    endpoint.is_touched = False
                    endpoint.end_turn()
        finally:
            self._in_turn = False

    cdef int touch(self, Endpoint endpoint) except -1:
        """Its ``end_turn`` is called at the end of this turn."""
        if endpoint.is_touched:
            return 0
        endpoint.is_touched = True
        if not self._in_turn and not self._takers and not self._writers and self.wake is not None:
            self.wake()
        (self._writers if endpoint.writes else self._takers).append(endpoint)
        return 0

    cdef int deliver(self, const Message* message, Endpoint source, bint echo) except -1:
        """To how many endpoints it went."""
        cdef Route route = self.route_of(message.subject, self._published)
        cdef Subscription subscription
        cdef list group
        cdef int count = 0
        self.source = source
        if route.only is not None:
            subscription = route.only
            if echo or subscription.endpoint is not source:
                subscription.endpoint.deliver(subscription, message)
                return 1
            return 0
        for subscription in route.plain:
            if not subscription.ended and (echo or subscription.endpoint is not source):
                subscription.endpoint.deliver(subscription, message)
                count += 1
        for group in route.groups:
            subscription = self._member(group, source, echo)
            if subscription is not None:
                subscription.endpoint.deliver(subscription, message)
                count += 1
        return count

    cdef Subscription _member(self, list group, Endpoint source, bint echo):
        """One of the group by chance; None: its publisher is alone in it, and wants no echo."""
        cdef Py_ssize_t count = len(group), i, start
        cdef Subscription subscription
        self._chance ^= self._chance << 13
        self._chance ^= self._chance >> 7
        self._chance ^= self._chance << 17
        start = <Py_ssize_t>(self._chance % <uint64_t>count)
        for i in range(count):
            subscription = group[(start + i) % count]
            if not subscription.ended and (echo or subscription.endpoint is not source):
                return subscription
        return None

    cdef Route route_of(self, Span subject, Memo memo):
        cdef const uint8_t* dot
        cdef Py_ssize_t prefix_size
        cdef Route route
        cdef object found
        cdef bytes key
        if memo.subject is not None and len(memo.subject) == subject.size and memcmp(
            PyBytes_AS_STRING(memo.subject), subject.data, subject.size
        ) == 0:
            return memo.route
        prefix_size = last_dot(subject)
        if memo.prefix is not None and prefix_size == len(memo.prefix) and (
            prefix_size + 1 < subject.size
        ) and memcmp(PyBytes_AS_STRING(memo.prefix), subject.data, prefix_size) == 0:
            return memo.route
        memo.subject = memo.prefix = None
        if 0 <= prefix_size < subject.size - 1:
            key = PyBytes_FromStringAndSize(<const char*>subject.data, prefix_size)
            found = self._by_prefix.get(key)
            if found is None:
                found = self._keep(self._by_prefix, key, self._match_prefix(key))
            if found is not False:
                memo.prefix = key
                memo.route = <Route>found
                return memo.route
        key = to_bytes(subject)
        found = self._by_subject.get(key)
        if found is None:
            found = self._keep(self._by_subject, key, self._match(key))
        memo.subject = key
        memo.route = <Route>found
        return memo.route

    cdef object _keep(self, dict kept, bytes key, object found):
        if len(kept) >= routes_max:
            kept.clear()
        kept[key] = found
        return found

    cdef object _match_prefix(self, bytes prefix):
        """The route of all subjects with one more token; False: that token decides, too."""
        cdef list tokens = prefix.split(b".")
        cdef list levels = [self._root], below, found = []
        cdef bytes token
        cdef Level level, child
        if b"" in tokens:
            return route_made([])
        for token in tokens:
            below = []
            for level in levels:
                if level.rest:
                    found.extend(level.rest)
                if level.children is not None:
                    child = level.children.get(token)
                    if child is not None:
                        below.append(child)
                if level.star is not None:
                    below.append(level.star)
            levels = below
        for level in levels:
            if level.children:
                return False
            if level.rest:
                found.extend(level.rest)
            if level.star is not None and level.star.here:
                found.extend(level.star.here)
        return route_made(found)

    cdef Route _match(self, bytes subject):
        cdef list tokens = subject.split(b".")
        cdef list levels = [self._root], below, found = []
        cdef bytes token
        cdef Level level, child
        if b"" in tokens:
            return route_made([])
        for token in tokens:
            below = []
            for level in levels:
                if level.rest:
                    found.extend(level.rest)
                if level.children is not None:
                    child = level.children.get(token)
                    if child is not None:
                        below.append(child)
                if level.star is not None:
                    below.append(level.star)
            levels = below
        for level in levels:
            if level.here:
                found.extend(level.here)
        return route_made(found)

    cdef int _forget(self, bytes subject, list tokens) except -1:
        """The routes that a subscription which came or went may change."""
        self.generation += 1
        self._published.subject = self._published.prefix = None
        self._answered.subject = self._answered.prefix = None
        if is_literal(tokens):
            self._by_subject.pop(subject, None)
            self._by_prefix.pop(subject.rpartition(b".")[0], None)
        else:
            self._by_subject.clear()
            self._by_prefix.clear()
        return 0


cdef Route route_made(list subscriptions):
    cdef Route route = Route()
    cdef Subscription subscription
    cdef dict groups = {}
    route.plain = []
    for subscription in subscriptions:
        if subscription.queue:
            groups.setdefault(subscription.queue, []).append(subscription)
        else:
            route.plain.append(subscription)
    route.groups = list(groups.values())
    if len(route.plain) == 1 and not route.groups:
        route.only = route.plain[0]
    return route


cdef inline Py_ssize_t last_dot(Span subject) noexcept nogil:
    """Where it is; -1: there is none."""
    cdef Py_ssize_t i
    for i in range(subject.size - 1, -1, -1):
        if subject.data[i] == 46:
            return i
    return -1


cdef inline int64_t delta_at(const uint8_t* entry) noexcept nogil:
    return entry[0] | entry[1] << 8 | entry[2] << 16 | <int64_t>entry[3] << 24


cdef Py_ssize_t length_at(const uint8_t* entry, const uint8_t* end) except -1:
    cdef Py_ssize_t length
    if end - entry < ENTRY_BYTES:
        raise ValueError("packed replies are cut")
    length = entry[4] | entry[5] << 8
    if length > end - entry - ENTRY_BYTES:
        raise ValueError("packed replies are cut")
    return length
