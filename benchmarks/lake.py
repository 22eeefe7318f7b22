"""Streams into Iceberg tables: bytes a second of one core, and how far a table is behind a stream that is published to.

    python -m benchmarks.lake

The first part writes a stream of a node into tables in one process, without Spark: what one core does, also where some
records do not fit the schema. The second does
the same with Spark, whose processor time is that of the driver, the JVM and the Python workers together.
The third publishes at a rate, and looks each 0.1 s since when the table has lacked a record.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

import fastavro
import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from google.protobuf import descriptor_pb2, message_factory

from pyspark_streamlog.options.read_options import SourceOptions
from streamlog.arrow.options.read_options import ReadOptions
from streamlog.arrow.options.subscription import StreamSubscription
from streamlog.lake.catalog import TableName
from streamlog.lake.columns.avro_values import AvroValues
from streamlog.lake.columns.json_values import JsonValues
from streamlog.lake.columns.protobuf_values import ProtobufValues
from streamlog.lake.columns.schema_columns import SchemaColumns
from streamlog.lake.columns.table_columns import OpaqueColumns, TableColumns
from streamlog.lake.columns.value_format import ValueFormat
from streamlog.lake.job import JobOptions, LakeJob, run_without_spark
from streamlog.lake.lag import Lag
from tools.nodes.dev import Dev

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL: Final = "small"
SMALL_COUNT: Final = 20_000
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


AVRO: Final = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "carrier", "type": "string"},
        {"name": "origin", "type": ["null", "string"]},
        {"name": "delay", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "note", "type": "string"},
    ],
}
"""The same rows; as Protobuf they have the same fields, with the time as a number."""
AT_US: Final = 1_769_860_800_000_000
MISFITS: Final = {"one in 50 misfits": 50, "one in 500 misfits": 500, "one in 4,096 misfits": 4_096}
"""Records of which one does not fit: its id is a text."""


def value(number: int, misfit_every: int = 0) -> bytes:
    row = {
        "id": str(number) if misfit_every and number % misfit_every == 0 else number,
        "carrier": "AA",
        "origin": f"O{number % 300}",
        "delay": number % 977 / 7,
        "at": "2026-01-31T12:00:00Z",
        "note": f"{number * 2654435761 % 2**64:016x}" * 12,
    }
    return json.dumps(row).encode()


def avro_encoder() -> Callable[[int], bytes]:
    schema = fastavro.parse_schema(AVRO)

    def encode(number: int) -> bytes:
        sink = BytesIO()
        fastavro.schemaless_writer(sink, schema, {**json.loads(value(number)), "at": AT_US})
        return sink.getvalue()

    return encode


def flight_descriptors() -> bytes:
    kinds = descriptor_pb2.FieldDescriptorProto
    types = {
        "id": kinds.TYPE_INT64,
        "carrier": kinds.TYPE_STRING,
        "origin": kinds.TYPE_STRING,
        "delay": kinds.TYPE_DOUBLE,
        "at": kinds.TYPE_INT64,
        "note": kinds.TYPE_STRING,
    }
    found = descriptor_pb2.FileDescriptorSet()
    file = found.file.add(name="flight.proto", package="bench", syntax="proto3")
    message = file.message_type.add(name="Flight")
    for number, (name, kind) in enumerate(types.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    return found.SerializeToString()


def protobuf_encoder() -> Callable[[int], bytes]:
    files = descriptor_pb2.FileDescriptorSet.FromString(flight_descriptors())
    message = message_factory.GetMessages(files.file)["bench.Flight"]

    def encode(number: int) -> bytes:
        row = {**json.loads(value(number)), "at": AT_US}
        return bytes(message(**row).SerializeToString())

    return encode


def publish(servers: str, stream: str, count: int, encode: Callable[[int], bytes] = value) -> int:
    """Returns the bytes of values."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "compression.type": "lz4"})
    size = 0
    for number in range(count):
        data = encode(number)
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


def kinds() -> tuple[tuple[str, TableColumns], ...]:
    formats = SchemaColumns(JsonValues.parse(json.dumps(SCHEMA).encode()))
    return ("opaque", OpaqueColumns()), ("JSON columns", formats)


def report(name: str, size: int, count: int, wall: float, cpu: float) -> None:
    told = f"{size / cpu / 1e6:,.0f} MB/s a core, {size / wall / 1e6:,.0f} MB/s in all"
    print(f"{name}: {size / 1e6:,.0f} MB of values, {count:,} records: {told}", flush=True)


def measure_rate(servers: str, folder: Path, count: int) -> int:
    """Returns the bytes of values."""
    size = publish(servers, "rate", count)
    for name, columns in (("opaque, the first time", OpaqueColumns()), *kinds()):
        report(name, size, count, *job_seconds(options_of(servers, "rate", folder, columns)))
    return size


