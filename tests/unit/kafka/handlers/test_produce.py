"""Produce and InitProducerId over a socket, in every version offered."""

import asyncio
import struct
from typing import Any

import pytest

from streamlog.errors import (
    InvalidProducerEpoch,
    NotLeader,
    OutOfOrderSequence,
    ProducerRefused,
    StorageFailed,
    StorageFull,
)
from streamlog.kafka.net.channel import Bytes
from streamlog.kafka.net.connection import LATE_MAX
from streamlog.metadata.commands import AllocateProducerIds, Granted
from streamlog.metadata.controller import Decision
from streamlog.metadata.image.records import ProducerIdsAllocated
from streamlog.model import TopicPartition
from streamlog.partition.producer_state_manager import ProducerAppend, VerifiedTransaction
from streamlog.partition.state import Acknowledgement
from streamlog.record.batch import read_header
from streamlog.record.codec import iter_records
from streamlog.record.compression import compress
from streamlog.record.produced import ProducedBatch
from streamlog.wire.cursor import Cursor, encode_string
from streamlog.wire.errors import code_of
from streamlog.wire.framing import frame
from streamlog.wire.registry import FIND_COORDINATOR, INIT_PRODUCER_ID, METADATA, PRODUCE
from tests.fake_partition import NODE, FakePartition
from tests.kafka_node import KafkaNode, until
from tests.raw_client import RawClient
from tests.record_batches import HandRecord, hand_batch

BATCH = hand_batch([HandRecord(b"a"), HandRecord(b"b")], max_timestamp_ms=1_000)


def request_of(
    records: bytes | None = BATCH,
    *,
    acks: int = -1,
    timeout_ms: int = 5_000,
    topic: str = "flights",
    partition: int = 0,
    **more: Any,
) -> dict[str, Any]:
    data = {"name": topic, "partition_data": [{"index": partition, "records": records}]}
    return {"acks": acks, "timeout": timeout_ms, "topic_data": [data], **more}


def result_of(answer: dict[str, Any]) -> tuple[int, int]:
    """Error code and base offset."""
    (topic,) = answer["responses"]
    (found,) = topic["partition_responses"]
    return found["error_code"], found["base_offset"]


async def stored(partition: FakePartition) -> list[bytes | None]:
    values: list[bytes | None] = []
    for batch in partition.batches:
        batch.file.seek(batch.position)
        values += [record.value for record in iter_records(batch.file.read(batch.length))]
    return values


@pytest.mark.parametrize("version", range(3, 13))
@pytest.mark.parametrize("acks", [1, -1])
async def test_a_batch_is_appended_and_answered(node: KafkaNode, version: int, acks: int) -> None:
    partition = await node.add_stream("flights")
    partition.append([b"before"])
    partition.leader_epoch = 5
    partition.log_start_offset = 1
    async with RawClient(node.port) as client:
        answer = await client.ask(PRODUCE, version, request_of(acks=acks))
    assert result_of(answer) == (0, 1)
    (found,) = answer["responses"][0]["partition_responses"]
    assert answer["responses"][0]["name"] == "flights"
    assert (found["index"], found["log_append_time"]) == (0, None)
    if version >= 5:
        assert found["log_start_offset"] == 1
    assert await stored(partition) == [b"before", b"a", b"b"]
    last = partition.batches[-1]
    last.file.seek(last.position)
    header = read_header(last.file.read(last.length))
    assert (header.base_offset, header.leader_epoch) == (1, 5)


@pytest.mark.parametrize("version", range(3))
async def test_old_versions_are_told_so(node: KafkaNode, version: int) -> None:
    partition = await node.add_stream("flights")
    body = struct.pack(">hii", 1, 100, 1) + encode_string("flights", flexible=False)
    body += struct.pack(">iii", 1, 0, len(BATCH)) + BATCH
    async with RawClient(node.port) as client:
        client.write(frame(struct.pack(">hhih", PRODUCE, version, 9, -1), body))
        cursor = Cursor(await client.frame())
    assert (cursor.i32(), cursor.i32(), cursor.string(flexible=False)) == (9, 1, "flights")
    assert (cursor.i32(), cursor.i32(), cursor.i16(), cursor.i64()) == (1, 0, 35, -1)
    assert cursor.remaining == (0, 4, 12)[version]
    assert partition.log_end_offset == 0


