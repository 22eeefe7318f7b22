"""Stock Kafka clients read what NATS clients published: from every start, while it is written."""

import asyncio
import threading
from base64 import b64encode
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import nats
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.kafka_readers import READERS, Records, Time, can_decompress
from tools.nodes.dev import Dev

pytestmark = [
    pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning"),
    # On a busy machine kafka-python drops a connection that it has just opened, and does not close it.
    pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
    ),
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 1_200
AT_ONCE = 40
"""Messages that are acknowledged before the next ones are sent: about one batch."""

UNGROUPED = {"group.id": "unused", "enable.auto.commit": False}
"""librdkafka wants a group's name always, and commits unless it is told not to."""

CLIENTS = tuple(READERS)
FOLLOWERS = tuple(name for name in CLIENTS if name != "kcat")


def value(number: int) -> bytes:
    """Text, which kcat can print; mostly noise, which no codec makes small."""
    return b"%06d " % number + b64encode(Random(number).randbytes(number % 300))


def create(dev: Dev, name: str, **configs: str) -> None:
    """By CreateTopics; small segments, so that every read crosses many."""
    topic = NewTopic(name, 1, 1, config={"segment.bytes": "16384", **configs})
    admin = AdminClient({"bootstrap.servers": dev.kafka})
    admin.create_topics([topic])[name].result(30)


async def publish(url: str, subject: str, first: int, count: int, pause_s: float = 0.0) -> None:
    client = await nats.connect(url)
    try:
        for start in range(first, first + count, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, first + count))
            asked = [client.request(subject, value(number), timeout=30) for number in numbers]
            await asyncio.gather(*asked)
            await asyncio.sleep(pause_s)
    finally:
        await client.close()


class Written(NamedTuple):
    dev: Dev
    name: str
    codec: str


@pytest.fixture(scope="module", params=CODECS)
def written(request: pytest.FixtureRequest, dev: Dev) -> Iterator[Written]:
    """A stream of many segments, compressed in each way."""
    name = f"read-{request.param}"
    create(dev, name, **{"compression.type": request.param})
    asyncio.run(publish(dev.nats, name, 0, COUNT))
    segments = list((dev.data_dir / "node-1").glob(f"**/{name}/0/*.log"))
    assert len(segments) > 3
    yield Written(dev, name, request.param)
    admin = AdminClient({"bootstrap.servers": dev.kafka})
    admin.delete_topics([name])[name].result(30)


