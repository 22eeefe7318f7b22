"""``python -m benchmarks.spark_query KIND``: one Spark query over all columns, on two cores.

Every record of the stream is read, with all columns of Spark's Kafka source, and dropped. The query
is run once before the clock starts, and must have given as many rows as were published, or more,
for the publisher warms up.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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
    spark = _session(kafka=options.kind == "kafka")
    try:
        frame = SOURCES[options.kind](spark, options)
        if options.kind == "make-parquet":
            frame.write.parquet(options.folder)
            result: dict[str, Any] = {"messages": options.count}
        else:
            result = _measured(frame, options.count, options.size)
    finally:
        spark.stop()
    print(json.dumps(result))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("decoder", *SOURCES))
    parser.add_argument("--server")
    parser.add_argument("--path", help="a node's data folder")
    parser.add_argument("--folder", help="of Parquet")
    parser.add_argument("--stream", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    return parser.parse_args()


def _session(*, kafka: bool) -> "SparkSession":
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


def _ours(spark: "SparkSession", options: argparse.Namespace, **where: str) -> "DataFrame":
    source = spark.read.format("streamlog").schema(SCHEMA).options(**where)
    return source.options(subscribe=options.stream, minPartitions=TASKS).load()


def _path(spark: "SparkSession", options: argparse.Namespace) -> "DataFrame":
    return _ours(spark, options, path=options.path)


def _servers(spark: "SparkSession", options: argparse.Namespace) -> "DataFrame":
    return _ours(spark, options, servers=options.server)


def _parquet(spark: "SparkSession", options: argparse.Namespace) -> "DataFrame":
    return spark.read.parquet(options.folder)


def _kafka(spark: "SparkSession", options: argparse.Namespace) -> "DataFrame":
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", options.server)
    return source.options(subscribe=options.stream, minPartitions=TASKS).load()


SOURCES: Final[dict[str, Callable[["SparkSession", argparse.Namespace], "DataFrame"]]] = {
    "path": _path,
    "servers": _servers,
    "parquet": _parquet,
    "kafka": _kafka,
    "make-parquet": _path,
}


def _measured(frame: "DataFrame", count: int, size: int) -> dict[str, Any]:
    found = frame.count()
    if found < count:
        return {"failed": f"{found} rows, where {count} were published"}
    _drop(frame)
    started = time.perf_counter()
    _drop(frame)
    seconds = time.perf_counter() - started
    return {"messages": found, "rate": found / seconds, "mb_per_s": found * size / seconds / 1e6}


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
