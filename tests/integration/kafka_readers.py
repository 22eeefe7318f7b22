"""Four stock Kafka clients, a function each: read ``count`` records of partition 0 from a start."""

import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

READ_TIMEOUT_S = 60.0


class Time(NamedTuple):
    """The first record of this time or later."""

    timestamp_ms: int


Start = Literal["beginning", "end"] | int | Time
Records = list[tuple[int, bytes]]
Ready = Callable[[], None]
"""Called when the reader has its position; what is written after that must come."""


def nothing() -> None:
    pass


def confluent(kafka: str, topic: str, start: Start, count: int, ready: Ready = nothing) -> Records:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    from tests.watermarks import watermarks

    consumer = Consumer(
        {
            "bootstrap.servers": kafka,
            "group.id": "test",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    try:
        wanted = TopicPartition(topic, 0)
        match start:
            case "beginning":
                wanted.offset = OFFSET_BEGINNING
            case "end":
                wanted.offset = watermarks(consumer, wanted, READ_TIMEOUT_S)[1]
            case Time(timestamp_ms):
                wanted.offset = timestamp_ms
                (wanted,) = consumer.offsets_for_times([wanted], timeout=READ_TIMEOUT_S)
            case int(offset):
                wanted.offset = offset
        consumer.assign([wanted])
        ready()
        found: list[Any] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(min(1_000, count - len(found)), timeout=0.1):
                assert message.error() is None, message.error()
                found.append((message.offset(), message.value()))
        return found
    finally:
        consumer.close()


def kafka_python(
    kafka: str, topic: str, start: Start, count: int, ready: Ready = nothing
) -> Records:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=kafka,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        check_crcs=True,
        max_partition_fetch_bytes=20_000,
    )
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        match start:
            case "beginning":
                consumer.seek_to_beginning(partition)
            case "end":
                consumer.seek_to_end(partition)
            case Time(timestamp_ms):
                at = consumer.offsets_for_times({partition: timestamp_ms})[partition]
                consumer.seek(partition, at.offset)
            case int(offset):
                consumer.seek(partition, offset)
        consumer.position(partition)
        ready()
        found: list[Any] = []
        deadline = time.monotonic() + READ_TIMEOUT_S
        while len(found) < count and time.monotonic() < deadline:
            for messages in consumer.poll(timeout_ms=100).values():
                found += [(it.offset, it.value) for it in messages]
        return found[:count]
    finally:
        consumer.close()


def aiokafka(kafka: str, topic: str, start: Start, count: int, ready: Ready = nothing) -> Records:
    return asyncio.run(_aiokafka(kafka, topic, start, count, ready))


async def _aiokafka(kafka: str, topic: str, start: Start, count: int, ready: Ready) -> Records:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka, group_id=None, enable_auto_commit=False, auto_offset_reset="none"
    )
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        match start:
            case "beginning":
                await consumer.seek_to_beginning(partition)
            case "end":
                await consumer.seek_to_end(partition)
            case Time(timestamp_ms):
                at = (await consumer.offsets_for_times({partition: timestamp_ms}))[partition]
                consumer.seek(partition, at.offset)
            case int(offset):
                consumer.seek(partition, offset)
        await consumer.position(partition)
        await asyncio.to_thread(ready)
        found: Records = []
        async with asyncio.timeout(READ_TIMEOUT_S):
            while len(found) < count:
                for messages in (await consumer.getmany(timeout_ms=100)).values():
                    found += [(it.offset, it.value) for it in messages]
        return found[:count]
    finally:
        await consumer.stop()


def kcat(kafka: str, topic: str, start: Start, count: int, ready: Ready = nothing) -> Records:
    """It does not tell when it has its position: its end is the one that it was told."""
    program = shutil.which("kcat")
    assert program is not None
    match start:
        case "end":
            raise NotImplementedError
        case Time(timestamp_ms):
            offset = f"s@{timestamp_ms}"
        case _:
            offset = str(start)
    command = [program, "-C", "-b", kafka, "-t", topic, "-p", "0", "-o", offset, "-c", str(count)]
    options = ["-q", "-f", "%o %s\n", "-X", "check.crcs=true"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE) as process:
        ready()
        try:
            out, _ = process.communicate(timeout=READ_TIMEOUT_S)
        finally:
            process.kill()
    lines = (line.split(b" ", 1) for line in out.splitlines())
    return [(int(offset), value) for offset, value in lines]


READERS: dict[str, Callable[..., Records]] = {
    "confluent": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "kcat": kcat,
}


def can_decompress(reader: str, codec: str) -> bool:
    """kafka-python takes its codecs from packages that need not be there."""
    if reader != "kafka-python" or codec == "none":
        return True
    from kafka import codec as codecs

    return bool(getattr(codecs, f"has_{codec}")())