async def test_acks_0_is_not_answered(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    async with RawClient(node.port) as client:
        client.send(PRODUCE, 9, request_of(acks=0))
        answer = await client.ask(METADATA, 9, {"topics": []})
    assert len(answer["brokers"]) == 1
    assert partition.log_end_offset == 2


async def test_an_error_without_an_answer_closes_the_connection(node: KafkaNode) -> None:
    async with RawClient(node.port) as client:
        client.send(PRODUCE, 9, request_of(acks=0))
        assert await client.closed()
    assert node.metric("streamlog_connections_closed_total", reason="protocol") == 1


def changed(position: int, content: bytes) -> bytes:
    return BATCH[:position] + content + BATCH[position + len(content) :]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (request_of(topic="nowhere"), 3),
        (request_of(partition=1), 3),
        (request_of(None), 87),
        (request_of(b""), 2),
        (request_of(BATCH[:-1]), 2),
        (request_of(changed(len(BATCH) - 1, b"x")), 2),
        (request_of(changed(16, b"\x01")), 87),
        (request_of(BATCH + BATCH), 87),
        (request_of(hand_batch([HandRecord(b"x")], attributes=0x20)), 87),
        (request_of(hand_batch([HandRecord(b"x")], attributes=0x10)), 53),
        (request_of(hand_batch([HandRecord(b"x")], record_count=2)), 87),
        (request_of(hand_batch([HandRecord(b"x")], record_count=2, last_offset_delta=1)), 87),
        (request_of(hand_batch([HandRecord(b"x", offset_delta=1)], last_offset_delta=0)), 87),
        (request_of(hand_batch([HandRecord(b"x")], attributes=4)), 87),
        (request_of(hand_batch([HandRecord(b"x")], attributes=7)), 87),
        (request_of(hand_batch([HandRecord(b"x")], producer=(1, -1, 0))), 87),
        (request_of(hand_batch([HandRecord(bytes(2_000_000))])), 10),
        (request_of(transactional_id="t"), 53),
        (request_of(acks=2), 21),
    ],
)
async def test_what_is_wrong_is_told(node: KafkaNode, asked: dict[str, Any], code: int) -> None:
    partition = await node.add_stream("flights")
    async with RawClient(node.port) as client:
        answer = await client.ask(PRODUCE, 9, asked)
        assert result_of(answer) == (code, -1)
        assert answer["responses"][0]["partition_responses"][0]["error_message"]
    assert partition.log_end_offset == 0


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotLeader("x"), 6),
        (StorageFull("x"), 56),
        (StorageFailed("x"), 56),
        (OutOfOrderSequence("x"), 45),
    ],
)
async def test_what_the_partition_refuses(node: KafkaNode, error: Any, code: int) -> None:
    partition = await node.add_stream("flights")
    partition.producing_fails = error
    async with RawClient(node.port) as client:
        for acks in (1, -1):
            assert result_of(await client.ask(PRODUCE, 9, request_of(acks=acks))) == (code, -1)


@pytest.mark.parametrize("kind", [OutOfOrderSequence, InvalidProducerEpoch])
async def test_a_refused_producer_is_told_where_its_batches_begin(
    node: KafkaNode, kind: type[ProducerRefused]
) -> None:
    partition = await node.add_stream("flights")
    partition.producing_fails = kind("x", 17)
    async with RawClient(node.port) as client:
        answer = await client.ask(PRODUCE, 9, request_of())
    assert result_of(answer) == (code_of(kind("x")), 17)


async def test_who_does_not_lead_does_not_append(node: KafkaNode) -> None:
    partition = await node.add_stream("flights", 2)
    partition.is_leader = False
    del node.local[TopicPartition("flights", 1)]
    async with RawClient(node.port) as client:
        for number in (0, 1):
            answer = await client.ask(PRODUCE, 9, request_of(partition=number))
            assert result_of(answer) == (6, -1)


