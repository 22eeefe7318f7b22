# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Subscriptions and where messages go, compiled. ``router.pyi`` says what it means.

Matching is a walk down a tree of tokens, whose results are kept. Most subjects of a busy node differ in
their last token alone (an inbox's, an order's number). Where no subscription names such a last token, the
result depends on the tokens before it only, and is kept by these: a publisher's millionth reply subject
costs a comparison with the one before it.

Memory: the spans of a message are good for as long as its delivery takes; an endpoint copies what it keeps.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from streamlog.nats.lexer cimport digits, literal, of_bytes, put, put_number, span, to_bytes
from streamlog.record.compiled.codec cimport Span
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

from streamlog.errors import InvalidRequest

SOURCES = STREAMLOG_SOURCES
ROUTES_MAX = 65_536
ROUTES_BYTES_MAX = 67_108_864

cdef enum:
    ROUTE_BYTES = 400  # of one that is kept, about, without its key and subscriptions
    ENTRY_BYTES = 6  # u32 offset delta, u16 length, both little-endian
    ROUTED = 0  # the first byte of a packed reply that the router answers
    KEPT_BYTES_MAX = 512  # of a subject whose route is kept: clients choose how long they are
    LINE_BYTES = 9  # of a publication: "PUB ", a space, CRLF after the size and after the payload

cdef Py_ssize_t routes_max = ROUTES_MAX
cdef Py_ssize_t routes_bytes_max = ROUTES_BYTES_MAX


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
        cdef bytes payload = ack_of(head, sequence)
        cdef Message message = message_of(reply, b"", b"", payload)
        return self.deliver(subscription, &message)

    cdef int end_turn(self) except -1:
        """All that this turn of the event loop brought is there."""
        return 0

    cdef int forward(self, const Message* message, list queues) except -1:
        """Sends the message over a link, for plain subscriptions there and for one member of each of these queue
        groups; ``queues`` None: for no group."""
        raise NotImplementedError

    cdef int tell_interest(self, bytes subject, bytes queue, Py_ssize_t count) except -1:
        """Tells a link that this node has ``count`` subscriptions to the subject now."""
        raise NotImplementedError

    cdef int put_mark(self, int64_t mark) except -1:
        """Sends a mark to the other side, and notes in ``passed`` when it comes back."""
        raise NotImplementedError

    cdef Py_ssize_t unwritten(self) except -1:
        """Bytes that wait until the other side reads."""
        return 0


cdef class Callback(Endpoint):
    """Hands each message to a function, its subscription's target."""

    cdef object _failed

    def __init__(self, Router router not None, *, failed, bint sees_shown=False):
        self._failed = failed
        self.sees_shown = sees_shown

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
    """A subject, and the endpoint that takes its messages."""

    def __init__(
        self, Endpoint endpoint not None, bytes subject not None, *, bytes queue not None=b"",
        bytes sid not None=b"", object target=None
    ):
        self.endpoint = endpoint
        self.subject = subject
        self.queue = queue
        self.sid = sid
        self.target = target


cdef class DeliveryTrace:
    """Where one message goes."""

    def __init__(self, *, bint is_only=False):
        self.is_only = is_only
        self.deliveries = []
        self.refusal = ""

    cdef bint add(self, object receiver) except -1:
        """Whether it gets the message."""
        self.deliveries.append((receiver, False))
        return not self.is_only

    cdef int add_echo(self, Subscription subscription) except -1:
        """The subscription matches, but its client publishes the message and wants no echo."""
        self.deliveries.append((subscription, True))
        return 0


cdef class QueueGroup:
    """The members of one queue group that a subject has now."""


cdef class Route:
    """Where messages of a subject go now: to each of the plain subscriptions, to one member of each queue
    group, and once over each link."""


cdef class Memo:
    pass


cdef class Level:
    """What the tree has at one token: an empty one has no subscription below it."""

    cdef dict children
    cdef Level star
    cdef dict here  # subscriptions that end with this token, in order; each leads to None
    cdef dict rest  # subscriptions whose only further token is ">"

    cdef bint is_empty(self):
        return not (self.children or self.star is not None or self.here or self.rest)


cdef bint is_subject(bytes subject):
    """Whether something can be subscribed to by it."""
    cdef list tokens = subject.split(b".")
    return b"" not in tokens and b">" not in tokens[: len(tokens) - 1]


