"""A cluster that is restored from a backup, and the clients that knew the one before it.

The backups here are made of several takes, so that offsets are newer than records, and records are
newer than the metadata: a take that is interrupted leaves the same.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration import kafka_producers
from tools.nodes.cluster import Cluster
from tools.nodes.server_process import program, wait_until

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")

DEADLINE_S = 60.0


class Lost:
    """One node with its backup; ``restore`` replaces the node's folder."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.node = cluster[1]
        self.backup = directory / "backup"
        self._directory = directory
        self._restores = 0

    @property
    def kafka(self) -> str:
        return self.node.kafka

    def command(self, *arguments: str) -> str:
        return self.cluster.command(*arguments)

    def add(self, stream: str, *options: str) -> None:
        self.cluster.command("stream", "add", stream, *options)

    def take(self, *streams: str) -> None:
        named = [word for stream in streams for word in ("--stream", stream)]
        self.command("backup", "create", str(self.backup), *named)

    def verify(self) -> str:
        command = [program("streamlog"), "backup", "verify", str(self.backup)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def restore(self) -> None:
        """The node is killed, its folder moved away, and made anew of the backup."""
        self.node.kill()
        self._restores += 1
        self.node.data_dir.rename(self._directory / f"lost-{self._restores}")
        command = [program("streamlog"), "backup", "restore", "cluster", str(self.backup)]
        subprocess.run([*command, "--node", f"1={self.node.data_dir}"], check=True)
        self.cluster.start()

    def values(self, stream: str) -> list[bytes]:
        """What a new consumer reads."""
        lines = self.command("consume", stream, "--json").splitlines()
        return [str(json.loads(line)["value"]).encode() for line in lines]

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(value) for value in self.values("__activity")]


@pytest.fixture
def lost(tmp_path: Path) -> Iterator[Lost]:
    settings: dict[str, dict[str, object]] = {"activity": {"enabled": True}}
    with Cluster(tmp_path / "cluster", nodes=1, settings=settings) as cluster:
        yield Lost(cluster, tmp_path)


def numbered(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}-{number}".encode() for number in range(count)]


def consume(lost: Lost, topic: str, count: int) -> list[bytes]:
    """What a group's only member gets next; it commits what it got."""
    from confluent_kafka import Consumer

    settings = {
        "bootstrap.servers": lost.kafka,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 50,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    values: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    try:
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                values.append(message.value() or b"")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return values


def test_a_group_skips_nothing_whose_commits_are_newer_than_the_records(lost: Lost) -> None:
    lost.add("ORDERS")
    kafka_producers.confluent(lost.kafka, "ORDERS", numbered("before", 2))
    assert len(consume(lost, "ORDERS", 2)) == 2
    lost.take()
    kafka_producers.confluent(lost.kafka, "ORDERS", numbered("lost", 10))
    assert len(consume(lost, "ORDERS", 10)) == 10
    lost.take("__consumer_offsets")
    said = lost.verify()
    assert "group 'readers' has committed offset 12 of ORDERS/0, of which" in said
    assert "records up to 2; a restore lowers it" in said
    lost.restore()
    after = numbered("after", 12)
    kafka_producers.confluent(lost.kafka, "ORDERS", after)
    assert consume(lost, "ORDERS", 12) == after


@pytest.mark.parametrize("write", kafka_producers.WRITERS.values(), ids=kafka_producers.WRITERS)
def test_a_new_producer_is_not_taken_for_one_of_before(
    lost: Lost, write: Callable[..., list[int]]
) -> None:
    """Their records are newer than the metadata of the backup."""
    lost.add("orders")
    lost.take()
    write(lost.kafka, "orders", numbered("before", 3))
    lost.take("orders")
    lost.restore()
    write(lost.kafka, "orders", numbered("after", 3))
    assert lost.values("orders") == [*numbered("before", 3), *numbered("after", 3)]


class Living:
    """A producer of librdkafka that outlives the cluster."""

    def __init__(self, kafka: str) -> None:
        from confluent_kafka import Producer

        settings = {
            "bootstrap.servers": kafka,
            "enable.idempotence": True,
            "linger.ms": 5,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        self._producer = Producer(settings)

    def write(self, topic: str, values: list[bytes]) -> list[bytes]:
        """One after the other; those that are acknowledged."""
        from confluent_kafka import KafkaException

        acknowledged: list[bytes] = []
        for value in values:

            def told(error: object, _: object, value: bytes = value) -> None:
                if error is None:
                    acknowledged.append(value)

            try:
                self._producer.produce(topic, value, partition=0, on_delivery=told)
                assert self._producer.flush(DEADLINE_S) == 0
            except KafkaException as error:  # it says so, and takes nothing more
                assert error.args[0].fatal(), error
                break
        return acknowledged


def test_a_producer_that_lives_on_loses_nothing_that_is_acknowledged(lost: Lost) -> None:
    """Of one it is known what it wrote, but not all; another began after the backup."""
    lost.add("orders")
    early, late, same = Living(lost.kafka), Living(lost.kafka), Living(lost.kafka)
    assert len(early.write("orders", numbered("early", 3))) == 3
    assert len(same.write("orders", numbered("same", 3))) == 3
    lost.take()
    kept = lost.values("orders")
    assert len(early.write("orders", numbered("early-lost", 2))) == 2
    assert len(late.write("orders", numbered("late-lost", 2))) == 2
    lost.restore()
    after = same.write("orders", numbered("same-after", 3))
    assert after == numbered("same-after", 3)
    after += early.write("orders", numbered("early-after", 3))
    after += late.write("orders", numbered("late-after", 3))
    new = numbered("new", 3)
    assert kafka_producers.confluent(lost.kafka, "orders", new)
    after += new
    assert lost.values("orders") == [*kept, *after]


def test_activity_goes_on_after_a_gap(lost: Lost) -> None:
    lost.add("first")
    wait_until(lambda: "first" in streams_told(lost), "first is not told")
    lost.take()
    for number in range(20):
        lost.add(f"lost-{number}")
    wait_until(lambda: "lost-19" in streams_told(lost), "the last one is not told")
    lost.take("__activity")
    told = len(lost.events())
    lost.restore()
    for number in range(5):
        lost.add(f"new-{number}")
    wait_until(lambda: "new-4" in streams_told(lost), "what is new is not told")
    after = lost.events()[told:]
    assert after[0]["kind"] == "gap"
    created = [it["stream"] for it in after if it["kind"] == "stream_created"]
    assert created == [f"new-{number}" for number in range(5)]


def streams_told(lost: Lost) -> list[str]:
    return [it["stream"] for it in lost.events() if it["kind"] == "stream_created"]
