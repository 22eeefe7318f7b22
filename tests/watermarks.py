"""The offsets between which a client may read, as the leader of a partition tells them."""

import time

from confluent_kafka import Consumer, KafkaException, TopicPartition


def watermarks(consumer: Consumer, partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
    """The log start offset and the high watermark.

    A client may have to learn first which node leads, and a new leader does not know what is
    committed until its followers have fetched (OFFSET_NOT_AVAILABLE). librdkafka fails such a
    question; consumers ask again by themselves.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=timeout_s)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return int(low), int(high)
