"""``stream add --bootstrap-server``: all that was named arrives by the socket API."""

import asyncio

import pytest

from streamlog.cli.stream.commands import create_at_nodes
from streamlog.errors import StreamExists
from streamlog.metadata.stream.config import StreamConfig
from tests.kafka_node import KafkaNode


async def test_a_stream_is_made_as_named() -> None:
    named = {"subjects": ("a.>", "b"), "retention_ms": 5_000_000, "partition_by": "key"}
    config = StreamConfig.of(name="s", partitions=3, **named)
    async with KafkaNode() as node:
        await asyncio.to_thread(create_at_nodes, node.address, config, named)
        assert node.metadata.image.streams["s"].config == config
        with pytest.raises(StreamExists):
            await asyncio.to_thread(create_at_nodes, node.address, config, named)
