"""A fetch of what is in the object store alone waits in its purgatory, and holds up nothing else."""

import asyncio

from streamlog.errors import ObjectStoreUnavailable
from tests.fake_partition import FakePartition
from tests.kafka_node import KafkaNode, until
from tests.raw_client import RawClient, at
from tests.unit.kafka.fetch.test_fetch_session import LONG_MS, consumer, numbers, stream

KAFKA_STORAGE_ERROR = 56


async def cold(node: KafkaNode, count: int) -> list[FakePartition]:
    """The first partition has only its end on the disk."""
    partitions = await stream(node, count)
    partitions[0].config = partitions[0].config.changed(tiered=True)
    partitions[0].local_start = 10
    partitions[0].append([b"new"])
    return partitions


async def test_other_partitions_of_the_request_are_answered_at_once(node: KafkaNode) -> None:
    await cold(node, 2)
    async with RawClient(node.port) as client:
        sent = consumer(client).send(at(0), at(0, partition=1), max_wait_ms=LONG_MS)
        async with asyncio.timeout(5):
            answer = await client.fetched(sent)
    assert [len(it.records) > 0 for it in answer.partitions] == [False, True]


async def test_it_is_answered_when_the_segment_has_come(node: KafkaNode) -> None:
    partition = (await cold(node, 1))[0]
    async with RawClient(node.port) as client:
        sent = consumer(client).send(at(0), max_wait_ms=LONG_MS)
        await until(lambda: bool(partition.cold_reads))
        offset, ready = partition.cold_reads[0]
        assert offset == 0
        partition.cold_offsets_that_came.add(0)
        ready()
        async with asyncio.timeout(5):
            answer = await client.fetched(sent)
    assert numbers(answer) == [0]
    assert len(answer.partitions[0].records) > 0


async def test_nothing_is_answered_when_it_does_not_come_in_time(node: KafkaNode) -> None:
    await cold(node, 1)
    async with RawClient(node.port) as client:
        answer = await client.fetched(consumer(client).send(at(0), max_wait_ms=50))
    assert all(len(it.records) == 0 for it in answer.partitions)
    assert all(it.fetched.error_code == 0 for it in answer.partitions)


async def test_a_store_that_is_away_is_an_error_that_clients_repeat(node: KafkaNode) -> None:
    partition = (await cold(node, 1))[0]

    def fail(*_: object) -> bool:
        raise ObjectStoreUnavailable("503")

    partition.is_at_hand = fail  # type: ignore[assignment]
    async with RawClient(node.port) as client:
        answer = await client.fetched(consumer(client).send(at(0), max_wait_ms=LONG_MS))
    assert answer.partitions[0].fetched.error_code == KAFKA_STORAGE_ERROR
