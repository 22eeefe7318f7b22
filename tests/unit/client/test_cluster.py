import asyncio
import socket
from typing import Any
from uuid import UUID

import pytest

from streamlog.client import cluster as cluster_module
from streamlog.client.cluster import Cluster
from streamlog.client.position import EARLIEST, LATEST, Offset, Timestamp, resolve
from streamlog.errors import (
    ConfigError,
    FencedLeaderEpoch,
    InvalidRequest,
    MalformedFrame,
    NoController,
    NodeNotFound,
    NodeUnreachable,
    NotLeader,
    PartitionNotFound,
    RequestTimedOut,
    StreamlogError,
    StreamNotFound,
)
from streamlog.kafka import dispatch
from streamlog.metadata.commands import DeleteStream, Granted, encode_command
from streamlog.model import NO_LEADER, TopicPartition
from streamlog.wire.registry import ENVELOPE
from tests.fake_metadata import CLUSTER_ID
from tests.fake_partition import NODE
from tests.kafka_node import KafkaNode
from tools.nodes.ports import free_port

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
    assert Cluster.at("a:1, b:2,[::1]:3").addresses == [("a", 1), ("b", 2), ("::1", 3)]


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


async def test_many_ends_are_asked_of_each_leader_at_once(node: KafkaNode) -> None:
    tps = [FLIGHTS, TopicPartition("flights", 1), TopicPartition("ships", 0)]
    await node.add_stream("flights", 2)
    await node.add_stream("ships")
    for count, tp in enumerate(tps, start=1):
        node.local[tp].append([b"x"] * count)
    gone = [TopicPartition("nowhere", 0), TopicPartition("ships", 7)]
    async with Cluster.at(node.address) as cluster:
        assert await cluster.latest_offsets([*tps, *gone]) == dict(zip(tps, (1, 2, 3), strict=True))
        assert node.metric("streamlog_requests_total", api="ListOffsets") == 1
        node.metadata.change("ships", 0, leader=NO_LEADER)
        cluster.forget("ships")
        node.local[FLIGHTS].leader_epoch = 1
        node.metadata.change("flights", 0, leader_epoch=1)
        assert await cluster.latest_offsets(tps) == {tps[1]: 2}, "what is not known is left out"
        assert await cluster.latest_offsets(tps) == {tps[0]: 1, tps[1]: 2}, "and asked for anew"


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


async def test_a_silent_node_is_not_waited_for_where_any_will_do(
    node: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is stopped: its machine accepts, and nobody answers."""
    monkeypatch.setattr(cluster_module, "SILENCE_MS", 1_000)  # a busy machine answers within that
    with socket.create_server(("127.0.0.1", 0)) as silent:
        servers = f"127.0.0.1:{silent.getsockname()[1]},{node.address}"
        async with Cluster.at(servers) as cluster:
            async with asyncio.timeout(10):
                assert (await cluster.topology()).controller == NODE
                await cluster.command(COMMAND)
        async with Cluster.at(servers.split(",", maxsplit=1)[0]) as cluster:
            with pytest.raises(NodeUnreachable, match="no answer"):
                await cluster.topology()


# Commands

COMMAND = encode_command(DeleteStream(name="flights"))


async def test_a_command_is_given_to_any_node(node: KafkaNode) -> None:
    node.metadata.result = Granted(7, {"deleted": True})
    async with Cluster.at(node.address) as cluster:
        assert await cluster.command(COMMAND) == {"offset": 7, "result": {"deleted": True}}
    assert node.metadata.taken == [(DeleteStream(name="flights"), False)]


async def test_the_next_node_is_asked_where_one_is_away(node: KafkaNode) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        away = server.getsockname()[1]
    async with Cluster.at(f"127.0.0.1:{away},{node.address}") as cluster:
        await cluster.command(COMMAND)
    assert len(node.metadata.taken) == 1


@pytest.mark.parametrize(
    "error", [NoController("nobody decides"), NodeNotFound("no node 9"), InvalidRequest("not so")]
)
async def test_why_a_command_is_refused_is_raised(node: KafkaNode, error: StreamlogError) -> None:
    node.metadata.result = error
    async with Cluster.at(node.address) as cluster:
        with pytest.raises(type(error), match=str(error)):
            await cluster.command(COMMAND)


async def test_a_node_that_restarts_between_commands_is_asked_anew() -> None:
    port = free_port()
    async with Cluster.at(f"127.0.0.1:{port}") as cluster:
        for _ in range(3):
            async with KafkaNode(port=port) as node:
                await cluster.command(COMMAND)
                assert len(node.metadata.taken) == 1


async def test_a_node_that_dies_with_a_command_may_have_done_it() -> None:
    node = KafkaNode()

    async def dies(*_: Any, **__: Any) -> Granted:
        raise ZeroDivisionError

    node.metadata.take = dies  # type: ignore[method-assign]
    async with node, Cluster.at(node.address) as cluster:
        with pytest.raises(RequestTimedOut, match="whether it was done is not known"):
            await cluster.command(COMMAND)


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"{", None])
async def test_an_answer_to_a_command_that_is_none(
    node: KafkaNode, data: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def babble(*_: Any) -> dict[str, Any]:
        return {"response_data": data, "error_code": 0}

    monkeypatch.setitem(dispatch._HANDLERS, ENVELOPE, babble)
    async with Cluster.at(node.address) as cluster:
        with pytest.raises(MalformedFrame):
            await cluster.command(COMMAND)


@pytest.mark.parametrize(
    "data", [b'{"result": 1}', b'{"result": {}}', b'{"offset": 0}', b'{"result": null}', b"7"]
)
async def test_an_answer_to_an_operation_that_is_none(
    node: KafkaNode, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def babble(*_: Any) -> dict[str, Any]:
        return {"response_data": data, "error_code": 0}

    monkeypatch.setitem(dispatch._HANDLERS, ENVELOPE, babble)
    async with Cluster.at(node.address) as cluster:
        with pytest.raises(MalformedFrame):
            await cluster.operate("streams.describe", {"name": "s"})
