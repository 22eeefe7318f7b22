"""Few bytes that decompress to many: memory and the event loop's time have limits at every listener."""

import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from streamlog.client.addresses import parse_addresses
from streamlog.client.cluster import Cluster
from streamlog.client.reader import PartitionReader
from streamlog.control.messages.ordered_read import PICKED_BYTES_MAX, messages_from
from streamlog.control.messages.stored_messages import message_at
from streamlog.http.console.messages.partition_source import LeaderSource, LocalSource, newest
from streamlog.ledger.channel.consumer import RUN_RECORDS_MAX, StreamConsumer, StreamPlace
from streamlog.model import TopicPartition
from streamlog.record.compression import Compression
from streamlog.wire.registry import PRODUCE
from tests.kafka_node import KafkaNode
from tests.led_partition import FakeSlice
from tests.raw_client import RawClient
from tests.readable_partition import FakePartition as ReadablePartition
from tests.security.opened_batches import MIB, Openings, swollen

STREAMED = [Compression.GZIP, Compression.LZ4, Compression.ZSTD]
AT_ONCE_BYTES = 64 * 1024
BATCHES, BATCH_BYTES = 11, 16 * MIB
TP = TopicPartition("flights", 0)


@pytest.fixture
async def node() -> AsyncIterator[KafkaNode]:
    async with KafkaNode() as it:
        yield it


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> Openings:
    return Openings(monkeypatch)


@pytest.fixture
def peak() -> Iterator[Callable[[], int]]:
    tracemalloc.start()
    tracemalloc.reset_peak()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


async def produce(node: KafkaNode, batch: bytes) -> tuple[int, str | None]:
    data = {"name": "flights", "partition_data": [{"index": 0, "records": batch}]}
    request = {"acks": -1, "timeout": 5_000, "topic_data": [data]}
    async with RawClient(node.port) as client:
        answer = await client.ask(PRODUCE, 9, request)
    (found,) = answer["responses"][0]["partition_responses"]
    return found["error_code"], found["error_message"]


@pytest.mark.parametrize("codec", list(Compression)[1:])
async def test_a_producers_bomb_is_too_large(node: KafkaNode, codec: Compression) -> None:
    partition = await node.add_stream("flights")
    code, message = await produce(node, swollen(codec, 33 * MIB))
    assert code == 10
    assert message is not None
    assert partition.log_end_offset == 0


@pytest.mark.parametrize("codec", STREAMED)
async def test_what_a_producer_sends_is_opened_by_what_comes_out(
    node: KafkaNode, openings: Openings, codec: Compression
) -> None:
    await node.add_stream("flights")
    batch = swollen(codec, 2 * MIB)
    assert len(batch) < AT_ONCE_BYTES
    assert await produce(node, batch) == (0, None)
    assert openings.largest_here() <= AT_ONCE_BYTES
    assert openings.elsewhere
    openings.seen.clear()
    assert await produce(node, swollen(codec, 10_000)) == (0, None)
    assert not openings.elsewhere, "a small one needs no thread"


async def test_a_producers_record_has_not_headers_without_end(node: KafkaNode) -> None:
    from tests.record_batches import HandRecord, hand_batch

    await node.add_stream("flights")
    for count, code in ((65_536, 0), (65_537, 87)):
        record = HandRecord(headers=[(b"", None)] * count)
        assert (await produce(node, hand_batch([record], max_timestamp_ms=1_000)))[0] == code


async def filled(node: KafkaNode, batches: int, size: int, *, records: int = 1) -> None:
    partition = await node.add_stream("flights")
    for number in range(batches):
        batch = swollen(Compression.ZSTD, size, records=records, base_offset=number * records)
        partition.append_bytes(batch, timestamp_ms=1_000)


def cluster_of(node: KafkaNode) -> Cluster:
    return Cluster(parse_addresses(node.address))


async def test_a_reader_opens_by_what_comes_out(node: KafkaNode, openings: Openings) -> None:
    await filled(node, 2, 2 * MIB)
    cluster = cluster_of(node)
    async with PartitionReader(cluster, TP) as reader:
        sizes = [len(record.value or b"") async for record in reader.records()]
    cluster.close()
    assert sizes == [2 * MIB] * 2
    assert openings.largest_here() <= AT_ONCE_BYTES


async def test_an_ordering_node_opens_by_what_comes_out_and_takes_parts(
    node: KafkaNode, openings: Openings
) -> None:
    await filled(node, 2, 2 * MIB, records=10_000)
    cluster = cluster_of(node)
    topic_id = (await cluster.topic("flights")).topic_id or UUID(int=0)
    consumer = StreamConsumer(cluster, StreamPlace(TP, topic_id))
    runs = [run async for run in consumer.runs(5_000, stop=20_000)]
    cluster.close()
    assert [record.offset for run in runs for record in run.records] == list(range(5_000, 20_000))
    assert max(len(run.records) for run in runs) <= RUN_RECORDS_MAX
    assert sum(run.size_bytes for run in runs) > 4 * MIB, "what they take, not what was read"
    assert openings.largest_here() <= AT_ONCE_BYTES


class Bombs(ReadablePartition):
    """``BATCHES`` of one record each, which come to ``BATCH_BYTES``."""

    def __init__(self) -> None:
        super().__init__([["s"]] * BATCHES)
        one = [
            swollen(Compression.ZSTD, BATCH_BYTES, base_offset=number, subject=b"s")
            for number in range(BATCHES)
        ]
        self._batches = [(number, number + 1, data) for number, data in enumerate(one)]

    async def read(self, offset: int, max_bytes: int) -> FakeSlice:
        return await super().read(offset, max_bytes)


async def test_a_tail_keeps_what_it_shows(peak: Callable[[], int]) -> None:
    partition: Any = Bombs()
    records = await newest(LocalSource(partition), 0, 25, BATCHES)
    assert [record["offset"] for record in records] == list(range(BATCHES))
    assert {record["value"]["size_bytes"] for record in records} == {BATCH_BYTES}
    assert peak() < 5 * BATCH_BYTES


async def test_a_tail_of_another_nodes_partition_keeps_what_it_shows(
    node: KafkaNode, peak: Callable[[], int]
) -> None:
    await filled(node, BATCHES, BATCH_BYTES)
    source = LeaderSource(cluster_of(node), TP)
    records = await newest(source, 0, 25, BATCHES)
    source.close()
    assert len(records) == BATCHES
    assert peak() < 5 * BATCH_BYTES


async def test_one_message_is_opened_by_what_comes_out(openings: Openings) -> None:
    found = await message_at(Bombs(), 3)  # type: ignore[arg-type]
    assert len(found.data) == BATCH_BYTES
    assert openings.largest_here() <= AT_ONCE_BYTES


async def test_a_passage_is_read_in_pieces(peak: Callable[[], int]) -> None:
    count = 0
    async for message in messages_from(Bombs(), "", 0):  # type: ignore[arg-type]
        assert len(message.data) == BATCH_BYTES
        count += 1
    assert count == BATCHES
    assert peak() < 3 * (PICKED_BYTES_MAX + BATCH_BYTES)
