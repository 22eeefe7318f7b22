"""What a query over a tiered stream costs its node, and how fast it is: ``python -m benchmarks.tiered_reading``.

A topic with one partition goes to an object store, a local folder and an S3 on the same machine (S3Proxy, which Maven
brings), until the node has next to nothing of it on its disk. Then all that is in the store is read:

- *by servers*: the node brings the segments into its cache, and sends them; its cache is emptied before by a restart;
- *by the store*: readers take the objects, by the manifest that the node names.

Each is done by ``streamlog.arrow`` in this process, and by Spark with two tasks at a time, which drops all columns. The
node's processor time is that of its process, from before the plan until the last row: in percent of one core, and what
is above its time at rest. Readers, node and store share the machine.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import streamlog.arrow
from pyspark_streamlog.java import prepare_environment
from streamlog.arrow.location import PartitionRange
from tests.peers.sources import cache as archive_cache
from tools.maven import MavenError
from tools.nodes.cluster import Cluster, NoNats
from tools.nodes.node_process import NodeProcess, Settings
from tools.nodes.server_process import wait_until
from tools.s3_server import BUCKET, S3Server, jars, set_credentials

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC: Final = "flights"
COUNT: Final = 5_000_000
VALUE_BYTES: Final = 100
SEGMENT_BYTES: Final = 64 << 20
TASK_BYTES: Final = 64 << 20
ROUNDS: Final = 3
REST_S: Final = 5.0
TIERED_TIMEOUT_S: Final = 300.0
SCHEMA: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,"
    " timestampType INT"
)


class Cost(NamedTuple):
    """Of one read."""

    records_per_s: float
    node_percent: float
    """Of a core."""
    node_ms: float
    """Of its processor, above what it takes at rest."""


class Store(NamedTuple):
    """As node and readers name it."""

    title: str
    url: str
    endpoint: str | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help="records")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tiered-")))
        spark = stack.enter_context(session())
        print("| | records/s | node, % of a core | node, ms above rest |\n|---|--:|--:|--:|")
        for store in stores(stack, folder):
            with running(folder / "nodes", store) as node:
                fill(node, options.count)
                measure(node, store, spark, options.rounds)
            shutil.rmtree(folder / "nodes")


def stores(stack: ExitStack, folder: Path) -> Iterator[Store]:
    yield Store("folder", (folder / "bucket").as_uri())
    try:
        server = stack.enter_context(S3Server(folder / "s3", jars(archive_cache())))
    except MavenError as error:
        print(f"no S3: {error}")
        return
    set_credentials()
    yield Store("S3", f"s3://{BUCKET}/tiered", server.endpoint)


@contextmanager
def running(folder: Path, store: Store) -> Iterator[NodeProcess]:
    tier: dict[str, Any] = {"url": store.url, "interval_ms": 100}
    if store.endpoint is not None:
        tier["endpoint"] = store.endpoint
    settings: Settings = {"nats_listen": {}, "log": {"retention_check_ms": 500}, "tier": tier}
    with Cluster(folder, nodes=1, settings=settings, nats=NoNats()) as cluster:
        yield cluster[1]


def fill(node: NodeProcess, count: int) -> None:
    """Return when nearly all of it is in the store alone."""
    configs = {
        "remote.storage.enable": "true",
        "local.retention.ms": "100",
        "segment.bytes": str(SEGMENT_BYTES),
        "streamlog.duplicate_window_ms": "100",
    }
    admin = AdminClient({"bootstrap.servers": node.kafka})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=configs)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": node.kafka, "linger.ms": 20})
    for number in range(count):
        value = (b"%d-" % number).ljust(VALUE_BYTES, b"x")
        while True:
            try:
                producer.produce(TOPIC, value)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    assert producer.flush(120) == 0
    folder = node.data_dir / "streams" / TOPIC / "0"
    wait_until(lambda: len(list(folder.glob("*.log"))) == 1, "all is copied", TIERED_TIMEOUT_S)


def measure(node: NodeProcess, store: Store, spark: "SparkSession", rounds: int) -> None:
    plan = streamlog.arrow.plan(TOPIC, **place(node, store))
    (range_,) = plan.ranges
    assert range_.stored is not None
    end = range_.stored.end_offset
    history = _until(range_, end)
    node.add_settings(log={"retention_check_ms": 300_000}, tier={"interval_ms": 10_000})
    node.stop()
    node.start()
    idle = at_rest(node)
    print(f"| {store.title}: the node at rest | | {idle:.2f} | |", flush=True)

    def by_arrow(where: dict[str, Any]) -> int:
        planned = streamlog.arrow.plan(TOPIC, **where)
        return sum(it.num_rows for it in planned.rows(_until(planned.ranges[0], end)))

    def by_spark(where: dict[str, Any]) -> int:
        told = {name.replace("_", "."): value for name, value in where.items()}
        frame = (
            spark.read.format("streamlog")
            .schema(SCHEMA)
            .options(**told, subscribe=TOPIC, maxBytesPerPartition=TASK_BYTES)
            .option("endingOffsets", f'{{"{TOPIC}": {{"0": {end}}}}}')
            .load()
        )
        frame.write.format("noop").mode("overwrite").save()
        return end

    readers: dict[str, Callable[[dict[str, Any]], int]] = {"Arrow": by_arrow, "Spark": by_spark}
    by_spark(place(node, store))  # its workers are warm
    for title, read in readers.items():
        for name, where in (
            ("by servers", {"servers": node.kafka}),
            ("by the store", place(node, store)),
        ):
            found = [cost(node, read, where, history) for _ in range(rounds)]
            print(f"| {store.title}: {title} {name} | {shown(found)} |", flush=True)


def place(node: NodeProcess, store: Store) -> dict[str, Any]:
    where: dict[str, Any] = {"servers": node.kafka, "store": store.url}
    return where if store.endpoint is None else {**where, "store_endpoint": store.endpoint}


def _until(range_: PartitionRange, end: int) -> PartitionRange:
    return PartitionRange(range_.name, range_.stream_id, range_.start_offset, end, range_.stored)


def cost(
    node: NodeProcess,
    read: Callable[[dict[str, Any]], int],
    where: dict[str, Any],
    history: PartitionRange,
) -> Cost:
    node.stop()
    shutil.rmtree(node.data_dir / "tier-cache", ignore_errors=True)
    node.start()
    idle = at_rest(node) / 100
    before, began_s = processor_s(node), time.perf_counter()
    count = read(where)
    wall_s, used_s = time.perf_counter() - began_s, processor_s(node) - before
    assert count == history.end_offset - history.start_offset
    return Cost(count / wall_s, 100 * used_s / wall_s, 1000 * (used_s - idle * wall_s))


def at_rest(node: NodeProcess) -> float:
    before = processor_s(node)
    time.sleep(REST_S)
    return 100 * (processor_s(node) - before) / REST_S


def processor_s(node: NodeProcess) -> float:
    used = psutil.Process(node.pid).cpu_times()
    return float(used.user + used.system)


def shown(found: list[Cost]) -> str:
    rates = sorted(it.records_per_s / 1e6 for it in found)
    shares = sorted(it.node_percent for it in found)
    times = sorted(it.node_ms for it in found)
    return (
        f"{median(rates):.2f} M ({rates[0]:.2f}-{rates[-1]:.2f})"
        f" | {median(shares):.1f} ({shares[0]:.1f}-{shares[-1]:.1f})"
        f" | {median(times):.0f} ({times[0]:.0f}-{times[-1]:.0f})"
    )


@contextmanager
def session() -> "Iterator[SparkSession]":
    prepare_environment()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    set_credentials()  # Spark's workers have the environment of before
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
