"""A stream to Parquet, partitioned by day; each run goes on where the last one stopped.

    python spark/jobs/export.py --bootstrap-server HOST:PORT --stream flights --to FOLDER

Offsets and what is written stand in ``FOLDER/_checkpoint`` and ``FOLDER/_spark_metadata``: a run
that was killed is finished by the next one, and who reads the folder with Spark sees no row twice.
"""

import argparse
from typing import TYPE_CHECKING, Final

from pyspark_streamlog.session import close_session, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFFSETS_PER_FILE: Final = 1_000_000


def export(
    spark: "SparkSession",
    servers: str,
    stream: str,
    folder: str,
    *,
    offsets_max: int = OFFSETS_PER_FILE,
) -> None:
    """Returns when all is there that was committed at the start. ``offsets_max`` at once."""
    from pyspark.sql import functions as f

    records = (
        spark.readStream.format("streamlog")
        .options(servers=servers, subscribe=stream, startingOffsets="earliest")
        .options(includeHeaders="true", maxOffsetsPerTrigger=str(offsets_max))
        .load()
    )
    query = (
        records.withColumn("day", f.to_date("timestamp"))
        .writeStream.format("parquet")
        .partitionBy("day")
        .option("checkpointLocation", f"{folder}/_checkpoint")
        .trigger(availableNow=True)
        .start(folder)
    )
    query.awaitTermination()


def main() -> None:
    parser = argparse.ArgumentParser(description="A stream to Parquet, partitioned by day.")
    parser.add_argument(
        "--bootstrap-server", dest="servers", required=True, help="host:port,host:port"
    )
    parser.add_argument("--stream", required=True)
    parser.add_argument("--to", required=True, help="a folder that executors can write to")
    parser.add_argument("--offsets-max", type=int, default=OFFSETS_PER_FILE, help="at once")
    arguments = parser.parse_args()
    spark = open_session("export")
    try:
        export(
            spark,
            arguments.servers,
            arguments.stream,
            arguments.to,
            offsets_max=arguments.offsets_max,
        )
        rows = spark.read.parquet(arguments.to).count()
    finally:
        close_session(spark)
    print(f"{rows} records of {arguments.stream} are in {arguments.to}")


if __name__ == "__main__":
    main()
