"""A data folder and a configuration as a release wrote them, which every later one must read.

``python -m tests.kept.release`` makes them for the version of this source tree. A release makes its
own once; those of earlier releases are never made again, and never changed.
"""

import asyncio
import json
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

import nats
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from streamlog import __version__
from tools.nodes.node_process import NodeProcess
from tools.nodes.server_process import NatsServer

KEPT = Path(__file__).parent
ROOT = KEPT.parents[1]
LOG: Final[dict[str, Any]] = {"segment_bytes": 16 * 1024, "metadata_reserve_bytes": 65_536}
"""Of the node that writes the folder: several segments, and little that only takes room."""
PARTITIONS = {"orders": 1, "keyed": 3, "newest": 1, "compacted": 1, "sealed": 1}
GROUP, USER = "readers", "alice"
COUNT = 300


def records_of(kafka: str) -> dict[str, list[Any]]:
    """All records of each partition: offset, time, key, value and headers."""
    consumer = Consumer(
        {"bootstrap.servers": kafka, "group.id": "kept", "enable.partition.eof": True}
    )
    found: dict[str, list[Any]] = {}
    for stream, count in PARTITIONS.items():
        for number in range(count):
            consumer.assign([TopicPartition(stream, number, OFFSET_BEGINNING)])
            found[f"{stream}/{number}"] = list(_records(consumer))
    consumer.close()
    return found


def _records(consumer: Consumer) -> Any:
    while True:
        message: Any = consumer.poll(60)
        assert message is not None
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            return
        headers: Any = message.headers() or []
        texts = [it and it.decode() for it in (message.key(), message.value())]
        named = [[name, content.decode()] for name, content in headers]
        yield [message.offset(), message.timestamp()[1], *texts, named]


def committed_of(kafka: str) -> int:
    """What the group has committed of ``orders``."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": GROUP})
    (found,) = consumer.committed([TopicPartition("orders", 0)], timeout=60)
    consumer.close()
    return int(found.offset)


async def _publish(url: str) -> None:
    client = await nats.connect(url)
    js = client.jetstream(domain="streamlog")
    streams: dict[str, dict[str, Any]] = {
        "orders": {},
        "keyed": {"metadata": {"streamlog.partitions": "3", "streamlog.partition_by": "key"}},
        "newest": {"max_msgs_per_subject": 2},
        "compacted": {"metadata": {"streamlog.cleanup_policy": "compact"}},
        "sealed": {},
    }
    for name, more in streams.items():
        config: dict[str, Any] = {
            "name": name,
            "subjects": [f"{name}.>"],
            "storage": "file",
            **more,
        }
        answer = await client.request(
            f"$JS.streamlog.API.STREAM.CREATE.{name}", json.dumps(config).encode(), timeout=30
        )
        assert b'"error"' not in answer.data, answer.data
    for number in range(COUNT):
        for name in PARTITIONS:
            headers = {"Nats-Msg-Id": f"{name}-{number}", "number": str(number)}
            if name in {"keyed", "compacted"}:
                headers["Streamlog-Key"] = f"key {number % 7}"
            payload = f"{name} {number} ".encode() * 8
            await js.publish(f"{name}.{number % 5}", payload, headers=headers, timeout=30)
    info = await client.request("$JS.streamlog.API.STREAM.INFO.sealed", b"", timeout=30)
    config = {**json.loads(info.data)["config"], "sealed": True}
    await client.request(
        "$JS.streamlog.API.STREAM.UPDATE.sealed", json.dumps(config).encode(), timeout=30
    )
    await client.close()


def _produce(kafka: str) -> None:
    """Compressed batches of an idempotent producer, a group that commits, and a user."""
    for compression in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {
                "bootstrap.servers": kafka,
                "enable.idempotence": True,
                "compression.type": compression,
            }
        )
        for number in range(20):
            producer.produce("orders", f"{compression} {number}" * 10, key=str(number))
        assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition("orders", 0, 123)], asynchronous=False)
    consumer.close()
    admin = AdminClient({"bootstrap.servers": kafka})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(USER, credential, b"not a secret", b"salt" * 8)
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(60)


def make(folder: Path) -> None:
    """Fill a new node, stop it, fill it on, kill it; keep its folder and what a client read."""
    folder.mkdir()
    shutil.copy(ROOT / "config" / "node.toml", folder / "node.toml")
    with tempfile.TemporaryDirectory() as directory:
        server = NatsServer(Path(directory))
        server.start()
        node = NodeProcess.alone(Path(directory) / "node", server.url, settings={"log": LOG})
        try:
            node.start()
            asyncio.run(_publish(server.url))
            assert node.stop(60) == 0
            node.start()
            _produce(node.kafka)
            records = records_of(node.kafka)
            node.kill()
        finally:
            node.kill()
            server.kill()
        with tarfile.open(folder / "data.tar.gz", "w:gz") as archive:
            archive.add(node.data_dir, "data")
    lines = [json.dumps([name, *it]) for name, found in records.items() for it in found]
    (folder / "records.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    make(KEPT / __version__)
