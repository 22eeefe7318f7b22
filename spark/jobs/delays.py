"""Delay by carrier and origin, from a stream of flights as JSON.

    python spark/jobs/delays.py --path DATA_DIR [--stream flights] [--json FILE] [--warm-up]
                                [--table NAMESPACE.NAME --servers SERVERS [--catalog-property NAME=VALUE ...]]

Reads the segment files below ``DATA_DIR`` up to the high watermark, and only the column it needs. With ``--table`` the
same is asked of an Iceberg table that `streamlog lake run` has written, and of what follows it in the log.
"""

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_streamlog.lake.union import union
from pyspark_streamlog.session import close_session, open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLIGHT = "carrier STRING, origin STRING, dep_delay INT, arr_delay INT"


def in_files(spark: "SparkSession", path: str, stream: str) -> "DataFrame":
    return (
        spark.read.format("streamlog")
        .schema("value BINARY")
        .option("subscribe", stream)
        .option("minPartitions", spark.sparkContext.defaultParallelism)
        .load(path)
    )


def in_table(spark: "SparkSession", arguments: argparse.Namespace) -> "DataFrame":
    properties = dict(it.split("=", 1) for it in arguments.catalog_property)
    return union(
        spark,
        arguments.stream,
        arguments.table,
        servers=arguments.servers,
        catalog_properties=properties,
    )


def delays(records: "DataFrame") -> "DataFrame":
    """One row for each carrier and origin; the means are over the flights that have the delay."""
    from pyspark.sql import functions as f

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


class Answer(NamedTuple):
    """And how long it took."""

    seconds: float
    rows: list[dict[str, Any]]


def answer(records: "DataFrame") -> Answer:
    started = time.monotonic()
    rows = [row.asDict() for row in delays(records).collect()]
    return Answer(time.monotonic() - started, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Delay by carrier and origin.")
    parser.add_argument("--path", required=True, help="a node's data folder")
    parser.add_argument("--stream", default="flights")
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    parser.add_argument("--warm-up", action="store_true", help="do it twice, measure the second")
    parser.add_argument("--table", help="an Iceberg table of the stream, which is asked as well")
    parser.add_argument("--servers", help="of the log that follows the table")
    parser.add_argument("--catalog-property", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    if arguments.table and not arguments.servers:
        parser.error("--table needs --servers")
    spark = open_session("delays")
    try:
        if arguments.warm_up:
            delays(in_files(spark, arguments.path, arguments.stream)).collect()
        found = {"files": answer(in_files(spark, arguments.path, arguments.stream))}
        if arguments.table:
            found["table"] = answer(in_table(spark, arguments))
    finally:
        close_session(spark)
    for name, it in found.items():
        print(f"of the {name}, in {it.seconds:.1f} s:")
        for row in it.rows:
            values = row.values()
            print(*(f"{value:>16.4f}" if isinstance(value, float) else value for value in values))
    if arguments.json:
        arguments.json.write_text(json.dumps({name: it._asdict() for name, it in found.items()}))


if __name__ == "__main__":
    main()
