"""Transactional producers of confluent-kafka that append to the partitions of a topic, read them, and note it."""

import json
import random
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.judges.kafka_clients import QUICK, Blocking
from tests.judges.transactions import Read, Transaction

PARTITIONS: Final = 3
PRODUCERS: Final = 3
APPENDS_MAX: Final = 4
ABORTED: Final = 0.2
"""So many are aborted by choice."""
READ_BACK: Final = 30
"""So many offsets below the end that it knows a reader begins."""
ANSWER_TIMEOUT_S: Final = 10.0
READ_TIMEOUT_S: Final = 5.0
TRANSACTION_TIMEOUT_MS: Final = 10_000
PAUSE_S: Final = 0.02

_names = count()


class TransactionClients:
    """``history`` grows until their end; ``read_all`` then."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers = servers
        self._topic = topic
        self._lock = threading.Lock()
        self._ends = [0] * PARTITIONS
        self.history: list[Transaction] = []

    def clients(self) -> list[Blocking]:
        return [*(self._producer(number) for number in range(PRODUCERS)), self._reader]

    def write(self, path: Path, final: list[Read]) -> None:
        """For who looks into a violation: one transaction a line, and the lists as they were in the end."""
        with path.open("w") as file:
            for it in self.history:
                file.write(json.dumps(it.__dict__) + "\n")
            file.writelines(json.dumps({"final": read}) + "\n" for read in final)

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "readers",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                **QUICK,
            }
        )

    def _producer(self, number: int) -> Blocking:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._servers,
            "transactional.id": f"{self._topic}-{number}",
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            **QUICK,
        }

        def work(stop: threading.Event) -> None:
            consumer = self._consumer()
            while not stop.is_set():
                producer = Producer(settings)
                try:
                    producer.init_transactions(ANSWER_TIMEOUT_S)
                except KafkaException:
                    continue
                while not stop.is_set() and self._transact(producer, consumer):
                    stop.wait(PAUSE_S)
            consumer.close()

        return work

    def _reader(self, stop: threading.Event) -> None:
        consumer = self._consumer()
        while not stop.is_set():
            it = Transaction(f"r{next(_names)}", time.monotonic_ns(), None, True)
            found = self._read(consumer, random.randrange(PARTITIONS))
            if found is not None:
                it.reads = [found]
                self._add(it)
            stop.wait(PAUSE_S)
        consumer.close()

    def _transact(self, producer: Producer, consumer: Consumer) -> bool:
        """Whether the producer can go on."""
        it = Transaction(f"t{next(_names)}", time.monotonic_ns(), None, None)
        numbers = random.choices(range(PARTITIONS), k=random.randint(1, APPENDS_MAX))
        values = [f"{it.name}.{place}" for place in range(len(numbers))]
        it.appends = [(str(at), value) for at, value in zip(numbers, values, strict=True)]
        try:
            producer.begin_transaction()
            if random.random() < 0.5 and (found := self._read(consumer, numbers[0])) is not None:
                it.reads = [found]
            for number, value in zip(numbers, values, strict=True):
                producer.produce(self._topic, value.encode(), partition=number)
            if random.random() < ABORTED:
                producer.flush(ANSWER_TIMEOUT_S)  # an abort sends nothing that was not sent before
                producer.abort_transaction(ANSWER_TIMEOUT_S)
                self._add(it, is_committed=False)
                return True
            producer.commit_transaction(ANSWER_TIMEOUT_S)
        except KafkaException as error:
            return self._end(it, producer, error.args[0])
        self._add(it, is_committed=True)
        return True

    def _end(self, it: Transaction, producer: Producer, error: KafkaError) -> bool:
        """The transaction has failed, or its outcome is unknown."""
        if error.txn_requires_abort():
            try:
                producer.abort_transaction(ANSWER_TIMEOUT_S)
            except KafkaException:
                pass
            else:
                self._add(it, is_committed=False)
                return True
        self._add(it, is_committed=None)
        return False

    def _add(self, it: Transaction, *, is_committed: bool | None = True) -> None:
        it.is_committed = is_committed
        it.return_ns = None if is_committed is None else time.monotonic_ns()
        with self._lock:
            self.history.append(it)

    def _read(self, consumer: Consumer, number: int, start: int | None = None) -> Read | None:
        """From ``start``, or a few before the end that is known, to the last stable offset. None: no answer."""
        if start is None:
            start = max(0, self._ends[number] - READ_BACK)
        consumer.assign([TopicPartition(self._topic, number, start)])
        values: dict[int, str] = {}
        deadline = time.monotonic() + READ_TIMEOUT_S
        try:
            while time.monotonic() < deadline:
                message = consumer.poll(0.1)
                if message is None:
                    continue
                error, offset = message.error(), message.offset() or 0
                if error is None:
                    values[offset] = (message.value() or b"").decode()
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._ends[number] = max(self._ends[number], offset)
                    return Read(str(number), start, offset, values)
            return None
        finally:
            consumer.unassign()

    def read_all(self, timeout_s: float) -> list[Read]:
        """Each list, once no transaction is open: what all see is what those see who see open ones, too."""
        consumer, deadline = self._consumer(), time.monotonic() + timeout_s
        found: list[Read] = []
        for number in range(PARTITIONS):
            while True:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self._topic}/{number} was not read to its end")
                read = self._read(consumer, number, 0)
                try:
                    _, high = consumer.get_watermark_offsets(
                        TopicPartition(self._topic, number), timeout=READ_TIMEOUT_S, cached=False
                    )
                except KafkaException:
                    continue
                if read is not None and read.end >= high:
                    found.append(read)
                    break
        consumer.close()
        return found