def measure_misfits(servers: str, folder: Path, count: int) -> None:
    _, (name, columns) = kinds()
    for told, every in MISFITS.items():
        stream = f"misfits-{every}"
        size = publish(servers, stream, count, partial(value, misfit_every=every))
        taken = job_seconds(options_of(servers, stream, folder, columns))
        report(f"{name}, {told}", size, count, *taken)


def measure_formats(servers: str, folder: Path, count: int) -> None:
    avro = AvroValues.parse(json.dumps(AVRO).encode())
    protobuf = ProtobufValues.parse(flight_descriptors(), "bench.Flight")
    formats: tuple[tuple[str, ValueFormat, Callable[[int], bytes]], ...] = (
        ("avro", avro, avro_encoder()),
        ("protobuf", protobuf, protobuf_encoder()),
    )
    for stream, values, encode in formats:
        size = publish(servers, stream, count, encode)
        taken = job_seconds(options_of(servers, stream, folder, SchemaColumns(values)))
        report(f"{stream} columns", size, count, *taken)


def job_seconds(options: JobOptions) -> tuple[float, float]:
    """That a job without Spark takes, and its processor."""
    job = LakeJob(options)
    wall, cpu = time.monotonic(), time.process_time()
    run_without_spark(job, once=True, wait=lambda _: False)
    return time.monotonic() - wall, time.process_time() - cpu


def measure_spark(servers: str, folder: Path, sizes: Mapping[str, tuple[int, int]]) -> None:
    """The same stream, and a small one: the small one says what a query takes before its first byte, and the
    difference what bytes take.
    """
    from pyspark_streamlog.session import close_session, open_session

    spark = open_session("streamlog lake", "local[2]")
    try:
        spark_seconds(spark, options_of(servers, SMALL, folder, OpaqueColumns()))  # starts workers
        for name, columns in kinds():
            taken = {
                it: spark_seconds(spark, options_of(servers, it, folder, columns))
                for it in (SMALL, "rate")
            }
            size, count = (
                big - small for big, small in zip(sizes["rate"], sizes[SMALL], strict=True)
            )
            wall, cpu = (
                big - small for big, small in zip(taken["rate"], taken[SMALL], strict=True)
            )
            report(f"Spark, {name}", size, count, wall, cpu)
            told = f"{taken[SMALL][1]:.1f} s of a core, {taken[SMALL][0]:.1f} s in all"
            print(
                f"Spark, {name}: a query with {sizes[SMALL][0] / 1e6:,.0f} MB: {told}", flush=True
            )
            size, count = sizes["rate"]
            report(f"Spark, {name}, with the query's start", size, count, *taken["rate"])
    finally:
        close_session(spark)


def spark_seconds(spark: "SparkSession", options: JobOptions) -> tuple[float, float]:
    """That a job takes, and that processors take."""
    from pyspark_streamlog.lake.streaming_job import run_with_spark

    told = {
        "servers": str(options.read.servers),
        "subscribe": options.stream,
        "startingOffsets": "earliest",
        "maxBytesPerTrigger": str(512 << 20),
    }
    read = SourceOptions.parse(told, streaming=True)
    wall, cpu = time.monotonic(), tree_seconds()
    job, wait = LakeJob(replace(options, read=read)), Event().wait
    run_with_spark(spark, job, read, once=True, wait=wait, look_s=0.2)
    return time.monotonic() - wall, tree_seconds() - cpu


def tree_seconds() -> float:
    """Processor time of this process and of Spark's, those that have ended with them."""
    me = psutil.Process()
    total = 0.0
    for it in [
        me,
        *(it for child in me.children() if child.name() == "java" for it in tree(child)),
    ]:
        with suppress(psutil.NoSuchProcess):
            times = it.cpu_times()
            total += times.user + times.system
            total += 0.0 if it is me else times.children_user + times.children_system
    return total


def tree(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


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
    parser.add_argument(
        "--misfit-count", type=int, default=200_000, help="records, some odd, and of other formats"
    )
    parser.add_argument("--no-spark", dest="spark", action="store_false", help="without Spark")
    parser.add_argument("--rate", type=int, default=20_000, help="records a second of the second")
    parser.add_argument("--seconds", type=int, default=60, help="that the second part takes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streamlog-lake-") as place:
        folder = Path(place)
        node = Dev(folder / "node")
        node.start()
        try:
            admin = AdminClient({"bootstrap.servers": node.kafka})
            misfits = [f"misfits-{every}" for every in MISFITS.values()]
            for name in ("rate", SMALL, "lag", "avro", "protobuf", *misfits):
                admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
            size = measure_rate(node.kafka, folder, arguments.count)
            measure_misfits(node.kafka, folder, arguments.misfit_count)
            measure_formats(node.kafka, folder, arguments.misfit_count)
            if arguments.spark:
                small = publish(node.kafka, SMALL, SMALL_COUNT)
                sizes = {"rate": (size, arguments.count), SMALL: (small, SMALL_COUNT)}
                measure_spark(node.kafka, folder, sizes)
            measure_lag(node.kafka, folder, arguments.rate, arguments.seconds)
        finally:
            node.stop()


if __name__ == "__main__":
    main()
