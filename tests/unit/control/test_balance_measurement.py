"""Counts of nodes become loads."""

import json
import uuid
from dataclasses import replace
from typing import Any

import pytest
from immutables import Map

from streamlog.control.balance.measurement import (
    ClusterCounts,
    ClusterLoad,
    MissingNode,
    NodeCounts,
    ReplicaCounts,
    cluster_load,
    disk_room,
    grown_bytes,
)
from streamlog.errors import CorruptData
from streamlog.metadata.image.metadata_image import MetadataImage, PartitionImage, StreamImage
from streamlog.metadata.stream.stream_config import StreamConfig
from streamlog.model import NO_LEADER, NodeId, TopicPartition
from tests.unit.jetstream.verbs.test_succession import changed, image, partition

ORDERS = TopicPartition("orders", 0)
THEN = ReplicaCounts(0, 100, 10_000, 500)
NOW = ReplicaCounts(0, 300, 30_000, 4_500)


def counts(time_ms: int, of: ReplicaCounts = NOW, *, used: int = 500_000) -> NodeCounts:
    return NodeCounts(time_ms, 1_000_000, used, {ORDERS: of})


def with_orders(nodes: MetadataImage, of: PartitionImage, replicas: int = 2) -> MetadataImage:
    config = StreamConfig(name="orders", subjects=("orders",), replicas=replicas)
    stream = StreamImage(config, uuid.uuid4(), 0, (of,))
    return replace(nodes, streams=Map({"orders": stream}))


def load(
    of: MetadataImage,
    *,
    missing: tuple[MissingNode, ...] = (),
    known: tuple[str, ...] = ("orders",),
) -> ClusterLoad:
    """Two seconds between two looks at all nodes but those that are missing."""
    gone = {it.node for it in missing}
    before, after = (
        ClusterCounts({it: counts(at, what) for it in of.nodes if it not in gone}, missing)
        for at, what in ((1_000, THEN), (3_000, NOW))
    )
    return cluster_load(of, before, after, known)


def test_rates_come_from_the_leader_of_a_partition() -> None:
    found = load(with_orders(image("a", "b", "c"), partition(2, 1)))
    (told,) = found.partitions
    assert told == ("orders", 0, (2, 1), 30_000, 10_000, 2_000, True)
    assert (found.left_alone, found.missing) == (0, ())
    assert [(it.node, it.rack, it.disk_total_bytes, it.disk_used_bytes) for it in found.nodes] == [
        (number, rack, 1_000_000, 500_000) for number, rack in enumerate("abc", start=1)
    ]


@pytest.mark.parametrize(
    ("before", "after", "grown"),
    [
        (THEN, NOW, 20_000),
        (NOW, THEN, 0),
        (NOW, NOW, 0),
        (THEN, NOW._replace(log_start_offset=150, size_bytes=15_000), 20_000),  # of 100 bytes each
        (THEN, NOW._replace(size_bytes=6_000), 4_000),  # compacted
    ],
)
def test_what_was_written(before: ReplicaCounts, after: ReplicaCounts, grown: int) -> None:
    assert grown_bytes(before, after) == grown


def test_the_leader_comes_first_though_another_is_preferred() -> None:
    moved = replace(partition(1, 2), leader=NodeId(2))
    assert load(with_orders(image(None, None), moved)).partitions[0].replicas == (2, 1)


THREE = image(None, None, None)


@pytest.mark.parametrize(
    "of",
    [
        with_orders(THREE, partition(1, 2, isr=(1,))),
        with_orders(THREE, replace(partition(1, 2), adding=(NodeId(2),))),
        with_orders(THREE, replace(partition(1, 2), leader=NO_LEADER)),
        with_orders(THREE, partition(1, 2), replicas=3),
        with_orders(changed(THREE, 2, draining=True), partition(1, 2)),
    ],
)
def test_what_is_not_at_rest_is_left_alone(of: MetadataImage) -> None:
    found = load(of)
    assert not found.partitions[0].movable
    assert found.left_alone == 1


def test_a_stream_that_the_caller_may_not_know_of_counts_and_stays() -> None:
    (told,) = load(with_orders(THREE, partition(1, 2)), known=()).partitions
    assert (told.movable, told.size_bytes) == (False, 30_000)


def test_what_a_missing_node_keeps_is_left_alone() -> None:
    gone = (MissingNode(NodeId(2), "connection refused"),)
    found = load(with_orders(THREE, partition(1, 2)), missing=gone)
    assert found.missing == gone
    assert [it.node for it in found.nodes] == [1, 3]
    assert not found.partitions[0].movable


def test_nodes_that_are_ill_or_drained_take_nothing() -> None:
    ill = changed(changed(THREE, 1, draining=True), 2, full=True)
    assert [(it.takes, it.carries) for it in load(ill).nodes] == [
        (False, False), (False, True), (True, True),
    ]  # fmt: skip


def test_nodes_of_one_machine_share_its_disk() -> None:
    nodes = {it: replace(node, machine=NodeId(1)) for it, node in THREE.nodes.items() if it < 3}
    found = load(with_orders(replace(THREE, nodes=Map(nodes)), partition(1)))
    assert [(it.machine, it.disk_total_bytes, it.disk_used_bytes) for it in found.nodes] == [
        (1, 500_000, 250_000), (1, 500_000, 250_000),
    ]  # fmt: skip


def test_counts_travel_as_json() -> None:
    told = counts(7)
    assert NodeCounts.of_json(json.loads(json.dumps(told.json()))) == told


@pytest.mark.parametrize(
    "wrong", [{}, {"partitions": None}, {"partitions": [["orders", 0, 1]]}, {"time_ms": "now"}]
)
def test_other_json_is_refused(wrong: dict[str, Any]) -> None:
    fields = {**counts(7).json(), **wrong} if wrong else {}
    with pytest.raises(CorruptData):
        NodeCounts.of_json(fields)


def test_room_is_what_is_left_below_the_limit() -> None:
    found = disk_room(
        with_orders(THREE, partition(1, 2)), {it: counts(0) for it in THREE.nodes}, 80
    )
    assert found.free_bytes == {1: 300_000, 2: 300_000, 3: 300_000}, "of 1,000,000 500,000 are used"
    assert found.sizes[NodeId(1)][TopicPartition("orders", 0)] == 30_000


def test_a_node_that_does_not_tell_has_no_room() -> None:
    of = with_orders(THREE, partition(1, 2))
    told = {it: counts(0) for it in of.nodes if it != 2}
    assert set(disk_room(of, told).free_bytes) == {1, 3}
