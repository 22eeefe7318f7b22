"""Kafka Connect copies a file into a topic and the topic into a file, while its workers and a node are killed."""

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.history import Lane
from tests.peers.sources import cache
from tools.maven import MavenError, archives
from tools.nodes.cluster import Cluster
from tools.nodes.ports import free_port
from tools.nodes.server_process import ServerProcess, http_get, wait_until

pytestmark = [pytest.mark.peers, pytest.mark.slow]

VERSION: Final = "4.2.0"
ARTIFACTS: Final = ("connect-runtime", "connect-file")
MAIN: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
TOPIC: Final = "lines"
PARTITIONS: Final = 3
LINES: Final = 4_000
"""In one part. A worker or a node is killed while it is copied."""
WIDTH: Final = 600
"""Of a line, more than half of the 1024 bytes that the source reads at once: what it has read of further lines when its
batch is full it would leave until the file grows again.
"""
READY_S: Final = 60.0
WAIT_S: Final = 120.0
REST_TIMEOUT_S: Final = 90.0
"""Longer than a worker's own, 60 s: after a kill it answers when the group has its next generation."""
WORKER: Final = """
bootstrap.servers = {servers}
group.id = connect
key.converter = org.apache.kafka.connect.storage.StringConverter
value.converter = org.apache.kafka.connect.storage.StringConverter
config.storage.topic = connect-configs
offset.storage.topic = connect-offsets
status.storage.topic = connect-status
listeners = http://127.0.0.1:{port}
exactly.once.source.support = {exactly_once}
offset.flush.interval.ms = 1000
session.timeout.ms = 6000
heartbeat.interval.ms = 2000
scheduled.rebalance.max.delay.ms = 1000
plugin.discovery = service_load
"""
SOURCE: Final = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "tasks.max": "1",
    "topic": TOPIC,
    "batch.size": "50",
}
"""Each batch is a transaction of its own."""
SINK: Final = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
    "tasks.max": "1",
    "topics": TOPIC,
    "consumer.override.isolation.level": "read_committed",
    "consumer.override.session.timeout.ms": "6000",
    "consumer.override.auto.offset.reset": "earliest",
}


@pytest.fixture(scope="module")
def jars() -> Path:
    try:
        wanted = [f"org.apache.kafka:{it}:{VERSION}" for it in ARTIFACTS]
        wanted.append("org.slf4j:slf4j-simple:1.7.36")
        return archives(wanted, cache() / f"kafka-connect-{VERSION}")
    except MavenError as error:
        pytest.skip(f"Kafka Connect cannot be had: {error}")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {"kafka": {"default_replicas": 3}, "groups": {"initial_rebalance_delay_ms": 500}}
    with Cluster(tmp_path / "nodes", settings=settings) as cluster:
        yield cluster


