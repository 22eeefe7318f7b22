"""A Spark application of its own, for tests that need another master than that of the session.

    python read_job.py REQUEST.json

The request: ``master``, ``options``, ``rows`` (a folder for Parquet), ``checkpoint`` (then it is a
stream, read once), ``barrier`` (a folder: each task tells there that it has rows, and waits for
``go``), ``suicide`` (a file: the executor of the first task makes it and kills
itself, in the middle), ``conf`` (of Spark). The plan is printed.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_streamlog.java import prepare_environment

if TYPE_CHECKING:
    import pyarrow as pa

WAIT_S = 120.0


def passed_on(barrier: str | None, suicide: str | None) -> Any:
    """What executors do with the rows: nothing, but they may stop at the first of them."""

    def pass_on(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            yield batch
            if number == 0 and barrier is not None:
                Path(barrier, f"task-{context.partitionId()}").touch()
                deadline = time.monotonic() + WAIT_S
                while not Path(barrier, "go").exists():
                    assert time.monotonic() < deadline, "nobody says go"
                    time.sleep(0.02)
            first = context.partitionId() == context.attemptNumber() == 0
            if number == 1 and suicide is not None and first:
                import psutil

                Path(suicide).touch()
                parents = psutil.Process().parents()
                next(it for it in parents if "java" in it.name()).kill()

    return pass_on


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    prepare_environment()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        **request.get("conf", {}),
    }
    builder = SparkSession.builder.master(request["master"])
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    stream = "checkpoint" in request
    reader = spark.readStream if stream else spark.read
    frame = reader.format("streamlog").options(**request["options"]).load()
    work = passed_on(request.get("barrier"), request.get("suicide"))
    rows = frame.mapInArrow(work, frame.schema)
    rows.explain(True)
    if stream:
        query = (
            rows.writeStream.format("parquet")
            .option("checkpointLocation", request["checkpoint"])
            .trigger(availableNow=True)
            .start(request["rows"])
        )
        query.awaitTermination()
    else:
        rows.write.mode("append").parquet(request["rows"])
    spark.stop()


if __name__ == "__main__":
    main()
