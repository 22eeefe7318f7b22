# Which partition takes a message: by the hash of its key, or of tokens of its subject (Kafka's
# default partitioner). A part of frames.pyx, so that a message costs no call into another module.

@cython.final
cdef class Partitioner:
    """The messages of one stream, which come by the same subscription, to its partitions' collectors."""

    cdef public tuple tokens
    cdef public object envelope_key
    cdef list _collectors
    cdef list _own  # of messages of this node's own clients
    cdef Buffer _chosen  # tokens of the subject, joined

    def __cinit__(self, *, tokens=(), envelope_key=None):
        self.tokens = tuple(tokens)
        self.envelope_key = envelope_key
        self._collectors = self._own = []

    def __dealloc__(self):
        release(&self._chosen)

    def share(self, collectors, own=None):
        """By partition; None: its messages are none of ours. ``own``: of messages of this node's own clients,
        if that differs."""
        self._collectors = checked_collectors(collectors)
        self._own = self._collectors if own is None else checked_collectors(own)
        if len(self._own) != len(self._collectors):
            raise ValueError("there are as many partitions for this node's clients")

    cdef RecordCollector choose(self, Message* message, Headers headers, bint is_own):
        """None: it is none of ours."""
        cdef Py_ssize_t number
        if not self._collectors:
            return None
        if self.tokens:
            number = self._hashed(self._by_tokens(message.subject))
        elif message.block.size or is_like_an_envelope(message.payload):
            number = self._by_key(message, headers)
        else:
            number = self._hashed(message.subject)
        return <RecordCollector>(self._own if is_own else self._collectors)[number]

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

    cdef Py_ssize_t _by_key(self, Message* message, Headers headers) except -1:
        cdef bytes key
        cdef PlainEnvelope envelope
        cdef int i
        headers.take(message)
        if self.envelope_key is not None and is_like_an_envelope(message.payload):
            if read_envelope(message.payload, &envelope):
                for i in range(envelope.pair_count):
                    if headers.key.size < 0 and is_word(envelope.names[i], b"streamlog-key", 13):
                        headers.key = envelope.contents[i]
                if envelope.key.size:
                    headers.key = envelope.key
                return self._hashed(message.subject if headers.key.size < 0 else headers.key)
            key = None if headers.key.size < 0 else to_bytes(headers.key)
            key = self.envelope_key(to_bytes(message.payload), key)
            return self._hashed(message.subject if key is None else of_bytes(key))
        return self._hashed(message.subject if headers.key.size < 0 else headers.key)

    cdef Py_ssize_t _hashed(self, Span chosen) except -1:
        return (hashed(chosen.data, chosen.size) & 0x7FFFFFFF) % len(self._collectors)


cdef list checked_collectors(collectors):
    found = list(collectors)
    for collector in found:
        if not (collector is None or isinstance(collector, RecordCollector)):
            raise TypeError(f"{collector!r} is no collector")
    return found
