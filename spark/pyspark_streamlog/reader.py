from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_streamlog.folder import open_folder
from pyspark_streamlog.options import ReadOptions
from pyspark_streamlog.partition_reader import PartitionReader
from pyspark_streamlog.schema import arrow_schema_of
from pyspark_streamlog.snapshot import PartitionRange, take_snapshot
from pyspark_streamlog.tasks import cut

if TYPE_CHECKING:
    import pyarrow as pa


class StreamlogReader(DataSourceReader):
    """A batch read: planned on the driver, pickled, run once for each partition on executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema_of(schema)

    def partitions(self) -> list[InputPartition]:
        ranges = take_snapshot(open_folder(self._options.path), self._options)
        tasks = cut(ranges, self._options.task_bytes_max, self._options.tasks_min)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        task: PartitionRange | None = partition.value
        if task is not None:  # Spark makes one partition without a value where there is none
            yield from PartitionReader(task, self._options, self._schema).read()
