"""What the frame parser needs of a spread."""

cimport cython

from streamlog.ingest.parser._buffer cimport Buffer
from streamlog.ingest.parser._collector cimport Headers, RecordCollector, Message
from streamlog.record._codec cimport Span


@cython.final
cdef class Partitioner:
    cdef public tuple tokens
    cdef public object envelope_key
    cdef list _inflows
    cdef Buffer _chosen  # tokens of the subject, joined

    cdef RecordCollector choose(self, Message* message, Headers headers)
    cdef Span _by_tokens(self, Span subject) except *
    cdef bint _add_token(self, Span subject, Py_ssize_t wanted, bint is_first) except -1
    cdef RecordCollector _by_key(self, Message* message, Headers headers)
    cdef RecordCollector _hashed(self, Span chosen)
