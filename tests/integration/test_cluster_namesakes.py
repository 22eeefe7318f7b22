"""A stream is deleted and created again under its name while one node is late: stock clients judge.

What the clients were acknowledged is there after the leader's death, and nothing else is.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.history import Lane
from tests.integration.conftest import read_stream
from tests.integration.kafka_producers import confluent
from tools.nodes.cluster import Cluster
from tools.nodes.node_process import NodeProcess, Settings
from tools.nodes.server_process import NatsServer, wait_until

PATIENT: Final[Settings] = {"cluster": {"pause_tolerance_ms": 12_000, "session_timeout_ms": 15_000}}
"""Whoever stands still for a moment is not succeeded for it."""
OLD, NEW = 10, 20
"""Records in the stream that is deleted, and in the one that is created."""
PAUSE_S: Final = 1.2


class WithOwnNats(Cluster):
    """One node's nats-server is its own."""

    def __init__(self, directory: Path, *, late: int, settings: Settings) -> None:
        self.late = late
        self.own_nats = NatsServer(directory)
        super().__init__(directory / "cluster", settings=settings)

    def settings_of(self, node: NodeProcess) -> Settings:
        settings = super().settings_of(node)
        if node.number == self.late:
            settings["nats"] = {**settings["nats"], "servers": [self.own_nats.url]}
        return settings

    def __enter__(self) -> Self:
        self.own_nats.start()
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self.own_nats.kill()


def asked(node: NodeProcess, call: Callable[[Any], Any], name: str) -> Any:
    """A future, which lasts as long as its client does."""
    admin = AdminClient({"bootstrap.servers": node.kafka, "log_level": 0})
    future = call(admin)[name]
    future.admin = admin
    return future


def create(node: NodeProcess, name: str, *replicas: int) -> Any:
    """A future: whoever does not wait for it has the stream before its leader is ready."""
    config = {"min.insync.replicas": str(len(replicas))}
    topic = NewTopic(name, 1, replica_assignment=[list(replicas)], config=config)
    return asked(node, lambda admin: admin.create_topics([topic]), name)


def delete(node: NodeProcess, name: str) -> Any:
    return asked(node, lambda admin: admin.delete_topics([name]), name)


def values(what: str, count: int) -> list[bytes]:
    return [b"%s %d" % (what.encode(), number) for number in range(count)]


def wait_known(node: NodeProcess, name: str, *, known: bool = True) -> None:
    def is_so() -> bool:
        try:
            return (Lane(name) in node.view().partitions) == known
        except KafkaException:
            return False

    wait_until(is_so, f"{name} is {'there' if known else 'gone'}")


@contextmanager
def standing_still(node: Any) -> Iterator[None]:
    node.pause()
    try:
        yield
    finally:
        node.resume()


def come_back(cluster: Cluster, number: int, name: str) -> None:
    """With what it has; of two replicas both are needed to know what is committed."""
    cluster.start(number)
    cluster.wait_settled([Lane(name)])


def read(cluster: Cluster, name: str) -> list[bytes]:
    return [it.value for it in read_stream(cluster.servers, name, start=0)]


def test_a_follower_that_is_late_is_not_counted(tmp_path: Path) -> None:
    leader, follower = 1, 3
    with WithOwnNats(tmp_path, late=follower, settings=PATIENT) as cluster:
        create(cluster[leader], "s", leader, follower).result()
        confluent(cluster[leader].kafka, "s", values("old", OLD))
        with standing_still(cluster.own_nats):
            other = create(cluster[leader], "other", follower)  # what it listens for takes its time
            wait_known(cluster[leader], "other")
            delete(cluster[leader], "s").result()
            create(cluster[leader], "s", leader, follower).result()
            confluent(cluster[leader].kafka, "s", values("new", NEW))
            cluster.kill(leader)
        other.exception()
        wait_until(lambda: cluster.leader(Lane("s")) == follower, "the follower leads")
        come_back(cluster, leader, "s")
        assert read(cluster, "s") == values("new", NEW)


