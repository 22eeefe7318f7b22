"""MirrorMaker 2 copies a topic, and a group's offsets, from one node to another, by the topic names of its defaults."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.peers.sources import cache
from tools.maven import MavenError, archives
from tools.nodes.cluster import Cluster
from tools.nodes.server_process import ServerProcess, wait_until

pytestmark = [pytest.mark.peers, pytest.mark.slow]

VERSION: Final = "4.2.0"
MAIN: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
PARTITIONS: Final = 2
RECORDS: Final = 5_000
WAIT_S: Final = 120.0
SETTINGS: Final = """
clusters = A, B
A.bootstrap.servers = {source}
B.bootstrap.servers = {target}
A->B.enabled = true
A->B.topics = orders.*
B->A.enabled = false
refresh.topics.interval.seconds = 1
refresh.groups.interval.seconds = 1
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
emit.checkpoints.interval.seconds = 1
emit.heartbeats.interval.seconds = 1
offset.lag.max = 0
tasks.max = 1
replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
offset.storage.replication.factor = 1
status.storage.replication.factor = 1
config.storage.replication.factor = 1
"""


@pytest.fixture(scope="module")
def jars() -> Path:
    try:
        wanted = [f"org.apache.kafka:connect-mirror:{VERSION}", "org.slf4j:slf4j-simple:1.7.36"]
        return archives(wanted, cache() / f"mirror-maker-{VERSION}")
    except MavenError as error:
        pytest.skip(f"MirrorMaker cannot be had: {error}")


@pytest.fixture
def mirror(jars: Path, tmp_path: Path) -> Iterator[Callable[[str, str], ServerProcess]]:
    made: list[ServerProcess] = []

    def start(source: str, target: str) -> ServerProcess:
        settings = tmp_path / "mm2.properties"
        settings.write_text(SETTINGS.format(source=source, target=target))
        command = ["java", "-Xmx512m", "-cp", str(jars / "*"), MAIN, str(settings)]
        made.append(ServerProcess(command, tmp_path / "mirror.log"))
        made[-1].spawn()
        return made[-1]

    yield start
    for it in made:
        it.kill()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Cluster]]:
    """Two clusters of one node each."""
    with Cluster(tmp_path / "a", nodes=1) as source, Cluster(tmp_path / "b", nodes=1) as target:
        yield [source, target]


def produce(servers: str, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for it in values:
        producer.produce(topic, b"%d" % it, partition=it % PARTITIONS)
    assert producer.flush(60) == 0


def read(servers: str, topic: str) -> list[int]:
    """All values that are there, by partition in their order; nothing while there is no such topic."""
    settings = {"bootstrap.servers": servers, "group.id": "look", "log_level": 0}
    consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
    try:
        if len(consumer.list_topics(timeout=10).topics[topic].partitions) != PARTITIONS:
            return []
        consumer.assign([TopicPartition(topic, it, 0) for it in range(PARTITIONS)])
        found, ended = [], 0
        while ended < PARTITIONS:
            message = consumer.poll(10)
            assert message is not None
            if message.error() is not None:
                ended += 1
                continue
            value = message.value()
            assert value is not None
            found.append(int(value))
        return found
    except KeyError:
        return []
    finally:
        consumer.close()


def committed(servers: str, group: str, topic: str) -> list[int]:
    admin = AdminClient({"bootstrap.servers": servers})
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    found = {
        it.partition: it.offset for it in asked.result(30).topic_partitions if it.topic == topic
    }
    return [found.get(it, -1) for it in range(PARTITIONS)]


def test_a_topic_and_a_group_are_mirrored_through_kills(
    nodes: list[Cluster], mirror: Callable[[str, str], ServerProcess]
) -> None:
    source, target = (it[1] for it in nodes)
    admin = AdminClient({"bootstrap.servers": source.kafka})
    admin.create_topics([NewTopic("orders", PARTITIONS, 1)])["orders"].result(30)
    produce(source.kafka, "orders", range(RECORDS))
    group = Consumer({"bootstrap.servers": source.kafka, "group.id": "readers"})
    group.commit(
        offsets=[TopicPartition("orders", it, RECORDS // PARTITIONS) for it in range(PARTITIONS)],
        asynchronous=False,
    )
    group.close()
    running = mirror(source.kafka, target.kafka)

    def has(count: int) -> Callable[[], bool]:
        def look() -> bool:
            running.check_running()
            return len(set(read(target.kafka, "A.orders"))) >= count

        return look

    wait_until(has(RECORDS), "the records are not mirrored", WAIT_S)
    produce(source.kafka, "orders", range(RECORDS, 2 * RECORDS))
    running.kill()
    target.kill()
    target.start()
    running = mirror(source.kafka, target.kafka)
    wait_until(has(2 * RECORDS), "the rest is not mirrored", WAIT_S)
    values = read(target.kafka, "A.orders")
    assert set(values) == set(range(2 * RECORDS))
    ends = [RECORDS // PARTITIONS] * PARTITIONS

    def is_translated() -> bool:
        found = committed(target.kafka, "readers", "A.orders")
        return all(it > 0 for it in found) and found <= ends

    wait_until(is_translated, "the group's offsets are not mirrored", WAIT_S)
    topics = set(AdminClient({"bootstrap.servers": source.kafka}).list_topics(timeout=10).topics)
    assert "mm2-offset-syncs.B.internal" in topics
