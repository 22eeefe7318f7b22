"""A tiered topic on nodes with a folder for an object store, and what stock Kafka clients do with it."""

import time
from pathlib import Path
from typing import Any, cast

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tools.nodes.node_process import NodeProcess, Settings
from tools.nodes.server_process import wait_until

TOPIC = "flights"
EARLIEST: Any = cast("Any", OffsetSpec).earliest()
LATEST: Any = cast("Any", OffsetSpec).latest()
COUNT = 3_000
VALUE_BYTES = 200
CONFIGS = {
    "remote.storage.enable": "true",
    "local.retention.ms": "100",
    "segment.bytes": "32768",
    "streamlog.duplicate_window_ms": "100",
}


def settings_of(folder: Path) -> Settings:
    return {
        "nats_listen": {},
        "log": {"retention_check_ms": 100},
        "tier": {
            "url": (folder / "bucket").as_uri(),
            "interval_ms": 50,
            "orphan_grace_ms": 1_000,
        },
    }


def value(number: int) -> bytes:
    return (b"%08d-" % number).ljust(VALUE_BYTES, b"x")


def create(kafka: str, replicas: int = 1, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    topic = NewTopic(TOPIC, 1, replicas, config={**CONFIGS, **configs})
    admin.create_topics([topic])[TOPIC].result(30)


def produce(kafka: str, first: int, end: int, **settings: Any) -> None:
    """All acknowledged."""
    failed: list[Any] = []

    def told(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {"bootstrap.servers": kafka, "linger.ms": 1, "batch.size": 4096, **settings}
    )
    for number in range(first, end):
        producer.produce(TOPIC, value(number), on_delivery=told)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert failed == []


def consume(kafka: str, first: int, count: int, **settings: Any) -> list[tuple[Any, Any]]:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **settings,
        }
    )
    found: list[tuple[Any, Any]] = []
    deadline = time.monotonic() + 60
    try:
        consumer.assign([TopicPartition(TOPIC, 0, first)])
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(500, timeout=1.0):
                assert message.error() is None, message.error()
                found.append((message.offset(), message.value()))
    finally:
        consumer.close()
    return found


def listed(kafka: str, spec: Any) -> int:
    admin = AdminClient({"bootstrap.servers": kafka})
    asked = admin.list_offsets({TopicPartition(TOPIC, 0): spec})
    return int(next(iter(asked.values())).result(30).offset)


def local_segments(node: NodeProcess) -> list[int]:
    folder = node.data_dir / "streams" / TOPIC / "0"
    return sorted(int(it.stem) for it in folder.glob("*.log"))


def tiered_objects(folder: Path) -> list[Path]:
    return sorted((folder / "bucket").glob("*/*/0/segments/*"))


def until_front_is_gone(node: NodeProcess, offset: int) -> None:
    wait_until(lambda: local_segments(node)[0] > offset, "the front is gone here", 60)
