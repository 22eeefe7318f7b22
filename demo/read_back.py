"""Flights out, over Kafka's protocol, with ordinary confluent-kafka consumers.

Twice: the first time as fast as it goes, to see the rate; the second time each record is compared,
which takes Python longer than reading it.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Event
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from demo.flights import Flights

BATCH: Final = 10_000
SILENCE_S: Final = 30.0


class WrongRecord(Exception):
    """A record is missing, out of order, or not what was published."""


class ReadBack:
    """Blocks; for a worker thread. Setting ``stop`` ends it early."""

    def __init__(self, servers: str, stream: str, flights: Flights, stop: Event) -> None:
        self._servers = servers
        self._partition = TopicPartition(stream, 0, 0)
        self._flights = flights
        self._stop = stop

    def measure(self, advance: Callable[[int], None]) -> float:
        """Read all, and count. Returns the rate."""
        started = time.monotonic()
        for messages in self._batches():
            advance(len(messages))
        return len(self._flights) / (time.monotonic() - started)

    def compare(self, advance: Callable[[int], None]) -> None:
        """Read all again, and compare order, subject and content."""
        expected = 0
        for messages in self._batches():
            for message in messages:
                self._compare_one(message, expected)
                expected += 1
            advance(len(messages))

    def _compare_one(self, message: Message, expected: int) -> None:
        if message.offset() != expected:
            raise WrongRecord(f"offset {message.offset()} came where {expected} should")
        if message.value() != self._flights.payloads[expected]:
            raise WrongRecord(f"offset {expected} holds {message.value()!r}")
        if ("subject", self._flights.subjects[expected].encode()) not in (message.headers() or ()):
            raise WrongRecord(f"offset {expected} has the headers {message.headers()}")

    def _batches(self) -> Iterator[list[Message]]:
        """Exactly as many messages as there are flights, and the log has no more."""
        settings = {
            "bootstrap.servers": self._servers,
            "group.id": f"demo-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 256 << 10,
            "max.partition.fetch.bytes": 16 << 20,
        }
        with closing(Consumer(settings)) as consumer:
            consumer.assign([self._partition])
            yield from self._consume(consumer)
            low, high = consumer.get_watermark_offsets(self._partition, timeout=10)
        if (low, high) != (0, len(self._flights)):
            raise WrongRecord(f"the log is [{low}, {high}), not [0, {len(self._flights)})")

    def _consume(self, consumer: Consumer) -> Iterator[list[Message]]:
        count = 0
        heard = time.monotonic()
        while count < len(self._flights):
            if self._stop.is_set():
                raise WrongRecord("stopped before the end")
            messages = consumer.consume(BATCH, timeout=0.5)
            for message in messages:
                if message.error():
                    raise KafkaException(message.error())
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENCE_S:
                raise WrongRecord(f"nothing came for {SILENCE_S:.0f} s after {count} records")
            count += len(messages)
            yield messages
