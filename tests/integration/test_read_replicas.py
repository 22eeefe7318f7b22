"""Stock Kafka clients read from the follower in their own rack, and from the leader without it."""

import time
from collections.abc import Iterator
from typing import Final

import nats
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.history import Lane
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import Settings

LANE: Final = Lane("flights")
READ_TIMEOUT_S: Final = 30.0
FETCH_WAIT_MS: Final = 60_000
"""Whoever waits for the end of a fetch waits longer than the test does."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes, each in a rack of its own, and a stream on all of them."""
    wanted: Settings = {"replication": {"fetch_wait_max_ms": FETCH_WAIT_MS}}
    cluster = Cluster(tmp_path_factory.mktemp("racks"), settings=wanted)
    for number, node in cluster.nodes.items():
        node.configure({**cluster.settings_of(node), "node": {"rack": f"r{number}"}})
    with cluster:
        admin = AdminClient({"bootstrap.servers": cluster.servers})
        topic = NewTopic(LANE.stream, num_partitions=1, replication_factor=3)
        admin.create_topics([topic])[LANE.stream].result(30)
        cluster.wait_settled([LANE])
        yield cluster


async def publish(cluster: Cluster, first: int, count: int) -> None:
    connection = await nats.connect(cluster.nats.url)
    try:
        for number in range(first, first + count):
            await connection.jetstream().publish(LANE.stream, b"%d" % number, timeout=10)
    finally:
        await connection.close()


def reader(cluster: Cluster, rack: str) -> Consumer:
    settings = {"bootstrap.servers": cluster.servers, "group.id": "racks", "client.rack": rack}
    return Consumer(
        {**settings, "enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 1_000}
    )


def read(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    deadline = time.monotonic() + READ_TIMEOUT_S
    while len(found) < count and time.monotonic() < deadline:
        messages = consumer.consume(count - len(found), 0.2)
        found += [int(it.value() or b"") for it in messages if it.error() is None]
    return found


def served(cluster: Cluster, number: int) -> float:
    """Bytes of records that the node has sent to anybody."""
    lines = cluster[number].http("/metrics")[1].splitlines()
    return sum(
        float(it.split()[-1]) for it in lines if it.startswith("streamlog_fetch_bytes_total{")
    )


async def test_a_consumer_reads_in_its_rack_and_elsewhere_when_that_is_gone(
    cluster: Cluster,
) -> None:
    leader = cluster.leader(LANE)
    near, other = (number for number in cluster.nodes if number != leader)
    await publish(cluster, 0, 50)
    before = {number: served(cluster, number) for number in (near, other)}
    consumer = reader(cluster, f"r{near}")
    try:
        consumer.assign([TopicPartition(LANE.stream, LANE.partition, 0)])
        assert read(consumer, 50) == list(range(50))
        assert served(cluster, near) > before[near]
        assert served(cluster, other) == before[other]
        await publish(cluster, 50, 50)
        assert read(consumer, 50) == list(range(50, 100))
        cluster.kill(near)
        await publish(cluster, 100, 50)
        assert read(consumer, 50) == list(range(100, 150))
    finally:
        consumer.close()
        cluster.start(near)


async def test_what_is_committed_shows_at_a_follower_within_moments(cluster: Cluster) -> None:
    """Not only when more records come."""
    leader = cluster.leader(LANE)
    near = next(number for number in cluster.nodes if number != leader)
    cluster.wait_settled([LANE])
    consumer = reader(cluster, f"r{near}")
    try:
        end = cluster.committed_end(LANE)
        consumer.assign([TopicPartition(LANE.stream, LANE.partition, end)])
        await publish(cluster, 0, 1)
        assert read(consumer, 1) == [0]
        for number in range(1, 6):
            await publish(cluster, number, 1)
            assert read(consumer, 1) == [number], "a follower's fetch waits for more records"
    finally:
        consumer.close()
