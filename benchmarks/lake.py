"""Streams into Iceberg tables: bytes a second of one core, and how far a table is behind a stream that is published to.

    python -m benchmarks.lake

The first part writes a stream of a node into tables in one process, without Spark: what one core does.
The second publishes at a rate, and looks each 0.1 s since when the table has lacked a record.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from threading import Event, Thread
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamlog.arrow.options.read_options import ReadOptions
from streamlog.arrow.options.subscription import StreamSubscription
from streamlog.lake.catalog import TableName
from streamlog.lake.columns.json_values import JsonValues
from streamlog.lake.columns.schema_columns import SchemaColumns
from streamlog.lake.columns.table_columns import OpaqueColumns, TableColumns
from streamlog.lake.job import JobOptions, LakeJob, run_without_spark
from streamlog.lake.lag import Lag
from tools.nodes.dev import Dev

SCHEMA: Final = {
    "properties": {
        "id": {"type": "integer"},
        "carrier": {"type": "string"},
        "origin": {"type": "string"},
        "delay": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "note": {"type": "string"},
    },
    "required": ["id"],
}


def value(number: int) -> bytes:
    row = {
        "id": number,
        "carrier": "AA",
        "origin": f"O{number % 300}",
        "delay": number % 977 / 7,
        "at": "2026-01-31T12:00:00Z",
        "note": f"{number * 2654435761 % 2**64:016x}" * 12,
    }
    return json.dumps(row).encode()


def publish(servers: str, stream: str, count: int) -> int:
    """Returns the bytes of values."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "compression.type": "lz4"})
    size = 0
    for number in range(count):
        data = value(number)
        size += len(data)
        while True:
            try:
                producer.produce(stream, data)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
    return size


def options_of(servers: str, stream: str, folder: Path, columns: TableColumns) -> JobOptions:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder / 'catalog.db'}",
        "warehouse": f"file://{folder / 'warehouse'}",
    }
    table = TableName(f"lake.t{time.time_ns()}", "bench", properties)
    read = ReadOptions(servers=servers, subscription=StreamSubscription((stream,)))
    return JobOptions(stream, read, table, columns)


def measure_rate(servers: str, folder: Path, count: int) -> None:
    size = publish(servers, "rate", count)
    formats = SchemaColumns(JsonValues.parse(json.dumps(SCHEMA).encode()))
    kinds: tuple[tuple[str, TableColumns], ...] = (
        ("opaque, the first time", OpaqueColumns()),
        ("opaque", OpaqueColumns()),
        ("JSON columns", formats),
    )
    for name, columns in kinds:
        job = LakeJob(options_of(servers, "rate", folder, columns))
        wall, cpu = time.monotonic(), time.process_time()
        run_without_spark(job, once=True, wait=lambda _: False)
        wall, cpu = time.monotonic() - wall, time.process_time() - cpu
        told = f"{size / cpu / 1e6:,.0f} MB/s a core, {size / wall / 1e6:,.0f} MB/s in all"
        print(f"{name}: {size / 1e6:,.0f} MB of values, {count:,} records: {told}", flush=True)


def measure_lag(servers: str, folder: Path, rate: int, seconds: int) -> None:
    lag = Lag()
    done = Event()
    job = LakeJob(options_of(servers, "lag", folder, OpaqueColumns()), lag)
    writer = Thread(
        target=run_without_spark, args=(job,), kwargs={"once": False, "wait": done.wait}
    )
    writer.start()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "compression.type": "lz4"})
    sample = value(1)
    lags: list[float] = []
    published, begun = 0, time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        while published < passed * rate:
            producer.produce("lag", sample)
            published += 1
        producer.poll(0)
        lags.append(lag.seconds_behind)
        time.sleep(0.1)
    producer.flush()
    done.set()
    writer.join()
    lags.sort()
    p50, p99 = lags[len(lags) // 2], lags[len(lags) * 99 // 100]
    print(
        f"lag at {published / passed:,.0f} records/s: p50 {p50:.1f} s, p99 {p99:.1f} s", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Streams into Iceberg tables.")
    parser.add_argument("--count", type=int, default=1_000_000, help="records of the first part")
    parser.add_argument("--rate", type=int, default=20_000, help="records a second of the second")
    parser.add_argument("--seconds", type=int, default=60, help="that the second part takes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streamlog-lake-") as place:
        folder = Path(place)
        node = Dev(folder / "node")
        node.start()
        try:
            admin = AdminClient({"bootstrap.servers": node.kafka})
            for name in ("rate", "lag"):
                admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
            measure_rate(node.kafka, folder, arguments.count)
            measure_lag(node.kafka, folder, arguments.rate, arguments.seconds)
        finally:
            node.stop()


if __name__ == "__main__":
    main()
