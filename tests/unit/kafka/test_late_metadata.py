"""A node does not call a partition unknown before the controller does.

A node that was killed knows less when it starts than it knew before, and another node may have told
the client of a new stream first. librdkafka takes UNKNOWN_TOPIC_OR_PARTITION of ListOffsets for
final: its consumer never asks for the partition again.
"""

from typing import Any, Final

import pytest

from streamlog.errors import NoController
from streamlog.metadata.commands import Command, DescribeCluster, Granted
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.wire.registry import (
    DELETE_RECORDS,
    LIST_OFFSETS,
    OFFSET_COMMIT,
    OFFSET_FOR_LEADER_EPOCH,
)
from tests.kafka_node import KafkaNode
from tests.raw_client import RawClient

UNKNOWN_TOPIC_OR_PARTITION: Final = 3
NOT_LEADER: Final = 6
COORDINATOR_NOT_AVAILABLE: Final = 15
PARTITION: Final = {"partition_index": 0, "timestamp": -2, "current_leader_epoch": -1}
REQUESTS: Final[dict[int, tuple[int, dict[str, Any]]]] = {
    LIST_OFFSETS: (
        7,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": "flights", "partitions": [PARTITION] * 3}],
        },
    ),
    OFFSET_FOR_LEADER_EPOCH: (
        4,
        {
            "topics": [
                {
                    "topic": "flights",
                    "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
                }
            ]
        },
    ),
    DELETE_RECORDS: (
        2,
        {
            "timeout": 1_000,
            "topics": [
                {"name": "flights", "partitions": [{"partition_index": 0, "offset": 0}] * 3}
            ],
        },
    ),
    OFFSET_COMMIT: (
        7,
        {
            "group_id": "readers",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [
                {
                    "name": "flights",
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": 1,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        }
                    ],
                }
            ],
        },
    ),
}


async def codes(node: KafkaNode, key: int) -> set[int]:
    version, request = REQUESTS[key]
    async with RawClient(node.port) as client:
        answer = await client.ask(key, version, request)
    return {it["error_code"] for topic in answer["topics"] for it in topic["partitions"]}


class Lateness:
    """A node whose image lacks the last decisions until it has asked the controller."""

    def __init__(self, node: KafkaNode) -> None:
        self._metadata = node.metadata
        self._request = node.metadata.request
        self._newest = node.metadata.image
        self.asked = 0
        node.metadata.image = MetadataImage(node.metadata.image.cluster_id)
        node.metadata.request = self.request  # type: ignore[method-assign]

    async def request(self, command: Command) -> Granted:
        if isinstance(command, DescribeCluster):
            self.asked += 1
            self._metadata.image = self._newest
        return await self._request(command)


@pytest.mark.parametrize("key", [LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, DELETE_RECORDS])
async def test_the_controller_is_asked_once_for_a_partition_that_is_not_known_here(
    node: KafkaNode, key: int
) -> None:
    await node.add_stream("flights")
    late = Lateness(node)
    assert await codes(node, key) == {0}
    assert late.asked == 1
    assert await codes(node, key) == {0}
    assert late.asked == 1, "what is known here is not asked for"


@pytest.mark.parametrize("key", [LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, DELETE_RECORDS])
async def test_without_a_controller_the_client_asks_again(node: KafkaNode, key: int) -> None:
    node.metadata.no_controller = NoController("lost")
    assert await codes(node, key) == {NOT_LEADER}


async def test_without_a_controller_a_commit_is_sent_again(node: KafkaNode) -> None:
    node.metadata.no_controller = NoController("lost")
    assert await codes(node, OFFSET_COMMIT) == {COORDINATOR_NOT_AVAILABLE}


@pytest.mark.parametrize("key", REQUESTS)
async def test_what_the_controller_does_not_know_is_unknown(node: KafkaNode, key: int) -> None:
    assert await codes(node, key) == {UNKNOWN_TOPIC_OR_PARTITION}
