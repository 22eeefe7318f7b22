"""``streamlog lake run`` as a query of Spark Structured Streaming.

The query's checkpoint is a temporary folder: where it goes on is said by the table. The driver commits what the tasks
have written, in ``foreachBatch``, and so once for each micro-batch.
"""

import logging
import pickle
import shutil
import tempfile
from collections.abc import Callable
from threading import Event, Lock
from typing import TYPE_CHECKING

from pyspark_streamlog.lake.source import NAME, written_files
from pyspark_streamlog.options.read_options import SourceOptions
from streamlog.arrow.range_reader import open_location
from streamlog.errors import StreamlogError
from streamlog.lake.job import LakeJob, look

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)


class QueryFailed(StreamlogError):
    """A task has failed as often as Spark tries it."""


def run_with_spark(
    spark: "SparkSession",
    job: LakeJob,
    source: SourceOptions,
    *,
    once: bool,
    wait: Callable[[float], bool],
    look_s: float = 1.0,
) -> None:
    """As ``run_without_spark``. ``source``: how executors read. Raises what the driver's side raises, and QueryFailed
    for a task.
    """
    while _run_query(spark, job, source, once=once, wait=wait, look_s=look_s):
        logger.info("the schema of %s has changed: its columns are added", job.options.stream)


def _run_query(
    spark: "SparkSession",
    job: LakeJob,
    source: SourceOptions,
    *,
    once: bool,
    wait: Callable[[float], bool],
    look_s: float,
) -> bool:
    """Whether it ended because the stream's schema has changed: what tasks had written then is not committed, and is
    written again.
    """
    from pyspark.errors import StreamingQueryException

    writer = job.open()
    spark.dataSource.register(written_files(source, writer, job.position, job.options.patience_s))
    failures: list[Exception] = []
    committing, ended = Lock(), Event()

    def commit(rows: "DataFrame", batch_id: int) -> None:
        del batch_id
        written = [pickle.loads(row[0]) for row in rows.collect()]  # Spark tells what fails here
        try:
            with committing:
                if ended.is_set():
                    raise QueryFailed("it was stopped")
                job.commit(written)
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
        return _follow(query, job, wait, look_s, once=once)
    except StreamingQueryException as error:
        if failures:
            raise failures[0] from None
        raise QueryFailed(_reason(error)) from error
    finally:
        query.stop()
        with committing:  # Spark does not wait for a commit that has begun
            ended.set()
        shutil.rmtree(checkpoint, ignore_errors=True)


def _reason(error: Exception) -> str:
    """The last line of a Python worker's traceback, if there is one."""
    lines = [it.strip() for it in str(error).splitlines() if it.strip()]
    named = [it for it in lines if ": " in it and it.split(": ")[0].split(".")[-1].isidentifier()]
    return (named or lines or [type(error).__name__])[0][:500]


def _follow(
    query: "StreamingQuery",
    job: LakeJob,
    wait: Callable[[float], bool],
    look_s: float,
    *,
    once: bool,
) -> bool:
    while query.isActive and not wait(look_s):
        with open_location(job.options.read) as location:
            job.observer.looked(look(location, job.options)[1])
            if not once and job.is_outdated(location):
                return True
    if not query.isActive:
        query.awaitTermination()  # raises what it failed with
    return False
