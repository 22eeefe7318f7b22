"""Kafka Streams counts records while its processes and nodes are killed."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.history import Lane
from tests.peers.sources import cache
from tools.maven import MavenError, archives
from tools.nodes.cluster import Cluster
from tools.nodes.server_process import ServerProcess, wait_until

pytestmark = [pytest.mark.peers, pytest.mark.slow]

VERSION: Final = "4.2.0"
PROGRAM: Final = Path(__file__).parent / "java" / "CountKeys.java"
PARTITIONS: Final = 4
KEYS: Final = 50
RECORDS: Final = 20_000
"""In three parts: something is killed after the first, and after the second."""
WAIT_S: Final = 180.0
AT_LEAST_ONCE: Final = "at_least_once"
EXACTLY_ONCE: Final = "exactly_once_v2"


@pytest.fixture(scope="module")
def jars() -> Path:
    try:
        wanted = [f"org.apache.kafka:kafka-streams:{VERSION}", "org.slf4j:slf4j-simple:1.7.36"]
        return archives(wanted, cache() / f"kafka-streams-{VERSION}")
    except MavenError as error:
        pytest.skip(f"Kafka Streams cannot be had: {error}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Internal topics of Streams have as many replicas as there are nodes."""
    settings = {"kafka": {"default_replicas": 3}, "groups": {"initial_rebalance_delay_ms": 500}}
    with Cluster(tmp_path_factory.mktemp("nodes"), settings=settings) as cluster:
        yield cluster


class Output:
    """All that is in ``out``, as readers of committed records see it."""

    def __init__(self, servers: str, topic: str) -> None:
        self.counts: dict[bytes, list[int]] = defaultdict(list)
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "output",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, it, 0) for it in range(PARTITIONS)])

    def reaches(self, totals: dict[bytes, int]) -> bool:
        """Whether each key has been counted up to its total, at the least."""
        for message in self._consumer.consume(10_000, 0.5):
            error = message.error()
            if error is None:
                key, value = message.key(), message.value()
                assert key is not None
                assert value is not None
                self.counts[bytes(key)].append(int.from_bytes(value, "big"))
        return all(max(self.counts[key], default=0) >= total for key, total in totals.items())

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE])
def test_counts_survive_kills(cluster: Cluster, jars: Path, tmp_path: Path, guarantee: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    for topic in ("in", "out"):
        admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result(30)
    cluster.wait_settled([Lane(topic, it) for topic in ("in", "out") for it in range(PARTITIONS)])
    producer = Producer({"bootstrap.servers": cluster.servers, "enable.idempotence": True})
    totals: dict[bytes, int] = defaultdict(int)

    def produce(count: int) -> None:
        for number in range(count):
            key = b"k%d" % (number % KEYS)
            producer.produce("in", b"x", key, on_delivery=told)
            producer.poll(0)
            totals[key] += 1
        assert producer.flush(60) == 0

    def told(error: object, _: object) -> None:
        assert error is None

    def instance(name: str) -> ServerProcess:
        command = ["java", "-Xmx256m", "-cp", str(jars / "*"), str(PROGRAM), cluster.servers]
        made = ServerProcess([*command, guarantee, str(tmp_path / name)], tmp_path / f"{name}.log")
        made.spawn()
        return made

    output = Output(cluster.servers, "out")
    first, second = instance("one"), instance("two")
    try:
        produce(RECORDS // 3)
        wait_until(lambda: output.reaches(totals), "the first part is not counted", WAIT_S)
        produce(RECORDS // 6)
        first.kill()
        produce(RECORDS // 6)
        wait_until(lambda: output.reaches(totals), "the second part is not counted", WAIT_S)
        first = instance("one")
        produce(RECORDS // 6)
        leader = cluster.leader(("out", 0))
        cluster.kill(leader)
        produce(RECORDS // 6)
        wait_until(lambda: output.reaches(totals), "the third part is not counted", WAIT_S)
        cluster.start(leader)
    finally:
        for it in (first, second):
            it.kill()
        output.close()
        deleted = admin.delete_topics(["in", "out"])
        for future in deleted.values():
            future.result(30)
    for key, total in totals.items():
        counts = output.counts[key]
        if guarantee == EXACTLY_ONCE:
            assert counts == list(range(1, total + 1)), key
        else:
            assert set(counts) >= set(range(1, total + 1)), key
