"""Partitions are added, shortened, led, moved, listed and weighed, in every version offered."""

import shutil
from typing import Any

import pytest

from streamlog.errors import NoController, StorageFailed
from streamlog.kafka.handlers.replicas import describe_log_dirs
from streamlog.metadata.commands import MovePartition
from streamlog.metadata.image.metadata_image import PartitionImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from streamlog.wire.registry import (
    ALTER_PARTITION_REASSIGNMENTS,
    CREATE_PARTITIONS,
    DELETE_RECORDS,
    DESCRIBE_LOG_DIRS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
)
from tests.fake_partition import NODE, FakePartition
from tests.kafka_node import KafkaNode
from tests.raw_client import RawClient
from tests.restricted import Asker

N8, N9 = NodeId(8), NodeId(9)
PREFERRED, UNCLEAN = 0, 1


async def ask(node: KafkaNode, key: int, version: int, request: dict[str, Any]) -> Any:
    async with RawClient(node.port) as client:
        return await client.ask(key, version, request)


async def three_nodes(node: KafkaNode, partitions: int = 1, replicas: int = 2) -> None:
    """A stream over this node, 8 and 9, the first one leading partition 0."""
    node.metadata.register(1, N8, rack="r2")
    config = StreamConfig.of(name="flights", partitions=partitions, replicas=replicas)
    await node.metadata.create_stream(config)
    node.metadata.register(1, N9, rack="r3")


def partition_of(node: KafkaNode, index: int = 0) -> PartitionImage:
    return node.metadata.image.stream("flights").partition(index)


# CreatePartitions


async def widen(
    node: KafkaNode, *topics: tuple[str, int], version: int = 3, **more: Any
) -> list[tuple[str, int, str | None]]:
    assignments = more.pop("assignments", None)
    request = {
        "topics": [
            {"name": name, "count": count, "assignments": assignments} for name, count in topics
        ],
        "timeout": 1_000,
        "validate_only": more.pop("validate_only", False),
    }
    answer = await ask(node, CREATE_PARTITIONS, version, request)
    return [(it["name"], it["error_code"], it["error_message"]) for it in answer["results"]]


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added(node: KafkaNode, version: int) -> None:
    await node.add_stream("flights", 2)
    before = node.metadata.image.stream("flights")
    assert await widen(node, ("flights", 5), validate_only=True, version=version) == [
        ("flights", 0, None)
    ]
    assert node.metadata.image.stream("flights") is before
    assert await widen(node, ("flights", 5), version=version) == [("flights", 0, None)]
    after = node.metadata.image.stream("flights")
    assert after.config == before.config.changed(partitions=5)
    assert after.partitions[:2] == before.partitions
    assert [it.leader for it in after.partitions] == [NODE] * 5


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (("nowhere", 2), 3, "'nowhere'"),
        (("", 2), 3, "''"),
        (("flights", 2), 37, "there are 2"),
        (("flights", 1), 37, "there are 2"),
        (("flights", 0), 37, "there are 2"),
        (("flights", -1), 37, "there are 2"),
        (("flights", 10_001), 37, "up to 10000"),
        (("tail", 2), 37, "tail.>"),
        (("scarce", 2), 38, "2 replicas, 1 live nodes"),
    ],
)
async def test_partitions_that_cannot_be_added(
    node: KafkaNode, topic: tuple[str, int], code: int, message: str, validate_only: bool
) -> None:
    await node.add_stream("flights", 2)
    await node.metadata.create_stream(StreamConfig.of(name="tail", subjects=("tail.>",)))
    node.metadata.register(1, N8)
    await node.metadata.create_stream(StreamConfig.of(name="scarce", replicas=2))
    node.metadata.fence(N8)
    before = node.metadata.image
    ((_, told, text),) = await widen(node, topic, validate_only=validate_only)
    assert (told, message in str(text)) == (code, True)
    assert node.metadata.image is before


