from collections.abc import AsyncIterator

import pytest

from streamlog.metadata.commands import Granted
from tests.kafka_node import KafkaNode


@pytest.fixture
async def node() -> AsyncIterator[KafkaNode]:
    async with KafkaNode() as running:
        running.metadata.result = Granted(1, {"first": 7, "end": 1_007})  # ids for producers
        yield running
