"""librdkafka names topics by their ids in Fetch, and learns when a stream is created anew."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tools.nodes.dev import Dev

PATIENCE_S = 60.0


@pytest.fixture
def admin(dev: Dev) -> AdminClient:
    return AdminClient({"bootstrap.servers": dev.kafka})


@pytest.fixture
def consumer(dev: Dev) -> Iterator[Any]:
    reader = Consumer(
        {
            "bootstrap.servers": dev.kafka,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 1_000,
        }
    )
    yield reader
    reader.close()


def create(admin: AdminClient, name: str) -> None:
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)


def produce(dev: Dev, name: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": dev.kafka})
    for value in values:
        producer.produce(name, value)
    assert producer.flush(30) == 0


def values_of(consumer: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    ends = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < ends:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message.value())
    return found


def test_a_reader_goes_on_with_a_stream_that_was_created_anew(
    dev: Dev, admin: AdminClient, consumer: Any
) -> None:
    create(admin, "created-anew")
    produce(dev, "created-anew", [b"old-%d" % number for number in range(5)])
    consumer.assign([TopicPartition("created-anew", 0, 0)])
    assert values_of(consumer, 5) == [b"old-%d" % number for number in range(5)]
    admin.delete_topics(["created-anew"])["created-anew"].result(30)
    create(admin, "created-anew")
    produce(dev, "created-anew", [b"new-%d" % number for number in range(3)])
    assert values_of(consumer, 3) == [b"new-%d" % number for number in range(3)]
