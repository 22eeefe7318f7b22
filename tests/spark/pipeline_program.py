"""A query from one stream into another on executors of their own, as a program that may be killed.

python -m tests.spark.pipeline_program SERVERS FROM TO CHECKPOINT
"""

import os
import sys
from pathlib import Path

from pyspark_streamlog.java import prepare_environment

OFFSETS_PER_BATCH = 4_000


def run(servers: str, source: str, sink: str, checkpoint: str) -> None:
    """Ends when all that is there has been read. The shuffle gives each attempt another order."""
    from pyspark.sql import SparkSession

    root = Path(__file__).parents[2]
    python_path = os.pathsep.join([str(root), str(root / "spark")])
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.executor.memory", "512m")
        .config("spark.executorEnv.PYTHONPATH", python_path)
        .config("spark.executorEnv.PYSPARK_PYTHON", sys.executable)
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "200")
        .getOrCreate()
    )
    print("application", spark.sparkContext.applicationId, flush=True)
    rows = (
        spark.readStream.format("streamlog")
        .options(servers=servers, subscribe=source, startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_PER_BATCH)
        .load()
    )
    query = (
        rows.select("key", "value")
        .repartition(4, "value")
        .writeStream.format("streamlog")
        .options(servers=servers, topic=sink, checkpointLocation=checkpoint)
        .option("batchBytes", 20_000)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    prepare_environment()
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    run(*sys.argv[1:])