cdef list split_subject(bytes subject):
    """Raises InvalidRequest for a subject that nothing can be subscribed to by."""
    if not is_subject(subject):
        raise InvalidRequest(f"{subject[:80]!r} is no subject")
    return subject.split(b".")


cdef inline bint is_literal(list tokens):
    return b"*" not in tokens and b">" not in tokens


cdef inline Message message_of(Span subject, bytes reply, bytes block, bytes payload):
    """Good for as long as the bytes are kept."""
    return message_with(subject, of_bytes(reply), of_bytes(block), of_bytes(payload))


cdef inline int hand_over(Subscription subscription, const Message* message) except -1:
    if message.trace != NULL and not (<DeliveryTrace>message.trace).add(subscription):
        return 0
    return subscription.endpoint.deliver(subscription, message)


cdef inline int show(
    Subscription subscription, const Message* message, const Message* shown
) except -1:
    """Clients get the message as ``shown``, parts of this node as it was routed, unless they want it shown."""
    cdef Endpoint endpoint = subscription.endpoint
    cdef bint is_shown = endpoint.writes or endpoint.sees_shown
    return endpoint.deliver(subscription, shown if is_shown else message)


cdef inline Py_ssize_t count_clients(list subscriptions) except -1:
    cdef Subscription subscription
    cdef Py_ssize_t count = 0
    for subscription in subscriptions:
        count += subscription.endpoint.writes or subscription.endpoint.sees_shown
    return count


cdef inline Py_ssize_t most_unwritten(list subscriptions, Py_ssize_t most) except -1:
    cdef Subscription subscription
    for subscription in subscriptions:
        most = max(most, subscription.endpoint.unwritten())
    return most


cdef inline bytes ack_of(Span head, int64_t sequence):
    return b"%b%d}" % (to_bytes(head), sequence)


