"""A compacted stream as a table: the newest value of each key.

    python spark/jobs/latest.py --bootstrap-server HOST:PORT --stream aircraft [--to FOLDER]

Compaction leaves older values of a key for a while, and never touches the newest records; so the
table is made of what the log has, compacted or not. A key whose newest value is null is deleted.
"""

import argparse
from typing import TYPE_CHECKING, Final

from pyspark_streamlog.session import close_session, open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_SHOWN: Final = 20


def latest(spark: "SparkSession", servers: str, stream: str) -> "DataFrame":
    """One row for each key that has a value: key, value, and where and when it was written.

    All records of a key are in one partition, so its offsets tell which is the newest.
    """
    from pyspark.sql import functions as f

    records = (
        spark.read.format("streamlog")
        .schema("key BINARY, value BINARY, partition INT, offset BIGINT, timestamp TIMESTAMP")
        .options(servers=servers, subscribe=stream)
        .option("minPartitions", spark.sparkContext.defaultParallelism)
        .load()
    )
    newest = f.max_by(f.struct("value", "partition", "offset", "timestamp"), "offset")
    return (
        records.where("key IS NOT NULL")
        .groupBy("key")
        .agg(newest.alias("newest"))
        .select("key", "newest.*")
        .where("value IS NOT NULL")
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="The newest value of each key of a stream.")
    parser.add_argument(
        "--bootstrap-server", dest="servers", required=True, help="host:port,host:port"
    )
    parser.add_argument("--stream", required=True)
    parser.add_argument("--to", help="a folder for Parquet, which is replaced; else it is shown")
    arguments = parser.parse_args()
    spark = open_session("latest")
    try:
        table = latest(spark, arguments.servers, arguments.stream)
        if arguments.to:
            table.write.mode("overwrite").parquet(arguments.to)
        else:
            table.selectExpr("cast(key AS STRING)", "cast(value AS STRING)", "offset").show(
                ROWS_SHOWN, truncate=False
            )
    finally:
        close_session(spark)


if __name__ == "__main__":
    main()
