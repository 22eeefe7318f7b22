"""Every test of the server runs on both event loops; only one of them has a sendfile."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
import uvloop

from tests.kafka_node import KafkaNode


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def node() -> AsyncIterator[KafkaNode]:
    async with KafkaNode() as running:
        yield running