class Worker:
    """One of the group ``connect``."""

    def __init__(self, jars: Path, folder: Path, name: str, servers: str, *, once: bool) -> None:
        port = free_port()
        self.id = f"127.0.0.1:{port}"
        settings = folder / f"{name}.properties"
        support = "enabled" if once else "disabled"
        settings.write_text(WORKER.format(servers=servers, port=port, exactly_once=support))
        command = ["java", "-Xmx384m", "-cp", str(jars / "*"), MAIN, str(settings)]
        self.process = ServerProcess(command, folder / f"{name}.log")

    def start(self) -> None:
        self.process.spawn()

    def wait_ready(self) -> None:
        def answers() -> bool:
            self.process.check_running()
            return http_get(f"http://{self.id}/connectors", REST_TIMEOUT_S)[0] == 200

        wait_until(answers, "the worker's REST interface is not there", READY_S)

    def configure(self, connector: str, settings: dict[str, str]) -> None:
        request = urllib.request.Request(
            f"http://{self.id}/connectors/{connector}/config",
            json.dumps(settings).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        with urllib.request.urlopen(request, timeout=REST_TIMEOUT_S) as answer:
            assert answer.status in (200, 201)

    def restart(self, connector: str) -> None:
        path = f"connectors/{connector}/restart?includeTasks=true"
        request = urllib.request.Request(f"http://{self.id}/{path}", method="POST")
        with urllib.request.urlopen(request, timeout=REST_TIMEOUT_S) as answer:
            assert answer.status in (202, 204)

    def tasks(self, connector: str) -> list[dict[str, Any]]:
        """What each is, and on which worker."""
        status, body = http_get(f"http://{self.id}/connectors/{connector}/status", REST_TIMEOUT_S)
        found: list[dict[str, Any]] = json.loads(body)["tasks"] if status == 200 else []
        return found


def committed(servers: str) -> dict[int, list[int]]:
    """By partition, what readers of committed records see."""
    settings = {"bootstrap.servers": servers, "group.id": "look", "enable.auto.commit": False}
    limits = {"isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({**settings, **limits})
    consumer.assign([TopicPartition(TOPIC, it, 0) for it in range(PARTITIONS)])
    found: dict[int, list[int]] = {it: [] for it in range(PARTITIONS)}
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None
        value, partition = message.value(), message.partition()
        if message.error() is not None:
            ended += 1
        else:
            assert value is not None
            assert partition is not None
            found[partition].append(int(value))
    consumer.close()
    return found


@pytest.mark.parametrize("once", [False, True], ids=["at least once", "exactly once"])
def test_a_file_is_copied_through_kills(
    cluster: Cluster, jars: Path, tmp_path: Path, once: bool
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
    cluster.wait_settled([Lane(TOPIC, it) for it in range(PARTITIONS)])
    given, copied = tmp_path / "given.txt", tmp_path / "copied.txt"
    given.touch()
    copied.touch()
    written = 0
    workers = [Worker(jars, tmp_path, it, cluster.servers, once=once) for it in ("one", "two")]

    def write(count: int) -> None:
        nonlocal written
        with given.open("a") as file:
            file.writelines(f"{it:<{WIDTH}}\n" for it in range(written, written + count))
        written += count

    def wait_copied(count: int) -> None:
        def is_copied() -> bool:
            return len(set(copied.read_text().split())) >= count

        wait_until(is_copied, f"{count} lines are not copied", WAIT_S)

    def worker_of(connector: str, asked: Worker) -> Worker:
        """Waits until its task runs."""
        found: Worker | None = None

        def runs() -> bool:
            nonlocal found
            running = [it["worker_id"] for it in asked.tasks(connector) if it["state"] == "RUNNING"]
            found = next((it for it in workers if [it.id] == running), None)
            return found is not None

        wait_until(runs, f"the task of {connector} does not run", WAIT_S)
        assert found is not None
        return found

    try:
        for it in workers:
            it.start()
        for it in workers:
            it.wait_ready()
        workers[0].configure("source", {**SOURCE, "file": str(given)})
        workers[1].configure("sink", {**SINK, "file": str(copied)})
        write(LINES)
        wait_copied(LINES)
        workers[1].restart("source")
        write(LINES)
        wait_copied(LINES + LINES // 4)
        killed = worker_of("source", workers[0])
        killed.process.kill()
        write(LINES)
        wait_copied(3 * LINES)
        killed.start()
        killed.wait_ready()
        write(LINES)
        wait_copied(3 * LINES + LINES // 4)
        leader = cluster.leader((TOPIC, 0))
        cluster.kill(leader)
        write(LINES)
        wait_copied(5 * LINES)
        cluster.start(leader)
        write(LINES)
        wait_copied(5 * LINES + LINES // 4)
        killed = worker_of("sink", workers[0])
        killed.process.kill()
        wait_copied(6 * LINES)
        found = committed(cluster.servers)
    finally:
        for it in workers:
            it.process.kill()
    times = Counter(line for lines in found.values() for line in lines)
    assert times.keys() == set(range(written))
    if once:
        assert set(times.values()) == {1}
        assert all(lines == sorted(lines) for lines in found.values())
    assert set(copied.read_text().split()) == {str(it) for it in range(written)}
