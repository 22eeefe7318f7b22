"""Stock Kafka clients as members of a group."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, NewTopic

from tools.nodes.server_process import wait_until

PATIENCE_S = 60.0
SESSION_MS = 6_000
"""As short as a node allows by default."""


def create(servers: str, name: str, partitions: int = 1, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, partitions, replicas)])[name].result(30)


def produce(servers: str, topic: str, values: Sequence[bytes], *, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def describe(servers: str, group: str) -> ConsumerGroupDescription:
    admin = AdminClient({"bootstrap.servers": servers})
    found: ConsumerGroupDescription = admin.describe_consumer_groups([group])[group].result(30)
    return found


class Member:
    """A librdkafka consumer that counts what it is given and what is taken from it."""

    def __init__(self, servers: str, group: str, topic: str, **settings: object) -> None:
        self.given: list[list[int]] = []
        self.taken: list[list[int]] = []
        self.lost = 0
        self.read: list[Message] = []
        self.topic = topic
        modern = settings.get("group.protocol") == "consumer"
        self._cooperative = (
            modern or settings.get("partition.assignment.strategy") == "cooperative-sticky"
        )
        timing = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 200}
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **({} if modern else timing),
                **settings,
            }
        )
        self.consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.given.append([it.partition for it in partitions])
        if self._cooperative:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.taken.append([it.partition for it in partitions])
        if self._cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.lost += 1
        self._revoked(consumer, partitions)

    @property
    def owned(self) -> set[int]:
        return {it.partition for it in self.consumer.assignment()}

    def poll(self, timeout_s: float = 0.05) -> None:
        message = self.consumer.poll(timeout_s)
        if message is not None and message.error() is None:
            self.read.append(message)

    def close(self) -> None:
        self.consumer.close()


def poll_until(
    members: Sequence[Member],
    condition: Callable[[], bool],
    what: str,
    timeout_s: float = PATIENCE_S,
) -> None:
    """All of them go on until it is so."""

    def met() -> bool:
        for member in members:
            member.poll()
        return condition()

    wait_until(met, what, timeout_s)


def shared(members: Sequence[Member], partitions: int) -> bool:
    """Each partition is owned by one of them, and each of them owns some."""
    owned = [member.owned for member in members]
    whole = set().union(*owned) == set(range(partitions))
    return whole and sum(map(len, owned)) == partitions and all(owned)


MEMBER_PROGRAM = """
import sys
from confluent_kafka import Consumer
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2],
                     "session.timeout.ms": 6000, "heartbeat.interval.ms": 200,
                     "enable.auto.commit": False, "log_level": 0})
consumer.subscribe([sys.argv[3]])
while True:
    consumer.poll(0.1)
    if consumer.assignment():
        print("owns", flush=True)
"""


def member_process(servers: str, group: str, topic: str) -> subprocess.Popen[str]:
    """A member that can be killed; it prints a line when it owns something."""
    command = [sys.executable, "-c", MEMBER_PROGRAM, servers, group, topic]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def read_as_confluent(servers: str, group: str, topic: str, count: int) -> list[bytes]:
    """So many records, committed."""
    member = Member(servers, group, topic)
    try:
        poll_until([member], lambda: len(member.read) >= count, f"{count} records")
        member.consumer.commit(asynchronous=False)
        return [it.value() or b"" for it in member.read]
    finally:
        member.close()


def read_as_kafka_python(servers: str, group: str, topic: str, count: int) -> list[bytes]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    values: list[bytes] = []

    def read() -> bool:
        for records in consumer.poll(timeout_ms=200).values():
            values.extend(record.value for record in records)
        return len(values) >= count

    try:
        # Known before it joins, or it may never take up what it is assigned: docs/compatibility.md.
        assert consumer.partitions_for_topic(topic)
        wait_until(read, f"{count} records", PATIENCE_S)
        consumer.commit()
        return values
    finally:
        consumer.close()


async def read_as_aiokafka(servers: str, group: str, topic: str, count: int) -> list[bytes]:
    import asyncio

    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    values: list[Any] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while len(values) < count:
                values.append((await consumer.getone()).value)
        await consumer.commit()
        return values
    finally:
        await consumer.stop()