@pytest.mark.parametrize("version", range(4))
async def test_new_partitions_are_placed_where_the_caller_wants_them(
    node: KafkaNode, version: int
) -> None:
    await three_nodes(node)
    wanted = [{"broker_ids": [9, 7]}, {"broker_ids": [8, 9]}]
    for validate_only in (True, False):
        told = await widen(
            node,
            ("flights", 3),
            assignments=wanted,
            version=version,
            validate_only=validate_only,
        )
        assert told == [("flights", 0, None)]
    assert [it.replicas for it in node.metadata.image.stream("flights").partitions[1:]] == [
        (9, 7),
        (8, 9),
    ]
    assert await widen(node, ("flights", 4), assignments=[]) == [("flights", 0, None)]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([[7, 8]], "for 1 new partitions, of 2"),
        ([[7, 8]] * 3, "for 3 new partitions, of 2"),
        ([[7, 8], [7]], "partition 2: [7] are not 2 different nodes"),
        ([[7, 7], [7, 8]], "partition 1: [7, 7] are not 2"),
        ([[], []], "partition 1: [] are not 2"),
        ([[7, 8], [7, 10]], "of [7, 10] only [7, 8, 9] are live nodes"),
    ],
)
async def test_new_partitions_that_cannot_be_placed_so(
    node: KafkaNode, nodes: list[list[int]], message: str
) -> None:
    await three_nodes(node)
    before = node.metadata.image
    assignments = [{"broker_ids": it} for it in nodes]
    ((_, code, text),) = await widen(node, ("flights", 3), assignments=assignments)
    assert (code, message in str(text)) == (39, True)
    assert node.metadata.image is before


async def test_a_topic_to_widen_twice_is_refused_and_the_rest_is_done(node: KafkaNode) -> None:
    for name in ("flights", "ships"):
        await node.add_stream(name)
    told = await widen(node, ("flights", 2), ("ships", 2), ("flights", 3))
    assert [code for _, code, _ in told] == [42, 0, 42]
    assert len(node.metadata.image.stream("flights").partitions) == 1


async def test_without_a_controller_no_partition_is_added(node: KafkaNode) -> None:
    await node.add_stream("flights")
    node.metadata.no_controller = NoController("an election is under way")
    assert await widen(node, ("flights", 2)) == [("flights", 41, "an election is under way")]


# DeleteRecords


async def delete(
    node: KafkaNode, offset: int, *, partition: int = 0, name: str = "flights", version: int = 2
) -> tuple[int, int]:
    """Error and low watermark."""
    asked = {"partition_index": partition, "offset": offset}
    request = {"topics": [{"name": name, "partitions": [asked]}], "timeout": 1_000}
    (topic,) = (await ask(node, DELETE_RECORDS, version, request))["topics"]
    (told,) = topic["partitions"]
    assert (topic["name"], told["partition_index"]) == (name, partition)
    return told["error_code"], told["low_watermark"]


async def with_records(node: KafkaNode) -> FakePartition:
    partition = await node.add_stream("flights", 2)
    partition.append([b"x"] * 10)
    partition.append([b"not committed"] * 3, commit=False)
    return partition


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_records_are_deleted(node: KafkaNode, version: int) -> None:
    partition = await with_records(node)
    for offset, low_watermark in ((0, 0), (4, 4), (2, 4), (-1, 10), (10, 10), (0, 10)):
        assert await delete(node, offset, version=version) == (0, low_watermark)
    assert partition.log_start_offset == 10


@pytest.mark.parametrize(
    ("offset", "where", "code"),
    [
        (11, {}, 1),
        (13, {}, 1),
        (2**62, {}, 1),
        (-2, {}, 1),
        (-(2**63), {}, 1),
        (1, {"partition": 1}, 1),
        (1, {"partition": 2}, 3),
        (1, {"partition": -1}, 3),
        (1, {"name": "nowhere"}, 3),
        (1, {"name": ""}, 3),
    ],
)
async def test_records_that_cannot_be_deleted(
    node: KafkaNode, offset: int, where: dict[str, Any], code: int
) -> None:
    partition = await with_records(node)
    assert await delete(node, offset, **where) == (code, -1)
    assert partition.log_start_offset == 0


