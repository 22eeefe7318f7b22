"""Clients that would push their metrics (KIP-714) ask once at most, for no node takes them, and complain of nothing."""

import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from tests.peers.sources import cache
from tools.maven import MavenError, archives
from tools.nodes.cluster import Cluster
from tools.nodes.server_process import wait_until

pytestmark = [pytest.mark.peers, pytest.mark.slow]

VERSION: Final = "4.2.0"
PROGRAM: Final = Path(__file__).parent / "java" / "PushMetrics.java"
TELEMETRY: Final = "org.apache.kafka.common.telemetry"
NETWORK: Final = "org.apache.kafka.clients.NetworkClient"
NEVER_AGAIN: Final = "Updating intervalMs: 2147483647"
RECORDS: Final = 500
RUN_TIMEOUT_S: Final = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, settings={"kafka": {"auto_create_topics": True}}) as cluster:
        yield cluster


def test_a_java_client_asks_once_and_never_again(cluster: Cluster) -> None:
    try:
        wanted = [f"org.apache.kafka:kafka-clients:{VERSION}", "org.slf4j:slf4j-simple:1.7.36"]
        jars = archives(wanted, cache() / f"kafka-clients-{VERSION}")
    except MavenError as error:
        pytest.skip(f"Kafka's clients cannot be had: {error}")
    levels = {"defaultLogLevel": "warn", f"log.{TELEMETRY}": "debug", f"log.{NETWORK}": "debug"}
    options = [f"-Dorg.slf4j.simpleLogger.{name}={level}" for name, level in levels.items()]
    done = subprocess.run(
        ["java", *options, "-cp", str(jars / "*"), str(PROGRAM), cluster.servers],
        capture_output=True,
        text=True,
        check=True,
        timeout=RUN_TIMEOUT_S,
    )
    lines = done.stderr.splitlines()
    assert done.stdout.strip() == "sent true, known as null"
    assert [it for it in lines if " WARN " in it or " ERROR " in it] == []
    tries = [it for it in lines if "Version mismatch" in it and "GetTelemetrySub" in it]
    assert len(tries) == 1
    assert sum(NEVER_AGAIN in it for it in lines) == 1


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage())


def test_librdkafka_asks_nothing(cluster: Cluster) -> None:
    logger, said = logging.Logger("librdkafka"), Lines()
    logger.addHandler(said)
    errors: list[object] = []
    settings = {"bootstrap.servers": cluster.servers, "enable.metrics.push": True}
    producer = Producer(
        {**settings, "debug": "telemetry", "error_cb": errors.append}, logger=logger
    )
    told = 0

    def count(error: object, _: object) -> None:
        nonlocal told
        assert error is None
        told += 1

    for _ in range(RECORDS):
        producer.produce("metrics", b"1", on_delivery=count)
    wait_until(lambda: producer.flush(1) == 0, "the records are not sent")
    assert told == RECORDS
    assert errors == []
    assert [it for it in said.found if "initialized" not in it] == []
