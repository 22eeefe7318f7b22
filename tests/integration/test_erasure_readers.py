"""Stock Kafka clients pass over erasures, which are batches that they do not know."""

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import Callable

import nats
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.integration.kafka_readers import READ_TIMEOUT_S, READERS
from tools.nodes.dev import Dev
from tools.nodes.server_process import program

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")


@pytest.fixture(scope="module")
def erased(dev: Dev) -> list[int]:
    """A stream with erasures in the midst and at the end; the offsets of its messages."""
    return asyncio.run(write(dev))


async def write(dev: Dev) -> list[int]:
    client = await nats.connect(dev.nats)
    js = client.jetstream()
    try:
        await js.add_stream(name="erased", subjects=["erased.*"])
        offsets = []
        for number in range(30):
            ack = await js.publish(f"erased.{number % 3}", b"%d" % number)
            offsets.append(ack.seq - 1)
            if number % 7 == 6:
                await js.delete_msg("erased", ack.seq)
        await js.purge_stream("erased", subject="erased.2")
        return offsets
    finally:
        await client.close()


@pytest.mark.parametrize("client", READERS)
def test_clients_skip_them(dev: Dev, erased: list[int], client: str) -> None:
    """Until a cleaning they may see what is erased."""
    if client == "kcat" and shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    found = READERS[client](dev.kafka, "erased", "beginning", len(erased))
    assert [offset for offset, _ in found] == erased
    last = READERS[client](dev.kafka, "erased", erased[-1], 1)
    assert [offset for offset, _ in last] == erased[-1:]


def confluent_to_the_end(kafka: str, offset: int) -> tuple[list[int | None], int]:
    options = {"bootstrap.servers": kafka, "group.id": "e", "enable.auto.commit": False}
    consumer = Consumer({**options, "isolation.level": "read_committed", "check.crcs": True})
    consumer.assign([TopicPartition("erased", 0, OFFSET_BEGINNING)])
    found: list[int | None] = []
    try:
        deadline = time.monotonic() + READ_TIMEOUT_S
        while time.monotonic() < deadline:
            for message in consumer.consume(100, timeout=0.1):
                assert message.error() is None, message.error()
                found.append(message.offset())
            position = consumer.position([TopicPartition("erased", 0)])[0].offset
            if position >= offset:
                break
        return found, position
    finally:
        consumer.close()


def kafka_python_to_the_end(kafka: str, offset: int) -> tuple[list[int], int]:
    from kafka import KafkaConsumer
    from kafka import TopicPartition as Place

    consumer = KafkaConsumer(
        bootstrap_servers=kafka, group_id=None, isolation_level="read_committed", check_crcs=True
    )
    place, found = Place("erased", 0), []
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    try:
        deadline = time.monotonic() + READ_TIMEOUT_S
        while consumer.position(place) < offset and time.monotonic() < deadline:
            for messages in consumer.poll(timeout_ms=100).values():
                found += [it.offset for it in messages]
        return found, consumer.position(place)
    finally:
        consumer.close()


def aiokafka_to_the_end(kafka: str, offset: int) -> tuple[list[int], int]:
    return asyncio.run(_aiokafka_to_the_end(kafka, offset))


async def _aiokafka_to_the_end(kafka: str, offset: int) -> tuple[list[int], int]:
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as Place

    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka,
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    await consumer.start()
    place, found = Place("erased", 0), []
    try:
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        async with asyncio.timeout(READ_TIMEOUT_S):
            while await consumer.position(place) < offset:
                for messages in (await consumer.getmany(timeout_ms=100)).values():
                    found += [it.offset for it in messages]
        return found, await consumer.position(place)
    finally:
        await consumer.stop()


@pytest.mark.parametrize(
    "to_the_end", [confluent_to_the_end, kafka_python_to_the_end, aiokafka_to_the_end]
)
def test_who_reads_committed_records_only_gets_past_the_last_one(
    dev: Dev,
    erased: list[int],
    to_the_end: Callable[[str, int], tuple[list[int], int]],
) -> None:
    """The log ends with an erasure: a consumer's position must come to be after it."""
    end = erased[-1] + 2
    assert to_the_end(dev.kafka, end) == (erased, end)


def test_our_own_reader_skips_them(dev: Dev, erased: list[int]) -> None:
    command = [program("streamlog"), "consume", "erased", "--bootstrap-server", dev.kafka, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["offset"] for line in lines] == erased
