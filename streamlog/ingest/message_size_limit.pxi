# Whether a message is too large for its stream: ``max_message_bytes`` (Kafka's max.message.bytes, JetStream's
# max_msg_size), the limits of a reply subject, and what still fits into the record batch. A part of
# frames.pyx, so that a message costs no call into another module.

cdef bint is_too_large(
    RecordCollector collector, Message* message, Py_ssize_t answer_bytes, Py_ssize_t extra_bytes
) noexcept:
    cdef Py_ssize_t size = RECORD_OVERHEAD_BYTES + HEADER_GROWTH * message.block.size
    size += message.subject.size + message.reply.size + message.payload.size + extra_bytes
    return (
        message.block.size + message.payload.size > collector.message_bytes_max
        or answer_bytes > REPLY_BYTES_MAX
        or size > collector.run.bytes_max - collector.run._size
    )
