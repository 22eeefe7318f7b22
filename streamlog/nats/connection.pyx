# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""One connection of the NATS protocol: frames out of the pieces that a socket brings, and lines for it.
``connection.pyi`` says what it means.

Memory: a frame points into the bytes of the feed under way, or into ``_rest``, which does not move while a
frame in it is carried out: a feed within a feed is refused. No byte is looked at twice, however small the
pieces.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp

from streamlog.nats.lexer cimport add, clear, find, number, release, reserve, span
from streamlog.nats.router cimport Endpoint, Message, message_with
from streamlog.record.compiled.codec cimport Span
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

import os

from streamlog.errors import FrameTooLarge, MalformedFrame

cdef extern from *:
    """
    #ifdef _WIN32
    static Py_ssize_t socket_receive(int fd, void *data, size_t size) { return -1; }
    static Py_ssize_t socket_send(int fd, const void *data, size_t size) { return -1; }
    #else
    #include <sys/types.h>
    #include <sys/socket.h>
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif
    static Py_ssize_t socket_receive(int fd, void *data, size_t size) { return recv(fd, data, size, 0); }
    static Py_ssize_t socket_send(int fd, const void *data, size_t size) {
        return send(fd, data, size, MSG_NOSIGNAL);
    }
    #endif
    """
    Py_ssize_t socket_receive(int fd, void* data, size_t size) nogil
    Py_ssize_t socket_send(int fd, const void* data, size_t size) nogil

SOURCES = STREAMLOG_SOURCES

cdef enum:
    WRITTEN_BYTES_KEPT = 262_144  # of the memory for what is to be written, while nothing is
    SUSPENDED_BYTES_MAX = 1_048_576  # of what waits for a login; a read may bring half of that
    LONG_BYTES = 16_384  # for less it is not worth it to let other threads run meanwhile


