import asyncio
from collections.abc import AsyncIterator

import pytest

from streamlog.client.cluster import Cluster
from streamlog.client.position import EARLIEST, LATEST, Offset, Position, Timestamp
from streamlog.client.reader import PartitionReader
from streamlog.errors import (
    CorruptBatch,
    OffsetOutOfRange,
    RequestTimedOut,
    StreamNotFound,
    UnknownTopicId,
)
from streamlog.model import TopicPartition
from streamlog.record.batch import read_header
from streamlog.record.codec import Record
from streamlog.record.compression import Compression, compress
from tests.fake_partition import FakePartition
from tests.kafka_node import KafkaNode, until
from tests.record_batches import HandRecord, hand_batch

FLIGHTS = TopicPartition("flights", 0)


@pytest.fixture
async def partition(node: KafkaNode) -> FakePartition:
    """A hundred records in ten batches, a roll in the middle, one second from batch to batch."""
    partition = await node.add_stream("flights")
    for index in range(10):
        if index == 5:
            partition.roll()
        values = [b"value %d" % (10 * index + i) for i in range(10)]
        partition.append(values, timestamp_ms=1_000 * index)
    return partition


@pytest.fixture
async def cluster(node: KafkaNode) -> AsyncIterator[Cluster]:
    async with Cluster.at(node.address) as cluster:
        yield cluster


async def offsets(reader: PartitionReader, **options: object) -> list[int]:
    found = []
    async for record in reader.records(**options):  # type: ignore[arg-type]
        assert record.value == b"value %d" % record.offset
        found.append(record.offset)
    reader.close()
    return found


@pytest.mark.parametrize(
    ("start", "first"),
    [
        (EARLIEST, 0),
        (Offset(0), 0),
        (Offset(37), 37),
        (Offset(50), 50),
        (Offset(100), 100),
        (Timestamp(0), 0),
        (Timestamp(4_001), 50),
        (Timestamp(99_999), 100),
        (LATEST, 100),
    ],
)
@pytest.mark.parametrize("fetch_bytes", [1, 700, 2**20])
async def test_from_every_kind_of_start(
    partition: FakePartition, cluster: Cluster, start: Position, first: int, fetch_bytes: int
) -> None:
    reader = PartitionReader(cluster, FLIGHTS, start, fetch_bytes=fetch_bytes)
    assert await offsets(reader) == list(range(first, 100))
    assert reader.next_offset == 100


@pytest.mark.parametrize(("count", "stop"), [(0, None), (1, None), (15, None), (None, 42), (7, 42)])
async def test_count_and_stop(
    partition: FakePartition, cluster: Cluster, count: int | None, stop: int | None
) -> None:
    reader = PartitionReader(cluster, FLIGHTS, Offset(33))
    end = min(33 + (100 if count is None else count), 100 if stop is None else stop)
    assert await offsets(reader, count=count, stop=stop) == list(range(33, end))


async def test_it_goes_on_where_it_stopped(partition: FakePartition, cluster: Cluster) -> None:
    reader = PartitionReader(cluster, FLIGHTS)
    assert await offsets(reader, count=13) == list(range(13))
    reader = PartitionReader(cluster, FLIGHTS, Offset(reader.next_offset or 0))
    assert await offsets(reader) == list(range(13, 100))


async def test_without_follow_it_ends_at_what_was_committed_at_the_start(
    partition: FakePartition, cluster: Cluster
) -> None:
    async with PartitionReader(cluster, FLIGHTS) as reader:
        found = []
        async for record in reader.records():
            if record.offset == 5:
                partition.append([b"value 100"])
            found.append(record.offset)
    assert found == list(range(100))


async def test_following(partition: FakePartition, cluster: Cluster) -> None:
    async def write() -> None:
        for number in range(100, 130):
            partition.append([b"value %d" % number])
            await asyncio.sleep(0.001)

    reader = PartitionReader(cluster, FLIGHTS, Offset(90))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(write())
        assert await offsets(reader, follow=True, count=40) == list(range(90, 130))


@pytest.mark.parametrize("codec", list(Compression))
async def test_compressed_batches(node: KafkaNode, cluster: Cluster, codec: Compression) -> None:
    partition = await node.add_stream("flights")
    for index in range(3):
        values = [b"value %d" % (10 * index + i) for i in range(10)]
        partition.append(values, attributes=int(codec), compress=lambda data: compress(codec, data))
    reader = PartitionReader(cluster, FLIGHTS, Offset(7))
    assert await offsets(reader) == list(range(7, 30))


async def test_records_have_everything(node: KafkaNode, cluster: Cluster) -> None:
    partition = await node.add_stream("flights")
    record = HandRecord(b"v", key=b"k", headers=[(b"subject", b"s"), (b"none", None)])
    partition.append_bytes(hand_batch([record], base_timestamp_ms=5, max_timestamp_ms=5))
    async with PartitionReader(cluster, FLIGHTS) as reader:
        found = [it async for it in reader.records()]
    assert found == [Record(0, 5, b"k", b"v", (("subject", b"s"), ("none", None)))]


async def test_batches_come_whole(partition: FakePartition, cluster: Cluster) -> None:
    async with PartitionReader(cluster, FLIGHTS, Offset(25)) as reader:
        found = [header.base_offset async for header, _ in reader.batches(stop=45)]
    assert found == [20, 30, 40]


