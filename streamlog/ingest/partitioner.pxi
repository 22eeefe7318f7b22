# Which partition takes a message: by the hash of its key, or of tokens of its subject (Kafka's
# default partitioner). A part of frames.pyx, so that a message costs no call into another module.

@cython.final
cdef class Partitioner:
    """The messages of one stream, which come by the same subscription, to its partitions' collectors."""

    cdef public tuple tokens
    cdef public object envelope_key
    cdef list _collectors
    cdef Buffer _chosen  # tokens of the subject, joined

    def __cinit__(self, *, tokens=(), envelope_key=None):
        self.tokens = tuple(tokens)
        self.envelope_key = envelope_key
        self._collectors = []

    def __dealloc__(self):
        release(&self._chosen)

    def share(self, collectors):
        """By partition; None: its messages are none of ours."""
        shared = []
        for collector in collectors:
            if not (collector is None or isinstance(collector, RecordCollector)):
                raise TypeError(f"{collector!r} is no collector")
            shared.append(collector)
        self._collectors = shared

    cdef RecordCollector choose(self, Message* message, Headers headers):
        """None: it is none of ours."""
        if not self._collectors:
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

    cdef RecordCollector _hashed(self, Span chosen):
        cdef Py_ssize_t number = (hashed(chosen.data, chosen.size) & 0x7FFFFFFF) % len(self._collectors)
        return <RecordCollector>self._collectors[number]