cdef class Router:
    """All subscriptions of a node. Not thread-safe; all is on one event loop."""

    def __init__(self, *, uint64_t seed=1):
        self._root = Level()
        self._by_subject = {}
        self._by_prefix = {}
        self._by_stem = {}
        self._published = Memo()
        self._answered = Memo()
        self.stalled = []
        self._marked = []
        self._links = []
        self._interest = {}
        self._watchers = []
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
                    level.rest = {}
                level.rest[subscription] = None
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
                level.here = {}
            level.here[subscription] = None
        self.count += 1
        self._forget(subscription.subject, tokens)
        if not subscription.endpoint.is_link:
            self._count_interest(subscription, 1)

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
                del level.rest[subscription]
                break
            path.append(level)
            level = level.star if token == b"*" else level.children[token]
        else:
            del level.here[subscription]
        self.count -= 1
        while path and level.is_empty():
            below, level = level, path.pop()
            token = tokens[len(path)]
            if token == b"*":
                level.star = None
            else:
                del level.children[token]
        self._forget(subscription.subject, tokens)
        if not subscription.endpoint.is_link:
            self._count_interest(subscription, -1)

    cdef int _count_interest(self, Subscription subscription, int change) except -1:
        cdef bytes key = subscription.subject
        cdef Py_ssize_t count
        cdef Endpoint link
        if subscription.queue:
            key = b"%b %b" % (subscription.subject, subscription.queue)
        count = self._interest.get(key, 0) + change
        if count:
            self._interest[key] = count
        else:
            del self._interest[key]
        if self._links and (subscription.queue or count == 0 or (count == 1 and change == 1)):
            for link in self._links:
                link.tell_interest(subscription.subject, subscription.queue, count)
        return 0

    def tell_change(self, watcher not None):
        """Call it once, when the next subscription comes or goes."""
        self._watchers.append(watcher)

    def attach(self, Endpoint link not None):
        """Tell a link of all subscriptions of this node, and of each change."""
        cdef bytes key, subject, queue
        link.is_link = True
        self.join_marks(link)
        self._links.append(link)
        for key, count in self._interest.items():
            subject, _, queue = key.partition(b" ")
            link.tell_interest(subject, queue, count)

    def detach(self, Endpoint link not None):
        """It has gone; its own subscriptions are to be removed."""
        self.leave_marks(link)
        if link in self._links:
            self._links.remove(link)

    def mark(self):
        """Send a mark over each connection that has joined; its number."""
        cdef Endpoint connection
        self.marks += 1
        for connection in tuple(self._marked):
            connection.put_mark(self.marks)
        return self.marks

    def join_marks(self, Endpoint connection not None):
        """It is new: what it brings was sent after all marks that there were."""
        connection.passed = self.marks
        self._marked.append(connection)

    def leave_marks(self, Endpoint connection not None):
        """It has gone."""
        if connection in self._marked:
            self._marked.remove(connection)

    def matches(self, bytes subject not None):
        """The plain subscriptions of a subject, and its queue groups; those of this node."""
        cdef Route route = self.route_of(of_bytes(subject), self._published)
        return list(route.plain), [list(group.members) for group in route.groups if group.members]

    def publish(
        self, bytes subject not None, bytes payload not None, *, bytes reply not None=b"",
        bytes block not None=b"", Endpoint source=None, bint echo=False
    ):
        cdef Message message = message_of(of_bytes(subject), reply, block, payload)
        return self.deliver(&message, source, echo)

    def deliver_as(
        self, bytes subject not None, bytes shown not None, bytes payload not None, *,
        bytes reply not None=b"", bytes block not None=b""
    ):
        """Publish in the node's name by one subject what clients see with another one."""
        cdef Message message = message_of(of_bytes(subject), reply, block, payload)
        cdef Message seen = message_of(of_bytes(shown), reply, block, payload)
        return self.deliver_shown(&message, &seen)

    cdef int deliver_shown(self, const Message* message, const Message* shown) except -1:
        """The same; how many subscriptions have it."""
        cdef Route route = self.route_of(message.subject, self._answered)
        cdef Endpoint outer = self.source
        self.source = None
        try:
            if route.only is not None:
                show(route.only, message, shown)
                return 1
            return self._deliver_shown(route, message, shown)
        finally:
            self.source = outer

    cdef int _deliver_shown(self, Route route, const Message* message, const Message* shown) except -1:
        cdef Subscription subscription
        cdef QueueGroup group
        cdef Message linked
        cdef bytes reply
        cdef dict queues = None
        cdef int count = 0
        for subscription in route.plain:
            if not subscription.ended:
                show(subscription, message, shown)
                count += 1
        for group in route.groups:
            subscription = self._member(group.members, None, True)
            if subscription is not None:
                show(subscription, message, shown)
                count += 1
                continue
            subscription = self._member(group.distant, None, True)
            if subscription is not None:
                if queues is None:
                    queues = {}
                queues.setdefault(subscription.endpoint, []).append(group.queue)
        if route.links or queues is not None:
            reply = b"%b@%b" % (to_bytes(message.reply), to_bytes(shown.subject))
            linked = message[0]
            linked.reply = of_bytes(reply)
            count += self._forward(route, &linked, queues)
        return count

    def interest(self, bytes subject not None, *, bytes queue not None=b""):
        """How many subscriptions of clients match, here and behind links; parts of this node that want messages shown
        as to clients are some.
        """
        cdef Route route = self.route_of(of_bytes(subject), self._answered)
        cdef QueueGroup group
        cdef Py_ssize_t count = 0
        for group in route.groups:
            if not queue or group.queue == queue:
                count += count_clients(group.members) + len(group.distant)
        if not queue:
            count += count_clients(route.plain) + len(route.links)
        return count

    def unwritten_bytes(self, bytes subject not None):
        """The most that waits at one of the connections to which a message may go."""
        cdef Route route = self.route_of(of_bytes(subject), self._answered)
        cdef QueueGroup group
        cdef Endpoint link
        cdef Py_ssize_t most = most_unwritten(route.plain, 0)
        for group in route.groups:
            most = most_unwritten(group.distant, most_unwritten(group.members, most))
        for link in route.links:
            most = max(most, link.unwritten())
        return most

    def tell_clients(self, bytes subject not None, bytes payload not None, *, bytes block not None=b""):
        """Publish to the clients of this node's port, and to nothing else."""
        cdef Message message = message_of(of_bytes(subject), b"", block, payload)
        cdef Subscription subscription
        cdef QueueGroup group
        cdef Route route = self.route_of(message.subject, self._published)
        for subscription in route.plain:
            if subscription.endpoint.writes and not subscription.ended:
                subscription.endpoint.deliver(subscription, &message)
        for group in route.groups:
            members = [each for each in group.members if (<Subscription>each).endpoint.writes]
            subscription = self._member(members, None, True)
            if subscription is not None:
                subscription.endpoint.deliver(subscription, &message)

    def reply(self, bytes subject not None, bytes payload not None, *, bytes block not None=b""):
        """Publish an answer."""
        cdef Message message = message_of(of_bytes(subject), b"", block, payload)
        self._reply(&message)

    cdef int _reply(self, const Message* message) except -1:
        if not self.deliver(message, None, True) and self.fallback is not None:
            self.fallback.forward(message, None)
        return 0

    def acknowledge(self, bytes replies not None, bytes head not None, int64_t base_offset):
        """Give a positive ack to each packed reply; publications of those that are not for the router."""
        if not 0 <= base_offset < (1 << 63) - 1 - (1 << 32):
            raise ValueError(f"offset {base_offset} has no sequence")
        return self._answer_each(replies, head, base_offset + 1)

    def respond(self, bytes replies not None, bytes payload not None):
        """Publish ``payload`` at each packed reply; publications of those that are not for the router."""
        return self._answer_each(replies, payload, 0)

    cdef bytes _answer_each(self, bytes replies, bytes payload, int64_t base_sequence):
        """``base_sequence``: of a positive ack, whose head ``payload`` is; 0: ``payload`` is all."""
        cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(replies)
        cdef const uint8_t* end = start + len(replies)
        cdef const uint8_t* entry = start
        cdef Message message = message_of(literal(b"", 0), b"", b"", payload)
        cdef Py_ssize_t size = 0, payload_size
        cdef int64_t sequence = 0
        cdef Span reply
        cdef bytes lines
        cdef uint8_t* out
        while entry < end:  # checks them all, before any is answered
            reply = span(entry + ENTRY_BYTES, entry + ENTRY_BYTES + length_at(entry, end))
            if not is_routed(reply):
                payload_size = len(payload)
                if base_sequence:
                    payload_size += digits(base_sequence + delta_at(entry)) + 1
                size += LINE_BYTES + reply.size + digits(payload_size) + payload_size
            entry = reply.data + reply.size
        lines = PyBytes_FromStringAndSize(NULL, size)
        out = <uint8_t*>PyBytes_AS_STRING(lines)
        entry = start
        while entry < end:
            reply = span(entry + ENTRY_BYTES, entry + ENTRY_BYTES + length_at(entry, end))
            if base_sequence:
                sequence = base_sequence + delta_at(entry)
            if not is_routed(reply):
                out = put_publication(out, reply, message.payload, sequence)
            elif sequence:
                self.answer(span(reply.data + 1, reply.data + reply.size), message.payload, sequence)
            else:
                message.subject = span(reply.data + 1, reply.data + reply.size)
                self._reply(&message)
            entry = reply.data + reply.size
        return lines

    cdef int answer(self, Span reply, Span head, int64_t sequence) except -1:
        cdef Route route = self.route_of(reply, self._answered)
        cdef Subscription subscription = route.only
        cdef Message message
        cdef bytes payload
        if subscription is not None:
            return subscription.endpoint.answer(subscription, reply, head, sequence)
        if route.only_link is not None:
            return route.only_link.answer(None, reply, head, sequence)
        if self.fallback is not None and not route.plain and not route.groups and not route.links:
            return self.fallback.answer(None, reply, head, sequence)
        payload = ack_of(head, sequence)
        message = message_of(reply, b"", b"", payload)
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
                    self._end_turn_of(endpoint)
        finally:
            self._in_turn = False

    def write_early(self, Py_ssize_t size):
        """Have each endpoint to which at least ``size`` bytes are to be sent write them now, within the turn: those who
        read them work while the turn goes on.
        """
        cdef Endpoint endpoint
        cdef Py_ssize_t i = 0
        while i < len(self._writers):
            endpoint = self._writers[i]
            i += 1
            if endpoint.unwritten() >= size:
                self._end_turn_of(endpoint)

    cdef int _end_turn_of(self, Endpoint endpoint) except -1:
        try:
            endpoint.end_turn()
        except Exception as error:  # others must go on
            if self.failed is None:
                raise
            self.failed(error)
        return 0

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
        """What a client or the node itself says: to how many endpoints it went."""
        cdef Endpoint outer = self.source  # of the message within whose delivery this one is published
        cdef Route route = self.route_of(message.subject, self._published)
        cdef Subscription only = route.only
        self.source = source
        try:
            if only is None or message.trace != NULL:
                return self._deliver_to_all(route, message, source, echo)
            if echo or only.endpoint is not source:
                only.endpoint.deliver(only, message)
                return 1
            return 0
        finally:
            self.source = outer

    cdef int _deliver_to_all(
        self, Route route, const Message* message, Endpoint source, bint echo
    ) except -1:
        cdef Subscription subscription
        cdef QueueGroup group
        cdef dict queues = None
        cdef int count = 0
        for subscription in route.plain:
            if subscription.ended:
                continue
            if echo or subscription.endpoint is not source:
                hand_over(subscription, message)
                count += 1
            elif message.trace != NULL:
                (<DeliveryTrace>message.trace).add_echo(subscription)
        for group in route.groups:
            subscription = self._member(group.members, source, echo)
            if subscription is not None:
                hand_over(subscription, message)
                count += 1
                continue
            subscription = self._member(group.distant, source, True)
            if subscription is not None:
                if queues is None:
                    queues = {}
                queues.setdefault(subscription.endpoint, []).append(group.queue)
        if route.links or queues is not None:
            count += self._forward(route, message, queues)
        return count

    cdef int _forward(self, Route route, const Message* message, dict queues) except -1:
        """Once over each link; over how many."""
        cdef Endpoint link
        cdef list links = list(route.links)
        cdef int count = 0
        if queues is not None:
            links += [link for link in queues if link not in route.links]
        for link in links:
            if message.trace == NULL or (<DeliveryTrace>message.trace).add(link):
                link.forward(message, None if queues is None else queues.get(link))
                count += 1
        return count

    cdef int deliver_linked(
        self, const Message* message, const Message* shown, Endpoint source, list queues
    ) except -1:
        """What came over a link: to this node alone, so no message goes in circles. The other side has chosen
        which queue groups have a member here that gets it. ``shown``: as clients see it."""
        cdef Endpoint outer = self.source
        cdef Route route = self.route_of(message.subject, self._published)
        cdef Subscription subscription
        cdef QueueGroup group
        self.source = source
        try:
            for subscription in route.plain:
                if not subscription.ended:
                    show(subscription, message, shown)
            if queues is not None:
                for group in route.groups:
                    if group.queue in queues:
                        subscription = self._member(group.members, None, True)
                        if subscription is not None:
                            show(subscription, message, shown)
            return 0
        finally:
            self.source = outer

    cdef Subscription _member(self, list members, Endpoint source, bint echo):
        """A random one; None: there is none, or only the publisher's, which wants no echo."""
        cdef Py_ssize_t count = len(members), i, start
        cdef Subscription subscription
        if not count:
            return None
        self._chance ^= self._chance << 13
        self._chance ^= self._chance >> 7
        self._chance ^= self._chance << 17
        start = <Py_ssize_t>(self._chance % <uint64_t>count)
        for i in range(count):
            subscription = members[(start + i) % count]
            if not subscription.ended and (echo or subscription.endpoint is not source):
                return subscription
        return None

    cdef Route route_of(self, Span subject, Memo memo):
        cdef Py_ssize_t prefix_size
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
        if memo.stem is not None and goes_on(subject, memo.stem):
            return memo.route
        memo.subject = memo.prefix = memo.stem = None
        if 0 <= prefix_size < subject.size - 1:
            key = PyBytes_FromStringAndSize(<const char*>subject.data, prefix_size)
            found = self._by_prefix.get(key)
            if found is None:
                memo.stem = self._stem_of(key)
                if memo.stem is not None and goes_on(subject, memo.stem):
                    found = self._by_stem.get(memo.stem)
                    if found is None:
                        found = self._keep(self._by_stem, memo.stem, self._match(key))
                    memo.route = <Route>found
                    return memo.route
                memo.stem = None
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
        if len(key) > KEPT_BYTES_MAX:
            return found
        if len(kept) >= routes_max or self._routes_bytes >= routes_bytes_max:
            self._by_subject.clear()
            self._by_prefix.clear()
            self._by_stem.clear()
            self._routes_bytes = 0
        kept[key] = found
        self._routes_bytes += ROUTE_BYTES + len(key)
        if found is not False:
            self._routes_bytes += 8 * (<Route>found).size
        return found

    cdef bytes _stem_of(self, bytes subject):
        """The first tokens of a subject, where the route of all subjects that go on is the same, since no
        subscription has a token beyond these: some end there with ">", or none is left. None: there are none."""
        cdef list tokens = subject.split(b"."), levels = [self._root], below
        cdef bytes token
        cdef Level level, child
        cdef Py_ssize_t size = -1
        if b"" in tokens:
            return None
        for token in tokens:
            below = []
            for level in levels:
                if level.children or level.star is not None:
                    break
            else:
                return None if size <= 0 else subject[:size]
            for level in levels:
                if level.children is not None:
                    child = level.children.get(token)
                    if child is not None:
                        below.append(child)
                if level.star is not None:
                    below.append(level.star)
            levels = below
            size += 1 + len(token)
        return None

    cdef object _match_prefix(self, bytes prefix):
        """The route of all subjects with one more token; False: that token decides, too."""
        cdef list found = []
        cdef Level level
        for level in self._levels(prefix, found):
            if level.children:
                return False
            if level.rest:
                found.extend(level.rest)
            if level.star is not None and level.star.here:
                found.extend(level.star.here)
        return route_made(found)

    cdef Route _match(self, bytes subject):
        cdef list found = []
        cdef Level level
        for level in self._levels(subject, found):
            if level.here:
                found.extend(level.here)
        return route_made(found)

    cdef list _levels(self, bytes subject, list found):
        """At which the subject ends; ``found`` gets the subscriptions that match by a ">" before its end.
        None of them where it has an empty token."""
        cdef list tokens = subject.split(b".")
        cdef list levels = [self._root], below
        cdef bytes token
        cdef Level level, child
        if b"" in tokens:
            return []
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
        return levels

    cdef int _forget(self, bytes subject, list tokens) except -1:
        """The routes that a subscription which came or went may change."""
        cdef list watchers
        self.generation += 1
        if self._watchers:
            watchers, self._watchers = self._watchers, []
            for watcher in watchers:
                watcher()
        self._published.subject = self._published.prefix = self._published.stem = None
        self._answered.subject = self._answered.prefix = self._answered.stem = None
        self._by_stem.clear()
        if is_literal(tokens):
            self._by_subject.pop(subject, None)
            self._by_prefix.pop(subject.rpartition(b".")[0], None)
        else:
            self._by_subject.clear()
            self._by_prefix.clear()
            self._by_stem.clear()
            self._routes_bytes = 0
        return 0


