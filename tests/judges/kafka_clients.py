"""Clients of confluent-kafka that note what they do: appends, reads and ends of a log, commits of groups.

They block, so each has a thread of its own.
"""

import random
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.judges.history import History
from tests.judges.nats_clients import new_value

QUICK: Final[dict[str, Any]] = {
    "socket.timeout.ms": 3_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}
MESSAGE_TIMEOUT_MS: Final = 4_000
ASK_TIMEOUT_S: Final = 2.0
PAUSE_S: Final = 0.02
RETRY_S: Final = 0.05
NO_OFFSET: Final = -1001
GROUPS: Final = 3

Blocking = Callable[[threading.Event], None]
"""Works until the event is set."""


class KafkaLogClients:
    """Partition 0 of a topic."""

    def __init__(self, servers: str, history: History, topic: str) -> None:
        self._servers = servers
        self._history = history
        self._topic = topic

    def clients(self) -> list[Blocking]:
        return [self._produce, self._produce, self._read, self._ask_end]

    def _produce(self, stop: threading.Event) -> None:
        """One record at a time. After an error with another producer, whose numbers begin again.

        Idempotent: else librdkafka, even if it is to send nothing twice, sends again what a leader had appended and did
        not commit before it was replaced, for it takes NOT_LEADER_OR_FOLLOWER for a promise.
        """
        settings = {
            "bootstrap.servers": self._servers,
            "message.timeout.ms": MESSAGE_TIMEOUT_MS,
            "linger.ms": 0,
            "enable.idempotence": True,
            **QUICK,
        }
        client = self._history.client()
        while not stop.is_set():
            producer = Producer(settings)
            while not stop.is_set() and self._append(client, producer):
                stop.wait(PAUSE_S)

    def _append(self, client: int, producer: Producer) -> bool:
        told: list[int | None] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            told.append(None if error is not None else message.offset())

        value = new_value(client)
        with self._history.operation(client, "log", self._topic, "append", value=value) as call:
            producer.produce(self._topic, value.encode(), partition=0, on_delivery=delivered)
            producer.flush(2 * MESSAGE_TIMEOUT_MS / 1_000)
            if told and told[0] is not None:
                call.tells(offset=told[0])
        return call.output is not None

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "readers",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                **QUICK,
            }
        )

    def _read(self, stop: threading.Event) -> None:
        """All records, in order. Those that the client fetched ahead are still there when it returns them."""
        client, consumer = self._history.client(), self._consumer()
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        while not stop.is_set():
            self._poll(client, consumer)
        consumer.close()

    def _poll(self, client: int, consumer: Consumer) -> int | None:
        """The offset of the record that was read."""
        call_ns = time.monotonic_ns()
        message = consumer.poll(ASK_TIMEOUT_S / 10)
        if message is None or message.error() is not None:
            return None
        offset, value = message.offset(), (message.value() or b"").decode()
        given = {"offset": offset}
        with self._history.operation(client, "log", self._topic, "read", **given) as call:
            call.began(call_ns)
            call.tells(value=value)
        return offset

    def _ask_end(self, stop: threading.Event) -> None:
        client, consumer = self._history.client(), self._consumer()
        while not stop.is_set():
            self.ask_end(client, consumer)
            stop.wait(PAUSE_S)
        consumer.close()

    def ask_end(self, client: int, consumer: Consumer) -> int | None:
        """The high watermark; None: no answer."""
        with self._history.operation(client, "log", self._topic, "end") as call:
            try:
                _, high = consumer.get_watermark_offsets(
                    TopicPartition(self._topic, 0), timeout=ASK_TIMEOUT_S, cached=False
                )
            except KafkaException:
                call.says_nothing()
                return None
            call.tells(offset=high)
            return int(high)

    def read_to_end(self, timeout_s: float) -> None:
        """Every record, once more."""
        client, consumer = self._history.client(), self._consumer()
        deadline, end = time.monotonic() + timeout_s, None
        while end is None and time.monotonic() < deadline:
            end = self.ask_end(client, consumer)
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        read = -1
        while end is None or read < end - 1:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._topic} was read up to {read} of {end}")
            offset = self._poll(client, consumer)
            read = read if offset is None else offset
        consumer.close()


class CommitClients:
    """Groups without members. One client commits: librdkafka may send a commit again after one of another client."""

    def __init__(self, servers: str, history: History, topic: str) -> None:
        self._servers = servers
        self._history = history
        self._topic = topic
        self._groups = [f"{topic}-g{number}-0" for number in range(GROUPS)]
        self._all = set(self._groups)

    def clients(self) -> list[Blocking]:
        commit: list[Blocking] = [self._committer(number) for number in range(GROUPS)]
        return [*commit, self._fetch, self._fetch]

    def _consumer(self, group: str) -> Consumer:
        settings = {"bootstrap.servers": self._servers, "group.id": group, **QUICK}
        return Consumer({**settings, "enable.auto.commit": False})

    def _committer(self, number: int) -> Blocking:
        def work(stop: threading.Event) -> None:
            client, offsets = self._history.client(), count(1)
            for generation in count():
                group = f"{self._topic}-g{number}-{generation}"
                self._groups[number] = group
                self._all.add(group)
                consumer = self._consumer(group)
                while not stop.is_set() and self._commit(client, consumer, group, next(offsets)):
                    stop.wait(PAUSE_S)
                consumer.close()
                if stop.is_set():
                    return

        return work

    def _commit(self, client: int, consumer: Consumer, group: str, offset: int) -> bool:
        """Whether it was confirmed. If not, a later attempt of the client could still arrive."""
        with self._history.operation(client, "commits", group, "commit", offset=offset) as call:
            place = TopicPartition(self._topic, 0, offset)
            try:
                done = consumer.commit(offsets=[place], asynchronous=False)
            except KafkaException:
                return False
            if not done or done[0].error is not None:
                return False
            call.tells()
        return True

    def _fetch(self, stop: threading.Event) -> None:
        """With one client for each group that it asks for."""
        client = self._history.client()
        consumers: dict[str, Consumer] = {}
        while not stop.is_set():
            group = random.choice(self._groups)
            if group not in consumers:
                consumers[group] = self._consumer(group)
            self.fetch(client, consumers[group], group)
            for old in consumers.keys() - set(self._groups):
                consumers.pop(old).close()
            stop.wait(PAUSE_S)
        for consumer in consumers.values():
            consumer.close()

    def fetch(self, client: int, consumer: Consumer, group: str) -> bool:
        """Whether there is an answer."""
        with self._history.operation(client, "commits", group, "fetch") as call:
            try:
                found = consumer.committed([TopicPartition(self._topic, 0)], timeout=ASK_TIMEOUT_S)
            except KafkaException:
                call.says_nothing()
                return False
            if found[0].error is not None:
                call.says_nothing()
                return False
            offset = found[0].offset
            if offset == NO_OFFSET:
                call.tells(missing=True)
            else:
                call.tells(offset=offset)
        return True

    def fetch_all(self, timeout_s: float) -> None:
        """Each group, once more."""
        client, deadline = self._history.client(), time.monotonic() + timeout_s
        for group in sorted(self._all):
            consumer = self._consumer(group)
            while not self.fetch(client, consumer, group):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no answer for the group {group}")
                time.sleep(RETRY_S)
            consumer.close()
