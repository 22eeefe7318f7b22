# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Liftbridge's ordinary envelope, compiled. ``envelope_codec.pyi`` says what it means.

``envelope``, ``translate`` and ``addresses`` say what an envelope is to its stream, and take every
envelope. What is ordinary is read here: texts of ASCII, at most PAIRS_MAX headers of different
names, no groups of protobuf. Where an envelope is not, or is broken, nothing is said about it here.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from streamlog.nats.lexer cimport span
from streamlog.nats.router cimport Message, Router, message_with
from streamlog.record.compiled.codec cimport Span
from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES

SOURCES = STREAMLOG_SOURCES

cdef enum:
    ENVELOPE_HEADER_BYTES = 8
    CHECKED_HEADER_BYTES = 12
    CHECKED_BYTES_MAX = 65536  # a longer one's checksum is faster with the processor's own
    ACK_INBOX_BYTES_MAX = 1024
    CORRELATION_ID_BYTES_MAX = 4096
    NUMBER_MAX = (1 << 29) - 1
    VARINT_BYTES_MAX = 10
    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5
    ROUTED = 0  # before a subject that the router answers
    ADDRESS_HEAD_BYTES = 10  # a space, the policy, two sizes of 4 bytes
    ACK_BYTES = 8 + 7 * 12  # an Ack's header, and all fields' tags, sizes and numbers
    ENTRY_BYTES = 6
    ANSWER_BYTES = 160  # more than two PUB lines, two sequences and the end of an Ack take
    POLICY_NONE = 2
    NS_PER_MS = 1000000


# CRC-32C, eight bytes at once

cdef uint32_t[8][256] crc_table


cdef void fill_crc_table() noexcept nogil:
    cdef uint32_t byte, crc
    cdef int i
    for byte in range(256):
        crc = byte
        for i in range(8):
            crc = (crc >> 1) ^ (<uint32_t>0x82F63B78 if crc & 1 else 0)
        crc_table[0][byte] = crc
    for byte in range(256):
        for i in range(1, 8):
            crc = crc_table[i - 1][byte]
            crc_table[i][byte] = (crc >> 8) ^ crc_table[0][crc & 0xFF]


fill_crc_table()