async def test_only_a_leader_that_knows_what_is_committed_deletes(node: KafkaNode) -> None:
    partition = await with_records(node)
    for attribute, value in (("is_leader", False), ("high_watermark_known", False)):
        setattr(partition, attribute, value)
        assert await delete(node, 1) == (6, -1)
        setattr(partition, attribute, not value)
    node.metadata.lease.lapse()
    assert await delete(node, 1) == (6, -1)
    node.metadata.lease.turn(True)
    del node.local[TopicPartition("flights", 1)]
    assert await delete(node, 0, partition=1) == (6, -1)
    partition.failure = StorageFailed("the disk is gone")
    assert await delete(node, 1) == (56, -1)
    assert partition.log_start_offset == 0


# ElectLeaders


async def elect(
    node: KafkaNode, kind: int, *asked: tuple[str, list[int]], version: int = 2
) -> dict[tuple[str, int], int]:
    topics = [{"topic": name, "partitions": numbers} for name, numbers in asked] or None
    request = {"election_type": kind, "topic_partitions": topics, "timeout": 1_000}
    answer = await ask(node, ELECT_LEADERS, version, request)
    assert answer.get("error_code", 0) == 0
    return {
        (result["topic"], it["partition_id"]): it["error_code"]
        for result in answer["replica_election_results"]
        for it in result["partition_result"]
    }


@pytest.mark.parametrize("version", range(3))
async def test_preferred_replicas_are_elected(node: KafkaNode, version: int) -> None:
    await three_nodes(node, 3)
    preferred = [partition_of(node, index).replicas[0] for index in range(3)]
    node.metadata.change("flights", 1, leader=partition_of(node, 1).replicas[1])
    asked = ("flights", [0, 1, 3, -1]), ("nowhere", [0])
    told = await elect(node, PREFERRED, *asked, version=version)
    assert told == {
        ("flights", 0): 84,
        ("flights", 1): 0,
        ("flights", 3): 3,
        ("flights", -1): 3,
        ("nowhere", 0): 3,
    }
    assert [partition_of(node, index).leader for index in range(3)] == preferred
    assert partition_of(node, 1).leader_epoch == 1


@pytest.mark.parametrize("version", range(3))
async def test_all_that_need_it_are_elected(node: KafkaNode, version: int) -> None:
    await three_nodes(node, 3)
    assert await elect(node, PREFERRED, version=version) == {}
    node.metadata.change("flights", 2, leader=partition_of(node, 2).replicas[1])
    assert await elect(node, PREFERRED, version=version) == {("flights", 2): 0}
    assert len(node.metadata.asked) == 1


async def test_a_preferred_replica_that_is_behind_or_away(node: KafkaNode) -> None:
    await three_nodes(node)
    first, second = partition_of(node).replicas
    node.metadata.change("flights", 0, leader=second, isr=(second,))
    assert await elect(node, PREFERRED, ("flights", [0])) == {("flights", 0): 80}
    assert partition_of(node).leader == second
    node.metadata.change("flights", 0, leader=NO_LEADER, isr=(first, second))
    node.metadata.fence(first)
    assert await elect(node, PREFERRED, ("flights", [0])) == {("flights", 0): 80}
    assert partition_of(node).leader == second


@pytest.mark.parametrize("version", [1, 2])
async def test_an_unclean_election_is_for_what_nobody_leads(node: KafkaNode, version: int) -> None:
    await three_nodes(node, 2)
    first, second = partition_of(node).replicas
    node.metadata.fence(first)
    node.metadata.change("flights", 0, leader=NO_LEADER, isr=(first,))
    assert await elect(node, PREFERRED, ("flights", [0]), version=version) == {("flights", 0): 80}
    told = await elect(node, UNCLEAN, ("flights", [0, 1]), version=version)
    assert told == {("flights", 0): 0, ("flights", 1): 84}
    assert (partition_of(node).leader, partition_of(node).isr) == (second, (second,))
    node.metadata.fence(second)
    node.metadata.change("flights", 0, leader=NO_LEADER)
    assert await elect(node, UNCLEAN, version=version) == {("flights", 0): 83}


async def test_elections_of_another_kind_are_refused(node: KafkaNode) -> None:
    await node.add_stream("flights")
    for topics in (None, [{"topic": "flights", "partitions": [0]}]):
        request = {"election_type": 2, "topic_partitions": topics, "timeout": 1_000}
        answer = await ask(node, ELECT_LEADERS, 2, request)
        assert answer["error_code"] == 42
        for result in answer["replica_election_results"]:
            assert "election type 2" in result["partition_result"][0]["error_message"]
    assert node.metadata.asked == []


