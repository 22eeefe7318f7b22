"""Flights out, over Kafka's protocol: an ordinary confluent-kafka consumer, all compared."""

import time
import uuid
from collections.abc import Callable
from threading import Event
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from demo.flights import Flights

BATCH: Final = 10_000
SILENCE_S: Final = 30.0


class WrongRecord(Exception):
    """A record is missing, out of order, or not what was published."""


def read_flights_back(
    servers: str, stream: str, flights: Flights, advance: Callable[[int], None], stop: Event
) -> float:
    """Count, order, subject and content of all. Returns the rate; ends early on ``stop``."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"demo-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "fetch.max.bytes": 64 << 20,
            "max.partition.fetch.bytes": 16 << 20,
            "queued.max.messages.kbytes": 256 << 10,
        }
    )
    try:
        consumer.assign([TopicPartition(stream, 0, 0)])
        started = time.monotonic()
        _compare_all(consumer, flights, advance, stop)
        seconds = time.monotonic() - started
        low, high = consumer.get_watermark_offsets(TopicPartition(stream, 0), timeout=10)
        if (low, high) != (0, len(flights)) and not stop.is_set():
            raise WrongRecord(f"the log is [{low}, {high}), not [0, {len(flights)})")
    finally:
        consumer.close()
    return len(flights) / seconds


def _compare_all(
    consumer: Consumer, flights: Flights, advance: Callable[[int], None], stop: Event
) -> None:
    expected = 0
    heard = time.monotonic()
    while expected < len(flights) and not stop.is_set():
        messages = consumer.consume(BATCH, timeout=0.5)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            if message.offset() != expected:
                raise WrongRecord(f"offset {message.offset()} came where {expected} should")
            if message.value() != flights.payloads[expected]:
                raise WrongRecord(f"offset {expected} holds {message.value()!r}")
            subject = flights.subjects[expected].encode()
            if ("subject", subject) not in (message.headers() or ()):
                raise WrongRecord(f"offset {expected} has the headers {message.headers()}")
            expected += 1
        advance(len(messages))
        if messages:
            heard = time.monotonic()
        elif time.monotonic() - heard > SILENCE_S:
            raise WrongRecord(f"nothing came for {SILENCE_S:.0f} s after offset {expected}")
