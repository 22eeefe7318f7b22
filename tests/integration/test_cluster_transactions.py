"""Transactions of librdkafka's producer, through kill -9 of coordinators: all of a transaction, or nothing."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Final

import pytest
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from streamlog.coordination.keys import partition_of
from tests.coordinator_kills import Killing
from tests.history import Lane
from tests.in_process import streamlog
from tests.integration.group_clients import PATIENCE_S, create, produce
from tools.nodes.cluster import Cluster

STATE: Final = "__transaction_state"
OFFSETS: Final = "__consumer_offsets"
PARTITIONS: Final = 2
COMMITTED: Final = IsolationLevel.READ_COMMITTED
UNCOMMITTED: Final = IsolationLevel.READ_UNCOMMITTED
QUICK: Final = {
    "socket.timeout.ms": 5_000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {
        "groups": {"offsets_partitions": 3, "initial_rebalance_delay_ms": 100},
        "transactions": {"state_partitions": 3},
    }
    with Cluster(tmp_path_factory.mktemp("transactions"), settings=settings) as cluster:
        yield cluster


def producer_of(cluster: Cluster, name: str, timeout_ms: int = 60_000) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": cluster.servers,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            **QUICK,
        }
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def read(cluster: Cluster, topic: str, isolation: str = "read_committed") -> list[str]:
    """All there is."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.servers,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            **QUICK,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[str] = []
    ended: set[int] = set()
    until = time.monotonic() + PATIENCE_S
    while len(ended) < PARTITIONS and time.monotonic() < until:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition() or 0)
        elif error is None:
            found.append(text_of(message))
    consumer.close()
    assert len(ended) == PARTITIONS, f"{topic} was not read to its end"
    return found


def read_whole(cluster: Cluster, topic: str) -> list[str]:
    """All that is committed, once no transaction is open: a commit is answered before its markers are written,
    and a reader's end is the last stable offset.
    """
    admin = AdminClient({"bootstrap.servers": cluster.servers, **QUICK})
    lanes = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(PARTITIONS)}  # type: ignore[no-untyped-call]
    until = time.monotonic() + PATIENCE_S
    while ends_of(admin, lanes, COMMITTED) != ends_of(admin, lanes, UNCOMMITTED):
        assert time.monotonic() < until, f"{topic} keeps an open transaction"
    return read(cluster, topic)


def ends_of(
    admin: AdminClient, lanes: dict[TopicPartition, OffsetSpec], isolation: IsolationLevel
) -> list[int]:
    found = admin.list_offsets(lanes, isolation_level=isolation, request_timeout=PATIENCE_S)
    return [found[it].result().offset for it in sorted(found, key=lambda it: it.partition)]


def text_of(message: Message) -> str:
    return (message.value() or b"").decode()


def coordinator_of(cluster: Cluster, name: str) -> Lane:
    lanes = [Lane(STATE, number) for number in range(3)]
    cluster.wait_settled(lanes)
    return lanes[partition_of(name, 3)]


