# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Whether all that a message's headers ask for holds, compiled. ``publish_checks.pyi`` says what it means.

``Deduplicator.admit`` decides. This is its good case for the common headers: where one of the
checks here does not hold, or a header is not known here, nothing has changed and the message is
judged there. So a message is never refused here, and there is one place that says why one is.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcmp

from streamlog.ingest.admission.duplicate_window cimport DuplicateWindow
from streamlog.nats.lexer cimport number
from streamlog.record.compiled.codec cimport Span
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

SOURCES = STREAMLOG_SOURCES

cdef inline int64_t sequence_of(Span text) noexcept nogil:
    """-1: it is no number, or a long one, which is read in Python. An empty header is 0."""
    return number(text) if text.size else 0


@cython.final
cdef class PublishChecks:
    """Of one partition."""

    def __cinit__(self, stream, DuplicateWindow window not None, *, look, last_on):
        self._stream = stream.encode()
        self._window = window
        self._look = look
        self._last_on = last_on

    def see(
        self, *, bint is_open, int64_t log_end_offset, int64_t messages_end, int64_t now_ms,
        int default_policy,
    ):
        """What ``look`` found."""
        self._is_open = is_open
        self._log_end_offset = log_end_offset
        self._messages_end = messages_end
        self.now_ms = now_ms
        self.default_policy = default_policy

    cdef bint is_open(self, object reader, int64_t turn) except -1:
        """``turn``: of ``reader``; another one when Python code may have changed what was looked up."""
        if self._reader is not reader or self._turn != turn:
            self._look_up(reader, turn)
        return self._is_open

    cdef bint hold(
        self, const Asked* asked, Span subject, Py_ssize_t position, object reader, int64_t turn
    ) except -1:
        """Its id is in the window then."""
        cdef int64_t offset, before
        cdef uint32_t hashed = 0
        cdef DuplicateWindow window = self._window
        if asked.is_odd or not self.is_open(reader, turn):
            return False
        offset = self._log_end_offset + position
        before = offset if position else self._messages_end
        if asked.stream.size > 0 and not (
            asked.stream.size == len(self._stream)
            and not memcmp(asked.stream.data, PyBytes_AS_STRING(self._stream), asked.stream.size)
        ):
            return False
        if asked.subject_sequence.size > 0 and not self._is_last_on(asked.subject_sequence, subject):
            return False
        if asked.last_sequence.size > 0 and not (
            before <= sequence_of(asked.last_sequence) <= offset
        ):
            return False
        if asked.message_id.size > 0:
            window.expire_to(self.now_ms)
            hashed = window.hash_of(asked.message_id)
            if window._count >= window.ids_max or window.find_hashed(asked.message_id, hashed) >= 0:
                return False
        if asked.last_message_id.size > 0 and not window.is_last(asked.last_message_id, before - 1):
            return False
        if asked.message_id.size > 0:
            return self._take_id(asked.message_id, hashed, offset)
        return True

    cdef bint _is_last_on(self, Span expected, Span subject) except -1:
        cdef int64_t sequence = sequence_of(expected)
        if sequence < 0:
            return False
        try:
            last = self._last_on(PyBytes_FromStringAndSize(<const char*>subject.data, subject.size))
        except Exception:
            return False  # judging the message in Python meets it as well, and reports it
        return last is not None and <int64_t>last == sequence

    cdef bint _take_id(self, Span message_id, uint32_t hashed, int64_t offset) except -1:
        try:
            self._window.add_hashed(message_id, hashed, offset, self.now_ms, True)
        except MemoryError:
            return False
        return True

    cdef int _look_up(self, object reader, int64_t turn) except -1:
        self._is_open = False
        self._reader, self._turn = reader, turn
        self.look += 1
        try:
            self._look(self)
        except Exception:
            self._is_open = False  # judging the message in Python meets it as well, and reports it
        return 0
