"""What the frame parser needs of a spread."""

cimport cython

from streamlog.ingest._buffer cimport Buffer
from streamlog.ingest._inflow cimport Headers, Inflow, Message
from streamlog.record._codec cimport Span


@cython.final
cdef class Spread:
    cdef public tuple tokens
    cdef public object envelope_key
    cdef list _inflows
    cdef Buffer _chosen  # tokens of the subject, joined

    cdef Inflow choose(self, Message* message, Headers headers)
    cdef Span _by_tokens(self, Span subject) except *
    cdef bint _add_token(self, Span subject, Py_ssize_t wanted, bint is_first) except -1
    cdef Inflow _by_key(self, Message* message, Headers headers)
    cdef Inflow _hashed(self, Span chosen)