def expected(first: int, end: int) -> Records:
    return [(number, value(number)) for number in range(first, end)]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("start", ["beginning", 0, 1, 41, COUNT // 2 + 7, COUNT - 1])
def test_from_the_beginning_and_from_any_offset(written: Written, client: str, start: Any) -> None:
    skip_if_missing(client, written.codec)
    first = 0 if start == "beginning" else start
    found = READERS[client](written.dev.kafka, written.name, start, COUNT - first)
    assert found == expected(first, COUNT)


@pytest.mark.parametrize("client", CLIENTS)
def test_from_a_time(written: Written, client: str) -> None:
    skip_if_missing(client, written.codec)
    for offset in (0, COUNT // 3, COUNT - 1):
        timestamp_ms = timestamp_of(written, offset)
        (first, *_), *_ = found = READERS[client](
            written.dev.kafka, written.name, Time(timestamp_ms), 1
        )
        assert found == expected(first, first + 1)
        assert first <= offset
        assert timestamp_of(written, first) == timestamp_ms
        assert first == 0 or timestamp_of(written, first - 1) < timestamp_ms


def timestamp_of(written: Written, offset: int) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": written.dev.kafka, **UNGROUPED})
    consumer.assign([TopicPartition(written.name, 0, offset)])
    (message,) = consumer.consume(1, timeout=30)
    consumer.close()
    assert message.offset() == offset
    timestamp_ms: int = message.timestamp()[1]
    return timestamp_ms


@pytest.mark.parametrize("client", FOLLOWERS)
def test_from_the_end(dev: Dev, client: str) -> None:
    name = f"end-{client}"
    create(dev, name)
    asyncio.run(publish(dev.nats, name, 0, 100))

    def ready() -> None:
        asyncio.run(publish(dev.nats, name, 100, 50))

    assert READERS[client](dev.kafka, name, "end", 50, ready) == expected(100, 150)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("codec", ["none", "lz4", "gzip"])
def test_while_it_is_written(dev: Dev, client: str, codec: str) -> None:
    """Nothing missing, twice or out of order at the end of a log that grows and rolls."""
    skip_if_missing(client, codec)
    name = f"grow-{client}-{codec}"
    create(dev, name, **{"compression.type": codec})
    writer = threading.Thread(
        target=lambda: asyncio.run(publish(dev.nats, name, 0, COUNT, pause_s=0.005))
    )
    found = READERS[client](dev.kafka, name, "beginning", COUNT, writer.start)
    writer.join()
    assert found == expected(0, COUNT)


def skip_if_missing(client: str, codec: str) -> None:
    import shutil

    if client == "kcat" and shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    if not can_decompress(client, codec):
        pytest.skip(f"{client} has no package for {codec}")


def test_the_admin_client_sees_what_there_is(dev: Dev) -> None:
    create(dev, "kafka-seen", subject="seen.>", **{"retention.ms": "3600000"})
    metadata = AdminClient({"bootstrap.servers": dev.kafka}).list_topics(timeout=30)
    assert list(metadata.brokers) == [1]
    assert metadata.topics["kafka-seen"].partitions[0].leader == 1
    asyncio.run(publish(dev.nats, "seen.by.anyone", 0, 1))
    assert READERS["confluent"](dev.kafka, "kafka-seen", "beginning", 1) == expected(0, 1)


def test_offsets_out_of_range_are_an_error_to_the_client(dev: Dev) -> None:
    from confluent_kafka import Consumer, TopicPartition

    create(dev, "short")
    asyncio.run(publish(dev.nats, "short", 0, 10))
    consumer = Consumer({"bootstrap.servers": dev.kafka, "auto.offset.reset": "error", **UNGROUPED})
    try:
        consumer.assign([TopicPartition("short", 0, 11)])
        (message,) = consumer.consume(1, timeout=30)
        error = message.error()
        assert error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET
    finally:
        consumer.close()


def test_a_deleted_topic_is_gone_and_may_come_again_empty(dev: Dev) -> None:
    admin = AdminClient({"bootstrap.servers": dev.kafka})
    for round_number in range(2):
        create(dev, "again")
        asyncio.run(publish(dev.nats, "again", round_number, 1))
        found = READERS["confluent"](dev.kafka, "again", "beginning", 1)
        assert found == [(0, value(round_number))]
        admin.delete_topics(["again"])["again"].result(30)
        assert "again" not in admin.list_topics(timeout=30).topics


def test_topics_that_cannot_be_are_refused_in_words(dev: Dev) -> None:
    from confluent_kafka import KafkaException

    create(dev, "kafka-taken")
    for name, configs, code in (
        ("kafka-taken", {}, KafkaError.TOPIC_ALREADY_EXISTS),
        ("not a name", {}, KafkaError.TOPIC_EXCEPTION),
        ("__reserved", {}, KafkaError.TOPIC_EXCEPTION),
        ("odd", {"no.such": "config"}, KafkaError.INVALID_CONFIG),
        ("odd", {"subject": "a..b"}, KafkaError.INVALID_CONFIG),
    ):
        with pytest.raises(KafkaException) as refused:
            create(dev, name, **configs)
        assert refused.value.args[0].code() == code


def test_a_consumer_that_assigns_has_committed_when_it_leaves(dev: Dev) -> None:
    """With a client's own defaults, which commit on the way out. Without a coordinator that answers
    it would stay for its session time-out, and leave without."""
    create(dev, "grouped")
    answers: list[KafkaError | None] = []
    settings = {"bootstrap.servers": dev.kafka, "group.id": "g", "auto.offset.reset": "earliest",
                "on_commit": lambda error, _: answers.append(error)}  # fmt: skip
    asyncio.run(publish(dev.nats, "grouped", 0, 5))
    assigned = Consumer(settings)
    assigned.assign([TopicPartition("grouped", 0, 0)])
    assert len(assigned.consume(5, timeout=30)) == 5
    assigned.close()
    assert answers and set(answers) == {None}
    again = Consumer(settings)
    (committed,) = again.committed([TopicPartition("grouped", 0)], timeout=30)
    again.close()
    assert committed.offset == 5
