"""``streamlog lake run`` as a query of Spark Structured Streaming.

The query's checkpoint is a temporary folder: where it goes on is said by the table. The driver commits what the tasks
have written, in ``foreachBatch``, and so once for each micro-batch.
"""

import pickle
import shutil
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark_streamlog.lake.source import NAME, written_files
from pyspark_streamlog.options.read_options import SourceOptions
from streamlog.arrow.range_reader import open_location
from streamlog.lake.job import LakeJob, look

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def run_with_spark(
    spark: "SparkSession",
    job: LakeJob,
    source: SourceOptions,
    *,
    once: bool,
    wait: Callable[[float], bool],
    look_s: float = 1.0,
) -> None:
    """As ``run_without_spark``. ``source``: how executors read. Raises what the driver's side raises, and
    StreamingQueryException for a task.
    """
    writer = job.open()
    spark.dataSource.register(written_files(source, writer, job.position))
    failures: list[Exception] = []

    def commit(rows: "DataFrame", batch_id: int) -> None:
        del batch_id
        try:
            job.commit([pickle.loads(row[0]) for row in rows.collect()])
        except Exception as error:
            failures.append(error)
            raise

    checkpoint = tempfile.mkdtemp(prefix="streamlog-lake-")
    stream = spark.readStream.format(NAME).load().writeStream.foreachBatch(commit)
    stream = stream.option("checkpointLocation", checkpoint).queryName(
        f"lake {job.options.table.table}"
    )
    if once:
        stream = stream.trigger(availableNow=True)
    else:
        stream = stream.trigger(processingTime=f"{job.options.interval_s} seconds")
    query = stream.start()
    try:
        _follow(query, job, wait, look_s)
    except Exception:
        if failures:
            raise failures[0] from None
        raise
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)


def _follow(
    query: "StreamingQuery",
    job: LakeJob,
    wait: Callable[[float], bool],
    look_s: float,
) -> None:
    while query.isActive and not wait(look_s):
        with open_location(job.options.read) as location:
            job.observer.looked(look(location, job.options)[1])
    if not query.isActive:
        query.awaitTermination()  # raises what it failed with
