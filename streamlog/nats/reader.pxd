"""Frames out of the pieces that a socket brings, for compiled code that knows what is in them."""

from libc.stdint cimport uint8_t

from streamlog.nats.lexer cimport Buffer
from streamlog.nats.router cimport Endpoint


cdef class FrameReader(Endpoint):
    cdef Buffer rest  # the beginning of a frame of which the end is still to come
    cdef Py_ssize_t needed  # the size of that frame, where its line is there; else 0
    cdef Py_ssize_t line_bytes_max
    cdef bint is_suspended  # frames wait in ``rest``
    cdef bint _feeding

    cdef int feed_bytes(self, const uint8_t* start, Py_ssize_t size) except -1
    cdef int resume_reading(self) except -1
    cdef int check_line(self, Py_ssize_t size) except -1
    cdef Py_ssize_t frame(self, const uint8_t* start, const uint8_t* end) except -1
    cdef Py_ssize_t _complete(self, const uint8_t* data, Py_ssize_t size) except -1
    cdef bint _frame_of_rest(self) except -1
