"""Transactions of Java's clients, which have version 2 of them, and Kafka's own tool for transactions."""

import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from streamlog.coordination.keys import partition_of
from tests.coordinator_kills import Killing
from tests.history import Lane
from tests.integration.group_clients import create, produce
from tests.integration.test_cluster_transactions import OFFSETS, STATE, producer_of, read
from tests.peers.kafka_commands import COMMAND_TIMEOUT_S, KafkaCommands, kafka_jars
from tests.peers.sources import NoSourcesError
from tools.nodes.cluster import Cluster

pytestmark = [pytest.mark.peers, pytest.mark.slow]
PROGRAM: Final = Path(__file__).with_name("java") / "Transactions.java"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        kafka_jars()
    except NoSourcesError as error:
        pytest.skip(f"Kafka's clients cannot be had: {error}")
    settings = {"groups": {"offsets_partitions": 3}, "transactions": {"state_partitions": 3}}
    with Cluster(tmp_path_factory.mktemp("java"), settings=settings) as cluster:
        yield cluster


def told(cluster: Cluster, *story: str) -> list[str]:
    """What the program prints."""
    done = subprocess.run(
        [
            "java",
            "-cp",
            str(kafka_jars() / "*"),
            str(PROGRAM),
            cluster.servers,
            *story,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=3 * COMMAND_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout.splitlines()


def test_each_transaction_has_an_epoch_of_its_own(cluster: Cluster) -> None:
    create(cluster.servers, "java", 2, 3)
    expected: list[str] = []
    for number in range(4):
        expected += [
            f"Ongoing {number} [java-{number % 2}]",
            "listed epochs Ongoing",
            f"active {number} true",
        ]
    assert told(cluster, "epochs") == [*expected, "record 0", "record 2", "record 3"]


def test_a_later_producer_fences_the_one_before(cluster: Cluster) -> None:
    create(cluster.servers, "fenced", 2, 3)
    assert told(cluster, "fence") == ["fenced", "of the later one"]


def test_consume_transform_produce_exactly_once(cluster: Cluster) -> None:
    """Through kills of both coordinators, and of a leader."""
    create(cluster.servers, "questions", 2, 3)
    create(cluster.servers, "answers", 2, 3)
    lanes = [
        Lane(STATE, partition_of("answerer", 3)),
        Lane(OFFSETS, partition_of("java answerers", 3)),
        Lane("answers", 0),
    ]
    producer_of(cluster, "first")  # makes the internal streams
    read(cluster, "answers")
    found: list[str] = []
    program = threading.Thread(target=lambda: found.extend(told(cluster, "transform", "600")))
    program.start()
    for number in range(3):
        for partition in range(2):
            values = [
                f"q{it}".encode() for it in range(number * 200 + partition, number * 200 + 200, 2)
            ]
            produce(cluster.servers, "questions", values, partition=partition)
        if number == 0:
            cluster.wait_settled(lanes)
            with Killing(cluster, lanes):
                pass
    program.join()
    assert found == ["answered 600", "transactions true"]
    assert Counter(read(cluster, "answers")) == Counter(f"a{number}" for number in range(600))


def test_kafkas_own_tool_shows_and_ends_transactions(cluster: Cluster, tmp_path: Path) -> None:
    create(cluster.servers, "tool", 2, 3)
    kafka = KafkaCommands(cluster.servers, tmp_path)

    def run(*options: str) -> str:
        done = kafka.run({}, "kafka-transactions", *options)
        assert done.code == 0, done
        return done.out

    producer = producer_of(cluster, "shown")
    producer.begin_transaction()
    producer.produce("tool", b"x", partition=1)
    assert producer.flush(30) == 0
    (line,) = [it for it in run("list").splitlines() if it.startswith("shown")]
    assert line.split()[-1] == "Ongoing"
    assert "tool-1" in run("describe", "--transactional-id", "shown")
    assert "shown" not in run("find-hanging", "--topic", "tool")
    run("forceTerminateTransaction", "--transactionalId", "shown")
    assert "Ongoing" not in run("describe", "--transactional-id", "shown")
    assert read(cluster, "tool") == []
