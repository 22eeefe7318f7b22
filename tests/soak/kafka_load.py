"""Clients of confluent-kafka: an idempotent producer, a group that reads all, transactions, a compacted topic.

They block, so each has a thread of its own.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.soak.nats_load import (
    KEPT_S,
    ORDERS,
    PATIENCE_S,
    REPLICAS,
    SEGMENT_BYTES,
    order_of,
    padded,
)
from tests.soak.progress import Progress, SeenNumbers

CLICKS: Final = "clicks"
TRANSFERS: Final = "transfers"
PROFILES: Final = "profiles"
PROFILE_KEYS: Final = 2_000
MEMBERS: Final = 2
OF_A_TRANSACTION: Final = 5
TRANSACTION_EVERY_S: Final = 0.5
QUICK: Final[dict[str, Any]] = {
    "socket.timeout.ms": 5_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}


class KafkaLoad:
    """``start`` begins the threads; ``stop`` ends them, when all that was published is read."""

    def __init__(self, servers: str, progress: Progress, rate: float, piece: int) -> None:
        self._servers = servers
        self._progress = progress
        self._rate = rate
        self._piece = piece
        self._name = f"{piece}c"
        self._stop = threading.Event()
        self._read = threading.Event()
        self._producing: list[threading.Thread] = []
        self._reading: list[threading.Thread] = []
        self.orders = SeenNumbers(progress, ORDERS)
        self.clicks = SeenNumbers(progress, CLICKS)
        self._clicked = 0
        self._committed = 0
        self._transferred: dict[str, int] = {}
        """How many records of each transaction a reader saw; of the newest ones."""

    def prepare(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._servers})
        aged = {"retention.ms": str(KEPT_S * 1000), "segment.bytes": str(SEGMENT_BYTES)}
        compacted = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
        compacted |= {"min.cleanable.dirty.ratio": "0.3"}
        for topic in (
            NewTopic(CLICKS, 1, REPLICAS, config=aged),
            NewTopic(TRANSFERS, 2, REPLICAS, config=aged),
            NewTopic(PROFILES, 1, REPLICAS, config=compacted),
        ):
            try:
                admin.create_topics([topic])[topic.topic].result(30)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def start(self) -> None:
        producing = (self._click, self._transact, self._describe)
        reading = [self._read_all] * MEMBERS + [self._read_committed]
        self._producing = self._begun(producing)
        self._reading = self._begun(reading)

    def stop(self, published: dict[str, int]) -> None:
        """``published``: how many orders of each publisher there are."""
        self._stop.set()
        for it in self._producing:
            it.join()
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and not self._has_seen(published):
            self._read.wait(0.1)
        self._read.set()
        for it in self._reading:
            it.join()
        for publisher, count in published.items():
            if (seen := self.orders.next_of(publisher)) < count:
                self._progress.violated(f"{ORDERS}: of {publisher} {seen} are read, of {count}")
        if (seen := self.clicks.next_of(self._name)) < self._clicked:
            self._progress.violated(f"{CLICKS}: {seen} are read, of {self._clicked}")
        whole, torn = self._transfers()
        if whole < self._committed:
            self._progress.violated(f"{TRANSFERS}: {whole} are read whole, of {self._committed}")
        if torn:
            self._progress.violated(f"{TRANSFERS}: torn: {sorted(torn)[:5]}")

    def _has_seen(self, published: dict[str, int]) -> bool:
        whole, torn = self._transfers()
        return (
            all(self.orders.next_of(it) >= count for it, count in published.items())
            and self.clicks.next_of(self._name) >= self._clicked
            and whole >= self._committed
            and not torn  # of one that is just being committed, one partition may be read first
        )

    def _transfers(self) -> tuple[int, list[str]]:
        """How many transactions are read whole, and the others of which something is."""
        read = dict(self._transferred)
        torn = [name for name, count in read.items() if count != OF_A_TRANSACTION]
        return len(read) - len(torn), torn

    def _begun(self, works: Sequence[Callable[[], None]]) -> list[threading.Thread]:
        threads = [threading.Thread(target=self._guarded, args=(it,), daemon=True) for it in works]
        for it in threads:
            it.start()
        return threads

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._progress.violated(f"{work.__name__} ended: {error!r}")

    def _click(self) -> None:
        """Idempotent, so each once and in order, however often it was sent."""
        settings = {"enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 0}
        producer = Producer({"bootstrap.servers": self._servers, **QUICK, **settings})

        def told(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self._progress.violated(f"{CLICKS}: {error}")
            self._progress.count("clicks")

        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due = max(due + 1 / self._rate, time.monotonic() - 1)
            value = padded(f"{self._name}:{self._clicked}:")
            try:
                producer.produce(CLICKS, value, partition=0, on_delivery=told)
            except BufferError:
                producer.poll(0.1)
                continue
            self._clicked += 1
            producer.poll(0)
        if producer.flush(PATIENCE_S):
            self._progress.violated(f"{CLICKS}: not all are acknowledged")

    def _describe(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, **QUICK, "linger.ms": 5})
        due, number = time.monotonic(), 0
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            due = max(due + 4 / self._rate, time.monotonic() - 1)
            key = f"profile-{number * 7919 % PROFILE_KEYS}"
            number += 1
            try:
                producer.produce(PROFILES, padded(str(number)), key.encode())
            except BufferError:
                producer.poll(0.1)
            producer.poll(0)
            self._progress.count("profiles")
        producer.flush(PATIENCE_S)

    def _transact(self) -> None:
        """Two of three are committed. After an error with another producer, which ends what the last one left."""
        number, producer = 0, None
        while not self._stop.wait(TRANSACTION_EVERY_S):
            number += 1
            is_aborted = number % 3 == 0
            name = f"{self._piece}-{number}-{'aborted' if is_aborted else 'committed'}"
            try:
                if producer is None:
                    producer = self._transactional()
                producer.begin_transaction()
                for at in range(OF_A_TRANSACTION):
                    producer.produce(TRANSFERS, padded(f"{name}:{at}:"), partition=at % 2)
                if is_aborted:
                    producer.abort_transaction(10)
                else:
                    producer.commit_transaction(10)
                    self._committed += 1
                self._progress.count("transactions")
            except KafkaException:
                self._progress.count("transactions cut short")
                producer = None

    def _transactional(self) -> Producer:
        settings = {"transactional.id": "soak", "transaction.timeout.ms": 10_000}
        producer = Producer({"bootstrap.servers": self._servers, **QUICK, **settings})
        producer.init_transactions(10)
        return producer

    def _read_all(self) -> None:
        """One member of the group. It commits each second what it has seen."""
        consumer = self._consumer("readers", isolation="read_uncommitted")
        consumer.subscribe([ORDERS, CLICKS])
        until = time.monotonic() + 1
        while not self._read.is_set():
            for it in consumer.consume(500, 0.2):
                value, offset, topic = it.value(), it.offset(), it.topic()
                if it.error() is not None or value is None or offset is None:
                    continue
                publisher, number = order_of(value)
                seen, own = self.orders, f"{self._piece}p"
                if topic == CLICKS:
                    seen, own = self.clicks, self._name
                if publisher.startswith(own):  # else it is of an earlier piece
                    seen.saw(publisher, number, offset)
                self._progress.count("read")
            if time.monotonic() > until:
                until = time.monotonic() + 1
                try:
                    consumer.commit(asynchronous=False)
                except KafkaException as refusal:
                    if refusal.args[0].code() != KafkaError._NO_OFFSET:  # it has read nothing since
                        self._progress.count(f"commits refused: {refusal.args[0].name()}")
        consumer.close()

    def _read_committed(self) -> None:
        consumer = self._consumer("auditors", isolation="read_committed")
        consumer.subscribe([TRANSFERS])
        seen: set[tuple[int, int]] = set()
        while not self._read.is_set():
            for it in consumer.consume(500, 0.2):
                value, offset, partition = it.value(), it.offset(), it.partition()
                if it.error() is not None or value is None or offset is None or partition is None:
                    continue
                name = value.split(b":")[0].decode()
                if not name.startswith(f"{self._piece}-") or (partition, offset) in seen:
                    continue
                seen.add((partition, offset))
                if name.endswith("aborted"):
                    self._progress.violated(f"{TRANSFERS}: {name} is read, and was aborted")
                self._transferred[name] = self._transferred.get(name, 0) + 1
                self._progress.count("transferred")
            if len(seen) > 100_000:
                newest = max(offset for _, offset in seen)
                seen = {it for it in seen if it[1] > newest - 50_000}
        consumer.close()

    def _consumer(self, group: str, *, isolation: str) -> Consumer:
        """Of a group of this piece."""
        return Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": f"{group}-{self._piece}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                **QUICK,
            }
        )
