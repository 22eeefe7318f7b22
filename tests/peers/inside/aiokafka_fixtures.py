"""In place of aiokafka's conftest, which starts Kafka in a container."""

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.conn import AIOKafkaConnection
from aiokafka.protocol.admin import CreateTopicsRequest
from aiokafka.protocol.metadata import MetadataRequest
from order import order

PARTITIONS = 2
REPLICAS_MAX = 3
UNKNOWN_TOPIC = 3
KAFKA_VERSION = "2.8.1"
"""What its own runs are made with."""


@pytest.fixture(autouse=True, scope="session")
def topics_created_when_asked_for() -> Iterator[None]:
    """Its Kafka creates a topic that somebody asks about. streamlog does not: so we do."""
    send = AIOKafkaConnection.send

    async def creating(self: Any, request: Any, expect_response: bool = True) -> Any:
        response = await send(self, request, expect_response)
        if not isinstance(request, MetadataRequest) or request._allow_auto_topic_creation is False:
            return response
        missing = [topic for error, topic, *_ in response.topics if error == UNKNOWN_TOPIC]
        if not missing:
            return response
        replicas = min(REPLICAS_MAX, len(order().servers))
        wanted = [(topic, PARTITIONS, replicas, [], []) for topic in missing]
        await send(self, CreateTopicsRequest(wanted, 10_000, False))
        return await send(self, request, expect_response)

    AIOKafkaConnection.send = creating
    yield
    AIOKafkaConnection.send = send


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """What a test leaves behind is told of in that test."""
    yield
    gc.collect()


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    made.close()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(
    request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop
) -> None:
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    cls, servers = request.cls, order().servers
    host, _, port = servers[0].rpartition(":")
    cls.loop = loop
    cls.hosts = list(servers)
    cls.kafka_host, cls.kafka_port = host, int(port)
    cls.kafka_version = KAFKA_VERSION
