"""What clients do at a node, and what they were told, with the time when they were."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import nats
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from nats.js import JetStreamContext
from nats.js.api import StreamConfig

from tools.nodes.node_process import NodeProcess

SYNCS: Final = ("commit", "interval", "os")
"""Each is the ``sync`` of a stream that has its name."""
SYNC_INTERVAL_MS: Final = 200
BUCKET: Final = "bucket"
GROUP: Final = "readers"
PAYLOAD_BYTES_MAX: Final = 1_500
PARALLEL: Final = 3
TIMEOUT_S: Final = 30.0
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    "nats": {"servers": []},
    "nats_listen": {},
    "log": {
        "segment_bytes": 4_096,
        "sync_interval_ms": SYNC_INTERVAL_MS,
        "checkpoint_interval_ms": 100,
    },
    "groups": {"offsets_partitions": 1},
}


@dataclass
class Told:
    """By an acknowledgement. Times are of the monotonic clock, as those of the disk."""

    streams: dict[str, int] = field(default_factory=dict)
    """When each was there."""
    messages: dict[str, dict[int, tuple[int, bytes]]] = field(default_factory=dict)
    """By stream and sequence: when it was acknowledged, and what it is."""
    sent: dict[str, set[bytes]] = field(default_factory=dict)
    purges: list[tuple[int, str, int]] = field(default_factory=list)
    """When, of which stream, and the first sequence that may be there."""
    asked_purges: list[tuple[int, str, int]] = field(default_factory=list)
    """The same, when it was asked."""
    values: list[tuple[int, str, int]] = field(default_factory=list)
    """When, the key, and the number that was put."""
    offsets: list[tuple[int, int]] = field(default_factory=list)
    """When, and the offset that a group has committed."""


def node_in(folder: Path, data_dir: Path) -> NodeProcess:
    return NodeProcess(1, folder, data_dir=data_dir, settings=SETTINGS)


async def work(node: NodeProcess, seed: int, steps: int) -> Told:
    """Publish, produce, purge, put and commit."""
    rng, told = random.Random(seed), Told()
    client = await nats.connect(node.port_url)
    try:
        js = client.jetstream(domain="streamlog")
        for sync in SYNCS:
            config = StreamConfig(name=sync, subjects=[sync], metadata={"streamlog.sync": sync})
            await js.add_stream(config)
            told.streams[sync] = time.monotonic_ns()
            told.messages[sync], told.sent[sync] = {}, set()
        bucket = await js.create_key_value(bucket=BUCKET, history=2)
        told.streams[f"KV_{BUCKET}"] = time.monotonic_ns()
        consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": GROUP, "log_level": 0})
        producer = Producer({"bootstrap.servers": node.kafka, "linger.ms": 0, "log_level": 0})
        numbers = iter(range(10**9))

        async def publish() -> None:
            await _publish(js, told, rng, rng.choice(SYNCS), next(numbers))

        async def produce() -> None:
            stream, payload = rng.choice(SYNCS), _payload(rng, next(numbers))
            told.sent[stream].add(payload)
            offset, at_ns = await asyncio.to_thread(_produced, producer, stream, payload)
            told.messages[stream][offset + 1] = at_ns, payload

        async def put() -> None:
            key, number = rng.choice("ab"), next(numbers)
            await bucket.put(key, b"%d" % number)
            told.values.append((time.monotonic_ns(), key, number))

        async def commit() -> None:
            offset = next(numbers)
            place = TopicPartition("commit", 0, offset)
            await asyncio.to_thread(consumer.commit, offsets=[place], asynchronous=False)
            told.offsets.append((time.monotonic_ns(), offset))

        async def purge() -> None:
            name = rng.choice(SYNCS)
            if not told.messages[name]:
                return
            first = max(told.messages[name]) + 1 - rng.randrange(3)
            told.asked_purges.append((time.monotonic_ns(), name, first))
            await js.purge_stream(name, seq=first)
            told.purges.append((time.monotonic_ns(), name, first))

        kinds: list[Callable[[], Awaitable[None]]] = [
            *[publish] * 8, *[produce] * 8, put, put, commit, purge,
        ]  # fmt: skip
        for _ in range(steps):
            await asyncio.gather(*(rng.choice(kinds)() for _ in range(rng.randint(1, PARALLEL))))
        await asyncio.to_thread(consumer.close)
    finally:
        await client.close()
    return told


async def _publish(
    js: JetStreamContext, told: Told, rng: random.Random, stream: str, number: int
) -> None:
    payload = _payload(rng, number)
    told.sent[stream].add(payload)
    ack = await js.publish(stream, payload, headers={"Nats-Msg-Id": str(number)}, timeout=30)
    told.messages[stream][ack.seq] = time.monotonic_ns(), payload


def _payload(rng: random.Random, number: int) -> bytes:
    return b"%d " % number + rng.randbytes(rng.randrange(PAYLOAD_BYTES_MAX))


def _produced(producer: Producer, stream: str, payload: bytes) -> tuple[int, int]:
    """The offset, and when it was acknowledged."""
    told: list[tuple[int, int]] = []

    def delivered(error: object, message: Message) -> None:
        assert error is None, error
        offset = message.offset()
        assert offset is not None
        told.append((offset, time.monotonic_ns()))

    producer.produce(stream, payload, partition=0, on_delivery=delivered)
    while not told:
        producer.poll(TIMEOUT_S)
    return told[0]
