"""The offsets between which a client may read, as the leader of a partition tells them."""

import time
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

OFFSET_NOT_AVAILABLE: Final = 78
MOVING: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        OFFSET_NOT_AVAILABLE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
    }
)
"""What a question is told while leaders change."""


def watermarks(consumer: Consumer, partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
    """The log start offset and the high watermark.

    A client may have to learn first which node leads, and a new leader does not know what is
    committed until its followers have fetched (OFFSET_NOT_AVAILABLE). librdkafka fails such a
    question, and calls not all of these errors retriable; consumers ask again by themselves.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=timeout_s)
        except KafkaException as error:
            if error.args[0].code() not in MOVING or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return int(low), int(high)