async def test_without_a_controller_nobody_is_elected(node: KafkaNode) -> None:
    await three_nodes(node)
    node.metadata.change("flights", 0, leader=partition_of(node).replicas[1])
    node.metadata.no_controller = NoController("an election is under way")
    assert await elect(node, PREFERRED, ("flights", [0])) == {("flights", 0): 41}


# AlterPartitionReassignments, ListPartitionReassignments


async def reassign(
    node: KafkaNode,
    *asked: tuple[int, list[int] | None],
    name: str = "flights",
    version: int = 1,
    **more: Any,
) -> list[tuple[int, str | None]]:
    partitions = [{"partition_index": index, "replicas": nodes} for index, nodes in asked]
    request = {"topics": [{"name": name, "partitions": partitions}], "timeout": 1_000, **more}
    answer = await ask(node, ALTER_PARTITION_REASSIGNMENTS, version, request)
    assert answer["error_code"] == 0
    (topic,) = answer["responses"]
    assert [it["partition_index"] for it in topic["partitions"]] == [index for index, _ in asked]
    return [(it["error_code"], it["error_message"]) for it in topic["partitions"]]


async def moves(node: KafkaNode, *asked: tuple[str, list[int]]) -> Any:
    topics = [{"name": name, "partition_indexes": numbers} for name, numbers in asked] or None
    answer = await ask(node, LIST_PARTITION_REASSIGNMENTS, 0, {"topics": topics, "timeout": 1_000})
    assert answer["error_code"] == 0
    return answer["topics"]


@pytest.mark.parametrize("version", [0, 1])
async def test_a_move_begins_is_listed_and_is_cancelled(node: KafkaNode, version: int) -> None:
    await three_nodes(node, 2)
    stays, goes = partition_of(node).replicas
    assert await moves(node) == []
    assert await reassign(node, (0, [int(N9), int(stays)]), version=version) == [(0, None)]
    assert partition_of(node).target == (N9, stays)
    (topic,) = await moves(node)
    (told,) = topic["partitions"]
    assert (topic["name"], told["partition_index"]) == ("flights", 0)
    assert told["replicas"] == [N9, stays, goes]
    assert (told["adding_replicas"], told["removing_replicas"]) == ([N9], [goes])
    assert await moves(node, ("flights", [0, 7]), ("nowhere", [0])) == [topic]
    assert await moves(node, ("flights", [1])) == []
    assert await reassign(node, (0, None), version=version) == [(0, None)]
    assert set(partition_of(node).replicas) == {stays, goes}
    assert not partition_of(node).is_moving
    assert await moves(node) == []


async def test_the_same_replicas_in_another_order_prefer_another_leader(node: KafkaNode) -> None:
    await three_nodes(node)
    first, second = partition_of(node).replicas
    assert await reassign(node, (0, [int(second), int(first)])) == [(0, None)]
    assert partition_of(node).replicas == (second, first)
    assert not partition_of(node).is_moving


@pytest.mark.parametrize(
    ("asked", "code", "message"),
    [
        ((0, []), 39, "null cancels"),
        ((0, [7, 7]), 39, "each of them once"),
        ((0, [7]), 38, "1 replicas named, and stream 'flights' has 2"),
        ((0, [7, 8, 9]), 38, "--replicas"),
        ((0, [7, 10]), 39, "no node 10"),
        ((0, [7, -1]), 39, "no node -1"),
        ((0, [7, 6]), 39, "node 6 is not alive"),
        ((0, None), 85, "flights-0 is not being moved"),
        ((1, [7, 8]), 3, "no partition 1"),
        ((-1, [7, 8]), 3, "no partition -1"),
        ((1, None), 3, "no partition 1"),
    ],
)
async def test_moves_that_cannot_be(
    node: KafkaNode, asked: tuple[int, list[int] | None], code: int, message: str
) -> None:
    node.metadata.register(1, NodeId(6))
    node.metadata.fence(NodeId(6))
    await three_nodes(node)
    before = node.metadata.image
    ((told, text),) = await reassign(node, asked)
    assert (told, message in str(text)) == (code, True)
    assert node.metadata.image is before


