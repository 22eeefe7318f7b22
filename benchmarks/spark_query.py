"""``python -m benchmarks.spark_query KIND``: one Spark query over all columns, on two cores.

Every record of the stream is read, with all columns of Spark's Kafka source, and dropped. The query
is run before the clock starts, and must have given as many rows as were published, or more,
for the publisher warms up. The kind ``floor`` reads nothing: a Python source gives one ready Arrow
batch again and again, which is the most that Spark takes of any source in Python.

Processor time is told as well, for it depends less on what else the machine does: of Spark's Java,
of its Python workers, and of the node.
"""

import argparse
import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import psutil

from benchmarks.processes import cpu_seconds
from pyspark_streamlog.java import prepare_environment
from streamlog.record.columns import arrow_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
SCHEMA: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,"
    " timestampType INT"
)
TASKS: Final = 4
KAFKA: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"
KAFKA_JARS: Final = "BENCH_KAFKA_JARS"
"""A folder with that package and what it needs, where Java cannot reach Maven."""
DECODED_BYTES: Final = 1 << 30


def main() -> None:
    options = _parse()
    if options.kind == "decoder":
        print(json.dumps(_decode(options.path, options.stream)))
        return
    spark = session(kafka=options.kind == "kafka")
    try:
        frame = SOURCES[options.kind](spark, options)
        if options.kind == "make-parquet":
            frame.write.parquet(options.folder)
            result: dict[str, Any] = {"messages": options.count}
        else:
            result = _measured(frame, options)
    finally:
        spark.stop()
    print(json.dumps(result))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("decoder", *SOURCES))
    parser.add_argument("--server")
    parser.add_argument("--path", help="a node's data folder")
    parser.add_argument("--folder", help="of Parquet")
    parser.add_argument("--warm-ups", type=int, default=1, help="passes before the clock starts")
    parser.add_argument("--passes", type=int, default=1, help="over all rows, by the clock")
    parser.add_argument("--node-pid", type=int, help="whose processor time counts as well")
    parser.add_argument("--stream", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    return parser.parse_args()


def session(*, kafka: bool) -> "SparkSession":
    prepare_environment()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    import pyspark
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.memory", "2g")
    builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
    jars = os.environ.get(KAFKA_JARS)
    if kafka and jars:
        found = map(str, Path(jars).glob("*.jar"))
        builder = builder.config("spark.jars", ",".join(found))
    elif kafka:
        builder = builder.config("spark.jars.packages", f"{KAFKA}:{pyspark.__version__}")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def ours(spark: "SparkSession", options: argparse.Namespace, **where: str) -> "DataFrame":
    source = spark.read.format("streamlog").schema(SCHEMA).options(**where)
    return source.options(subscribe=options.stream, minPartitions=TASKS).load()


def _path(spark: "SparkSession", options: argparse.Namespace) -> "DataFrame":
    return ours(spark, options, path=options.path)


def _servers(spark: "SparkSession", options: argparse.Namespace) -> "DataFrame":
    return ours(spark, options, servers=options.server)


def _parquet(spark: "SparkSession", options: argparse.Namespace) -> "DataFrame":
    return spark.read.parquet(options.folder)


def _kafka(spark: "SparkSession", options: argparse.Namespace) -> "DataFrame":
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", options.server)
    return source.options(subscribe=options.stream, minPartitions=TASKS).load()


def _floor(spark: "SparkSession", options: argparse.Namespace) -> "DataFrame":
    from benchmarks.spark_floor import FloorSource

    spark.dataSource.register(FloorSource)
    source = spark.read.format(FloorSource.name()).schema(SCHEMA)
    return source.options(count=options.count, size=options.size, tasks=TASKS).load()


SOURCES: Final[dict[str, Callable[["SparkSession", argparse.Namespace], "DataFrame"]]] = {
    "path": _path,
    "servers": _servers,
    "parquet": _parquet,
    "kafka": _kafka,
    "floor": _floor,
    "make-parquet": _path,
}


def _measured(frame: "DataFrame", options: argparse.Namespace) -> dict[str, Any]:
    found = frame.count()
    if found < options.count:
        return {"failed": f"{found} rows, where {options.count} were published"}
    for _ in range(options.warm_ups):
        _drop(frame)
    passes = [timed_pass(frame, found, options) for _ in range(options.passes)]
    return {"messages": found} | {key: median(it[key] for it in passes) for key in passes[0]}


def timed_pass(frame: "DataFrame", count: int, options: argparse.Namespace) -> dict[str, float]:
    before, started = _cpu_s(options.node_pid), time.perf_counter()
    _drop(frame)
    seconds, after = time.perf_counter() - started, _cpu_s(options.node_pid)
    gigabytes = count * options.size / 1e9
    used = {name: (after[name] - before[name]) / gigabytes for name in after}
    rates = {"rate": count / seconds, "mb_per_s": gigabytes * 1000 / seconds}
    return {**rates, **used, "cpu_s_per_gb": sum(used.values())}


def _cpu_s(node_pid: int | None) -> dict[str, float]:
    """Of processes that were started and have ended as well, if their parents still run."""
    used = {"java_s_per_gb": 0.0, "workers_s_per_gb": 0.0, "node_s_per_gb": 0.0}
    for process in psutil.Process().children(recursive=True):
        if process.pid == node_pid:
            continue
        with contextlib.suppress(psutil.NoSuchProcess):
            name, times = process.name(), process.cpu_times()
            own = times.user + times.system
            if name == "java":
                used["java_s_per_gb"] += own
            else:
                used["workers_s_per_gb"] += own + times.children_user + times.children_system
    if node_pid is not None:
        used["node_s_per_gb"] = cpu_seconds([node_pid])
    return used


def _drop(frame: "DataFrame") -> None:
    """Make every column of every row."""
    frame.select(*COLUMNS).write.format("noop").mode("overwrite").save()


def _decode(path: str, stream: str) -> dict[str, Any]:
    """The decoder alone, on one core: segment bytes in memory to Arrow, checksums and all."""
    data = bytearray()
    for segment in sorted((Path(path) / "streams" / stream / "0").glob("*.log")):
        if len(data) < DECODED_BYTES:
            data += segment.read_bytes()
    rows = _rows_in(data)  # and pyarrow is loaded
    started = time.perf_counter()
    _rows_in(data)
    seconds = time.perf_counter() - started
    return {"messages": rows, "rate": rows / seconds, "mb_per_s": len(data) / seconds / 1e6}


def _rows_in(data: bytearray) -> int:
    return sum(batch.num_rows for batch in arrow_batches(memoryview(data), COLUMNS))


if __name__ == "__main__":
    main()