cdef uint32_t crc32c_of(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t crc = <uint32_t>0xFFFFFFFF
    while size >= 8:
        crc ^= (
            <uint32_t>data[0] | <uint32_t>data[1] << 8
            | <uint32_t>data[2] << 16 | <uint32_t>data[3] << 24
        )
        crc = (
            crc_table[7][crc & 0xFF] ^ crc_table[6][(crc >> 8) & 0xFF]
            ^ crc_table[5][(crc >> 16) & 0xFF] ^ crc_table[4][crc >> 24]
            ^ crc_table[3][data[4]] ^ crc_table[2][data[5]]
            ^ crc_table[1][data[6]] ^ crc_table[0][data[7]]
        )
        data += 8
        size -= 8
    while size > 0:
        crc = (crc >> 8) ^ crc_table[0][(crc ^ data[0]) & 0xFF]
        data += 1
        size -= 1
    return crc ^ <uint32_t>0xFFFFFFFF


# Protobuf. Each bounds check is before the read it guards.

cdef struct Field:
    uint32_t number
    int kind
    uint64_t integer  # of a varint
    Span data  # of bytes


cdef inline bint read_varint(
    const uint8_t** at, const uint8_t* end, uint64_t* value
) noexcept nogil:
    """False: it is cut, or has more than 64 bits."""
    cdef uint64_t found = 0
    cdef const uint8_t* place = at[0]
    cdef int i
    for i in range(VARINT_BYTES_MAX):
        if place == end or (i == VARINT_BYTES_MAX - 1 and place[0] > 1):
            return False
        found |= <uint64_t>(place[0] & 0x7F) << (7 * i)
        place += 1
        if (place - 1)[0] < 0x80:
            at[0] = place
            value[0] = found
            return True
    return False


cdef bint read_field(const uint8_t** at, const uint8_t* end, Field* field) noexcept nogil:
    """False: it is not ordinary."""
    cdef uint64_t tag, size = 0
    if not read_varint(at, end, &tag):
        return False
    if not 1 <= tag >> 3 <= <uint64_t>NUMBER_MAX:
        return False
    field.number = <uint32_t>(tag >> 3)
    field.kind = tag & 7
    if field.kind == VARINT:
        return read_varint(at, end, &field.integer)
    if field.kind == BYTES:
        if not read_varint(at, end, &size):
            return False
    elif field.kind == FIXED64:
        size = 8
    elif field.kind == FIXED32:
        size = 4
    else:
        return False
    if size > <uint64_t>(end - at[0]):
        return False
    field.data.data = at[0]
    field.data.size = <Py_ssize_t>size
    at[0] += size
    return True


cdef inline bint is_ascii(Span text) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint8_t all_bits = 0
    for i in range(text.size):
        all_bits |= text.data[i]
    return all_bits < 0x80


cdef inline bint is_subject(Span inbox) noexcept nogil:
    """Of ASCII; no wildcard is a token."""
    cdef Py_ssize_t i, token_bytes = 0
    cdef uint8_t byte, last = 0
    if inbox.size > ACK_INBOX_BYTES_MAX:
        return False
    for i in range(inbox.size + 1):
        byte = inbox.data[i] if i < inbox.size else 46
        if byte == 46:
            if not token_bytes or (token_bytes == 1 and (last == 42 or last == 62)):
                return False
            token_bytes = 0
        else:
            if byte <= 32 or byte >= 127:
                return False
            token_bytes += 1
        last = byte
    return True


cdef bint read_pair(Span entry, PlainEnvelope* envelope) noexcept nogil:
    """A header. False: it is not ordinary."""
    cdef const uint8_t* at = entry.data
    cdef const uint8_t* end = entry.data + entry.size
    cdef Field field
    cdef Span name, content
    cdef int i
    if envelope.pair_count == PAIRS_MAX:
        return False
    name.data = content.data = at
    name.size = content.size = 0
    while at < end:
        if not read_field(&at, end, &field):
            return False
        if field.kind == BYTES and field.number == 1:
            if not is_ascii(field.data):
                return False
            name = field.data
        elif field.kind == BYTES and field.number == 2:
            content = field.data
    for i in range(envelope.pair_count):
        if envelope.names[i].size == name.size and not memcmp(
            envelope.names[i].data, name.data, name.size
        ):
            return False
    envelope.names[envelope.pair_count] = name
    envelope.contents[envelope.pair_count] = content
    envelope.pair_count += 1
    return True


cdef bint read_body(const uint8_t* at, const uint8_t* end, PlainEnvelope* envelope) noexcept nogil:
    cdef Field field
    cdef uint32_t number
    while at < end:
        if not read_field(&at, end, &field):
            return False
        number = field.number
        if field.kind == VARINT and number == 12:
            envelope.ack_policy = <int32_t>field.integer
        if field.kind != BYTES:
            continue
        if number == 2:
            envelope.key = field.data
        elif number == 3:
            envelope.value = field.data
        elif number == 9:
            if not read_pair(field.data, envelope):
                return False
        elif number == 5 or number == 7 or number == 8 or number == 10 or number == 11:
            if not is_ascii(field.data):
                return False
            if number == 10:
                envelope.ack_inbox = field.data
            elif number == 11:
                envelope.correlation_id = field.data
    return True


cdef bint read_envelope(Span payload, PlainEnvelope* envelope) noexcept nogil:
    """False: it is none, or not an ordinary one. Its spans point into ``payload``."""
    cdef const uint8_t* data = payload.data
    cdef const uint8_t* start
    cdef const uint8_t* end = data + payload.size
    cdef uint32_t checksum
    if payload.size < ENVELOPE_HEADER_BYTES or memcmp(data, b"\xb9\x0e\x43\xb4\x00", 5) or data[7]:
        return False
    if data[5] < ENVELOPE_HEADER_BYTES or data[5] > payload.size:
        return False
    start = data + data[5]
    if data[6] & 1:
        if data[5] != CHECKED_HEADER_BYTES or end - start > CHECKED_BYTES_MAX:
            return False
        checksum = (
            <uint32_t>data[8] << 24 | <uint32_t>data[9] << 16
            | <uint32_t>data[10] << 8 | <uint32_t>data[11]
        )
        if crc32c_of(start, end - start) != checksum:
            return False
    envelope.key.data = envelope.value.data = end
    envelope.ack_inbox.data = envelope.correlation_id.data = end
    envelope.key.size = envelope.value.size = 0
    envelope.ack_inbox.size = envelope.correlation_id.size = 0
    envelope.ack_policy = envelope.pair_count = 0
    if not read_body(start, end, envelope):
        return False
    if envelope.ack_inbox.size and not is_subject(envelope.ack_inbox):
        return False
    return envelope.correlation_id.size <= CORRELATION_ID_BYTES_MAX


# Writing: there is room for all of it

cdef inline uint8_t* put(uint8_t* out, const void* data, Py_ssize_t size) noexcept nogil:
    memcpy(out, data, size)
    return out + size


cdef inline uint8_t* put_varint(uint8_t* out, uint64_t value) noexcept nogil:
    while value >= 0x80:
        out[0] = <uint8_t>value | 0x80
        out += 1
        value >>= 7
    out[0] = <uint8_t>value
    return out + 1


cdef inline uint8_t* put_bytes(uint8_t* out, int number, const void* data, Py_ssize_t size) noexcept nogil:
    """Nothing for no bytes."""
    if not size:
        return out
    out = put_varint(out, number << 3 | BYTES)
    out = put_varint(out, size)
    return put(out, data, size)


cdef inline uint8_t* put_integer(uint8_t* out, int number, uint64_t value) noexcept nogil:
    """Nothing for 0."""
    if not value:
        return out
    return put_varint(put_varint(out, number << 3 | VARINT), value)


cdef inline uint8_t* put_size(uint8_t* out, uint32_t value) noexcept nogil:
    """Of 4 bytes, little-endian."""
    cdef int i
    for i in range(4):
        out[i] = (value >> (8 * i)) & 0xFF
    return out + 4


cdef inline uint32_t size_at(const uint8_t* data) noexcept nogil:
    return data[0] | data[1] << 8 | data[2] << 16 | <uint32_t>data[3] << 24


cdef uint8_t* put_decimal(uint8_t* out, uint64_t value) noexcept nogil:
    cdef uint8_t[20] digits
    cdef int count = 0
    while True:
        digits[count] = 48 + value % 10
        count += 1
        value //= 10
        if not value:
            break
    while count:
        count -= 1
        out[0] = digits[count]
        out += 1
    return out


cdef uint8_t* put_line(uint8_t* out, const uint8_t* subject, Py_ssize_t size, Py_ssize_t payload) noexcept nogil:
    out = put(out, b"PUB ", 4)
    out = put(out, subject, size)
    out[0] = 32
    out = put_decimal(out + 1, payload)
    return put(out, b"\r\n", 2)


@cython.final
cdef class AckAddresses:
    """Of one partition."""

    def __cinit__(self, stream, *, pattern_of):
        self._stream = stream.encode()
        self._pattern_of = pattern_of
        self._look = -1

    def __dealloc__(self):
        free(self._address)

    cdef Span packed(
        self, const PlainEnvelope* envelope, int policy, Span subject, Span reply, int64_t now_ms,
        int64_t look, bint is_routed,
    ) except *:
        """``is_routed``: the router answers, so a zero byte is before each subject. Good until the next one. ``look``: another number when the stream's subjects may be
        others.
        """
        cdef Py_ssize_t needed, reply_bytes
        cdef bint reply_mark, inbox_mark
        cdef uint8_t* out
        cdef void* moved
        cdef Span made
        if look != self._look or len(self._subject) != subject.size or memcmp(
            PyBytes_AS_STRING(self._subject), subject.data, subject.size
        ):
            self._look = -1
            self._subject = PyBytes_FromStringAndSize(<const char*>subject.data, subject.size)
            self._pattern = self._pattern_of(self._subject)
            self._look = look
        reply_bytes = reply.size
        if reply.size == envelope.ack_inbox.size and not memcmp(
            reply.data, envelope.ack_inbox.data, reply.size
        ):
            reply_bytes = 0
        reply_mark = is_routed and reply_bytes
        inbox_mark = is_routed and envelope.ack_inbox.size
        needed = 2 + ADDRESS_HEAD_BYTES + ACK_BYTES + reply_bytes + 2 * envelope.ack_inbox.size
        needed += len(self._stream) + len(self._pattern) + subject.size + envelope.correlation_id.size
        if needed > self._capacity:
            moved = realloc(self._address, needed)
            if moved == NULL:
                raise MemoryError
            self._address = <uint8_t*>moved
            self._capacity = needed
        out = self._address
        out[0] = 32
        out[1] = policy
        out = put_size(put_size(out + 2, reply_bytes + reply_mark), envelope.ack_inbox.size + inbox_mark)
        if reply_mark:
            out = put(out, b"\0", 1)
        out = put(out, reply.data, reply_bytes)
        if inbox_mark:
            out = put(out, b"\0", 1)
        out = put(out, envelope.ack_inbox.data, envelope.ack_inbox.size)
        out = put(out, b"\xb9\x0e\x43\xb4\x00\x08\x00\x01", ENVELOPE_HEADER_BYTES)
        out = put_bytes(out, 1, PyBytes_AS_STRING(self._stream), len(self._stream))
        out = put_bytes(out, 2, PyBytes_AS_STRING(self._pattern), len(self._pattern))
        out = put_bytes(out, 3, subject.data, subject.size)
        out = put_bytes(out, 5, envelope.ack_inbox.data, envelope.ack_inbox.size)
        out = put_bytes(out, 6, envelope.correlation_id.data, envelope.correlation_id.size)
        out = put_integer(out, 7, <uint64_t><int64_t>envelope.ack_policy)
        out = put_integer(out, 8, <uint64_t>(now_ms * NS_PER_MS))
        made.data = self._address
        made.size = out - self._address
        return made


cdef bint split_address(
    const uint8_t* data, Py_ssize_t size, Span* reply, Span* inbox, Span* ack
) noexcept nogil:
    """False: it is cut."""
    if size < ADDRESS_HEAD_BYTES:
        return False
    reply.data = data + ADDRESS_HEAD_BYTES
    reply.size = size_at(data + 2)
    inbox.size = size_at(data + 6)
    ack.size = size - ADDRESS_HEAD_BYTES - reply.size - inbox.size
    if ack.size < 0:
        return False
    inbox.data = reply.data + reply.size
    ack.data = inbox.data + inbox.size
    return True


cdef int give(Router router, Span subject, const uint8_t* start, const uint8_t* end) except -1:
    """To the router: an answer, whose subject has the mark before it."""
    cdef Span nothing = span(start, start)
    cdef Message message = message_with(
        span(subject.data + 1, subject.data + subject.size), nothing, nothing, span(start, end)
    )
    return router._reply(&message)


def build_enveloped_acks(
    bytes replies not None, bytes head not None, int64_t base_offset, int64_t committed_ns,
    Router router not None,
):
    """The publications for the addresses among packed replies, and the subjects, packed again. What the
    router answers is given to it.
    """
    cdef const uint8_t* entry = <const uint8_t*>PyBytes_AS_STRING(replies)
    cdef const uint8_t* end = entry + len(replies)
    cdef const uint8_t* place
    cdef Py_ssize_t size, entry_size, needed = 0, subject_bytes = 0
    cdef Span reply, inbox, ack
    cdef uint8_t[64] rest
    cdef uint8_t[32] seq
    cdef Py_ssize_t rest_size, seq_size
    cdef int64_t offset
    cdef bytes acks, subjects
    cdef uint8_t* out
    cdef uint8_t* ends
    cdef uint8_t* kept
    if not 0 <= base_offset < (<int64_t>1 << 62) or committed_ns < 0:
        raise ValueError(f"no ack of offset {base_offset} at {committed_ns}")
    place = entry
    while place < end:
        if end - place < ENTRY_BYTES:
            raise ValueError("packed replies are cut")
        size = place[4] | place[5] << 8
        if size > end - place - ENTRY_BYTES:
            raise ValueError("packed replies are cut")
        if size and place[ENTRY_BYTES] == 32:
            if not split_address(place + ENTRY_BYTES, size, &reply, &inbox, &ack):
                raise ValueError("an address is cut")
            needed += ANSWER_BYTES + len(head) + size
        else:
            subject_bytes += ENTRY_BYTES + size
        place += ENTRY_BYTES + size
    acks = PyBytes_FromStringAndSize(NULL, needed)
    subjects = PyBytes_FromStringAndSize(NULL, subject_bytes)
    out = <uint8_t*>PyBytes_AS_STRING(acks)
    kept = <uint8_t*>PyBytes_AS_STRING(subjects)
    place = entry
    while place < end:
        entry_size = ENTRY_BYTES + (place[4] | place[5] << 8)
        if entry_size == ENTRY_BYTES or place[ENTRY_BYTES] != 32:
            kept = put(kept, place, entry_size)
            place += entry_size
            continue
        if not split_address(place + ENTRY_BYTES, entry_size - ENTRY_BYTES, &reply, &inbox, &ack):
            break  # it was not a moment ago
        offset = base_offset + <int64_t>size_at(place)
        if reply.size and reply.data[0] == ROUTED:
            seq_size = put_decimal(seq, offset + 1) - seq
            ends = put(out, PyBytes_AS_STRING(head), len(head))
            ends = put(put(ends, seq, seq_size), b"}", 1)
            give(router, reply, out, ends)
        elif reply.size:
            seq_size = put_decimal(seq, offset + 1) - seq
            out = put_line(out, reply.data, reply.size, len(head) + seq_size + 1)
            out = put(out, PyBytes_AS_STRING(head), len(head))
            out = put(put(out, seq, seq_size), b"}\r\n", 3)
        if inbox.size and place[ENTRY_BYTES + 1] != POLICY_NONE:
            rest_size = put_integer(put_integer(rest, 4, offset), 9, committed_ns) - rest
            if inbox.data[0] == ROUTED:
                ends = put(put(out, ack.data, ack.size), rest, rest_size)
                give(router, inbox, out, ends)
                place += entry_size
                continue
            out = put_line(out, inbox.data, inbox.size, ack.size + rest_size)
            out = put(out, ack.data, ack.size)
            out = put(put(out, rest, rest_size), b"\r\n", 2)
        place += entry_size
    return acks[:out - <uint8_t*>PyBytes_AS_STRING(acks)], subjects


def open_plain(bytes payload not None):
    """An ordinary envelope's parts; None: it is none, or not ordinary."""
    cdef PlainEnvelope envelope
    cdef Span span
    cdef int i
    span.data = <const uint8_t*>PyBytes_AS_STRING(payload)
    span.size = len(payload)
    if not read_envelope(span, &envelope):
        return None
    pairs = tuple(
        [(to_bytes(envelope.names[i]), to_bytes(envelope.contents[i])) for i in range(envelope.pair_count)]
    )
    return (
        to_bytes(envelope.key) if envelope.key.size else None,
        to_bytes(envelope.value),
        pairs,
        to_bytes(envelope.ack_inbox),
        to_bytes(envelope.correlation_id),
        envelope.ack_policy,
    )


cdef bytes to_bytes(Span text):
    return PyBytes_FromStringAndSize(<const char*>text.data, text.size)
