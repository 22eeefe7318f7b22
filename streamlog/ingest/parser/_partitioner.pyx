# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Which partition a message is for, compiled. ``_partitioner.pyi`` says what it means."""

from libc.stdint cimport uint8_t

from streamlog.ingest.parser._buffer cimport add, clear, release
from streamlog.ingest.parser._collector cimport Headers, RecordCollector, Message, is_like_an_envelope
from streamlog.ingest.parser._spans cimport find, of_bytes, span, to_bytes
from streamlog.record._codec cimport Span
from streamlog.record._murmur2 cimport hashed
from streamlog.record._sources cimport STREAMLOG_SOURCES

SOURCES = STREAMLOG_SOURCES


cdef class Partitioner:
    """The messages of one stream, which come by the same subscription, to its partitions' inflows."""

    def __cinit__(self, *, tokens=(), envelope_key=None):
        self.tokens = tuple(tokens)
        self.envelope_key = envelope_key
        self._inflows = []

    def __dealloc__(self):
        release(&self._chosen)

    def share(self, inflows):
        """By partition; None: its messages are none of ours."""
        shared = []
        for inflow in inflows:
            if not (inflow is None or isinstance(inflow, RecordCollector)):
                raise TypeError(f"{inflow!r} is no inflow")
            shared.append(inflow)
        self._inflows = shared

    cdef RecordCollector choose(self, Message* message, Headers headers):
        """None: it is none of ours."""
        if not self._inflows:
            return None
        if self.tokens:
            return self._hashed(self._by_tokens(message.subject))
        if message.block.size or is_like_an_envelope(message.payload):
            return self._by_key(message, headers)
        return self._hashed(message.subject)

    cdef Span _by_tokens(self, Span subject) except *:
        cdef Py_ssize_t wanted
        cdef bint is_first = True
        clear(&self._chosen)
        for wanted in self.tokens:
            if self._add_token(subject, wanted, is_first):
                is_first = False
        return span(self._chosen.start, self._chosen.start + self._chosen.size)

    cdef bint _add_token(self, Span subject, Py_ssize_t wanted, bint is_first) except -1:
        """The one of this number, from 1; False if there are fewer."""
        cdef const uint8_t* end = subject.data + subject.size
        cdef const uint8_t* start = subject.data
        cdef const uint8_t* dot = find(start, end, 46)
        cdef Py_ssize_t number
        for number in range(1, wanted):
            if dot == NULL:
                return False
            start = dot + 1
            dot = find(start, end, 46)
        if not is_first:
            add(&self._chosen, b".", 1)
        add(&self._chosen, start, (end if dot == NULL else dot) - start)
        return True

    cdef RecordCollector _by_key(self, Message* message, Headers headers):
        cdef bytes key
        headers.take(message)
        if self.envelope_key is not None and is_like_an_envelope(message.payload):
            key = None if headers.key.size < 0 else to_bytes(headers.key)
            key = self.envelope_key(to_bytes(message.payload), key)
            return self._hashed(message.subject if key is None else of_bytes(key))
        return self._hashed(message.subject if headers.key.size < 0 else headers.key)

    cdef RecordCollector _hashed(self, Span chosen):
        cdef Py_ssize_t number = (hashed(chosen.data, chosen.size) & 0x7FFFFFFF) % len(self._inflows)
        return <RecordCollector>self._inflows[number]