def ended(producer: Producer, *, commit: bool) -> bool:
    """Commit or abort, until it is known to be done; whether it is committed."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            if commit:
                producer.commit_transaction(5)
            else:
                producer.abort_transaction(5)
        except KafkaException as error:
            reason = error.args[0]
            assert not reason.fatal(), reason
            assert time.monotonic() < until, reason
            if reason.txn_requires_abort():
                commit = False
            else:
                assert reason.retriable(), reason
        else:
            return commit


def test_all_of_a_transaction_or_nothing(cluster: Cluster) -> None:
    create(cluster.servers, "transfers", PARTITIONS, 3)
    producer = producer_of(cluster, "payer")
    lanes = [coordinator_of(cluster, "payer"), Lane("transfers", 0), Lane("transfers", 1)]
    committed: set[str] = set()
    aborted: set[str] = set()
    with Killing(cluster, lanes) as killing:
        for number in count():
            producer.begin_transaction()
            values = {f"{number}-{part}" for part in range(4)}
            for part, value in enumerate(sorted(values)):
                producer.produce("transfers", value.encode(), partition=part % PARTITIONS)
            (committed if ended(producer, commit=number % 3 != 2) else aborted).update(values)
            if killing.is_over:
                break
    found = Counter(read_whole(cluster, "transfers"))
    assert found == Counter(committed)
    assert aborted.isdisjoint(found)
    assert len(committed) > 20


def test_a_later_producer_fences_the_one_before(cluster: Cluster) -> None:
    create(cluster.servers, "fenced", PARTITIONS, 3)
    zombie = producer_of(cluster, "single")
    zombie.begin_transaction()
    zombie.produce("fenced", b"of the zombie", partition=0)
    assert zombie.flush(PATIENCE_S) == 0
    later = producer_of(cluster, "single")
    later.begin_transaction()
    later.produce("fenced", b"of the later one", partition=0)
    later.commit_transaction(PATIENCE_S)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()
    assert read_whole(cluster, "fenced") == ["of the later one"]
    assert read(cluster, "fenced", "read_uncommitted") == ["of the zombie", "of the later one"]


def test_a_transaction_that_is_left_open_ends_with_its_time(cluster: Cluster) -> None:
    create(cluster.servers, "left", PARTITIONS, 3)
    lost = producer_of(cluster, "lost", timeout_ms=5_000)
    lost.begin_transaction()
    lost.produce("left", b"never committed", partition=0)
    assert lost.flush(PATIENCE_S) == 0
    produce(cluster.servers, "left", [b"without a transaction"])
    started = time.monotonic()
    while not (found := read(cluster, "left")):
        assert time.monotonic() - started < 30
    assert found == ["without a transaction"]


def test_consume_transform_produce_exactly_once(cluster: Cluster) -> None:
    """Each message that is read is answered once, whichever node is killed, and whoever starts again."""
    create(cluster.servers, "questions", PARTITIONS, 3)
    create(cluster.servers, "answers", PARTITIONS, 3)
    questions = [f"q{number}".encode() for number in range(400)]
    for number in range(PARTITIONS):
        produce(cluster.servers, "questions", questions[number::PARTITIONS], partition=number)
    lanes = [
        coordinator_of(cluster, "answerer"),
        Lane(OFFSETS, partition_of("answerers", 3)),
        Lane("answers", 0),
    ]
    with Killing(cluster, lanes):
        until = time.monotonic() + 2 * PATIENCE_S
        for crash_after in (3, 5, 10_000):
            answer(cluster, crash_after, until)
    found = Counter(read_whole(cluster, "answers"))
    assert found == Counter(f"a{number}" for number in range(400))


def answer(cluster: Cluster, crash_after: int, until: float) -> None:
    """So many transactions, the last of which is left open; or all that is left."""
    producer = producer_of(cluster, "answerer")
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.servers,
            "group.id": "answerers",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 200,
            **QUICK,
        }
    )
    consumer.subscribe(["questions"])
    idle = 0
    transactions = 0
    while idle < 30 and time.monotonic() < until:
        messages = [it for it in consumer.consume(20, 0.2) if it.error() is None]
        if not messages:
            idle = idle + 1 if consumer.assignment() else 0
            continue
        idle = 0
        producer.begin_transaction()
        for it in messages:
            number = text_of(it).removeprefix("q")
            producer.produce("answers", f"a{number}".encode(), partition=it.partition() or 0)
        transactions += 1
        if transactions > crash_after:
            producer.flush(5)
            break  # without a word
        try:
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 20
            )
            is_committed = ended(producer, commit=True)
        except KafkaException as error:
            assert not error.args[0].fatal(), error
            ended(producer, commit=False)
            is_committed = False
        if not is_committed:
            rewind(consumer)
    consumer.close()


def rewind(consumer: Consumer) -> None:
    """To what is committed."""
    for it in consumer.committed(consumer.assignment(), PATIENCE_S):
        consumer.seek(TopicPartition(it.topic, it.partition, max(0, it.offset)))


def command(cluster: Cluster, *words: str) -> str:
    done = streamlog(
        ["transaction", *words, "--bootstrap-server", cluster.servers], environment=dict(os.environ)
    )
    assert (done.returncode, done.stderr) == (0, b""), done
    return done.stdout.decode()


def test_open_transactions_are_shown_and_aborted(cluster: Cluster) -> None:
    create(cluster.servers, "shown", PARTITIONS, 3)
    producer = producer_of(cluster, "shown")
    producer.begin_transaction()
    producer.produce("shown", b"x", partition=1)
    assert producer.flush(PATIENCE_S) == 0
    listed = json.loads(command(cluster, "ls", "--state", "ongoing", "--json"))
    (found,) = [it for it in listed if it["transactional_id"] == "shown"]
    assert found["state"] == "Ongoing"
    assert "shown" in command(cluster, "ls")
    described = json.loads(command(cluster, "info", "shown", "--json"))
    assert described["partitions"] == [{"stream": "shown", "partition": 1}]
    assert "60 s" in command(cluster, "info", "shown")
    assert "is aborted" in command(cluster, "abort", "shown", "--yes")
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(PATIENCE_S)
    assert refused.value.args[0].fatal()
    assert read_whole(cluster, "shown") == []
    again = ["transaction", "abort", "shown", "--yes", "--bootstrap-server", cluster.servers]
    done = streamlog(again, environment=dict(os.environ))
    assert b"no open transaction" in done.stderr
