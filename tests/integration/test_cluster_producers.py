"""kill -9 of leaders under idempotent Kafka producers: each record once, in order, everywhere."""

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.history import Lane
from tools.nodes.cluster import Cluster

KILLS = 4
PATIENCE_S = 60.0
PAUSE_S = 1.0
SETTINGS = {
    "enable.idempotence": True,
    "linger.ms": 2,
    "batch.size": 2_000,
    "message.timeout.ms": 60_000,
    "socket.timeout.ms": 10_000,
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("producers")) as cluster:
        yield cluster


class Sending:
    """A producer that never stops, in a thread; ``with Sending(...) as sending: ...``."""

    def __init__(self, cluster: Cluster, topic: str, **settings: object) -> None:
        self.acked: list[tuple[int, bytes]] = []
        """Offset and value, in the order of the answers."""
        self.problems: list[KafkaError] = []
        self.sent = 0
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": cluster.servers, **SETTINGS, **settings})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Sending":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for number in count():
            if self._stop.wait(0.001):
                break
            self._producer.produce(
                self._topic, b"%08d" % number, partition=0, on_delivery=self._told
            )
            self.sent = number + 1
            self._producer.poll(0)
        assert self._producer.flush(PATIENCE_S) == 0

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.problems.append(error)
        else:
            self.acked.append((message.offset() or 0, message.value() or b""))


def create(cluster: Cluster, name: str) -> Lane:
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    admin.create_topics([NewTopic(name, 1, 3)])[name].result(30)
    lane = Lane(name)
    cluster.wait_settled([lane])
    return lane


@pytest.mark.parametrize("whole", [False, True], ids=["the leader", "all nodes"])
def test_kill_9_neither_loses_nor_repeats(cluster: Cluster, whole: bool) -> None:
    lane = create(cluster, "once-all" if whole else "once-leader")
    pause = threading.Event()
    with Sending(cluster, lane.stream) as sending:
        for _ in range(2 if whole else KILLS):
            pause.wait(PAUSE_S)
            victims = list(cluster.nodes) if whole else [cluster.leader(lane)]
            cluster.kill(*victims)
            pause.wait(PAUSE_S / 2)
            cluster.start(*victims)
            cluster.wait_settled([lane])
        pause.wait(PAUSE_S)
    assert sending.problems == []
    expected = [b"%08d" % number for number in range(sending.sent)]
    assert len(expected) > 500
    assert [value for _, value in sending.acked] == expected
    end = cluster.wait_replicated(lane)
    assert end == len(expected)
    for replica in cluster.replicas(lane):
        assert [record.value for record in replica.records] == expected, replica.name


def test_ids_are_given_once_also_after_kill_9(cluster: Cluster, tmp_path: Path) -> None:
    lane = create(cluster, "ids")
    for round_number in range(3):
        for node in cluster.nodes.values():
            producer = Producer({"bootstrap.servers": node.kafka, **SETTINGS})
            producer.produce(lane.stream, b"%d" % round_number, partition=0)
            assert producer.flush(PATIENCE_S) == 0
        victim = cluster.leader(lane)
        cluster.restart(victim)
        cluster.wait_settled([lane])
    ids = producer_ids(cluster, lane)
    assert len(ids) == len(set(ids)) == 9


def producer_ids(cluster: Cluster, lane: Lane) -> list[int]:
    """Of each batch in the log."""
    from streamlog.record.batch import batches

    node = cluster[cluster.leader(lane)]
    folder = node.data_dir / "streams" / lane.stream / str(lane.partition)
    return [
        header.producer_id
        for segment in sorted(folder.glob("*.log"))
        for header, _ in batches(segment.read_bytes())
    ]


def test_too_few_replicas_refuse_and_what_waits_is_told(cluster: Cluster) -> None:
    """Nothing is lost or stored twice when the replicas are back: it is the same producer."""
    lane = create(cluster, "few")
    away = [it for it in cluster.nodes if it != cluster.leader(lane)]
    with Sending(cluster, lane.stream) as sending:
        threading.Event().wait(PAUSE_S)
        cluster.kill(*away)
        threading.Event().wait(5 * PAUSE_S)
        known = len(sending.acked)
        threading.Event().wait(PAUSE_S)
        assert len(sending.acked) == known < sending.sent
        cluster.start(*away)
        cluster.wait_settled([lane])
        threading.Event().wait(PAUSE_S)
    assert sending.problems == []
    expected = [b"%08d" % number for number in range(sending.sent)]
    assert cluster.wait_replicated(lane) == len(expected)
    for replica in cluster.replicas(lane):
        assert [record.value for record in replica.records] == expected, replica.name
