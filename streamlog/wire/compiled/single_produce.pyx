# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A Produce request for one partition, and its answer, compiled. ``single_produce.pyi`` says what it means."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES
from streamlog.wire.compiled.reader cimport Reader, get_length, get_number, no_tags

SOURCES = STREAMLOG_SOURCES

cdef enum:
    VERSION_MIN = 3
    FLEXIBLE_FROM = 9
    TOPIC_IDS_FROM = 13
    VERSION_MAX = 13
    TOPIC_ID_BYTES = 16
    ACKS_LEADER = 1
    ACKS_ALL = -1
    TOPIC_NAME_BYTES_MAX = 249
    CLIENT_ID_BYTES_MAX = 1_000
    FIXED_BYTES_MAX = 80  # of an answer, without the topic


cdef class SingleProduce:
    cdef readonly int version
    cdef readonly int correlation_id
    cdef readonly str client_id
    cdef readonly int acks
    cdef readonly int timeout_ms
    cdef readonly object topic
    cdef readonly int partition
    cdef readonly object records

    def release_records(self):
        self.records = memoryview(b"")

    def encode_answer(self, int64_t base_offset, int64_t log_start_offset, int64_t append_time_ms):
        cdef bint flexible = self.version >= FLEXIBLE_FROM
        cdef const char* topic
        cdef Py_ssize_t topic_size
        cdef uint8_t* at
        cdef bytes answer
        cdef bint is_id = self.version >= TOPIC_IDS_FROM
        if is_id:
            topic, topic_size = PyBytes_AS_STRING(self.topic), TOPIC_ID_BYTES
        else:
            topic = PyUnicode_AsUTF8AndSize(self.topic, &topic_size)
        answer = PyBytes_FromStringAndSize(NULL, topic_size + FIXED_BYTES_MAX)
        cdef uint8_t* start = <uint8_t*>PyBytes_AS_STRING(answer)
        at = put_number(start + 4, self.correlation_id, 4)
        if flexible:
            at[0] = 0  # tags of the header
            at[1] = 2  # one topic
            at += 2
            if not is_id:
                at = put_uvarint(at, topic_size + 1)
        else:
            at = put_number(at, 1, 4)
            at = put_number(at, topic_size, 2)
        memcpy(at, topic, topic_size)
        at += topic_size
        if flexible:
            at[0] = 2  # one partition
            at += 1
        else:
            at = put_number(at, 1, 4)
        at = put_number(at, self.partition, 4)
        at = put_number(at, 0, 2)  # no error
        at = put_number(at, base_offset, 8)
        at = put_number(at, append_time_ms, 8)
        if self.version >= 5:
            at = put_number(at, log_start_offset, 8)
        if flexible:
            at[0] = 1  # no records at fault
            at[1] = 0  # no message
            at[2] = 0  # tags of the partition, and of the topic
            at[3] = 0
            at = put_number(at + 4, 0, 4)  # throttle time
            at[0] = 0
            at += 1
        else:
            if self.version >= 8:
                at = put_number(at, 0, 4)
                at = put_number(at, -1, 2)
            at = put_number(at, 0, 4)
        put_number(start, at - start - 4, 4)
        return answer[: at - start]


cdef inline uint8_t* put_number(uint8_t* at, int64_t value, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        at[i] = <uint8_t>(<uint64_t>value >> (8 * (size - 1 - i)))
    return at + size


cdef inline uint8_t* put_uvarint(uint8_t* at, uint64_t value) noexcept nogil:
    while value >= 0x80:
        at[0] = <uint8_t>(value | 0x80)
        value >>= 7
        at += 1
    at[0] = <uint8_t>value
    return at + 1


def read_single_produce(bytes request not None):
    cdef Reader reader
    cdef const uint8_t* start = <const uint8_t*>PyBytes_AS_STRING(request)
    cdef SingleProduce found
    cdef int64_t version, correlation_id, acks, timeout_ms, partition, length
    cdef int64_t client_size
    cdef const uint8_t* client
    cdef const uint8_t* topic
    cdef Py_ssize_t topic_size, at
    cdef bint flexible
    reader.at, reader.end, reader.failed = start, start + PyBytes_GET_SIZE(request), False
    if get_number(&reader, 2) != 0:
        return None
    version = get_number(&reader, 2)
    if not VERSION_MIN <= version <= VERSION_MAX:
        return None
    flexible = version >= FLEXIBLE_FROM
    correlation_id = get_number(&reader, 4)
    client_size, client = get_length(&reader, False, 2), reader.at
    if reader.failed or not -1 <= client_size <= CLIENT_ID_BYTES_MAX:
        return None
    if client_size > 0:
        reader.at += client_size
    no_tags(&reader, flexible)
    if get_length(&reader, flexible, 2) != -1:  # a transactional id
        return None
    acks, timeout_ms = get_number(&reader, 2), get_number(&reader, 4)
    if (acks != ACKS_LEADER and acks != ACKS_ALL) or get_length(&reader, flexible, 4) != 1:
        return None
    topic_size = TOPIC_ID_BYTES if version >= TOPIC_IDS_FROM else get_length(&reader, flexible, 2)
    topic = reader.at
    if not 0 < topic_size <= TOPIC_NAME_BYTES_MAX or topic_size > reader.end - reader.at:
        return None
    reader.at += topic_size
    if get_length(&reader, flexible, 4) != 1:
        return None
    partition = get_number(&reader, 4)
    length = get_length(&reader, flexible, 4)
    if reader.failed or length <= 0:
        return None
    at = reader.at - start
    reader.at += length
    no_tags(&reader, flexible)
    no_tags(&reader, flexible)
    no_tags(&reader, flexible)
    if reader.failed or reader.at != reader.end:
        return None
    found = SingleProduce.__new__(SingleProduce)
    try:
        found.client_id = client[:client_size].decode() if client_size > 0 else ""
        if version >= TOPIC_IDS_FROM:
            found.topic = topic[:topic_size]
        else:
            found.topic = topic[:topic_size].decode()
    except UnicodeDecodeError:
        return None
    found.version, found.correlation_id = <int>version, <int>correlation_id
    found.acks, found.timeout_ms, found.partition = <int>acks, <int>timeout_ms, <int>partition
    found.records = memoryview(request)[at : at + length]
    return found
