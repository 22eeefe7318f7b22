"""Delay by carrier and origin, from a stream of flights as JSON.

    python spark/jobs/delays.py --path DATA_DIR [--stream flights] [--json FILE] [--warm-up]

Reads the segment files below ``DATA_DIR`` up to the high watermark, and only the column it needs.
"""

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark_streamlog.session import close_session, open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


def main() -> None:
    parser = argparse.ArgumentParser(description="Delay by carrier and origin.")
    parser.add_argument("--path", required=True, help="a node's data folder")
    parser.add_argument("--stream", default="flights")
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    parser.add_argument("--warm-up", action="store_true", help="do it twice, measure the second")
    arguments = parser.parse_args()
    spark = open_session("delays")
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
