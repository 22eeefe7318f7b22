"""Topics named by their ids (KIP-516): a stream created anew is another one."""

import asyncio
from typing import Any
from uuid import UUID

import pytest

from streamlog.model import NodeId, TopicPartition
from streamlog.wire.fetch import (
    NODES_FROM,
    TOPIC_IDS_FROM,
    FetchRequest,
    FetchResponse,
    TopicIdPartition,
)
from streamlog.wire.leaders import CurrentLeader, NodeEndpoint
from streamlog.wire.registry import APIS, CREATE_TOPICS, FETCH, METADATA, PRODUCE
from tests.fake_partition import NODE, FakePartition
from tests.kafka_node import KafkaNode
from tests.raw_client import RawClient, at, wanted
from tests.record_batches import HandRecord, hand_batch

UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID, SESSION_TOPIC_ID_ERROR = 100, 103, 106
BY_ID = range(TOPIC_IDS_FROM, APIS[FETCH].version_max + 1)
NEWEST = APIS[FETCH].version_max
OTHER = NodeId(NODE + 1)
STRANGE = b"\x77" * 16
BATCH = hand_batch([HandRecord(b"a")], max_timestamp_ms=1_000)


async def filled(node: KafkaNode) -> FakePartition:
    partition = await node.add_stream("flights")
    partition.append([b"x"] * 10)
    return partition


async def made_anew(node: KafkaNode) -> FakePartition:
    await node.metadata.delete_stream("flights")
    return await node.add_stream("flights")


def by_id(topic_id: bytes, *partitions: Any, **more: Any) -> FetchRequest:
    return wanted(*partitions, topic="", topic_id=topic_id, **more)


def codes(answer: FetchResponse) -> list[tuple[bytes, int]]:
    return [(it.topic_id, it.fetched.error_code) for it in answer.partitions]


@pytest.mark.parametrize("version", BY_ID)
async def test_records_are_fetched_by_the_id(node: KafkaNode, version: int) -> None:
    partition = await filled(node)
    async with RawClient(node.port) as client:
        answer = await client.fetch(by_id(partition.topic_id, at(0)), version)
    (found,) = answer.partitions
    assert (found.topic_id, found.fetched.error_code) == (partition.topic_id, 0)
    assert found.fetched.high_watermark == 10
    assert len(found.records) == partition.batches[0].length


@pytest.mark.parametrize("topic_id", [STRANGE, bytes(16)])
async def test_an_id_that_no_stream_has(node: KafkaNode, topic_id: bytes) -> None:
    partition = await filled(node)
    async with RawClient(node.port) as client:
        request = by_id(topic_id, at(0), at(0, partition=3), max_wait_ms=60_000)
        assert codes(await client.fetch(request, NEWEST)) == [(topic_id, UNKNOWN_TOPIC_ID)] * 2
        request = by_id(partition.topic_id, at(0, partition=3))
        assert codes(await client.fetch(request, NEWEST)) == [(partition.topic_id, 3)]


async def test_the_id_is_the_one_that_metadata_and_create_topics_tell(node: KafkaNode) -> None:
    topic = {"name": "ships", "num_partitions": 1, "replication_factor": 1}
    async with RawClient(node.port) as client:
        created = await client.ask(CREATE_TOPICS, 7, {"topics": [topic]})
        (made,) = created["topics"]
        for version in (10, 13):
            answer = await client.ask(METADATA, version, {"topics": [{"name": "ships"}]})
            assert [it["topic_id"] for it in answer["topics"]] == [made["topic_id"]]
        assert codes(await client.fetch(by_id(made["topic_id"].bytes, at(0)), NEWEST)) == [
            (made["topic_id"].bytes, 0)
        ]


async def test_a_stream_that_was_created_anew_has_another_id(node: KafkaNode) -> None:
    before = (await filled(node)).topic_id
    async with RawClient(node.port) as client:
        assert codes(await client.fetch(by_id(before, at(0)), NEWEST)) == [(before, 0)]
        after = (await made_anew(node)).topic_id
        assert after != before
        assert codes(await client.fetch(by_id(before, at(0)), NEWEST)) == [
            (before, UNKNOWN_TOPIC_ID)
        ]
        assert codes(await client.fetch(by_id(after, at(0)), NEWEST)) == [(after, 0)]
        (found,) = (await client.fetch(wanted(at(0)), 12)).partitions
        assert found.fetched.error_code == 0, "who asks by name gets what has it now"


async def test_a_waiting_fetch_hears_that_the_stream_is_gone(node: KafkaNode) -> None:
    before = (await filled(node)).topic_id
    async with RawClient(node.port) as client:
        sent = client.send_fetch(by_id(before, at(10), max_wait_ms=60_000), NEWEST)
        waiting = asyncio.create_task(client.fetched(sent))
        await asyncio.sleep(0.01)
        await made_anew(node)
        assert codes(await waiting) == [(before, UNKNOWN_TOPIC_ID)]


async def test_a_log_that_is_still_of_the_stream_before(node: KafkaNode) -> None:
    """The node knows of the new stream, and has not opened its log yet."""
    partition = await filled(node)
    asked = partition.topic_id
    partition.topic_id = STRANGE
    async with RawClient(node.port) as client:
        answer = await client.fetch(by_id(asked, at(0)), NEWEST)
        assert codes(answer) == [(asked, INCONSISTENT_TOPIC_ID)]
        assert not answer.partitions[0].records
        (found,) = (await produced(client, asked))["responses"]
        assert found["partition_responses"][0]["error_code"] == INCONSISTENT_TOPIC_ID