async def test_moves_of_what_is_not_there_or_named_twice(node: KafkaNode) -> None:
    await three_nodes(node, 2)
    assert await reassign(node, (0, [7, 8]), name="nowhere") == [
        (3, "there is no stream 'nowhere'")
    ]
    told = await reassign(node, (0, [7, 9]), (1, [9, 7]), (0, [8, 9]))
    assert [code for code, _ in told] == [42, 0, 42]
    assert not partition_of(node).is_moving
    assert node.metadata.asked == [
        MovePartition(stream="flights", partition=1, replicas=(N9, NODE))
    ]


async def test_a_move_without_a_controller_and_one_with_no_way_back(node: KafkaNode) -> None:
    await three_nodes(node)
    known = partition_of(node)
    node.metadata.change(
        "flights", 0, replicas=(*known.replicas, N9), adding=(N9,), isr=known.isr[:1],
        leader=known.isr[0], removing=(),
    )  # fmt: skip
    assert [code for code, _ in await reassign(node, (0, None))] == [0]
    node.metadata.no_controller = NoController("an election is under way")
    assert await reassign(node, (0, [int(it) for it in known.replicas])) == [
        (41, "an election is under way")
    ]


# DescribeLogDirs


async def log_dir(node: KafkaNode, topics: Any, version: int = 4) -> Any:
    answer = await ask(node, DESCRIBE_LOG_DIRS, version, {"topics": topics})
    assert answer.get("error_code", 0) == 0
    (result,) = answer["results"]
    return result


@pytest.mark.parametrize("version", range(1, 5))
async def test_what_partitions_take(node: KafkaNode, version: int) -> None:
    partition = await with_records(node)
    ships = await node.add_stream("ships")
    ships.high_watermark = 5  # a follower that lacks what is committed
    size_bytes = partition.statistics().size_bytes
    assert size_bytes > 0
    result = await log_dir(node, None, version)
    assert (result["error_code"], result["log_dir"]) == (0, str(node.directory))
    told = [
        (topic["name"], it["partition_index"], it["partition_size"], it["offset_lag"])
        for topic in result["topics"]
        for it in topic["partitions"]
    ]
    assert told == [("flights", 0, size_bytes, 0), ("flights", 1, 0, 0), ("ships", 0, 0, 5)]
    if version >= 4:
        assert result["total_bytes"] == shutil.disk_usage(node.directory).total
        assert 0 < result["usable_bytes"] < result["total_bytes"]


async def test_what_some_partitions_take(node: KafkaNode) -> None:
    await with_records(node)
    asked = [
        {"topic": "flights", "partitions": [1, 1, 2, -1]},
        {"topic": "flights", "partitions": [1]},
        {"topic": "nowhere", "partitions": [0]},
    ]
    result = await log_dir(node, asked)
    (topic,) = result["topics"]
    assert [it["partition_index"] for it in topic["partitions"]] == [1]
    assert (await log_dir(node, []))["topics"] == []


@pytest.mark.parametrize(
    ("rules", "seen"),
    [
        ((), None),
        (("describe topic flights",), None),
        (("describe cluster kafka-cluster",), []),
        (("describe cluster kafka-cluster", "describe topic ships"), ["ships"]),
    ],
)
async def test_a_folder_has_the_partitions_that_the_caller_may_know_of(
    node: KafkaNode, rules: tuple[str, ...], seen: list[str] | None
) -> None:
    await with_records(node)
    await node.add_stream("ships")
    asker = Asker(node.context, *rules)
    answer = await describe_log_dirs({"topics": None}, 4, asker.context)
    found = [topic["name"] for folder in answer["results"] for topic in folder["topics"]]
    assert found == (seen or [])
    assert answer.get("error_code", 0) == (31 if seen is None else 0)
    asker.close()


async def test_a_folder_that_cannot_be_looked_at(
    node: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(shutil, "disk_usage", fails)
    result = await log_dir(node, None)
    assert (result["error_code"], result["topics"]) == (56, [])