async def test_too_few_replicas_refuse_only_who_waits_for_them(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    partition.below_min_isr = True
    async with RawClient(node.port) as client:
        assert result_of(await client.ask(PRODUCE, 9, request_of())) == (19, -1)
        assert partition.log_end_offset == 0
        assert result_of(await client.ask(PRODUCE, 9, request_of(acks=1))) == (0, 0)


@pytest.mark.parametrize(("short", "code"), [(False, 7), (True, 20)])
async def test_a_commit_that_does_not_come_is_not_waited_for(
    node: KafkaNode, short: bool, code: int
) -> None:
    partition = await node.add_stream("flights")
    partition.commits = False
    append = partition.produce

    def append_and_lose_replicas(
        batch: ProducedBatch, ack: Acknowledgement, *, verified: VerifiedTransaction | None = None
    ) -> ProducerAppend:
        appended = append(batch, ack, verified=verified)
        partition.below_min_isr = short
        return appended

    partition.produce = append_and_lose_replicas  # type: ignore[method-assign]
    async with RawClient(node.port) as client:
        cursor = await client.answer(client.send(PRODUCE, 9, request_of(timeout_ms=50)))
        assert b"\x00" + code.to_bytes(1, "big") in bytes(cursor.take(cursor.remaining))
        partition.commit_produced()  # it is no longer waited for


async def test_requests_are_appended_as_they_come_and_answered_in_order(node: KafkaNode) -> None:
    slow, quick = await node.add_stream("flights"), await node.add_stream("ships")
    slow.commits = False
    async with RawClient(node.port) as client:
        sent = [
            client.send(PRODUCE, 9, request_of()),
            client.send(PRODUCE, 9, request_of(topic="ships")),
            client.send(PRODUCE, 9, request_of()),
            client.send(METADATA, 9, {"topics": []}),
        ]
        await until(lambda: len(slow.waiting) == 2 and quick.log_end_offset == 2)
        async with RawClient(node.port) as other:  # who is not kept waiting
            assert result_of(await other.ask(PRODUCE, 9, request_of(topic="ships"))) == (0, 2)
        slow.commit_produced()
        for each in sent:
            await client.answer(each)


@pytest.mark.parametrize("taken", [[], [0], [10, 0, 7]])
async def test_a_lone_late_answer_goes_out_whole_whatever_the_socket_takes(
    node: KafkaNode, taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``taken``: how many bytes it takes of each of the first writes, not all."""
    partition = await node.add_stream("flights")
    partition.commits = False
    async with RawClient(node.port) as client:
        assert result_of(await client.ask(PRODUCE, 9, request_of(topic="none")))[0] != 0
        first = client.send(PRODUCE, 9, request_of())
        await until(lambda: len(partition.waiting) == 1)
        (connection,) = node.listener._connections
        channel = connection._channel
        put, left, sizes = channel._put, list(taken), list[int]()

        def takes(data: Bytes, flags: int) -> int:
            if not left:
                sizes.append(len(data))
                return put(data, flags)
            count = left.pop(0)
            if not count:
                raise BlockingIOError
            return put(memoryview(data)[:count], flags)

        monkeypatch.setattr(channel, "_put", takes)
        partition.commit_produced()
        second = client.send(PRODUCE, 9, request_of())
        await client.answer(first)
        assert len(sizes) == 1
        await until(lambda: len(partition.waiting) == 1)
        partition.commit_produced()
        await client.answer(second)


async def test_only_so_many_answers_may_be_late(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    partition.commits = False
    async with RawClient(node.port) as client:
        sent = [client.send(PRODUCE, 9, request_of()) for _ in range(LATE_MAX + 10)]
        await until(lambda: len(partition.waiting) == LATE_MAX)
        await asyncio.sleep(0.01)
        assert len(partition.waiting) == LATE_MAX
        partition.commits = True
        partition.commit_produced()
        for each in sent:
            await client.answer(each)


async def test_a_node_that_stops_answers_what_is_late(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    partition.commits = False
    async with RawClient(node.port) as client:
        sent = [client.send(PRODUCE, 9, request_of()) for _ in range(2)]
        await until(lambda: len(partition.waiting) == 2)
        await node.listener.stop()
        for each in sent:
            await client.answer(each)
        assert await client.closed()


async def test_a_peer_that_leaves_is_not_waited_for(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    partition.commits = False
    async with RawClient(node.port) as client:
        client.send(PRODUCE, 9, request_of())
        await until(lambda: bool(partition.waiting))
    await until(lambda: node.metric("streamlog_connections") == 0)
    partition.commit_produced()


@pytest.mark.parametrize("version", range(5))
async def test_producer_ids_come_out_of_blocks(node: KafkaNode, version: int) -> None:
    node.metadata.result = Granted(1, {"first": 7, "end": 9})
    async with RawClient(node.port) as client:
        for expected in (7, 8, 7):
            request = {"transactional_id": None, "transaction_timeout": 0}
            answer = await client.ask(INIT_PRODUCER_ID, version, request)
            assert (answer["error_code"], answer["producer_epoch"]) == (0, 0)
            assert answer["producer_id"] == expected
    assert node.metadata.taken == [(AllocateProducerIds(node_id=NODE), False)] * 2


@pytest.mark.parametrize(
    ("known", "told"),
    [((50, 3), (50, 4)), ((50, 32767), (7, 0)), ((2000, 3), (7, 0)), ((50, -1), (7, 0))],
)
async def test_who_has_an_id_goes_on_with_it(
    node: KafkaNode, known: tuple[int, int], told: tuple[int, int]
) -> None:
    node.metadata.result = Granted(1, {"first": 7, "end": 9})
    node.metadata._apply(Decision((ProducerIdsAllocated(node_id=NODE, end=1000),)))
    request = {
        "transactional_id": None, "transaction_timeout": 0,
        "producer_id": known[0], "producer_epoch": known[1],
    }  # fmt: skip
    async with RawClient(node.port) as client:
        answer = await client.ask(INIT_PRODUCER_ID, 4, request)
    assert (answer["producer_id"], answer["producer_epoch"]) == told


async def test_transactions_are_refused(node: KafkaNode) -> None:
    async with RawClient(node.port) as client:
        request: dict[str, Any] = {"transactional_id": "t", "transaction_timeout": 0}
        assert (await client.ask(INIT_PRODUCER_ID, 4, request))["error_code"] == 53
        request = {"key_type": 1, "coordinator_keys": ["t"]}
        answer = await client.ask(FIND_COORDINATOR, 4, request)
        assert answer["coordinators"][0]["error_code"] == 53


@pytest.mark.parametrize("codec", [0, 2])
async def test_a_compacted_topic_takes_no_record_without_a_key(node: KafkaNode, codec: int) -> None:
    partition = await node.add_stream("flights", cleanup_policy="compact")

    def batch(*keys: bytes | None) -> bytes:
        records = [HandRecord(b"v", key) for key in keys]
        return hand_batch(records, attributes=codec, compress=lambda body: compress(codec, body))

    async with RawClient(node.port) as client:
        answer = await client.ask(PRODUCE, 8, request_of(batch(b"a", None)))
        assert result_of(answer) == (87, -1)
        (told,) = answer["responses"][0]["partition_responses"]
        assert told["error_message"].startswith("record 1 has no key, and the topic is compacted")
        named = [
            (it["batch_index"], it["batch_index_error_message"]) for it in told["record_errors"]
        ]
        assert named == [(1, "it has no key, and the topic is compacted")]
        many = [b"a" if place % 7 else None for place in range(9_000)]
        answer = await client.ask(PRODUCE, 9, request_of(batch(*many)))
        (told,) = answer["responses"][0]["partition_responses"]
        assert told["error_message"].startswith("1286 records (0, 7, 14, …) have no key")
        assert [it["batch_index"] for it in told["record_errors"]] == list(range(0, 7_000, 7))
        assert partition.log_end_offset == 0
        assert result_of(await client.ask(PRODUCE, 8, request_of(batch(b"a", b"")))) == (0, 0)