async def test_a_session_follows_ids(node: KafkaNode) -> None:
    before = (await filled(node)).topic_id
    async with RawClient(node.port) as client:
        first = await client.fetch(by_id(before, at(10), session_id=0, session_epoch=0), NEWEST)
        assert first.session_id > 0
        session: dict[str, Any] = {"session_id": first.session_id}
        after = (await made_anew(node)).topic_id
        nothing = FetchRequest([], 0, 1, 2**20, session_epoch=1, **session)
        assert codes(await client.fetch(nothing, NEWEST)) == [(before, UNKNOWN_TOPIC_ID)]
        request = by_id(after, at(0), session_epoch=2, **session)
        request = request._replace(forgotten=(TopicIdPartition(before, 0),))
        assert codes(await client.fetch(request, NEWEST)) == [(after, 0)]
        nothing = FetchRequest([], 0, 1, 2**20, session_epoch=3, **session)
        assert codes(await client.fetch(nothing, NEWEST)) == []
        node.partition(TopicPartition("flights", 0)).append([b"new"])
        nothing = nothing._replace(session_epoch=4)
        (found,) = (await client.fetch(nothing, NEWEST)).partitions
        assert (found.topic_id, found.fetched.high_watermark) == (after, 1)


async def test_an_id_in_a_session_is_found_when_this_node_hears_of_it(node: KafkaNode) -> None:
    """A client may have heard of the stream from another node."""
    partition = await filled(node)
    known = node.metadata.image
    node.metadata.image = type(known)(known.cluster_id)
    async with RawClient(node.port) as client:
        first = await client.fetch(by_id(partition.topic_id, at(0), session_epoch=0), NEWEST)
        assert codes(first) == [(partition.topic_id, UNKNOWN_TOPIC_ID)]
        node.metadata.image = known
        request = FetchRequest([], 0, 1, 2**20, session_id=first.session_id, session_epoch=1)
        assert codes(await client.fetch(request, NEWEST)) == [(partition.topic_id, 0)]


@pytest.mark.parametrize("versions", [(12, 13), (13, 12), (7, 18)])
async def test_a_session_does_not_change_between_names_and_ids(
    node: KafkaNode, versions: tuple[int, int]
) -> None:
    topic_id = (await filled(node)).topic_id
    one, other = versions
    request = wanted(at(10), topic_id=topic_id, session_epoch=0)
    async with RawClient(node.port) as client:
        first = await client.fetch(request, one)
        request = request._replace(session_id=first.session_id, session_epoch=1)
        assert (await client.fetch(request, other)).error_code == SESSION_TOPIC_ID_ERROR
        assert (await client.fetch(request, one)).error_code == 0, "and goes on as it was"


@pytest.mark.parametrize("version", [12, 15, 16, NEWEST])
async def test_who_asks_the_wrong_node_is_told_where_the_leader_is(
    node: KafkaNode, version: int
) -> None:
    partition = await filled(node)
    node.metadata.register(9_999, OTHER, rack="r2")
    partition.is_leader = False
    node.metadata.change("flights", 0, leader=OTHER, leader_epoch=4, isr=(OTHER,))
    async with RawClient(node.port) as client:
        answer = await client.fetch(wanted(at(0), topic_id=partition.topic_id), version)
    (found,) = answer.partitions
    assert (found.fetched.error_code, found.fetched.current_leader) == (6, CurrentLeader(8, 4))
    told = (NodeEndpoint(8, "127.0.0.1", 9_999, "r2"),)
    assert answer.nodes == (told if version >= NODES_FROM else ())


async def produced(client: RawClient, topic_id: bytes, version: int = 13) -> dict[str, Any]:
    data = {
        "name": "flights",
        "topic_id": UUID(bytes=topic_id),
        "partition_data": [{"index": 0, "records": BATCH}],
    }
    return await client.ask(PRODUCE, version, {"acks": -1, "timeout": 5_000, "topic_data": [data]})


async def test_producing_by_id(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    async with RawClient(node.port) as client:
        (found,) = (await produced(client, partition.topic_id))["responses"]
        assert found["topic_id"].bytes == partition.topic_id
        assert found["partition_responses"][0]["error_code"] == 0
        assert partition.log_end_offset == 1
        (found,) = (await produced(client, STRANGE))["responses"]
        assert found["partition_responses"][0]["error_code"] == UNKNOWN_TOPIC_ID
        before = partition.topic_id
        after = await made_anew(node)
        (found,) = (await produced(client, before))["responses"]
        assert found["partition_responses"][0]["error_code"] == UNKNOWN_TOPIC_ID
        assert after.log_end_offset == 0


@pytest.mark.parametrize("version", [9, 10, 12, 13])
async def test_who_produces_to_the_wrong_node_is_told_where_the_leader_is(
    node: KafkaNode, version: int
) -> None:
    partition = await filled(node)
    node.metadata.register(9_999, OTHER, rack="r2")
    partition.is_leader = False
    node.metadata.change("flights", 0, leader=OTHER, leader_epoch=4, isr=(OTHER,))
    async with RawClient(node.port) as client:
        answer = await produced(client, partition.topic_id, version)
    (found,) = answer["responses"][0]["partition_responses"]
    assert found["error_code"] == 6
    if version >= 10:
        assert found["current_leader"] == {"leader_id": 8, "leader_epoch": 4}
        (endpoint,) = answer["node_endpoints"]
        assert (endpoint["node_id"], endpoint["port"]) == (8, 9_999)
