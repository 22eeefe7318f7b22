from streamlog.errors import StorageFailed
from streamlog.model import TopicPartition
from tests.kafka_node import KafkaNode, until
from tests.raw_client import RawClient, at, wanted


async def test_a_partition_that_is_named_twice_is_told_once_as_asked_last(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    for _ in range(3):
        partition.append([b"x"])
    async with RawClient(node.port) as client:
        (found,) = (await client.fetch(wanted(at(0), at(2)))).partitions
    assert found.fetched.records_bytes == partition.batches[2].length
    assert [it.closed for it in partition.slices] == [True]


async def test_nobody_watches_after_the_answer(node: KafkaNode) -> None:
    await node.add_stream("flights", 2)
    first, second = (node.partition(TopicPartition("flights", number)) for number in (0, 1))
    async with RawClient(node.port) as client:
        for _ in range(2):
            asked = wanted(
                at(first.log_end_offset), at(0, partition=1), max_wait_ms=5_000, min_bytes=50
            )
            sent = client.send_fetch(asked)
            await until(lambda: bool(first.watchers and second.watchers))
            first.append([b"x"])
            told = (await client.fetched(sent)).partitions
            assert [it.fetched.records_bytes > 0 for it in told] == [True, False]
            assert not first.watchers
            assert not second.watchers


async def test_what_arrives_in_pieces_is_gathered_until_there_is_enough(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    async with RawClient(node.port) as client:
        sent = client.send_fetch(wanted(at(0), max_wait_ms=5_000, min_bytes=200))
        for _ in range(3):
            looks = len(partition.batches)
            await until(lambda: bool(partition.watchers))
            assert partition.reads == looks
            partition.append([bytes(20)])
        (found,) = (await client.fetched(sent)).partitions
    assert found.fetched.records_bytes == sum(it.length for it in partition.batches)
    assert all(it.closed for it in partition.slices)


async def test_a_partition_that_fails_while_it_is_waited_for_ends_the_wait(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    async with RawClient(node.port) as client:
        sent = client.send_fetch(wanted(at(0), max_wait_ms=5_000))
        await until(lambda: bool(partition.watchers))
        partition.failure = StorageFailed("no disk")
        partition.append([b"x"])
        (found,) = (await client.fetched(sent)).partitions
    assert found.fetched.error_code
    assert not partition.watchers