async def test_holes_of_compaction_are_passed_over(node: KafkaNode, cluster: Cluster) -> None:
    partition = await node.add_stream("flights")
    partition.append_bytes(
        hand_batch([HandRecord(b"value 2", offset_delta=2)], 0, last_offset_delta=9)
    )
    partition.append([b"value 10"])
    assert await offsets(PartitionReader(cluster, FLIGHTS)) == [2, 10]


@pytest.mark.parametrize("offset", [3, 101, 10_000])
async def test_offsets_out_of_range(
    partition: FakePartition, cluster: Cluster, offset: int
) -> None:
    partition.log_start_offset = 5
    async with PartitionReader(cluster, FLIGHTS, Offset(offset)) as reader:
        with pytest.raises(OffsetOutOfRange, match=rf"offset {offset} is outside \[5, 100\]"):
            await offsets(reader)


async def test_the_earliest_moves_with_retention(
    partition: FakePartition, cluster: Cluster
) -> None:
    reader = PartitionReader(cluster, FLIGHTS)
    await reader._resolve_start()
    partition.log_start_offset = 50
    assert await offsets(reader) == list(range(50, 100))


async def test_a_stream_that_is_not_there(cluster: Cluster) -> None:
    async with PartitionReader(cluster, TopicPartition("nowhere", 0)) as reader:
        with pytest.raises(StreamNotFound):
            await offsets(reader)


async def test_a_stream_deleted_while_followed(
    node: KafkaNode, partition: FakePartition, cluster: Cluster
) -> None:
    async def delete() -> None:
        await until(lambda: bool(partition.watchers))
        await node.metadata.delete_stream("flights")

    reader = PartitionReader(cluster, FLIGHTS, LATEST)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(delete())
        with pytest.raises(StreamNotFound):
            await offsets(reader, follow=True)


async def test_a_leader_that_is_elected_anew_is_followed(
    node: KafkaNode, partition: FakePartition, cluster: Cluster
) -> None:
    async def elect() -> None:
        await until(lambda: bool(partition.watchers))
        partition.leader_epoch = 1
        partition.wake()
        node.metadata.change("flights", 0, leader_epoch=1)
        partition.append([b"value 100"])

    reader = PartitionReader(cluster, FLIGHTS, Offset(95))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(elect())
        assert await offsets(reader, follow=True, count=6) == list(range(95, 101))


async def test_a_connection_that_breaks_is_opened_again(
    node: KafkaNode, partition: FakePartition, cluster: Cluster
) -> None:
    async def break_up() -> None:
        await until(lambda: bool(partition.watchers))
        for connection in list(node.listener._connections):
            connection._channel.sock.shutdown(2)
        partition.append([b"value 100"])

    reader = PartitionReader(cluster, FLIGHTS, Offset(95))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(break_up())
        assert await offsets(reader, follow=True, count=6) == list(range(95, 101))


async def test_patience_has_an_end(
    node: KafkaNode, partition: FakePartition, cluster: Cluster
) -> None:
    partition.is_leader = False
    async with PartitionReader(cluster, FLIGHTS, patience_ms=150) as reader:
        with pytest.raises(RequestTimedOut, match="not leader"):
            await offsets(reader)


async def test_a_flipped_byte_is_found(node: KafkaNode, cluster: Cluster) -> None:
    partition = await node.add_stream("flights")
    partition.append([b"value 0"])
    damaged = bytearray(hand_batch([HandRecord(b"value 1")], 1))
    damaged[-3] ^= 1
    partition.append_bytes(bytes(damaged))
    async with PartitionReader(cluster, FLIGHTS, fetch_bytes=1) as reader:
        with pytest.raises(
            CorruptBatch, match=r"offsets \[1, 2\) came damaged from .*:\d+: checks"
        ):
            await offsets(reader)
        assert reader.next_offset == 1


async def test_bytes_that_are_no_batch_are_an_error_and_not_a_loop(
    node: KafkaNode, cluster: Cluster
) -> None:
    partition = await node.add_stream("flights")
    whole = hand_batch([HandRecord(b"value 0")])
    assert read_header(whole).size_bytes == len(whole)
    partition.append_bytes(whole)
    partition.batches[0] = partition.batches[0]._replace(length=len(whole) - 5)
    async with PartitionReader(cluster, FLIGHTS) as reader:
        with pytest.raises(CorruptBatch, match="no whole batch at offset 0"):
            await offsets(reader)


async def test_by_its_id_no_other_stream_of_the_name_is_read(
    node: KafkaNode, partition: FakePartition, cluster: Cluster
) -> None:
    """Not even on a connection that is open already, at an offset that the other one has."""
    topic_id = (await cluster.topic("flights")).topic_id
    assert topic_id is not None
    reader = PartitionReader(cluster, FLIGHTS, Offset(90), topic_id=topic_id)
    assert await offsets(reader) == list(range(90, 100))
    await node.metadata.delete_stream("flights")
    other = await node.add_stream("flights")
    other.append([b"strange"] * 200)
    with pytest.raises(UnknownTopicId):
        await offsets(reader, follow=True)
    reader.close()
