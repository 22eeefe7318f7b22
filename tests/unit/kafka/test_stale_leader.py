"""A leader without the lease does not answer for the end of its log: another may lead already.

So it is with a node that stood still and goes on. Its clients may have read further at its successor;
"out of range", or "nothing is that late", would send them to another offset, without an error.
"""

from typing import Any, Final

import pytest

from streamlog.wire.registry import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from tests.fake_partition import FakePartition
from tests.kafka_node import KafkaNode
from tests.raw_client import RawClient, at, wanted

OUT_OF_RANGE: Final = 1
NOT_LEADER: Final = 6
UNKNOWN_LEADER_EPOCH: Final = 75
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
STORED_MS, LATER_MS = 1_000, 2_000


async def stale(node: KafkaNode) -> FakePartition:
    """With offsets 0 to 9, in epoch 4."""
    partition = await node.add_stream("flights")
    partition.leader_epoch = 4
    partition.append([b"x"] * 10, timestamp_ms=STORED_MS)
    node.metadata.lease.lapse()
    return partition


async def listed(node: KafkaNode, timestamp_ms: int) -> tuple[int, int]:
    """The error code and the offset."""
    asked = {"partition_index": 0, "timestamp": timestamp_ms, "current_leader_epoch": -1}
    request: dict[str, Any] = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": "flights", "partitions": [asked]}],
    }
    async with RawClient(node.port) as client:
        answer = await client.ask(LIST_OFFSETS, 7, request)
    found = answer["topics"][0]["partitions"][0]
    return found["error_code"], found["offset"]


@pytest.mark.parametrize("timestamp_ms", [LATEST, MAX_TIMESTAMP, LATER_MS])
async def test_the_end_is_not_told_without_the_lease(node: KafkaNode, timestamp_ms: int) -> None:
    await stale(node)
    assert (await listed(node, timestamp_ms))[0] == NOT_LEADER
    node.metadata.lease.turn(True)
    assert (await listed(node, timestamp_ms))[0] == 0


@pytest.mark.parametrize("timestamp_ms", [EARLIEST, STORED_MS])
async def test_what_no_leader_changes_is_told_without_the_lease(
    node: KafkaNode, timestamp_ms: int
) -> None:
    await stale(node)
    assert await listed(node, timestamp_ms) == (0, 0)


async def test_an_offset_past_the_end_is_not_out_of_range_without_the_lease(
    node: KafkaNode,
) -> None:
    await stale(node)
    async with RawClient(node.port) as client:
        (found,) = (await client.fetch(wanted(at(11)))).partitions
        assert found.fetched.error_code == NOT_LEADER
        (found,) = (await client.fetch(wanted(at(0)))).partitions
        assert found.fetched.error_code == 0
        assert len(found.records) > 0
        node.metadata.lease.turn(True)
        (found,) = (await client.fetch(wanted(at(11)))).partitions
        assert found.fetched.error_code == OUT_OF_RANGE


async def test_a_reader_of_a_later_epoch_has_not_lost_its_place(node: KafkaNode) -> None:
    partition = await stale(node)
    partition.epoch_ends = {5: (-1, -1)}
    node.metadata.lease.turn(True)
    async with RawClient(node.port) as client:
        (found,) = (await client.fetch(wanted(at(10, last_fetched_epoch=5)))).partitions
    assert found.fetched.error_code == UNKNOWN_LEADER_EPOCH


async def test_the_end_of_a_later_epoch_is_not_told_without_the_lease(node: KafkaNode) -> None:
    await stale(node)
    asked = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 5}
    request = {"topics": [{"topic": "flights", "partitions": [asked]}]}
    async with RawClient(node.port) as client:
        answer = await client.ask(OFFSET_FOR_LEADER_EPOCH, 4, request)
    assert answer["topics"][0]["partitions"][0]["error_code"] == UNKNOWN_LEADER_EPOCH