def test_a_follower_that_is_late_and_empty_is_not_counted(tmp_path: Path) -> None:
    """The position of its empty log fits the new stream, so nothing else holds the leader back. All
    clients are connected before, so that all is done while one request to NATS hangs.
    """
    late = 3
    with WithOwnNats(tmp_path, late=late, settings=PATIENT) as cluster:
        leader = next(it for it in (cluster.controller(), 1) if it != late)
        settings: dict[str, Any] = {"bootstrap.servers": cluster[leader].kafka, "log_level": 0}
        creator, deleter, other = (AdminClient(settings) for _ in range(3))
        config = {"min.insync.replicas": "2"}
        s = NewTopic("s", 1, replica_assignment=[[leader, late]], config=config)
        creator.create_topics([s])["s"].result()
        for admin in (deleter, other):
            admin.list_topics(timeout=10)
        producer = Producer({**settings, "acks": "all"})
        producer.list_topics("s", timeout=10)
        acknowledged: list[Any] = []
        with standing_still(cluster.own_nats):
            asked_for = other.create_topics([NewTopic("other", 1, replica_assignment=[[late]])])
            threading.Event().wait(0.15)  # the late one applies it, and waits for its NATS
            deleter.delete_topics(["s"])["s"].result()
            creator.create_topics([s])["s"].result()
            for value in values("new", NEW):
                producer.produce("s", value, on_delivery=lambda *told: acknowledged.append(told))
            producer.flush(10)
            cluster.kill(leader)
        asked_for["other"].exception()
        wanted = {message.value() for error, message in acknowledged if error is None}
        wait_until(lambda: cluster.leader(Lane("s")) == late, "the follower leads")
        come_back(cluster, leader, "s")
        assert wanted == set(read(cluster, "s")) == set(values("new", NEW))


def test_the_next_stream_waits_for_a_leader_that_is_late(tmp_path: Path) -> None:
    """It would acknowledge messages for the next stream into the log that is deleted."""
    with Cluster(tmp_path, settings=PATIENT) as cluster:
        for number in range(3):
            name, controller = f"s{number}", cluster.controller()
            leader, follower = (it for it in cluster.nodes if it != controller)
            create(cluster[leader], name, leader, follower).result()
            confluent(cluster[leader].kafka, name, values("old", OLD))
            with standing_still(cluster[leader]):
                gone = delete(cluster[controller], name)
                wait_known(cluster[follower], name, known=False)
                made = create(cluster[controller], name, leader, follower)
                other = create(cluster[controller], f"other{number}", controller, follower)
                wait_known(cluster[follower], f"other{number}")
                threading.Event().wait(PAUSE_S)
                assert not gone.done()
                assert not made.done()
                wait_known(cluster[follower], name, known=False)
            for done in (gone, made, other):
                done.result()
            confluent(cluster[leader].kafka, name, values("new", NEW))
            cluster.kill(leader)
            wait_until(lambda n=name, f=follower: cluster.leader(Lane(n)) == f, "it leads")  # type: ignore[misc]
            come_back(cluster, leader, name)
            assert read(cluster, name) == values("new", NEW)


def test_a_leader_that_does_not_come_back_is_not_waited_for(tmp_path: Path) -> None:
    """Longer than its lease can last."""
    settings: Settings = {"cluster": {"leader_lease_ms": 2_000, "session_timeout_ms": 3_000}}
    with Cluster(tmp_path, settings=settings) as cluster:
        controller = cluster.controller()
        leader, follower = (it for it in cluster.nodes if it != controller)
        create(cluster[leader], "s", leader, follower).result()
        confluent(cluster[leader].kafka, "s", values("old", OLD))
        with standing_still(cluster[leader]):
            delete(cluster[controller], "s").result()
            create(cluster[controller], "s", follower, controller).result()
            confluent(cluster[follower].kafka, "s", values("new", NEW))
        cluster.wait_settled([Lane("s")])
        assert read(cluster, "s") == values("new", NEW)


@pytest.mark.slow
def test_again_and_again(tmp_path: Path) -> None:
    """Each time a node stands still, or loses its NATS, meanwhile; then a replica dies.

    Not the controller: without it nothing is replaced.
    """
    late = 3
    with WithOwnNats(tmp_path, late=late, settings=PATIENT) as cluster:
        for number in range(25):
            replicas = random.sample(list(cluster.nodes), 2)
            other = next(it for it in cluster.nodes if it not in replicas)
            able = [cluster[it] for it in cluster.nodes if it != cluster.controller()]
            fault = random.choice([*able, cluster.own_nats])
            there = cluster[other if fault is not cluster[other] else replicas[0]]
            if number:
                hears_of_it = fault is cluster.own_nats
                with standing_still(fault):
                    gone = delete(there, "s")
                    wait_known(there, "s", known=False)
                    made = create(there, "s", *replicas)
                    wait_known(there, "s", known=hears_of_it)  # else the next one waits for it
                    threading.Event().wait(random.uniform(0.0, PAUSE_S))
                gone.result()
            else:
                made = create(there, "s", *replicas)
            made.result()
            wanted = values(f"round {number}", random.randrange(1, 50))
            confluent(cluster.servers, "s", wanted)
            victim = random.choice(replicas)
            cluster.kill(victim)
            wait_until(lambda v=victim: cluster.leader(Lane("s")) != v, "another leads")  # type: ignore[misc]
            come_back(cluster, victim, "s")
            assert read(cluster, "s") == wanted
