"""DescribeCluster and DescribeTopicPartitions over a socket."""

from typing import Any

import pytest

from streamlog.model import NO_LEADER, NodeId
from streamlog.wire.registry import DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS
from tests.fake_metadata import CLUSTER_ID
from tests.fake_partition import NODE
from tests.kafka_node import KafkaNode
from tests.raw_client import RawClient


async def ask(node: KafkaNode, key: int, version: int, request: dict[str, Any]) -> Any:
    async with RawClient(node.port) as client:
        return await client.ask(key, version, request)


@pytest.mark.parametrize("version", range(3))
async def test_the_cluster_is_described(node: KafkaNode, version: int) -> None:
    node.metadata.register(1, NodeId(8))
    node.metadata.register(2, NodeId(9), rack="r9")
    node.metadata.fence(NodeId(9))
    answer = await ask(node, DESCRIBE_CLUSTER, version, {})
    assert (answer["error_code"], answer["cluster_id"]) == (0, CLUSTER_ID)
    assert answer["controller_id"] == NODE
    broker, _ = answer["brokers"]
    assert (broker["broker_id"], broker["host"], broker["port"], broker["rack"]) == (
        NODE, "127.0.0.1", node.port, "r1",
    )  # fmt: skip


async def test_fenced_nodes_are_told_where_they_are_asked_for(node: KafkaNode) -> None:
    node.metadata.register(1, NodeId(8))
    node.metadata.register(1, NodeId(9))
    node.metadata.fence(NodeId(9))
    answer = await ask(node, DESCRIBE_CLUSTER, 2, {"include_fenced_brokers": True})
    told = {it["broker_id"]: it["is_fenced"] for it in answer["brokers"]}
    assert told == {int(NODE): False, 8: False, 9: True}


@pytest.mark.parametrize(("endpoint_type", "code"), [(2, 114), (0, 115), (3, 115), (-1, 115)])
@pytest.mark.parametrize("version", [1, 2])
async def test_other_endpoints_are_refused(
    node: KafkaNode, version: int, endpoint_type: int, code: int
) -> None:
    answer = await ask(node, DESCRIBE_CLUSTER, version, {"endpoint_type": endpoint_type})
    assert (answer["error_code"], answer["brokers"]) == (code, [])
    assert "brokers (1)" in answer["error_message"]


Place = tuple[str, int]


async def page(
    node: KafkaNode, *names: str, limit: int = 2_000, cursor: Place | None = None
) -> tuple[list[Place], Place | None]:
    """The partitions that are told, and where the next page begins."""
    request = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": None
        if cursor is None
        else {"topic_name": cursor[0], "partition_index": cursor[1]},
    }
    answer = await ask(node, DESCRIBE_TOPIC_PARTITIONS, 0, request)
    assert [it["error_code"] for it in answer["topics"]] == [0] * len(answer["topics"])
    following = answer["next_cursor"]
    told = [
        (topic["name"], it["partition_index"])
        for topic in answer["topics"]
        for it in topic["partitions"]
    ]
    return told, following and (following["topic_name"], following["partition_index"])


async def test_topics_are_told_page_by_page(node: KafkaNode) -> None:
    everything = []
    for name, count in (("a", 1), ("b", 3), ("c", 2)):
        await node.add_stream(name, count)
        everything += [(name, index) for index in range(count)]
    assert await page(node) == (everything, None)
    assert await page(node, "c", "a", "c") == ([everything[0], *everything[4:]], None)
    for limit in range(1, 8):
        told: list[Place] = []
        cursor: Place | None = None
        while True:
            more, cursor = await page(node, limit=limit, cursor=cursor)
            assert 0 < len(more) <= limit
            told += more
            if cursor is None:
                break
        assert told == everything
    assert await page(node, cursor=("bb", 5)) == (everything[4:], None)
    assert await page(node, cursor=("c", 7)) == ([], None)
    assert await page(node, cursor=("d", 0)) == ([], None)


async def test_a_partition_is_told_in_full(node: KafkaNode) -> None:
    await node.add_stream("flights")
    node.metadata.change("flights", 0, leader=NO_LEADER, replicas=(int(NODE), 9))
    answer = await ask(
        node,
        DESCRIBE_TOPIC_PARTITIONS,
        0,
        {"topics": [{"name": "flights"}], "response_partition_limit": 9},
    )
    (topic,) = answer["topics"]
    assert topic["topic_id"] == node.metadata.image.stream("flights").stream_id
    (partition,) = topic["partitions"]
    assert (partition["error_code"], partition["leader_id"]) == (5, -1)
    assert (partition["replica_nodes"], partition["isr_nodes"]) == ([NODE, 9], [NODE])
    assert partition["offline_replicas"] == [9]
    assert list(partition["eligible_leader_replicas"]) == []
    assert list(partition["last_known_elr"]) == []


@pytest.mark.parametrize(
    ("more", "codes"),
    [
        ({}, [0, 17, 3]),
        ({"response_partition_limit": 0}, [42, 42, 42]),
        ({"response_partition_limit": -1}, [42, 42, 42]),
        ({"cursor": {"topic_name": "a", "partition_index": -1}}, [42, 42, 42]),
    ],
)
async def test_topics_that_are_not_there_and_pages_that_cannot_be(
    node: KafkaNode, more: dict[str, Any], codes: list[int]
) -> None:
    await node.add_stream("flights")
    names = [{"name": "flights"}, {"name": "nowhere"}, {"name": "not a name!"}]
    request = {"topics": names, "response_partition_limit": 9, **more}
    answer = await ask(node, DESCRIBE_TOPIC_PARTITIONS, 0, request)
    assert [it["name"] for it in answer["topics"]] == ["flights", "not a name!", "nowhere"]
    assert [it["error_code"] for it in answer["topics"]] == codes
