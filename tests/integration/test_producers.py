"""Stock Kafka producers write, and stock Kafka consumers, of another make, read it."""

import time
from base64 import b64encode
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.conftest import read_stream
from tests.integration.kafka_producers import WRITERS
from tests.integration.kafka_readers import READERS, can_decompress
from tools.nodes.dev import Dev

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 500
READER_OF = {"confluent": "kafka-python", "kafka-python": "aiokafka", "aiokafka": "confluent"}


def value(number: int) -> bytes:
    return b"%06d " % number + b64encode(Random(number).randbytes(number % 300))


VALUES = [value(number) for number in range(COUNT)]


def create(dev: Dev, name: str, **configs: str) -> None:
    topic = NewTopic(name, 1, 1, config={"segment.bytes": "16384", **configs})
    admin = AdminClient({"bootstrap.servers": dev.kafka})
    admin.create_topics([topic])[name].result(30)


@pytest.mark.parametrize("client", WRITERS)
@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_is_kept_and_read_by_another_client(dev: Dev, client: str, codec: str) -> None:
    if not can_decompress(client, codec):
        pytest.skip(f"{client} has no package for {codec}")
    name = f"made-{client}-{codec}"
    create(dev, name)
    assert WRITERS[client](dev.kafka, name, VALUES, codec=codec) == list(range(COUNT))
    reader = READER_OF[client]
    if not can_decompress(reader, codec):
        reader = "confluent"
    found = READERS[reader](dev.kafka, name, "beginning", COUNT)
    assert found == list(enumerate(VALUES))


@pytest.mark.parametrize("client", WRITERS)
@pytest.mark.parametrize("acks", ["0", "1"])
def test_other_acks(dev: Dev, client: str, acks: str) -> None:
    name = f"acks-{client}-{acks}"
    create(dev, name)
    offsets = WRITERS[client](dev.kafka, name, VALUES, acks=acks)
    assert acks == "0" or offsets == list(range(COUNT))
    found = READERS["confluent"](dev.kafka, name, "beginning", COUNT)
    assert found == list(enumerate(VALUES))


def test_keys_nulls_headers_and_times_are_the_producers(dev: Dev) -> None:
    create(dev, "whole")
    producer = Producer({"bootstrap.servers": dev.kafka})
    headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", None), ("b", b"")]
    producer.produce("whole", None, b"key", headers=headers, timestamp=1_500_000_000_123)
    producer.produce("whole", b"", None)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": dev.kafka, "group.id": "unused"})
    consumer.assign([TopicPartition("whole", 0, 0)])
    first, second = consumer.consume(2, timeout=30)
    consumer.close()
    assert (first.key(), first.value(), first.headers()) == (b"key", None, headers)
    assert first.timestamp() == (1, 1_500_000_000_123)
    assert (second.key(), second.value(), second.headers()) == (None, b"", None)
    assert abs(second.timestamp()[1] / 1000 - time.time()) < 60


def test_a_stream_may_have_the_leaders_time(dev: Dev) -> None:
    create(dev, "stamped", **{"message.timestamp.type": "LogAppendTime"})
    told: list[tuple[int, int]] = []
    producer = Producer({"bootstrap.servers": dev.kafka, "compression.type": "lz4"})
    for _ in range(2):
        producer.produce(
            "stamped",
            bytes(1000),
            timestamp=5,
            on_delivery=lambda _, it: told.append(it.timestamp()),
        )
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": dev.kafka, "group.id": "unused", "check.crcs": True})
    consumer.assign([TopicPartition("stamped", 0, 0)])
    times = [message.timestamp() for message in consumer.consume(2, timeout=30)]
    consumer.close()
    assert [kind for kind, _ in times] == [2, 2]
    assert all(abs(at / 1000 - time.time()) < 60 for _, at in times)
    assert told == times


def failure(dev: Dev, topic: str, content: bytes, **settings: object) -> int:
    """The code that a producer is told."""
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": dev.kafka, "message.timeout.ms": 10_000, **settings})
    producer.produce(topic, content, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    (error,) = errors
    return int(error.code())


def test_what_is_refused_is_refused_in_words(dev: Dev) -> None:
    create(dev, "narrow", **{"max.message.bytes": "1000"})
    assert failure(dev, "narrow", bytes(2000)) == KafkaError.MSG_SIZE_TOO_LARGE
    found = failure(dev, "nowhere", b"x", **{"topic.metadata.propagation.max.ms": 1000})
    assert found in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert "nowhere" not in AdminClient({"bootstrap.servers": dev.kafka}).list_topics().topics


def test_producers_and_nats_share_a_log(dev: Dev) -> None:
    import asyncio

    import nats

    create(dev, "shared")

    async def publish() -> None:
        client = await nats.connect(dev.nats)
        for _ in range(20):
            await client.request("shared", b"nats", timeout=30)
        await client.close()

    WRITERS["confluent"](dev.kafka, "shared", [b"kafka"] * 20)
    asyncio.run(publish())
    WRITERS["confluent"](dev.kafka, "shared", [b"kafka"] * 20)
    values = [record.value for record in read_stream(dev.kafka, "shared")]
    assert values == [b"kafka"] * 20 + [b"nats"] * 20 + [b"kafka"] * 20
