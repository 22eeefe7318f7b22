"""Consumer groups of three nodes: kill -9 of coordinators, and nothing committed goes back."""

import threading
import time
from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from streamlog.coordination.keys import partition_of
from tests.history import Lane
from tests.integration.group_clients import Member, create, describe, poll_until, produce, shared
from tools.nodes.cluster import Cluster

OFFSETS = "__consumer_offsets"
PARTITIONS = 6
KILLS = 3
PATIENCE_S = 120.0
QUICK = {
    "socket.timeout.ms": 5_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"groups": {"offsets_partitions": 3, "initial_rebalance_delay_ms": 100}}
    folder = tmp_path_factory.mktemp("groups")
    with Cluster(folder, settings=settings) as cluster:
        yield cluster


def lane_of(cluster: Cluster, group: str) -> Lane:
    """The partition of the group's offsets, settled. librdkafka asks for offsets once: no node may be named
    coordinator and then refuse to be one.
    """
    consumer = Consumer({"bootstrap.servers": cluster.servers, "group.id": group, **QUICK})
    try:  # the first request has the stream made
        consumer.committed([TopicPartition("none", 0)], timeout=60)
    finally:
        consumer.close()
    lanes = [Lane(OFFSETS, number) for number in range(3)]
    cluster.wait_settled(lanes)
    return lanes[partition_of(group, 3)]


def test_offsets_are_kept_as_those_of_a_cluster_are(cluster: Cluster) -> None:
    lane_of(cluster, "any")
    view = cluster.view()
    for number in range(3):
        assert len(view.partitions[Lane(OFFSETS, number)].replicas) == 3


class Committing:
    """Commits ever larger offsets, in a thread, and reads them back; none is ever smaller."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self.acknowledged = 0
        self.commits = 0
        self.problems: list[str] = []
        self._consumer = Consumer(
            {"bootstrap.servers": cluster.servers, "group.id": group, **QUICK}
        )
        self._topic = group
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Committing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        for offset in count(1):
            if self._stop.wait(0.005):
                return
            try:
                self._consumer.commit(
                    offsets=[TopicPartition(self._topic, 0, offset)], asynchronous=False
                )
                self.acknowledged = offset
                self.commits += 1
            except KafkaException:
                continue  # it may be there, or not
            finally:
                self._look()

    def _look(self) -> None:
        try:
            (found,) = self._consumer.committed([TopicPartition(self._topic, 0)], timeout=10)
        except KafkaException:
            return
        if found.offset < self.acknowledged:
            self.problems.append(f"{found.offset} after {self.acknowledged}")

    def wait_for_more(self) -> None:
        """A commit that began after this was called."""
        before, deadline = self.commits + 1, time.monotonic() + PATIENCE_S
        while self.commits <= before:
            assert time.monotonic() < deadline, "nothing is committed any more"
            time.sleep(0.01)


def test_a_committed_offset_never_goes_back(cluster: Cluster) -> None:
    create(cluster.servers, "forward", 1, 3)
    lane = lane_of(cluster, "forward")
    with Committing(cluster, "forward") as committing:
        for _ in range(KILLS):
            committing.wait_for_more()
            victim = cluster.leader(lane)
            cluster.kill(victim)
            committing.wait_for_more()  # with two nodes
            cluster.start(victim)
            cluster.wait_settled([lane])
        committing.wait_for_more()
    assert committing.problems == []
    assert committing.commits > 2 * KILLS


def test_a_group_goes_on_when_its_coordinator_is_killed(cluster: Cluster) -> None:
    create(cluster.servers, "goes-on", PARTITIONS, 3)
    lane = lane_of(cluster, "goes-on")
    members = [
        Member(cluster.servers, "goes-on", "goes-on", **{**QUICK, "session.timeout.ms": 30_000})
        for _ in range(3)
    ]
    try:
        poll_until(members, lambda: shared(members, PARTITIONS), "three share", PATIENCE_S)
        produce(cluster.servers, "goes-on", [b"%d" % number for number in range(50)])

        def read() -> int:
            return sum(len(it.read) for it in members)

        poll_until(members, lambda: read() >= 50, "all is read", PATIENCE_S)
        for member in members:
            if member.read:
                member.consumer.commit(asynchronous=False)
        generations = [len(it.given) for it in members]
        owned = [it.owned for it in members]
        victim = cluster.leader(lane)
        cluster.kill(victim)
        produce(cluster.servers, "goes-on", [b"%d" % number for number in range(50, 100)])
        poll_until(members, lambda: read() >= 100, "the rest is read", PATIENCE_S)
        for member in members:
            if len(member.read) > 0:
                member.consumer.commit(asynchronous=False)
        assert [it.owned for it in members] == owned
        assert [len(it.given) for it in members] == generations
        assert len(describe(cluster.servers, "goes-on").members) == 3
        values = sorted(int(it.value() or b"") for member in members for it in member.read)
        assert values == list(range(100))
    finally:
        for member in members:
            member.close()
        away = [number for number, node in cluster.nodes.items() if not node.is_running()]
        if away:
            cluster.start(*away)
