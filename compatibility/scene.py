"""What a check works with: the nodes, one client, streams of its own, and a client to judge by."""

import asyncio
import contextlib
import json
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Final, Self
from uuid import uuid4

import nats
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic
from nats.aio.client import Client
from nats.errors import NoRespondersError

from compatibility.cluster import Cluster
from compatibility.outcome import Failed
from compatibility.peer import peers
from compatibility.program import Program, Record
from compatibility.registries import Installed, present

JUDGE: Final = "confluent-kafka"
TIMEOUT_S: Final = 60.0
AT_ONCE: Final = 50
"""Messages on their way at the same time."""
ANSWER_TIMEOUT_S: Final = 5.0
AGAIN_S: Final = 0.2


def value(number: int) -> str:
    """A line of text, of another length each time, that every codec makes smaller."""
    noise = b64encode(Random(number).randbytes(number % 60)).decode()
    return f"{number:06d} {noise} {'streamlog ' * (number % 30)}".strip()


def values(first: int, end: int) -> list[str]:
    return [value(number) for number in range(first, end)]


class Scene:
    """``with Scene(...) as scene``, one for a cell: what it made is gone afterwards."""

    def __init__(self, cluster: Cluster, installed: Installed, name: str, folder: Path) -> None:
        self.cluster = cluster
        self.name = name
        """No other cell's; names of streams and groups begin with it."""
        self._installed = installed
        self._log = folder / f"{name}.log"
        self._topics: list[str] = []
        self._programs = contextlib.ExitStack()
        self._started: list[Program] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._programs.close()
        if self._topics:
            for future in self.cluster.admin.delete_topics(self._topics).values():
                with contextlib.suppress(KafkaException):
                    future.result(TIMEOUT_S)

    def start(self, verb: str, **arguments: Any) -> Program:
        """The client's program; it is killed with the scene if it has not ended by then."""
        return self._start(self._installed, verb, arguments)

    def start_judge(self, verb: str, **arguments: Any) -> Program:
        """The same of the client that we judge by, for what the one under test has no call for."""
        (judge,) = (peer for peer in peers() if peer.name == JUDGE)
        installed = present(judge)
        assert installed is not None, f"{JUDGE} is not installed"
        return self._start(installed, verb, arguments)

    def _start(self, installed: Installed, verb: str, arguments: Mapping[str, Any]) -> Program:
        command = (*installed.command, self.cluster.servers, verb, json.dumps(arguments))
        program = Program(command, self._log, installed.environment)
        self._started.append(program)
        return self._programs.enter_context(program)

    def notes(self) -> list[str]:
        """What the client's programs said of how they do it, each once."""
        return list(dict.fromkeys(note for program in self._started for note in program.notes))

    def topic(self, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
        """A new stream of a name and subject of its own."""
        name = f"{self.name}-{len(self._topics)}"
        self._topics.append(name)
        topic = NewTopic(name, partitions, self.cluster.copies, config=dict(configs or {}))
        self.cluster.admin.create_topics([topic])[name].result(TIMEOUT_S)
        return name

    def expect(self, topic: str) -> None:
        """The check itself makes a topic of that name: it goes with the others."""
        self._topics.append(topic)

    def topics(self) -> set[str]:
        """Names of all that there are."""
        return set(self.cluster.admin.list_topics(timeout=TIMEOUT_S).topics)

    def publish(
        self, topic: str, lines: Sequence[str], partition: int = 0, *, at_once: int = AT_ONCE
    ) -> None:
        """As plain NATS messages, each acknowledged, in this order.

        If nobody leads the partition for a while, the order needs ``at_once=1``.
        """
        subject = f"{topic}.{partition}" if partition else topic
        asyncio.run(_publish(self.cluster.nats.url, subject, lines, at_once))

    def stored(self, topic: str, count: int, partition: int = 0) -> list[Record]:
        """The first so many records as the client that we judge by reads them."""
        with self._judge() as consumer:
            consumer.assign([TopicPartition(topic, partition, 0)])
            found: list[Record] = []
            while len(found) < count:
                messages = consumer.consume(count - len(found), timeout=TIMEOUT_S)
                if not messages:
                    raise Failed(f"{len(found)} of {count} records are stored")
                for message in messages:
                    if message.error() is not None:
                        raise Failed(f"{topic} cannot be read: {message.error()}")
                    offset, text = message.offset(), message.value()
                    assert offset is not None and text is not None
                    found.append(Record(partition, offset, text.decode()))
            return found

    def end(self, topic: str, partition: int = 0) -> int:
        """The offset after the last record."""
        with self._judge() as consumer:
            wanted = TopicPartition(topic, partition)
            return int(consumer.get_watermark_offsets(wanted, timeout=TIMEOUT_S)[1])

    def timestamp_ms(self, topic: str, offset: int) -> int:
        """Of the record there."""
        with self._judge() as consumer:
            consumer.assign([TopicPartition(topic, 0, offset)])
            (message,) = consumer.consume(1, timeout=TIMEOUT_S)
            return int(message.timestamp()[1])

    @contextlib.contextmanager
    def _judge(self) -> Iterator[Consumer]:
        settings = {"group.id": "judge", "enable.auto.commit": False, "log_level": 0}
        consumer = Consumer({"bootstrap.servers": self.cluster.servers, **settings})
        try:
            yield consumer
        finally:
            consumer.close()


async def _publish(url: str, subject: str, lines: Sequence[str], at_once: int) -> None:
    client = await nats.connect(url)
    try:
        for first in range(0, len(lines), at_once):
            asked = [_ask(client, subject, line) for line in lines[first : first + at_once]]
            await asyncio.gather(*asked)
    finally:
        await client.close()


async def _ask(client: Client, subject: str, line: str) -> None:
    """Until it is acknowledged; stored once, however often it is sent."""
    headers = {"Nats-Msg-Id": str(uuid4())}
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            answer = await client.request(subject, line.encode(), ANSWER_TIMEOUT_S, headers=headers)
            if b'"error"' not in answer.data:
                return
            said = answer.data.decode()
        except (NoRespondersError, nats.errors.TimeoutError) as error:
            said = str(error)
        if time.monotonic() > deadline:
            raise Failed(f"{subject}: {said}")
        await asyncio.sleep(AGAIN_S)
