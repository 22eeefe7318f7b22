"""A node beside Apache Kafka: the same Kafka clients, the same settings, in turn on both.

``sync``: a node's ``sync=commit`` has every record on disk before it is acknowledged; Kafka does with
``flush.messages=1``. Without that both leave it to the kernel when a page is written.

Beside them stands what any broker would take of these clients, this network and this disk: ``broker_floor.c``.
"""

import re
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import kafka_broker, machine
from benchmarks.case import Case, Measurement, Metric, Target, Variant
from benchmarks.cases import MEGABYTES, P50, P99, RATE
from benchmarks.connection import BenchmarkError
from benchmarks.footprint import RESIDENT
from benchmarks.kafka_broker import KafkaBroker
from benchmarks.lone_node import LoneNode
from benchmarks.processes import compiled, cpu_seconds, resident_mib, run_client
from benchmarks.reading import CPU_PER_GB
from benchmarks.side import STREAM, Port, Sides, create_stream, delete_stream

COUNTS: Final = {100: 2_000_000, 1024: 600_000}
SYNCED_SHARE: Final = {100: 0.5, 1024: 0.5}
LATENCY_COUNT: Final = 8_000
TOPICS: Final = 1_000
TRANSACTIONS: Final = {1: 3_000, 100: 1_000}
TIMEOUT_S: Final = 120.0
SETTLE_S: Final = 5.0
FRESH_KAFKA: Final = "fresh-kafka"
FRESH_NODE: Final = "fresh-node"
LEAST_BROKER: Final = "least-broker"
LEAST: Final = "the least that a broker can do"

START = Metric("start_s", "s until it answers", digits=2, lower_is_better=True)
CREATED = Metric("created_s", "s until the answer", digits=2, lower_is_better=True)
TRANSACTIONS_RATE = Metric("transactions", "transactions/s")
WRITTEN = Metric("written_s", "s until each has a record", digits=2, lower_is_better=True)

_PERFORMANCE: Final = re.compile(
    r"(?P<records>\d+) records sent, (?P<rate>[\d.]+) records/sec"
    r".*, (?P<p50>\d+) ms 50th.*, (?P<p99>\d+) ms 99th"
)


