# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The body of a consumer's Fetch request, compiled. ``plain_fetch.pyi`` says what it means."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t, uint8_t

from streamlog.record.compiled.primitives cimport STREAMLOG_SOURCES
from streamlog.wire.compiled.reader cimport Reader, get_length, get_number, get_uvarint, no_tags

SOURCES = STREAMLOG_SOURCES

cdef enum:
    FLEXIBLE_FROM = 12
    TOPIC_IDS_FROM = 13
    REPLICA_STATE_FROM = 15
    TOPIC_ID_BYTES = 16
    TOPIC_NAME_BYTES_MAX = 249
    STRING_BYTES_MAX = 32767


def read_plain_fetch(data, Py_ssize_t position, int version):
    cdef Py_buffer view
    cdef Reader reader
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if version < FLEXIBLE_FROM or not 0 <= position <= view.len:
            return None
        reader.at = <const uint8_t*>view.buf + position
        reader.end = <const uint8_t*>view.buf + view.len
        reader.failed = False
        found = read_body(&reader, version)
        return None if reader.failed or reader.at != reader.end else found
    except UnicodeDecodeError:
        return None
    finally:
        PyBuffer_Release(&view)


cdef tuple read_body(Reader* reader, int version):
    cdef int64_t replica_id = -1, topic_count, partition_count, number, size
    cdef int64_t i, j
    cdef list topics = [], partitions
    cdef object name, topic_id
    if version < REPLICA_STATE_FROM:
        replica_id = get_number(reader, 4)
    head = [get_number(reader, 4), get_number(reader, 4), get_number(reader, 4), get_number(reader, 1)]
    session_id, session_epoch = get_number(reader, 4), get_number(reader, 4)
    topic_count = get_length(reader, True, 4)
    if reader.failed or topic_count < 0 or replica_id != -1:
        reader.failed = True
        return None
    for i in range(topic_count):
        if version >= TOPIC_IDS_FROM:
            size, name = TOPIC_ID_BYTES, ""
        else:
            size, topic_id = get_length(reader, True, 2), b""
        if reader.failed or not 0 <= size <= TOPIC_NAME_BYTES_MAX or size > reader.end - reader.at:
            reader.failed = True
            return None
        if version >= TOPIC_IDS_FROM:
            topic_id = reader.at[:size]
        else:
            name = reader.at[:size].decode()
        reader.at += size
        partition_count, partitions = get_length(reader, True, 4), []
        if reader.failed or partition_count < 0:
            reader.failed = True
            return None
        for j in range(partition_count):
            number = get_number(reader, 4)
            epoch, offset = get_number(reader, 4), get_number(reader, 8)
            last_epoch, log_start = get_number(reader, 4), get_number(reader, 8)
            max_bytes = get_number(reader, 4)
            no_tags(reader, True)
            if reader.failed:
                return None
            partitions.append((number, offset, max_bytes, epoch, last_epoch, log_start))
        no_tags(reader, True)
        topics.append((name, partitions, topic_id))
    if get_length(reader, True, 4) != 0:  # topics to be forgotten
        reader.failed = True
        return None
    size = get_length(reader, True, 2)
    if reader.failed or not 0 <= size <= STRING_BYTES_MAX:
        reader.failed = True
        return None
    rack_id = reader.at[:size].decode()
    reader.at += size
    no_tags(reader, True)
    return (*head, session_id, session_epoch, topics, rack_id)
