"""Records on their way into a stream: together, in order, each told what became of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from streamlog.client.cluster import Cluster
from streamlog.errors import (
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    Overloaded,
    RecordTooLarge,
    RequestTimedOut,
    UnknownTopicId,
)
from streamlog.ledger.channel import publisher as publishing
from streamlog.ledger.channel.consumer import find_stream
from streamlog.ledger.channel.publisher import StreamPublisher
from streamlog.ledger.core.entry import Message
from streamlog.record.batch import read_header
from streamlog.record.codec import iter_records
from tests.fake_partition import Batch, FakePartition
from tests.kafka_node import KafkaNode, until


def content(batch: Batch) -> bytes:
    batch.file.seek(batch.position)
    return batch.file.read(batch.length)


def message(number: int) -> Message:
    return Message(b"key", b"%d" % number, (("name", b"value"),))


@contextlib.asynccontextmanager
async def running(node: KafkaNode, **settings: Any) -> AsyncIterator[StreamPublisher]:
    async with Cluster.at(node.address) as cluster:
        place = await find_stream(cluster, "s")
        publisher = StreamPublisher(cluster, place.tp, place.topic_id, **settings)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(publisher.run())
            try:
                yield publisher
            finally:
                task.cancel()


@pytest.fixture
async def partition(node: KafkaNode) -> FakePartition:
    return await node.add_stream("s")


async def test_what_comes_together_goes_together_and_in_order(
    node: KafkaNode, partition: FakePartition
) -> None:
    async with running(node) as publisher:
        offsets = await asyncio.gather(*(publisher.publish(message(n)) for n in range(500)))
    assert offsets == list(range(500))
    assert len(partition.batches) <= 3
    records = [record for batch in partition.batches for record in iter_records(content(batch))]
    assert [record.value for record in records] == [b"%d" % n for n in range(500)]
    assert {(record.key, record.headers) for record in records} == {(b"key", (("name", b"value"),))}
    assert all(record.timestamp_ms > 1_000_000_000_000 for record in records)


async def test_one_that_is_too_large_is_refused_alone(
    node: KafkaNode, partition: FakePartition
) -> None:
    large = Message(None, b"x" * (2 << 20))
    async with running(node) as publisher:
        done = await asyncio.gather(
            *(publisher.publish(each) for each in (message(0), large, message(1))),
            return_exceptions=True,
        )
    assert isinstance(done[1], RecordTooLarge)
    assert (done[0], done[2]) == (0, 1)


async def test_a_leader_that_cannot_is_asked_again(
    node: KafkaNode, partition: FakePartition
) -> None:
    partition.producing_fails = NotEnoughReplicas("one is away")
    async with running(node) as publisher:
        publish = asyncio.create_task(publisher.publish(message(0)))
        done, _ = await asyncio.wait([publish], timeout=0.3)
        assert not done
        partition.producing_fails = None
        assert await publish == 0


async def test_a_leader_that_cannot_for_long_is_given_up(
    node: KafkaNode, partition: FakePartition
) -> None:
    partition.producing_fails = NotEnoughReplicas("one is away")
    async with running(node, patience_ms=150) as publisher:
        with pytest.raises(RequestTimedOut, match="for 150 ms"):
            await publisher.publish(message(0))
        partition.producing_fails = None
        assert await publisher.publish(message(1)) == 0


async def test_what_is_sent_again_has_the_same_numbers(
    node: KafkaNode, partition: FakePartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By which the leader knows it, where it has stored it already (KIP-98)."""
    produce, failures = partition.produce, [NotEnoughReplicasAfterAppend("perhaps")]

    def fails_once(*arguments: Any, **named: Any) -> Any:
        if not failures:
            return produce(*arguments, **named)
        partition.commits = False
        produce(*arguments, **named)
        partition.waiting.clear()
        partition.commits = True
        raise failures.pop()

    monkeypatch.setattr(partition, "produce", fails_once)
    async with running(node) as publisher:
        await publisher.publish(message(0))
        await publisher.publish(message(1))
    headers = [read_header(content(batch)) for batch in partition.batches]
    numbers = [(it.producer_id, it.producer_epoch, it.base_sequence) for it in headers]
    assert numbers == [(7, 0, 0), (7, 0, 0), (7, 0, 1)]


async def test_more_than_may_wait_is_refused(
    node: KafkaNode, partition: FakePartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "PENDING_BYTES_MAX", 1_000)
    partition.commits = False
    async with running(node) as publisher:
        first = asyncio.create_task(publisher.publish(Message(None, b"x" * 900)))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="bytes wait for stream 's'"):
            await publisher.publish(Message(None, b"x" * 100))
        await until(lambda: bool(partition.waiting))
        partition.commit_produced()
        assert await first == 0
        partition.commits = True
        assert await publisher.publish(Message(None, b"x" * 900)) == 1


async def test_who_waits_when_it_stops_is_told_so(
    node: KafkaNode, partition: FakePartition
) -> None:
    partition.commits = False
    async with running(node) as publisher:
        first = asyncio.create_task(publisher.publish(message(0)))
        await until(lambda: bool(partition.waiting))
        second = asyncio.create_task(publisher.publish(message(1)))
        await asyncio.sleep(0)
    for publish in (first, second):
        with pytest.raises(RequestTimedOut, match="stopped before it was committed"):
            await publish
    with pytest.raises(Overloaded, match="is stopping"):
        await publisher.publish(message(2))


async def test_a_stream_that_is_gone(node: KafkaNode, partition: FakePartition) -> None:
    async with running(node) as publisher:
        await node.metadata.delete_stream("s")
        with pytest.raises(UnknownTopicId):
            await publisher.publish(message(0))