class LeastBroker:
    """One thread in C that writes what comes, and syncs it if that is wanted: ``broker_floor.c``."""

    def __init__(self, directory: Path, *, is_synced: bool) -> None:
        directory.mkdir(parents=True)
        command = [compiled("broker_floor"), str(directory), "synced" if is_synced else "written"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.kafka = f"127.0.0.1:{self._process.stdout.readline().strip()}"
        self.pids: Sequence[int] = (self._process.pid,)

    def stop(self) -> None:
        with self._process:
            self._process.kill()


Server = KafkaBroker | LeastBroker | Port
Pick = Callable[[Sides], KafkaBroker | Port]


def _kafka(sides: Sides) -> KafkaBroker:
    return sides.kafka


def _node(sides: Sides) -> Port:
    return sides.port


BOTH: Final[tuple[tuple[str, Pick], ...]] = (("Apache Kafka", _kafka), ("streamlog", _node))


def _create(side: KafkaBroker | Port, *, is_synced: bool = False) -> None:
    """A fresh topic of one partition and one replica."""
    if isinstance(side, Port):
        create_stream(side, sync="commit" if is_synced else "os")
        return
    from confluent_kafka.admin import AdminClient, NewTopic

    config = {"flush.messages": "1"} if is_synced else {}
    admin = AdminClient({"bootstrap.servers": side.kafka})
    admin.create_topics([NewTopic(STREAM, 1, 1, config=config)])[STREAM].result(TIMEOUT_S)


def _delete(side: KafkaBroker | Port) -> None:
    if isinstance(side, Port):
        delete_stream(side)
        return
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": side.kafka})
    admin.delete_topics([STREAM])[STREAM].result(TIMEOUT_S)


def _measured(sides: Sides, side: Server, size: int, run: Callable[[], Measurement]) -> Measurement:
    """What ``run`` gives, with the server's processor time for a GB of the records' values."""
    machine.settle(sides.directory)
    before = cpu_seconds(side.pids)
    found = run()
    used = cpu_seconds(side.pids) - before
    gigabytes = found["messages"] * size / 1e9
    return {
        **found,
        "cpu_s_per_gb": used / gigabytes,
        "server_us": 1e6 * used / found["messages"],
    }


def _with_topic(
    pick: Pick, size: int, run: Callable[[Server, float], Measurement], *, is_synced: bool = False
) -> Callable[[Sides, float], Measurement]:
    def measure(sides: Sides, scale: float) -> Measurement:
        side = pick(sides)
        _create(side, is_synced=is_synced)
        try:
            return _measured(sides, side, size, lambda: run(side, scale))
        finally:
            _delete(side)

    return measure


def _least(
    size: int, run: Callable[[Server, float], Measurement], *, is_synced: bool
) -> Variant[Sides]:
    def measure(sides: Sides, scale: float) -> Measurement:
        side = sides.own(LEAST_BROKER, partial(LeastBroker, is_synced=is_synced))
        try:
            return _measured(sides, side, size, lambda: run(side, scale))
        finally:
            sides.drop(LEAST_BROKER)

    return Variant(LEAST, measure)


def _count(size: int, scale: float, *, is_synced: bool = False) -> str:
    return str(int(COUNTS[size] * scale * (SYNCED_SHARE[size] if is_synced else 1)))


def _produced(size: int, *, is_synced: bool) -> Callable[[Server, float], Measurement]:
    def run(side: Server, scale: float) -> Measurement:
        arguments = ["--target", side.kafka, "--topic", STREAM, "--size", str(size)]
        count = _count(size, scale, is_synced=is_synced)
        return run_client("kafka_producer", "kafka", *arguments, "--count", count)

    return run


def _produced_by_java(size: int, *, is_synced: bool) -> Callable[[Server, float], Measurement]:
    """``kafka-producer-perf-test``."""

    def run(side: Server, scale: float) -> Measurement:
        count = _count(size, scale, is_synced=is_synced)
        command = kafka_broker.java(
            "org.apache.kafka.tools.ProducerPerformance",
            *("--topic", STREAM, "--num-records", count, "--record-size", str(size)),
            *(
                "--throughput",
                "-1",
                "--producer-props",
                f"bootstrap.servers={side.kafka}",
                "acks=all",
            ),
            options=("-Xmx512m",),
        )
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
        found = _PERFORMANCE.search(done.stdout.splitlines()[-1] if done.stdout else "")
        if found is None or found["records"] != count:
            raise BenchmarkError(f"the Java producer: {(done.stdout + done.stderr)[-500:]}")
        rate = float(found["rate"])
        return {"rate": rate, "mb_per_s": rate * size / 1e6, "messages": int(count)}

    return run


def producing(size: int, *, is_synced: bool, is_java: bool = False) -> Case[Sides]:
    make = _produced_by_java if is_java else _produced
    run = make(size, is_synced=is_synced)
    targets = {
        "Apache Kafka": (),
        "streamlog": (Target(RATE, 2.0 if is_synced else 1.2), Target(CPU_PER_GB, 0.5)),
    }
    variants = tuple(
        Variant(label, _with_topic(pick, size, run, is_synced=is_synced), targets[label])
        for label, pick in BOTH
    )
    if not is_java:  # which asks for newer versions of the protocol
        variants = (*variants, _least(size, run, is_synced=is_synced))
    client = "the Java producer" if is_java else "confluent-kafka"
    synced = "each batch synced" if is_synced else "not synced"
    named = "1 KiB" if size == 1024 else f"{size} B"
    return Case(
        f"kafka-produce-{'java-' if is_java else ''}{size}{'-synced' if is_synced else ''}",
        f"Produce by {client}, {named}, {synced}",
        (RATE, MEGABYTES, CPU_PER_GB),
        variants,
        missing=kafka_broker.missing,
    )


def consuming(size: int, *, is_default: bool) -> Case[Sides]:
    """A topic that is there already, from its start."""

    def prepare(sides: Sides, scale: float) -> None:
        for _, pick in BOTH:
            side = pick(sides)
            _create(side)
            _produced(size, is_synced=False)(side, scale)

    def clear(sides: Sides) -> None:
        for _, pick in BOTH:
            _delete(pick(sides))

    def read(pick: Pick) -> Callable[[Sides, float], Measurement]:
        def run(sides: Sides, scale: float) -> Measurement:
            side = pick(sides)
            mode = "kafka-defaults" if is_default else "kafka"
            arguments = ["--server", side.kafka, "--source", STREAM, "--size", str(size)]
            count = _count(size, scale)
            return _measured(
                sides,
                side,
                size,
                lambda: run_client("consumer", mode, *arguments, "--count", count),
            )

        return run

    targets = {
        "Apache Kafka": (),
        "streamlog": (Target(RATE, 1.0 if is_default else 1.2), Target(CPU_PER_GB, 0.5)),
    }
    variants = tuple(Variant(label, read(pick), targets[label]) for label, pick in BOTH)
    settings = (
        "its settings as they come" if is_default else "its queue looked at again after 10 ms"
    )
    named = "1 KiB" if size == 1024 else f"{size} B"
    return Case(
        f"kafka-consume-{size}{'-defaults' if is_default else ''}",
        f"Consume by confluent-kafka, {named}, {settings}",
        (RATE, MEGABYTES, CPU_PER_GB),
        variants,
        prepare=prepare,
        clear=clear,
        missing=kafka_broker.missing,
    )


def latency(mode: str, title: str, *, is_synced: bool) -> Case[Sides]:
    def run(side: Server, scale: float) -> Measurement:
        arguments = ["--servers", side.kafka, "--topic", STREAM]
        count = str(max(500, int(LATENCY_COUNT * scale)))
        return run_client("kafka_latency", mode, *arguments, "--count", count)

    wanted: tuple[Target, ...] = (Target(P50, 1.0),)
    if mode == "acked":
        wanted = (*wanted, Target(P99, 1.0))
    targets: dict[str, tuple[Target, ...]] = {"Apache Kafka": (), "streamlog": wanted}
    variants = tuple(
        Variant(label, _with_topic(pick, 100, run, is_synced=is_synced), targets[label])
        for label, pick in BOTH
    )
    variants = (*variants, _least(100, run, is_synced=is_synced))
    name = f"kafka-latency-{mode}{'-synced' if is_synced else ''}"
    return Case(name, title, (P50, P99), variants, missing=kafka_broker.missing)


def transactions(records: int, *, is_synced: bool) -> Case[Sides]:
    def run(side: Server, scale: float) -> Measurement:
        arguments = ["--servers", side.kafka, "--topic", STREAM, "--records", str(records)]
        count = str(max(100, int(TRANSACTIONS[records] * scale)))
        return run_client("kafka_transactions", *arguments, "--count", count)

    targets: dict[str, tuple[Target, ...]] = {
        "Apache Kafka": (),
        "streamlog": (Target(TRANSACTIONS_RATE, 1.0), Target(P50, 1.0)),
    }
    variants = tuple(
        Variant(label, _with_topic(pick, 100, run, is_synced=is_synced), targets[label])
        for label, pick in BOTH
    )
    of = "1 record" if records == 1 else f"{records} records"
    return Case(
        f"kafka-transactions-{records}{'-synced' if is_synced else ''}",
        f"Transactions of {of} of 100 B, one after the other, {'each synced' if is_synced else 'not synced'}",
        (TRANSACTIONS_RATE, P50),
        variants,
        missing=kafka_broker.missing,
    )


def _fresh_kafka(sides: Sides) -> tuple[KafkaBroker, float]:
    broker = sides.own(FRESH_KAFKA, KafkaBroker)
    return broker, broker.start_s


def _fresh_node(sides: Sides) -> tuple[LoneNode, float]:
    """At its second start: at its first, Python compiles its modules."""
    node = sides.own(FRESH_NODE, LoneNode)
    node.start()
    node.end()
    begun = time.perf_counter()
    node.start()
    return node, time.perf_counter() - begun


def starting() -> Case[Sides]:
    def kafka(sides: Sides, scale: float) -> Measurement:
        try:
            broker, start_s = _fresh_kafka(sides)
            time.sleep(SETTLE_S)
            return {"start_s": start_s, "resident_mib": resident_mib(broker.pids)}
        finally:
            sides.drop(FRESH_KAFKA)

    def node(sides: Sides, scale: float) -> Measurement:
        try:
            lone, start_s = _fresh_node(sides)
            time.sleep(SETTLE_S)
            return {"start_s": start_s, "resident_mib": resident_mib([lone.node_pid])}
        finally:
            sides.drop(FRESH_NODE)

    variants = (
        Variant("Apache Kafka", kafka),
        Variant("streamlog", node, (Target(START, 1.0), Target(RESIDENT, 1.0))),
    )
    title = "Start of an empty server, and its memory"
    return Case("kafka-start", title, (START, RESIDENT), variants, missing=kafka_broker.missing)


def creating() -> Case[Sides]:
    def create(servers: str, scale: float) -> Measurement:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": servers})
        topics = [NewTopic(f"t{it}", 1, 1) for it in range(max(1, int(TOPICS * scale)))]
        admin.list_topics(timeout=TIMEOUT_S)
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        producer.list_topics(timeout=TIMEOUT_S)
        failures: list[object] = []
        begun = time.perf_counter()
        for it in admin.create_topics(topics, request_timeout=TIMEOUT_S).values():
            it.result(TIMEOUT_S)
        created_s = time.perf_counter() - begun
        for topic in topics:
            producer.produce(topic.topic, b"x", on_delivery=lambda error, _: failures.append(error))
        if producer.flush(TIMEOUT_S) or any(failures):
            raise BenchmarkError(f"new topics took no records: {failures[:3]}")
        written_s = time.perf_counter() - begun
        return {"created_s": created_s, "written_s": written_s, "messages": len(topics)}

    def kafka(sides: Sides, scale: float) -> Measurement:
        try:
            return create(_fresh_kafka(sides)[0].kafka, scale)
        finally:
            sides.drop(FRESH_KAFKA)

    def node(sides: Sides, scale: float) -> Measurement:
        try:
            return create(_fresh_node(sides)[0].kafka, scale)
        finally:
            sides.drop(FRESH_NODE)

    variants = (
        Variant("Apache Kafka", kafka),
        Variant("streamlog", node, (Target(WRITTEN, 1.0),)),
    )
    title = f"{TOPICS:,} topics in one CreateTopics request"
    return Case("kafka-topics", title, (CREATED, WRITTEN), variants, missing=kafka_broker.missing)


ACKED: Final = "Acknowledgement of one record, 1,000 records/s, 100 B, linger 0"
CASES: Final = (
    *(producing(size, is_synced=it) for size in (1024, 100) for it in (False, True)),
    *(producing(1024, is_synced=it, is_java=True) for it in (False, True)),
    *(consuming(size, is_default=it) for size in (1024, 100) for it in (False, True)),
    latency("acked", f"{ACKED}, not synced", is_synced=False),
    latency("acked", f"{ACKED}, each synced", is_synced=True),
    latency(
        "through", "From the producer to the consumer, 1,000 records/s, 100 B", is_synced=False
    ),
    *(transactions(records, is_synced=it) for records in (1, 100) for it in (False, True)),
    starting(),
    creating(),
)
