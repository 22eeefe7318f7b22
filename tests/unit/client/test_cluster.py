import asyncio
from uuid import UUID

import pytest

from streamlog.client.cluster import Cluster
from streamlog.client.position import EARLIEST, LATEST, Offset, Timestamp, resolve
from streamlog.errors import (
    ConfigError,
    FencedLeaderEpoch,
    NodeUnreachable,
    NotLeader,
    PartitionNotFound,
    StreamNotFound,
)
from streamlog.model import NO_LEADER, TopicPartition
from tests.kafka_node import CLUSTER_ID, NODE, KafkaNode

FLIGHTS = TopicPartition("flights", 0)


async def test_the_whole_cluster(node: KafkaNode) -> None:
    await node.add_stream("flights", 2)
    await node.add_stream("ships")
    async with Cluster.at(node.address) as cluster:
        topology = await cluster.topology()
    assert (topology.cluster_id, topology.controller) == (CLUSTER_ID, NODE)
    assert topology.nodes[NODE].address == node.address
    assert topology.nodes[NODE].rack == "r1"
    assert set(topology.topics) == {"flights", "ships"}
    flights = topology.topics["flights"]
    assert [it.partition for it in flights.partitions] == [0, 1]
    assert flights.partition(1).leader == NODE
    assert isinstance(flights.topic_id, UUID)
    for number in (-1, 2):
        with pytest.raises(PartitionNotFound):
            flights.partition(number)


async def test_a_stream_that_is_not_there(node: KafkaNode) -> None:
    async with Cluster.at(node.address) as cluster:
        with pytest.raises(StreamNotFound, match="nowhere"):
            await cluster.topic("nowhere")


async def test_servers_are_tried_in_turn(node: KafkaNode) -> None:
    async with Cluster.at(f"127.0.0.1:1, {node.address}") as cluster:
        assert (await cluster.topology()).cluster_id == CLUSTER_ID


async def test_no_server_answers() -> None:
    async with Cluster.at("127.0.0.1:1,127.0.0.1:2") as cluster:
        with pytest.raises(NodeUnreachable, match=r"127.0.0.1:1: .*; 127.0.0.1:2: "):
            await cluster.topology()


@pytest.mark.parametrize("text", ["", "localhost", "localhost:", ":9092", "h:x", "h:0", "h:65536"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="servers"):
        Cluster.at(text)


def test_addresses() -> None:
    assert Cluster.at("a:1, b:2,[::1]:3")._servers == [("a", 1), ("b", 2), ("::1", 3)]


async def test_positions(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    for timestamp_ms in (1_000, 3_000, 2_000):
        partition.append([b"x"] * 10, timestamp_ms=timestamp_ms)
    partition.log_start_offset = 4
    async with Cluster.at(node.address) as cluster:
        assert await resolve(EARLIEST, FLIGHTS, cluster) == 4
        assert await resolve(LATEST, FLIGHTS, cluster) == 30
        assert await resolve(Offset(17), FLIGHTS, cluster) == 17
        assert await resolve(Timestamp(1_001), FLIGHTS, cluster) == 10
        assert await resolve(Timestamp(9_999), FLIGHTS, cluster) == 30
        assert await cluster.offset_for_timestamp(FLIGHTS, 9_999) is None
        assert await cluster.latest_timestamp(FLIGHTS) == (10, 3_000)


async def test_an_empty_partition_has_no_latest_timestamp(node: KafkaNode) -> None:
    await node.add_stream("flights")
    async with Cluster.at(node.address) as cluster:
        assert await cluster.latest_timestamp(FLIGHTS) is None


async def test_the_leader_is_asked_for_anew_when_the_answer_proves_wrong(node: KafkaNode) -> None:
    partition = await node.add_stream("flights")
    async with Cluster.at(node.address) as cluster:
        assert await cluster.latest_offset(FLIGHTS) == 0
        partition.leader_epoch = 1
        node.metadata.change("flights", 0, leader_epoch=1)
        with pytest.raises(FencedLeaderEpoch):
            await cluster.latest_offset(FLIGHTS)
        assert await cluster.latest_offset(FLIGHTS) == 0


async def test_no_leader(node: KafkaNode) -> None:
    await node.add_stream("flights")
    node.metadata.change("flights", 0, leader=NO_LEADER)
    async with Cluster.at(node.address) as cluster:
        with pytest.raises(NotLeader):
            await cluster.latest_offset(FLIGHTS)
        node.metadata.change("flights", 0, leader=NODE)
        assert await cluster.latest_offset(FLIGHTS) == 0


async def test_one_connection_per_node_serves_all_who_ask(node: KafkaNode) -> None:
    await node.add_stream("flights")
    async with Cluster.at(node.address) as cluster:
        await asyncio.gather(*(cluster.topology() for _ in range(20)))
        await asyncio.gather(*(cluster.latest_offset(FLIGHTS) for _ in range(20)))
        assert node.metric("streamlog_connections") == 1


async def test_a_broken_connection_is_replaced(node: KafkaNode) -> None:
    async with Cluster.at(node.address) as cluster:
        await cluster.topology()
        for connection in cluster._connections.values():
            connection.close()
        await cluster.topology()
