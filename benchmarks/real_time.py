"""From a NATS publish to the result of a Spark query in real-time mode: ``python -m benchmarks.real_time``.

``streamlog dev`` takes what NATS clients publish. A query with Spark's own Kafka source (Maven brings it) reads the
stream over the Kafka port, makes another record of each, and writes it to a second stream by Spark's Kafka sink. A
Kafka consumer takes it there. Each value has the moment of its publish, and the time ends when the consumer has it:
publish, commit, fetch, query, produce, commit, fetch. The same query in micro-batches is measured beside it.

All share the machine. Values before the first of WARM_S are left out.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nats
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from pyspark_streamlog.java import prepare_environment
from tests.peers.sources import cache as archive_cache
from tools.maven import archives
from tools.nodes.dev import Dev

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE: Final = "clicks"
RESULT: Final = "results"
RATE: Final = 100
WARM_S: Final = 20.0
MEASURED_S: Final = 30.0
CHECKPOINT_INTERVAL: Final = "5 minutes"
"""Of real-time mode: how long one of its batches is."""
KAFKA_VERSION: Final = "BENCH_SPARK_KAFKA_VERSION"
"""Of the archive with Spark's Kafka source, where Maven has none of PySpark's version."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=RATE, help="messages a second")
    parser.add_argument("--seconds", type=float, default=MEASURED_S)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="real-time-") as name:
        folder = Path(name)
        with session() as spark:
            print("| | messages | p50, ms | p99, ms | max, ms |\n|---|--:|--:|--:|--:|")
            for mode, trigger in (
                ("real-time mode", {"realTime": CHECKPOINT_INTERVAL}),
                ("micro-batches", {"processingTime": "0 seconds"}),
            ):
                node = Dev(folder / mode)
                node.start()
                try:
                    found = measured(node, spark, folder / f"{mode}-c", trigger, options)
                finally:
                    node.stop()
                print(f"| {mode} | {shown(found)} |", flush=True)


def measured(
    node: Dev, spark: "SparkSession", checkpoint: Path, trigger: dict[str, Any], options: Any
) -> list[float]:
    """Milliseconds from a publish to its result."""
    admin = AdminClient({"bootstrap.servers": node.kafka})
    for it in admin.create_topics([NewTopic(SOURCE, 1, 1), NewTopic(RESULT, 1, 1)]).values():
        it.result(30)
    server = {"kafka.bootstrap.servers": node.kafka}
    clicks = spark.readStream.format("kafka").options(**server, subscribe=SOURCE).load()
    query = (
        clicks.selectExpr("key", "concat(value, cast(' seen' as binary)) as value")
        .writeStream.format("kafka")
        .options(**server, topic=RESULT, checkpointLocation=str(checkpoint))
        # A batch of the sink's producer waits for nothing; see docs/spark.md.
        .options(**{"kafka.linger.ms": "0", "kafka.acks": "all"})
        .outputMode("update")
        .trigger(**trigger)
        .start()
    )
    try:
        return asyncio.run(published(node, options))
    finally:
        query.stop()


async def published(node: Dev, options: Any) -> list[float]:
    consumer = Consumer(
        {
            "bootstrap.servers": node.kafka,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(RESULT, 0, 0)])
    found: list[float] = []
    began_s = time.perf_counter()
    until_s = began_s + WARM_S + options.seconds

    def consume() -> None:
        while time.perf_counter() < until_s + 2:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                sent_s = float((message.value() or b"0").split()[0])
                if sent_s >= began_s + WARM_S:
                    found.append((time.perf_counter() - sent_s) * 1000)

    connection = await nats.connect(node.nats)
    consuming = asyncio.create_task(asyncio.to_thread(consume))
    number = 0
    while time.perf_counter() < until_s:
        await connection.publish(SOURCE, b"%.6f" % time.perf_counter())
        number += 1
        await asyncio.sleep(max(0.0, began_s + number / options.rate - time.perf_counter()))
    await consuming
    await connection.close()
    consumer.close()
    return sorted(found)


def shown(found: list[float]) -> str:
    if not found:
        return "0 | | | "
    p99 = found[min(len(found) - 1, len(found) * 99 // 100)]
    return f"{len(found)} | {found[len(found) // 2]:.1f} | {p99:.1f} | {found[-1]:.1f}"


@contextmanager
def session() -> "Iterator[SparkSession]":
    prepare_environment()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    import pyspark
    from pyspark.sql import SparkSession

    version = os.environ.get(KAFKA_VERSION) or pyspark.__version__
    artifact = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"
    jars = archives((artifact,), archive_cache() / f"spark-kafka-{version}")
    own = Path(pyspark.__file__).parent / "jars"
    wanted = [it for it in jars.glob("*.jar") if not (own / it.name).exists()]
    builder = SparkSession.builder.master("local[3]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.jars", ",".join(map(str, wanted)))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
