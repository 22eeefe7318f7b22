"""Quotas set by the command line hold for stock clients, on every node, and after a restart."""

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tools.nodes.dev import Dev
from tools.nodes.server_process import program

BYTES = 20_000
PATIENCE_S = 60.0


def quota(servers: str, *words: str) -> str:
    command = [program("streamlog"), "quota", *words, "--bootstrap-server", servers]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def kafka(dev: Dev) -> list[str]:
    return [str(node["kafka"]) for node in dev.addresses["nodes"]]


def throttled_ms(servers: str, name: str, client_id: str, count: int) -> list[int]:
    """What a producer of stock librdkafka was told to wait, if it sends a kilobyte at a time."""
    waits: list[int] = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "client.id": client_id,
            "enable.idempotence": False,
            "linger.ms": 0,
            "throttle_cb": lambda event: waits.append(round(event.throttle_time * 1000)),
        }
    )
    for _ in range(count):
        producer.produce(name, bytes(1_000))
        assert producer.flush(PATIENCE_S) == 0
    producer.poll(1)
    return [wait for wait in waits if wait]


@pytest.fixture(autouse=True)
def _window(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second's worth may be used at once: what goes over it is soon too much."""
    monkeypatch.setenv("STREAMLOG_KAFKA__QUOTA_BURST_MS", "1000")


def test_quotas_hold_everywhere_and_for_ever(new_dev: Callable[..., Dev]) -> None:
    dev = new_dev("--nodes", "3")
    dev.start()
    first, *others = kafka(dev)
    admin = AdminClient({"bootstrap.servers": first})
    admin.create_topics([NewTopic("limited", 1, 3)])["limited"].result(30)
    assert throttled_ms(first, "limited", "slow", 3) == []
    quota(first, "set", "slow", "--producer-byte-rate", "1000")
    quota(first, "set", "--default", "--request-rate", "50000")
    expected: list[dict[str, Any]] = [
        {"client_id": None, "request_rate": 50_000.0},
        {"client_id": "slow", "producer_byte_rate": 1_000.0},
    ]
    for address in (first, *others):
        assert json.loads(quota(address, "ls", "--json")) == expected
    table = quota(others[0], "ls")
    assert "(default)" in table
    assert "1 000" in table
    assert throttled_ms(first, "limited", "slow", 3)
    assert throttled_ms(first, "limited", "quick", 3) == []
    dev.stop()
    dev.start()
    first, *others = kafka(dev)
    for address in (first, *others):
        assert json.loads(quota(address, "ls", "--json")) == expected
    assert throttled_ms(first, "limited", "slow", 3)
    quota(others[1], "rm", "slow")
    assert json.loads(quota(first, "ls", "--json")) == expected[:1]
    assert throttled_ms(first, "limited", "slow", 3) == []


def test_a_consumer_is_slowed_down_and_loses_nothing(new_dev: Callable[..., Dev]) -> None:
    dev = new_dev()
    dev.start()
    admin = AdminClient({"bootstrap.servers": dev.kafka})
    admin.create_topics([NewTopic("dripping", 1, 1)])["dripping"].result(30)
    producer = Producer({"bootstrap.servers": dev.kafka})
    for number in range(30):
        producer.produce("dripping", b"%03d" % number + bytes(BYTES // 10))
        assert producer.flush(PATIENCE_S) == 0
    quota(dev.kafka, "set", "drinker", "--consumer-byte-rate", str(BYTES))
    consumer = Consumer(
        {
            "bootstrap.servers": dev.kafka,
            "client.id": "drinker",
            "group.id": "unused",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("dripping", 0, 0)])
    began = time.monotonic()
    found: list[int] = []
    while len(found) < 30 and time.monotonic() < began + PATIENCE_S:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None
            found.append(int((message.value() or b"")[:3]))
    took_s = time.monotonic() - began
    consumer.close()
    assert found == list(range(30))
    assert took_s >= 1, "three seconds' worth: one saved up, one owed in the end"