cdef Route route_made(list subscriptions):
    cdef Route route = Route()
    cdef Subscription subscription
    cdef QueueGroup group
    cdef dict groups = {}
    route.size = len(subscriptions)
    route.plain = []
    route.links = []
    for subscription in subscriptions:
        if subscription.queue:
            group = groups.get(subscription.queue)
            if group is None:
                group = groups[subscription.queue] = QueueGroup()
                group.queue, group.members, group.distant = subscription.queue, [], []
            (group.distant if subscription.endpoint.is_link else group.members).append(subscription)
        elif subscription.endpoint.is_link:
            if subscription.endpoint not in route.links:
                route.links.append(subscription.endpoint)
        else:
            route.plain.append(subscription)
    route.groups = list(groups.values())
    if not route.groups:
        if len(route.plain) == 1 and not route.links:
            route.only = route.plain[0]
        elif not route.plain and len(route.links) == 1:
            route.only_link = route.links[0]
    return route


cdef bint goes_on(Span subject, bytes stem) noexcept:
    """Whether the subject has these tokens and then some, none of them empty."""
    cdef Py_ssize_t i, size = len(stem)
    if subject.size < size + 2 or subject.data[size] != 46:
        return False
    if memcmp(subject.data, PyBytes_AS_STRING(stem), size) != 0:
        return False
    for i in range(size, subject.size - 1):
        if subject.data[i] == 46 and subject.data[i + 1] == 46:
            return False
    return subject.data[subject.size - 1] != 46


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


cdef inline bint is_routed(Span reply) noexcept nogil:
    return reply.size > 0 and reply.data[0] == ROUTED


cdef inline uint8_t* put_publication(
    uint8_t* out, Span reply, Span payload, int64_t sequence
) noexcept nogil:
    """``sequence``: of a positive ack, whose head ``payload`` is; 0: ``payload`` is all."""
    cdef Py_ssize_t size = payload.size
    cdef int sequence_digits = 0
    if sequence:
        sequence_digits = digits(sequence)
        size += sequence_digits + 1
    out = put(out, b"PUB ", 4)
    out = put(out, reply.data, reply.size)
    out = put(out, b" ", 1)
    out = put_number(out, size, digits(size))
    out = put(out, b"\r\n", 2)
    out = put(out, payload.data, payload.size)
    if sequence:
        out = put_number(out, sequence, sequence_digits)
        out = put(out, b"}", 1)
    return put(out, b"\r\n", 2)
