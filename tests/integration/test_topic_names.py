"""Topics with dots in their names: clients of Kafka use them as any, those of JetStream are not told of them."""

import asyncio
import json
import subprocess
import urllib.request
from pathlib import Path

import nats
import nats.errors
import nats.js.errors
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tools.nodes.dev import Dev
from tools.nodes.server_process import program

pytestmark = pytest.mark.filterwarnings("ignore:(read|open)_text is deprecated:DeprecationWarning")

NAME = "mm2-offsets.B.internal"
TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def topic(dev: Dev) -> str:
    admin = AdminClient({"bootstrap.servers": dev.kafka})
    made = admin.create_topics([NewTopic(name, 1, 1) for name in (NAME, "a..b")])
    for future in made.values():
        future.result(TIMEOUT_S)
    return NAME


def refused(admin: AdminClient, name: str) -> KafkaError:
    with pytest.raises(KafkaException) as told:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
    error: KafkaError = told.value.args[0]
    return error


async def test_kafka_clients_write_and_read_it(dev: Dev, topic: str) -> None:
    def by_confluent() -> list[bytes | None]:
        producer = Producer({"bootstrap.servers": dev.kafka})
        producer.produce(topic, b"confluent", partition=0)
        assert producer.flush(TIMEOUT_S) == 0
        settings = {"bootstrap.servers": dev.kafka, "group.id": "g.with.dots"}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        (message,) = consumer.consume(1, TIMEOUT_S)
        consumer.commit(message=message, asynchronous=False)
        consumer.close()
        return [message.value()]

    def by_kafka_python() -> list[bytes | None]:
        from kafka import (
            KafkaConsumer,
            KafkaProducer,
        )  # a deprecated import in it would be an error above

        producer = KafkaProducer(bootstrap_servers=dev.kafka)
        producer.send(topic, b"kafka-python").get(TIMEOUT_S)
        producer.close()
        reader = KafkaConsumer(topic, bootstrap_servers=dev.kafka, auto_offset_reset="earliest")
        found = [next(reader).value for _ in range(2)]
        reader.close()
        return found

    assert await asyncio.to_thread(by_confluent) == [b"confluent"]
    assert await asyncio.to_thread(by_kafka_python) == [b"confluent", b"kafka-python"]
    async with AIOKafkaProducer(bootstrap_servers=dev.kafka) as writer:
        await writer.send_and_wait(topic, b"aiokafka")
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=dev.kafka, auto_offset_reset="earliest"
    ) as reader:
        read = [(await asyncio.wait_for(reader.getone(), TIMEOUT_S)).value for _ in range(3)]
    assert read == [b"confluent", b"kafka-python", b"aiokafka"]


def test_a_name_that_collides_is_refused(dev: Dev, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": dev.kafka})
    error = refused(admin, topic.replace(".", "_"))
    assert (error.code(), "collides" in error.str()) == (KafkaError.TOPIC_EXCEPTION, True)
    assert refused(admin, "..").code() == KafkaError.TOPIC_EXCEPTION


async def test_jetstream_is_not_told_of_it(dev: Dev, topic: str) -> None:
    nc = await nats.connect(dev.nats)
    try:
        js = nc.jetstream()
        await js.add_stream(name="plain", subjects=["plain"])
        listed = [
            str(it.config.name) for it in await js.streams_info()
        ]  # those of other tests, too
        assert "plain" in listed
        assert not any("." in name for name in listed)
        assert (await js.account_info()).streams == len(listed)
        names = json.loads((await nc.request("$JS.API.STREAM.NAMES", b"")).data)
        assert (names["streams"], names["total"]) == (sorted(listed), len(listed))
        for verb in (f"STREAM.INFO.{topic}", f"CONSUMER.NAMES.{topic}"):
            answer = json.loads((await nc.request(f"$JS.API.{verb}", b"")).data)
            assert answer["error"]["code"] == 400
        with pytest.raises(nats.errors.NoRespondersError):
            await nc.request(f"$JS.API.DIRECT.GET.{topic}", b"{}")
        with pytest.raises(nats.js.errors.BadRequestError, match="mirrored stream name is invalid"):
            await js.add_stream(name="copy", mirror=nats.js.api.StreamSource(name=topic))
        await js.delete_stream("plain")
    finally:
        await nc.close()


async def test_what_is_published_to_its_subject_is_stored(dev: Dev, topic: str) -> None:
    nc = await nats.connect(dev.nats)
    try:
        js = nc.jetstream()
        ack = await js.publish(topic, b"nats", stream=topic)
        assert ack.stream == topic
        assert (await js.publish("a__b", b"nats")).stream == "a..b"
    finally:
        await nc.close()


def test_the_command_line_and_the_folder(dev: Dev, topic: str) -> None:
    def run(*words: str) -> str:
        asked = [program("streamlog"), *words, "--bootstrap-server", dev.kafka]
        return subprocess.run(asked, check=True, capture_output=True, text=True, timeout=60).stdout

    assert json.loads(run("stream", "info", topic, "--json"))["config"]["subjects"] == [topic]
    assert topic in run("stream", "ls")
    address = f"{dev.addresses['nodes'][0]['http']}/api/v1/streams/{topic}"
    with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
        assert json.load(answer)["config"]["name"] == topic
    folder = Path(dev.data_dir) / "node-1" / "streams" / topic / "0"
    assert folder.is_dir()
    for name in (topic, "a..b"):
        run("stream", "rm", name, "--yes")
    assert not folder.exists()
