"""Delay by carrier and origin, from a stream of flights as JSON.

    python spark/jobs/delays.py --path DATA_DIR [--stream flights] [--json FILE] [--warm-up]

Reads the segment files below ``DATA_DIR`` up to the high watermark, and only the column it needs.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_streamlog.java import prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JAVA_EXIT_TIMEOUT_S = 60
FLIGHT = "carrier STRING, origin STRING, dep_delay INT, arr_delay INT"


def delays(spark: "SparkSession", path: str, stream: str) -> "DataFrame":
    """One row for each carrier and origin; the means are over the flights that have the delay."""
    from pyspark.sql import functions as f

    records = (
        spark.read.format("streamlog")
        .schema("value BINARY")
        .option("subscribe", stream)
        .option("minPartitions", spark.sparkContext.defaultParallelism)
        .load(path)
    )
    flight = f.from_json(f.col("value").cast("string"), FLIGHT)
    return (
        records.select(flight.alias("flight"))
        .groupBy("flight.carrier", "flight.origin")
        .agg(
            f.count("*").alias("flights"),
            f.avg("flight.dep_delay").alias("departure_delay"),
            f.avg("flight.arr_delay").alias("arrival_delay"),
        )
        .orderBy("carrier", "origin")
    )


def open_session() -> "SparkSession":
    """A session on this machine, unless ``spark-submit`` says otherwise."""
    prepare_environment()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.appName("delays")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def close_session(spark: "SparkSession") -> None:
    """Stop, and return when the Java process that was started for it has ended."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    process = getattr(gateway, "proc", None)  # none under spark-submit, whose own it is
    if process is not None:
        process.stdin.close()  # at which it ends
        process.wait(JAVA_EXIT_TIMEOUT_S)


def main() -> None:
    parser = argparse.ArgumentParser(description="Delay by carrier and origin.")
    parser.add_argument("--path", required=True, help="a node's data folder")
    parser.add_argument("--stream", default="flights")
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    parser.add_argument("--warm-up", action="store_true", help="do it twice, measure the second")
    arguments = parser.parse_args()
    spark = open_session()
    try:
        if arguments.warm_up:
            delays(spark, arguments.path, arguments.stream).collect()
        started = time.monotonic()
        result = delays(spark, arguments.path, arguments.stream)
        rows = [row.asDict() for row in result.collect()]
        seconds = time.monotonic() - started
    finally:
        close_session(spark)
    for row in rows:
        print(*(f"{value:>16.4f}" if isinstance(value, float) else value for value in row.values()))
    if arguments.json:
        arguments.json.write_text(json.dumps({"seconds": seconds, "rows": rows}))


if __name__ == "__main__":
    main()