cdef class Connection(Endpoint):
    """A subclass knows the frames. Not thread-safe; all is on one event loop."""

    def __init__(
        self, router, *, int fd=-1, int64_t line_bytes_max=4096, int64_t payload_bytes_max=1_048_576,
        int64_t pending_bytes_max=67_108_864
    ):
        self.writes = True
        self.fd = fd
        self.line_bytes_max = line_bytes_max
        self.payload_bytes_max = payload_bytes_max
        self.pending_bytes_max = pending_bytes_max
        self.domain_prefix = b""
        self._pings = []

    def __dealloc__(self):
        release(&self._rest)
        release(&self.out)

    @property
    def pings_outstanding(self):
        return len(self._pings)

    @property
    def pending_bytes(self):
        return self.out.size - self._sent

    cdef Py_ssize_t unwritten(self) except -1:
        return self.out.size - self._sent + self.sealed_bytes

    # What comes

    def receive(self, uint8_t[::1] buffer not None):
        """Read the socket once; how many bytes there were: 0 at its end, -1 where nothing is there yet."""
        cdef Py_ssize_t count = -1
        cdef int error = EINTR
        while count < 0 and error == EINTR:
            count = socket_receive(self.fd, &buffer[0], buffer.shape[0])
            error = errno
        if count < 0:
            if error == EAGAIN:
                return -1
            raise OSError(error, os.strerror(error))
        if count:
            self.bytes_in += count
            self._take(&buffer[0], count)
        return count

    def feed(self, const uint8_t[::1] data not None):
        """Carry out what the peer says."""
        if data.shape[0]:
            self.bytes_in += data.shape[0]
            self._take(&data[0], data.shape[0])

    def suspend(self):
        """Carry out nothing more before ``resume``."""
        self.is_suspended = True

    def resume(self):
        """Carry out what came since."""
        cdef bytes waiting
        if not self.is_suspended or self.is_closed:
            return
        self.is_suspended = False
        if self._rest.size and not self._feeding:
            waiting = self.take_rest()
            self._take(<const uint8_t*>PyBytes_AS_STRING(waiting), len(waiting))

    def take_rest(self):
        """What came and was not carried out; for another connection over the same socket."""
        cdef bytes waiting = PyBytes_FromStringAndSize(<const char*>self._rest.start, self._rest.size)
        clear(&self._rest)
        self.needed = 0
        return waiting

    cdef int _take(self, const uint8_t* start, Py_ssize_t size) except -1:
        """Carry out the frames, or keep them while it is suspended. What is no frame ends the connection."""
        cdef const uint8_t* end = start + size
        cdef Py_ssize_t used
        if self.is_closed:
            return 0
        if self._feeding:
            raise RuntimeError("a feed within a feed")
        self._feeding = True
        try:
            while self._rest.size and start < end and not self.is_suspended:
                start += self._complete(start, end - start)
            while not self._rest.size and start < end and not self.is_suspended:
                used = self.frame(start, end)
                if not used:
                    break
                start += used
            if start < end:
                if self.is_suspended and self._rest.size + (end - start) > SUSPENDED_BYTES_MAX:
                    raise FrameTooLarge("")  # nothing has proved yet that the peer may say so much
                if self.needed:
                    reserve(&self._rest, self.needed - self._rest.size)
                add(&self._rest, start, end - start)
        except (MalformedFrame, FrameTooLarge) as error:
            self._feeding = False
            self.is_suspended = True  # what follows has no meaning
            self.session.violated(error)
        finally:
            self._feeding = False
        return 0

    cdef int check_line(self, Py_ssize_t size) except -1:
        """Checks the length of a line whose line feed has not come."""
        if size > self.line_bytes_max + 1:
            raise FrameTooLarge(f"line of more than {self.line_bytes_max} bytes")
        return 0

    cdef Py_ssize_t frame(self, const uint8_t* start, const uint8_t* end) except -1:
        """The size of the frame at ``start``, which is carried out; 0 if its end is to come: ``needed`` is
        its size then, or 0 where its line has no end yet."""
        raise NotImplementedError

    cdef bint take_line(self, const uint8_t* start, const uint8_t* end, Line* line) except -1:
        """Takes apart the line of the frame at ``start``; False if the line is not complete. The caller checks
        the length of a complete line."""
        cdef const uint8_t* line_feed = find(start, end, 10)
        cdef const uint8_t* at = start
        self.needed = 0
        if line_feed == NULL:
            self.check_line(end - start)
            return False
        line.start = start
        line.body = line_feed + 1
        line.end = line_feed
        if line_feed > start and (line_feed - 1)[0] == 13:
            line.end = line_feed - 1
        while at < line.end and at[0] != 32 and at[0] != 9:
            at += 1
        line.word = span(start, at)
        line.fields = at
        return True

    cdef Py_ssize_t take_body(
        self, const uint8_t* start, const uint8_t* body, const uint8_t* end, const Span* sizes, bint has_headers,
        Span subject, Span reply, Message* message
    ) except -1:
        """The size of the frame at ``start``, a message whose ``body`` follows its line; 0 if the end of the frame
        is to come. ``sizes``: the last field of the line, or the last two if the message has headers."""
        cdef int64_t head = number(sizes[0]) if has_headers else 0
        cdef int64_t total = number(sizes[has_headers])
        cdef const uint8_t* body_end
        if not 0 <= head <= total:
            self.refuse_body(BodyFault.NO_SIZE, total)
        if total > self.payload_bytes_max:
            self.refuse_body(BodyFault.TOO_LARGE, total)
        if total + 2 > end - body:
            self.needed = body - start + total + 2
            return 0
        body_end = body + total
        if body_end[0] != 13 or body_end[1] != 10:
            self.refuse_body(BodyFault.NO_CRLF, total)
        message[0] = message_with(self.mapped(subject), reply, span(body, body + head), span(body + head, body_end))
        self.messages_in += 1
        return body_end + 2 - start

    cdef Span mapped(self, Span subject) except *:
        """The subject by which the message is routed: that of a bucket's key without the domain."""
        cdef Py_ssize_t size = len(self.domain_prefix)
        cdef const uint8_t* at = subject.data + size
        if size and subject.size > size + 4 and at[0] == 36 and memcmp(
            subject.data, PyBytes_AS_STRING(self.domain_prefix), size
        ) == 0 and (
            memcmp(at, b"$KV.", 4) == 0 or subject.size > size + 5 and memcmp(at, b"$OBJ.", 5) == 0
        ):
            return span(at, subject.data + subject.size)
        return subject

    cdef int refuse_body(self, BodyFault fault, int64_t size) except -1:
        """Always raises."""
        if fault == BodyFault.TOO_LARGE:
            raise FrameTooLarge(f"message of {size} bytes, limit {self.payload_bytes_max}")
        if fault == BodyFault.NO_CRLF:
            raise MalformedFrame("payload does not end with CRLF")
        raise MalformedFrame("a message without its size")

    cdef Py_ssize_t _complete(self, const uint8_t* data, Py_ssize_t size) except -1:
        """Add to the rest until it is a frame; how many bytes that took."""
        cdef const uint8_t* found
        cdef Py_ssize_t used = 0, more
        if not self.needed:
            found = find(data, data + size, 10)
            used = size if found == NULL else found + 1 - data
            add(&self._rest, data, used)
            if found == NULL:
                self.check_line(self._rest.size)
                return used
            if self._frame_of_rest():
                return used
        more = min(self.needed - self._rest.size, size - used)
        add(&self._rest, data + used, more)
        if self._rest.size == self.needed:
            self._frame_of_rest()
        return used + more

    cdef bint _frame_of_rest(self) except -1:
        """Carry out the rest if it is a frame; whether it was."""
        cdef const uint8_t* start = self._rest.start
        if not self.frame(start, start + self._rest.size):
            if self.needed:
                reserve(&self._rest, self.needed - self._rest.size)
            return False
        self.needed = 0
        clear(&self._rest)
        return True

    # What is sent

    cdef int wrote(self) except -1:
        """Something was added to ``out``."""
        cdef Py_ssize_t pending = self.out.size - self._sent
        cdef Endpoint source = self.router.source
        if not self.is_touched:
            self.router.touch(self)
        if pending > self.pending_bytes_max:
            self.session.too_slow()
        elif pending > self.pending_bytes_max // 2 and source is not None and source is not self and not (
            source.is_stalled
        ):
            source.is_stalled = True
            self.router.stalled.append((source, self))
        return 0

    cdef int put_bytes(self, const char* data, Py_ssize_t size) except -1:
        if self.is_closed:
            return 0
        add(&self.out, <const uint8_t*>data, size)
        return self.wrote()

    def send(self, bytes data not None):
        """Whole lines of the protocol."""
        self.put_bytes(<const char*>data, len(data))

    def ping(self):
        """The session hears of the answer."""
        self._pings.append(0)
        self.put_bytes(b"PING\r\n", 6)

    def expect_pongs(self, Py_ssize_t count):
        """The answers to PINGs of another connection over the same socket are still to come."""
        self._pings += [0] * count

    cdef int put_mark(self, int64_t mark) except -1:
        self._pings.append(mark)
        return self.put_bytes(b"PING\r\n", 6)

    cdef int take_pong(self) except -1:
        """Answers come in the order of the PINGs. One that no PING asked for answers nothing."""
        cdef int64_t mark = self._pings.pop(0) if self._pings else 0
        if mark:
            self.passed = mark
        else:
            self.session.ponged()
        return 0

    def put_error(self, str text not None):
        """One of nats-server's words."""
        self.send(f"-ERR '{text}'\r\n".encode())

    cdef int end_turn(self) except -1:
        if self.flushed is not None:
            self.flushed()
        elif self.fd >= 0 and not self.is_blocked:
            self.flush()
        return 0

    def flush(self):
        """Write to the socket what it takes; whether that was all."""
        cdef Py_ssize_t count, size
        cdef int error
        while self._sent < self.out.size and not self.is_closed:
            size = self.out.size - self._sent
            if size > LONG_BYTES:
                with nogil:
                    count = socket_send(self.fd, self.out.start + self._sent, size)
                    error = errno
            else:
                count = socket_send(self.fd, self.out.start + self._sent, size)
                error = errno
            if count < 0:
                if error == EINTR:
                    continue
                if error == EAGAIN:
                    if not self.is_blocked:
                        self.is_blocked = True
                        self.blocked()
                    return False
                self.session.broken(OSError(error, os.strerror(error)))
                return False
            self._sent += count
            self.bytes_out += count
        self.is_blocked = False
        self._written()
        return True

    def take_output(self):
        """What is to be written, where something else writes it."""
        cdef bytes data = PyBytes_FromStringAndSize(
            <const char*>self.out.start + self._sent, self.out.size - self._sent
        )
        self.bytes_out += len(data)
        self._sent = self.out.size
        self._written()
        return data

    cdef int _written(self) except -1:
        self.out.size = self._sent = 0
        if self.out.capacity > WRITTEN_BYTES_KEPT:
            release(&self.out)
        return 0

    def close(self):
        """Take and send nothing more."""
        if self.is_closed:
            return
        self.is_closed = self.is_suspended = True
        if not self._feeding:
            release(&self._rest)
        release(&self.out)
        self._sent = 0
