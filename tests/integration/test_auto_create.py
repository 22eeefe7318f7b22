"""Clients that we did not write have topics created by naming them, where the node is set so."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from tools.nodes.node_process import NodeProcess

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    kafka = {"auto_create_topics": True, "default_partitions": 2}
    settings: dict[str, dict[str, Any]] = {
        "kafka": kafka,
        "nats_listen": {},
        "nats": {"servers": []},
    }
    process = NodeProcess(1, Path(tmp_path_factory.mktemp("auto")), settings=settings)
    process.start()
    yield process
    process.stop()


async def test_producers_have_their_topics_created(node: NodeProcess) -> None:
    def by_confluent() -> object:
        told: list[object] = []
        producer = Producer({"bootstrap.servers": node.kafka})
        producer.produce("by.confluent", b"x", on_delivery=lambda error, _: told.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        return told

    def by_kafka_python() -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=node.kafka)
        producer.send("by.kafka-python", b"x").get(TIMEOUT_S)
        producer.close()

    assert await asyncio.to_thread(by_confluent) == [None]
    await asyncio.to_thread(by_kafka_python)
    async with AIOKafkaProducer(bootstrap_servers=node.kafka) as producer:
        await producer.send_and_wait("by.aiokafka", b"x")
    topics = AdminClient({"bootstrap.servers": node.kafka}).list_topics(timeout=TIMEOUT_S).topics
    made = {name: len(it.partitions) for name, it in topics.items() if name.startswith("by.")}
    assert made == {"by.confluent": 2, "by.kafka-python": 2, "by.aiokafka": 2}


def test_a_consumer_that_does_not_allow_it_creates_nothing(node: NodeProcess) -> None:
    settings = {"bootstrap.servers": node.kafka, "group.id": "g"}
    consumer = Consumer(settings)
    try:
        consumer.list_topics("misspelt", timeout=TIMEOUT_S)
        consumer.subscribe(["misspelt"])
        message = consumer.poll(2)
        assert message is not None
        assert message.error() is not None
        assert "misspelt" not in consumer.list_topics(timeout=TIMEOUT_S).topics
    finally:
        consumer.close()
