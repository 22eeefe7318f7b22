"""A compacted topic as stock clients see it: one node, killed while it cleans, and three."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamlog.log.tools.verify import FolderFinding, verify
from tests.checkpoints import offsets_in
from tests.history import Lane
from tools.nodes.cluster import Cluster
from tools.nodes.server_process import wait_until

confluent = pytest.importorskip("confluent_kafka")

COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "streamlog.duplicate_window_ms": "100",
    "segment.ms": "100",
    "segment.bytes": "65536",
}
KEYS = 50
VALUE_BYTES = 200
OFFSETS = "__consumer_offsets"

Seen = list[tuple[int, bytes, bytes | None]]


def create(kafka: str, topic: str, *, replicas: int = 1, **configs: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": kafka})
    config = {**COMPACT, **{key.replace("_", "."): value for key, value in configs.items()}}
    new = NewTopic(topic, num_partitions=1, replication_factor=replicas, config=config)
    admin.create_topics([new])[topic].result(30)


def write(
    kafka: str,
    topic: str,
    numbers: range,
    *,
    keys: int = KEYS,
    settings: dict[str, Any] | None = None,
) -> dict[bytes, bytes | None]:
    """The last value of each key; each key is deleted now and then."""
    producer = confluent.Producer(
        {"bootstrap.servers": kafka, "enable.idempotence": True, "linger.ms": 2, **(settings or {})}
    )
    failed: list[Any] = []
    last: dict[bytes, bytes | None] = {}
    for number in numbers:
        key = b"key-%d" % (number % keys)
        value = None if number % 7 == 3 else b"%d " % number + b"x" * VALUE_BYTES
        last[key] = value
        producer.produce(
            topic, value, key, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed
    return last


def read(kafka: str, topic: str) -> Seen:
    """Everything from the first offset to the end."""
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "test",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )
    found: Seen = []
    deadline = time.monotonic() + 60
    try:
        consumer.assign([confluent.TopicPartition(topic, 0, 0)])
        while time.monotonic() < deadline:
            for message in consumer.consume(1_000, timeout=0.5):
                if message.error() is None:
                    found.append((message.offset(), message.key(), message.value()))
                elif message.error().code() == confluent.KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise AssertionError(str(message.error()))
        raise AssertionError(f"no end after {len(found)} records")
    finally:
        consumer.close()


def check(found: Seen, last: dict[bytes, bytes | None]) -> None:
    """In the order of offsets, and the last value of each key is the one that was written last."""
    offsets = [offset for offset, _, _ in found]
    assert offsets == sorted(set(offsets))
    seen = {key: value for _, key, value in found}
    alive = {key: value for key, value in last.items() if value is not None}
    assert {key: value for key, value in seen.items() if value is not None} == alive


def sizes(data_dir: Path, topic: str) -> int:
    folder = data_dir / "streams" / topic / "0"
    total = 0
    for path in folder.glob("*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # replaced meanwhile
            continue
    return total


def dirty_offset(data_dir: Path, topic: str) -> int:
    return offsets_in(data_dir / "cleaner-offset-checkpoint").get((topic, 0), 0)


@pytest.mark.parametrize("codec", ["none", "zstd", "gzip", "snappy", "lz4"])
def test_a_consumer_sees_the_last_value_of_each_key(
    new_node: Callable[..., Any], codec: str
) -> None:
    node = new_node(compaction_interval_ms=50, checkpoint_interval_ms=50)
    node.start()
    create(node.kafka, "t")
    last = write(node.kafka, "t", range(3_000), settings={"compression.type": codec})
    wait_until(lambda: dirty_offset(node.data_dir, "t") == 3_000, "not compacted")
    found = read(node.kafka, "t")
    check(found, last)
    assert len(found) == KEYS
    assert found[-1][0] == 2_999
    if codec == "none":
        assert sizes(node.data_dir, "t") < 3_000 * VALUE_BYTES / 10
    assert write(node.kafka, "t", range(3_000, 3_010))
    assert read(node.kafka, "t")[-1][0] == 3_009
    status, metrics = node.http("/metrics")
    assert status == 200
    assert "streamlog_compaction_removed_bytes_total" in metrics
    assert node.stop() == 0
    assert not [it for it in verify(node.data_dir) if isinstance(it, FolderFinding)]


def test_a_consumer_group_reads_on_over_what_is_gone(new_node: Callable[..., Any]) -> None:
    """Offsets in the middle of what was compacted away are good ones."""
    node = new_node(compaction_interval_ms=50, checkpoint_interval_ms=50)
    node.start()
    create(node.kafka, "t")
    write(node.kafka, "t", range(1_000))
    wait_until(lambda: dirty_offset(node.data_dir, "t") == 1_000, "not compacted")
    consumer = confluent.Consumer({"bootstrap.servers": node.kafka, "group.id": "g"})
    try:
        for offset in (0, 1, 17, 500, 949):
            consumer.assign([confluent.TopicPartition("t", 0, offset)])
            (message,) = consumer.consume(1, timeout=30)
            assert message.error() is None
            assert message.offset() == 950
    finally:
        consumer.close()


def test_records_without_a_key_are_refused(new_node: Callable[..., Any]) -> None:
    node = new_node()
    node.start()
    create(node.kafka, "t")
    errors: list[Any] = []
    producer = confluent.Producer({"bootstrap.servers": node.kafka})
    producer.produce("t", b"v", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert errors[0].code() == confluent.KafkaError.INVALID_RECORD


def test_a_kill_amid_cleanings_loses_and_resurrects_nothing(new_node: Callable[..., Any]) -> None:
    node = new_node(
        compaction_interval_ms=10, checkpoint_interval_ms=50, compaction_bytes_per_s=4_000_000
    )
    node.start()
    create(node.kafka, "t", delete_retention_ms="300")
    last: dict[bytes, bytes | None] = {}
    folder = node.data_dir / "streams" / "t" / "0"
    caught = 0
    for turn in range(6):
        last |= write(node.kafka, "t", range(turn * 1_500, (turn + 1) * 1_500))
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            if any(folder.glob("*.cleaned")) or any(folder.glob("*.swap")):
                caught += 1
                break
        node.kill()
        node.start()
        check(read(node.kafka, "t"), last)
    assert caught
    wait_until(lambda: dirty_offset(node.data_dir, "t") == 9_000, "not compacted")
    check(read(node.kafka, "t"), last)
    assert node.stop() == 0
    assert not [it for it in verify(node.data_dir) if isinstance(it, FolderFinding)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    log: dict[str, object] = {"compaction_interval_ms": 50, "checkpoint_interval_ms": 50}
    with Cluster(tmp_path_factory.mktemp("compaction"), settings={"log": log}) as cluster:
        yield cluster


def test_a_follower_catches_up_through_what_was_compacted(cluster: Cluster) -> None:
    lane = Lane("compacted")
    kafka = cluster.servers
    create(kafka, lane.stream, replicas=3, delete_retention_ms="200")
    last = write(kafka, lane.stream, range(1_000))
    cluster.wait_settled([lane])
    away = next(it for it in (1, 2, 3) if it != cluster.leader(lane))
    cluster.kill(away)
    last |= write(kafka, lane.stream, range(1_000, 4_000))
    leader = cluster[cluster.leader(lane)]
    wait_until(lambda: dirty_offset(leader.data_dir, lane.stream) == 4_000, "not compacted")
    threading.Event().wait(0.5)  # the tombstones' time is over, and they are still wanted
    check(read(kafka, lane.stream), last)
    cluster.start(away)
    cluster.wait_settled([lane])
    last |= write(kafka, lane.stream, range(4_000, 4_050))
    for number in (1, 2, 3):
        node = cluster[number]
        wait_until(
            lambda node=node: dirty_offset(node.data_dir, lane.stream) == 4_050,  # type: ignore[misc]
            "not compacted",
        )
    others = [it for it in (1, 2, 3) if it != away]
    for number in others:  # what the follower has is what is read then
        cluster.kill(number)
        cluster.start(number)
        cluster.wait_settled([lane])
    check(read(kafka, lane.stream), last)


def test_committed_offsets_outlive_cleanings_and_a_kill(new_node: Callable[..., Any]) -> None:
    """``__consumer_offsets`` is a compacted topic like any other: tiny batches of few keys."""
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    node = new_node(compaction_interval_ms=50, checkpoint_interval_ms=50)
    node.start()
    create(node.kafka, "t", cleanup_policy="delete")
    write(node.kafka, "t", range(500))

    def consumer() -> Any:
        return confluent.Consumer(
            {"bootstrap.servers": node.kafka, "group.id": "g", "enable.auto.commit": False}
        )

    def committed() -> int:
        asking = consumer()
        try:
            (found,) = asking.committed([confluent.TopicPartition("t", 0)], timeout=30)
            return int(found.offset)
        finally:
            asking.close()

    committing = consumer()
    try:
        for offset in range(1, 301):
            place = confluent.TopicPartition("t", 0, offset)
            committing.commit(offsets=[place], asynchronous=False)
            if offset == 1:
                entries = [
                    ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
                    for key, value in {**COMPACT, "segment.bytes": "4096"}.items()
                ]
                resource = ConfigResource(ResourceType.TOPIC, OFFSETS, incremental_configs=entries)
                admin = AdminClient({"bootstrap.servers": node.kafka})
                admin.incremental_alter_configs([resource])[resource].result(30)
    finally:
        committing.close()
    cleaner = node.data_dir / "cleaner-offset-checkpoint"
    wait_until(
        lambda: any(
            stream == OFFSETS and offset >= 300
            for (stream, _), offset in offsets_in(cleaner).items()
        ),
        "not compacted",
    )
    node.kill()
    node.start()
    assert committed() == 300


def test_other_clients_read_over_what_is_gone(new_node: Callable[..., Any]) -> None:
    """Batches without records are Kafka's, too, and every client goes past them."""
    aiokafka = pytest.importorskip("aiokafka")
    kafka = pytest.importorskip("kafka")
    node = new_node(compaction_interval_ms=50, checkpoint_interval_ms=50)
    node.start()
    create(node.kafka, "t")
    last = write(node.kafka, "t", range(1_000))
    wait_until(lambda: dirty_offset(node.data_dir, "t") == 1_000, "not compacted")

    def by_kafka_python() -> Seen:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=node.kafka, auto_offset_reset="earliest", consumer_timeout_ms=30_000
        )
        try:
            place = kafka.TopicPartition("t", 0)
            consumer.assign([place])
            consumer.seek(place, 0)
            found: Seen = []
            for message in consumer:
                found.append((message.offset, message.key, message.value))
                if message.offset == 999:
                    break
            return found
        finally:
            consumer.close()

    async def by_aiokafka() -> Seen:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=node.kafka)
        await consumer.start()
        try:
            place = aiokafka.TopicPartition("t", 0)
            consumer.assign([place])
            consumer.seek(place, 0)
            found: Seen = []
            while not found or found[-1][0] < 999:
                message = await asyncio.wait_for(consumer.getone(), 30)
                found.append((message.offset, message.key, message.value))
            return found
        finally:
            await consumer.stop()

    for found in (by_kafka_python(), asyncio.run(by_aiokafka())):
        check(found, last)
        assert len(found) == KEYS


