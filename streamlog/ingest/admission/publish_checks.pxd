"""What a message's headers ask for, and whether all of it holds, for the compiled parser."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp

from streamlog.ingest.admission.duplicate_window cimport DuplicateWindow
from streamlog.record.compiled.codec cimport Span


cdef struct Asked:
    bint is_odd  # it asks for more than the rest here says
    Span message_id  # of each of these, size -1: there is no such header
    Span stream
    Span last_sequence
    Span last_message_id
    Span subject_sequence


cdef inline void ask_nothing(Asked* asked) noexcept nogil:
    asked.is_odd = False
    asked.message_id.size = asked.stream.size = -1
    asked.last_sequence.size = asked.last_message_id.size = asked.subject_sequence.size = -1


cdef inline bint is_name(Span name, const char* text, Py_ssize_t size) noexcept nogil:
    return name.size == size and memcmp(name.data, text, size) == 0


cdef inline void note_asked(Asked* asked, Span name, Span content) noexcept nogil:
    """A header that may ask for something. Names match exactly; one that is not known here, comes
    again or has a line end in its value is for ``publish_headers`` to read.
    """
    cdef Span* place
    if is_name(name, b"Nats-Msg-Id", 11):
        place = &asked.message_id
    elif is_name(name, b"Nats-Expected-Last-Sequence", 27):
        place = &asked.last_sequence
    elif is_name(name, b"Nats-Expected-Stream", 20):
        place = &asked.stream
    elif is_name(name, b"Nats-Expected-Last-Msg-Id", 25):
        place = &asked.last_message_id
    elif is_name(name, b"Nats-Expected-Last-Subject-Sequence", 35):
        place = &asked.subject_sequence
    else:
        asked.is_odd = True
        return
    if place.size >= 0 or (
        content.size > 0
        and (memchr(content.data, 10, content.size) or memchr(content.data, 13, content.size))
    ):
        asked.is_odd = True
        return
    while content.size > 0 and (content.data[0] == 32 or content.data[0] == 9):
        content.data += 1
        content.size -= 1
    place[0] = content


cdef class PublishChecks:
    cdef DuplicateWindow _window
    cdef bytes _stream
    cdef object _look
    cdef object _last_on
    cdef object _reader  # the parser's headers, and its turn, for which the rest was looked up
    cdef int64_t _turn
    cdef bint _is_open
    cdef int64_t _log_end_offset
    cdef int64_t _messages_end
    cdef int64_t now_ms
    cdef int default_policy  # of acks, as an envelope has it
    cdef int64_t look  # how often it was looked

    cdef bint is_open(self, object reader, int64_t turn) except -1
    cdef bint hold(
        self, const Asked* asked, Span subject, Py_ssize_t position, object reader, int64_t turn
    ) except -1
    cdef bint _is_last_on(self, Span expected, Span subject) except -1
    cdef int _look_up(self, object reader, int64_t turn) except -1
    cdef bint _take_id(self, Span message_id, uint32_t hashed, int64_t offset) except -1
