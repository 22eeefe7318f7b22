"""Parquet into a stream, as it was exported: partitions, order, keys, headers, times.

    python spark/jobs/replay.py --from FOLDER --bootstrap-server HOST:PORT --stream again --id monday

Run again with the same ``--id`` after a failure, it writes what is missing, and nothing twice.
"""

import argparse
from typing import TYPE_CHECKING, Final

from pyspark_streamlog.session import close_session, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS: Final = 8
"""A number of its own, so that a repetition has the same tasks wherever it is run."""


def replay(
    spark: "SparkSession",
    folder: str,
    servers: str,
    stream: str,
    *,
    write_id: str,
    tasks: int = TASKS,
) -> None:
    """The stream has as many partitions as were exported, or more."""
    rows = (
        spark.read.parquet(folder)
        .repartition(tasks, "partition")
        .sortWithinPartitions("partition", "offset")
        .select("key", "value", "headers", "partition", "timestamp")
    )
    options = {"servers": servers, "topic": stream, "writeId": write_id, "compression": "lz4"}
    rows.write.format("streamlog").mode("append").options(**options).save()


def main() -> None:
    parser = argparse.ArgumentParser(description="Parquet into a stream, as it was exported.")
    parser.add_argument("--from", dest="folder", required=True, help="what export.py has written")
    parser.add_argument(
        "--bootstrap-server", dest="servers", required=True, help="host:port,host:port"
    )
    parser.add_argument("--stream", required=True, help="it must be there")
    parser.add_argument("--id", required=True, help="of this replay; the same if it is repeated")
    parser.add_argument("--tasks", type=int, default=TASKS, help="the same if it is repeated")
    arguments = parser.parse_args()
    spark = open_session("replay")
    try:
        replay(
            spark,
            arguments.folder,
            arguments.servers,
            arguments.stream,
            write_id=arguments.id,
            tasks=arguments.tasks,
        )
    finally:
        close_session(spark)
    print(f"{arguments.folder} is in {arguments.stream}")


if __name__ == "__main__":
    main()
