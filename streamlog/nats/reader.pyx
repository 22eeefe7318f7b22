# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Frames out of the pieces that a socket brings. ``reader.pyi`` says what it means.

Memory: a frame points into the bytes of the feed under way, or into ``rest``, which does not move while a
frame in it is parsed: a feed within a feed is refused. No byte is looked at twice, however small the pieces.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t

from streamlog.nats.lexer cimport Buffer, add, clear, find, release, reserve
from streamlog.nats.router cimport Endpoint, Router
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

from streamlog.errors import FrameTooLarge

SOURCES = STREAMLOG_SOURCES


cdef class FrameReader(Endpoint):
    """One direction of a connection; a subclass knows its frames."""

    def __dealloc__(self):
        release(&self.rest)

    cdef int feed_bytes(self, const uint8_t* start, Py_ssize_t size) except -1:
        cdef const uint8_t* end = start + size
        cdef Py_ssize_t used
        if self._feeding:
            raise RuntimeError("a feed within a feed")
        if self.is_suspended:
            add(&self.rest, start, size)
            return 0
        self._feeding = True
        try:
            while self.rest.size and start < end and not self.is_suspended:
                start += self._complete(start, end - start)
            if not self.rest.size:
                while start < end and not self.is_suspended:
                    used = self.frame(start, end)
                    if not used:
                        break
                    start += used
            if start < end:
                if self.needed:
                    reserve(&self.rest, self.needed - self.rest.size)
                add(&self.rest, start, end - start)
        finally:
            self._feeding = False
        return 0

    cdef int resume_reading(self) except -1:
        """Parse what came while reading was suspended."""
        cdef bytes waiting
        self.is_suspended = False
        if self.rest.size and not self._feeding:
            waiting = PyBytes_FromStringAndSize(<const char*>self.rest.start, self.rest.size)
            clear(&self.rest)
            self.needed = 0
            self.feed_bytes(<const uint8_t*>PyBytes_AS_STRING(waiting), len(waiting))
        return 0

    cdef int check_line(self, Py_ssize_t size) except -1:
        """Of a line without its line feed, which may be to come."""
        if size > self.line_bytes_max + 1:
            raise FrameTooLarge(f"line of more than {self.line_bytes_max} bytes")
        return 0

    cdef Py_ssize_t frame(self, const uint8_t* start, const uint8_t* end) except -1:
        """The size of the frame at ``start``, which is carried out; 0 if its end is to come: ``needed`` is
        its size then, or 0 where its line has no end yet."""
        raise NotImplementedError

    cdef Py_ssize_t _complete(self, const uint8_t* data, Py_ssize_t size) except -1:
        """Add to the rest until it is a frame; how many bytes that took."""
        cdef const uint8_t* found
        cdef Py_ssize_t used = 0, more
        if not self.needed:
            found = find(data, data + size, 10)
            used = size if found == NULL else found + 1 - data
            add(&self.rest, data, used)
            if found == NULL:
                self.check_line(self.rest.size)
                return used
            if self._frame_of_rest():
                return used
        more = min(self.needed - self.rest.size, size - used)
        add(&self.rest, data + used, more)
        if self.rest.size == self.needed:
            self._frame_of_rest()
        return used + more

    cdef bint _frame_of_rest(self) except -1:
        """Carry out the rest if it is a frame; whether it was."""
        cdef const uint8_t* start = self.rest.start
        if not self.frame(start, start + self.rest.size):
            if self.needed:
                reserve(&self.rest, self.needed - self.rest.size)
            return False
        self.needed = 0
        clear(&self.rest)
        return True