async def test_nats_publishers_name_keys_and_delete_them(new_node: Callable[..., Any]) -> None:
    nats = pytest.importorskip("nats")
    node = new_node(compaction_interval_ms=50, checkpoint_interval_ms=50)
    node.start()
    client = await nats.connect(node.nats_url)
    try:
        management = client.jetstream(domain="streamlog")
        metadata = {
            "streamlog.cleanup_policy": "compact",
            "streamlog.segment_age_ms": "100",
            "streamlog.min_cleanable_dirty_ratio": "0",
        }
        config = nats.js.api.StreamConfig(
            name="prices", subjects=["prices.*"], duplicate_window=0.1, metadata=metadata
        )
        info = await management.add_stream(config)
        assert info.config.metadata["streamlog.cleanup_policy"] == "compact"
        stream = client.jetstream()
        for number in range(20):
            for key in ("a", "b"):
                headers = {"Streamlog-Key": key}
                await stream.publish("prices.fx", b"%d" % number, headers=headers)
        await stream.publish("prices.fx", b"", headers={"Streamlog-Key": "b"})
        with pytest.raises(nats.js.errors.BadRequestError) as refused:
            await stream.publish("prices.fx", b"no key")
        assert "Streamlog-Key" in str(refused.value.description)
        await asyncio.to_thread(
            wait_until, lambda: dirty_offset(node.data_dir, "prices") == 41, "not compacted"
        )
        found = await asyncio.to_thread(read, node.kafka, "prices")
        assert found == [(38, b"a", b"19"), (40, b"b", None)]
        message = await management.get_msg("prices", 39)
        assert message.data == b"19"
        with pytest.raises(nats.js.errors.NotFoundError):
            await management.get_msg("prices", 1)
    finally:
        await client.close()
