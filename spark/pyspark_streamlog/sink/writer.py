"""The sinks: made on the driver, pickled, and run by each task of a write."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_streamlog.sink.schema import check_schema
from streamlog.arrow.options.security_files import cluster_by
from streamlog.arrow.sink.partition_leaders import ClusterLeaders
from streamlog.arrow.sink.rows import Rows
from streamlog.arrow.sink.task_attempt import TaskAttempt
from streamlog.arrow.sink.task_writer import TaskWriter
from streamlog.arrow.sink.write_options import WriteOptions
from streamlog.client.blocking import BlockingCluster
from streamlog.errors import ConfigError, StreamNotFound

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID: Final = "sql.streaming.queryId"
EPOCH: Final = "streaming.sql.batchId"
"""Spark's local properties of the tasks of a streaming query."""


@dataclass
class Written(WriterCommitMessage):
    """What a task has written, all of it committed."""

    rows: int


class _Sink:
    """What both sinks share. Nothing is left to do at the end: what tasks wrote is in the log."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        """Raises ConfigError, StreamNotFound, NodeUnreachable."""
        check_schema(schema, options.topic)
        self._options = options
        self._names = schema.fieldNames()
        if options.topic is not None:
            with _cluster(options) as cluster:
                try:
                    cluster.topic(options.topic)
                except StreamNotFound:
                    remedy = "create the stream first"
                    problem = f"there is no stream {options.topic!r}"
                    raise ConfigError("topic", problem, remedy) from None

    def _write(self, attempt: TaskAttempt, batches: Iterator["pa.RecordBatch"]) -> Written:
        rows = Rows(self._names, self._options.topic)
        with _cluster(self._options) as cluster:
            leaders = ClusterLeaders(cluster, self._options.delivery_timeout_ms)
            return Written(TaskWriter(leaders, attempt, rows, self._options).write(batches))


class StreamlogWriter(_Sink, DataSourceArrowWriter):
    """A batch write. Without ``writeId`` it is unlike any other, so that only tasks repeat it."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        super().__init__(schema, options)
        self._write_id = options.write_id or uuid.uuid4().hex

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> Written:
        attempt = TaskAttempt.of_batch(self._write_id, _task().partitionId())
        return self._write(attempt, iterator)


class StreamlogStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """The sink of a streaming query, which its checkpoint tells from others."""

    def write(self, iterator: Iterator["pa.RecordBatch"]) -> Written:
        task = _task()
        query_id = task.getLocalProperty(QUERY_ID)
        epoch = task.getLocalProperty(EPOCH)
        if query_id is None or epoch is None:
            problem = "Spark does not tell its tasks which query and epoch they belong to"
            raise ConfigError("writeStream", problem, "use the trigger of micro-batches")
        attempt = TaskAttempt.of_stream(query_id, int(epoch), task.partitionId())
        return self._write(attempt, iterator)


def check_append(overwrite: bool) -> None:
    """Raises ConfigError."""
    if overwrite:
        raise ConfigError("mode", "a log is not overwritten", "set mode append")


def _cluster(options: WriteOptions) -> BlockingCluster:
    return cluster_by(options.security, options.servers)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "a write is a task's"
    return task
