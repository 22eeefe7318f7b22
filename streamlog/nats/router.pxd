"""Subscriptions and where messages go, for compiled code that brings messages or takes them."""

from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t

from streamlog.record.compiled.codec cimport Span


cdef struct Message:
    Span subject
    Span reply
    Span block  # of headers, from NATS/1.0 to the empty line
    Span payload
    PyObject* trace  # a borrowed DeliveryTrace; NULL: it is not traced
    bint is_routed  # its reply goes through the router, not over the link that it came by
    int64_t passed  # the newest mark that had come back before it, over the connection that brought it;
    # INT64_MAX: it begins at this node


cdef inline Message message_with(Span subject, Span reply, Span block, Span payload) noexcept nogil:
    """Every message is made here, so that no field is left without a value."""
    cdef Message made
    made.subject = subject
    made.reply = reply
    made.block = block
    made.payload = payload
    made.trace = NULL
    made.is_routed = True
    made.passed = INT64_MAX
    return made


cdef class Endpoint:
    cdef readonly Router router
    cdef bint sees_shown  # it gets messages as clients see them
    cdef bint writes  # to a socket: its turn ends after that of those that make answers
    cdef bint is_link  # to other servers: a message goes there once, whatever matches
    cdef bint is_touched  # it is in one of the router's lists
    cdef int64_t passed  # of the router's marks, the newest that has come back over it
    cdef public bint is_stalled  # what it brings waits for those that it is for

    cdef int deliver(self, Subscription subscription, const Message* message) except -1
    cdef int answer(
        self, Subscription subscription, Span reply, Span head, int64_t sequence
    ) except -1
    cdef int end_turn(self) except -1
    cdef int forward(self, const Message* message, list queues) except -1
    cdef int tell_interest(self, bytes subject, bytes queue, Py_ssize_t count) except -1
    cdef int put_mark(self, int64_t mark) except -1
    cdef Py_ssize_t unwritten(self) except -1


cdef class Subscription:
    cdef readonly bytes subject
    cdef readonly bytes queue  # empty: it is in no queue group
    cdef readonly bytes sid
    cdef readonly object target
    cdef readonly Endpoint endpoint
    cdef int64_t delivered_max  # 0: no limit
    cdef int64_t delivered
    cdef bint ended


cdef class DeliveryTrace:
    cdef readonly bint is_only
    cdef readonly list deliveries
    cdef public str refusal

    cdef bint add(self, object receiver) except -1
    cdef int add_echo(self, Subscription subscription) except -1


cdef class QueueGroup:
    cdef readonly bytes queue
    cdef readonly list members  # of this node
    cdef readonly list distant  # behind links


cdef class Route:
    cdef readonly list plain  # subscriptions of this node
    cdef readonly list groups
    cdef readonly list links  # that have a plain subscription
    cdef Subscription only  # where there is one plain subscription and nothing else
    cdef Py_ssize_t size  # how many subscriptions
    cdef Endpoint only_link  # where there is one link and nothing else


cdef class Memo:
    cdef bytes subject  # of the last message
    cdef bytes prefix  # the last subject up to its last dot, where only that decides
    cdef bytes stem  # the tokens with which the last subject begins, where only these decide
    cdef Route route


cdef class Router:
    cdef object _root
    cdef readonly Py_ssize_t count
    cdef readonly uint64_t generation
    cdef public object wake
    cdef public object failed
    cdef readonly Endpoint source
    cdef public Endpoint fallback
    cdef bint _in_turn
    cdef dict _by_subject
    cdef dict _by_prefix
    cdef dict _by_stem
    cdef Py_ssize_t _routes_bytes  # of both, about, or more
    cdef Memo _published
    cdef Memo _answered
    cdef public list stalled
    cdef readonly int64_t marks  # how many there were
    cdef list _marked  # what they go over
    cdef list _links
    cdef dict _interest  # how many subscriptions of this node, by subject, or by subject and queue group
    cdef list _watchers  # told once when a subscription comes or goes
    cdef list _takers
    cdef list _writers
    cdef uint64_t _chance

    cdef Route route_of(self, Span subject, Memo memo)
    cdef int deliver(self, const Message* message, Endpoint source, bint echo) except -1
    cdef int _deliver_to_all(
        self, Route route, const Message* message, Endpoint source, bint echo
    ) except -1
    cdef int deliver_linked(
        self, const Message* message, const Message* shown, Endpoint source, list queues
    ) except -1
    cdef int deliver_shown(self, const Message* message, const Message* shown) except -1
    cdef int _deliver_shown(self, Route route, const Message* message, const Message* shown) except -1
    cdef int _forward(self, Route route, const Message* message, dict queues) except -1
    cdef int _count_interest(self, Subscription subscription, int change) except -1
    cdef int _end_turn_of(self, Endpoint endpoint) except -1
    cdef int touch(self, Endpoint endpoint) except -1
    cdef int _reply(self, const Message* message) except -1
    cdef bytes _answer_each(self, bytes replies, bytes payload, int64_t base_sequence)
    cdef int answer(self, Span reply, Span head, int64_t sequence) except -1
    cdef Subscription _member(self, list members, Endpoint source, bint echo)
    cdef object _keep(self, dict kept, bytes key, object found)
    cdef bytes _stem_of(self, bytes subject)
    cdef object _match_prefix(self, bytes prefix)
    cdef Route _match(self, bytes subject)
    cdef list _levels(self, bytes subject, list found)
    cdef int _forget(self, bytes subject, list tokens) except -1


cdef bint is_subject(bytes subject)
