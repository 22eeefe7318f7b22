from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_streamlog.options.read_options import SourceOptions
from pyspark_streamlog.source.filter_pushdown import pushed_filters
from pyspark_streamlog.source.schema import arrow_schema_of
from pyspark_streamlog.source.worker_heap import freeze_loaded_modules
from streamlog.arrow.filters import EVERYTHING
from streamlog.arrow.location import PartitionRange
from streamlog.arrow.offset_ranges import plan_offset_ranges
from streamlog.arrow.range_reader import open_location, rows_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter


class StreamlogReader(DataSourceReader):
    """A batch read: planned on the driver, pickled, run once for each partition on executors."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema_of(schema)
        self._pushed = EVERYTHING

    def partitions(self) -> list[InputPartition]:
        with open_location(self._options) as location:
            ranges = plan_offset_ranges(location, self._options, self._pushed)
            tasks = location.cut(ranges, self._options.task_bytes_max, self._options.tasks_min)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        task: PartitionRange | None = partition.value
        if task is not None:  # Spark makes one partition without a value where there is none
            freeze_loaded_modules()
            yield from rows_of(task, self._options, self._schema)


class FilteringReader(StreamlogReader):
    """The same, which Spark tells the filters of the query.

    Spark refuses a reader that has this method unless it is configured to push filters down.
    """

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802
        """Spark checks all of them again, so they only need to spare us reading."""
        self._pushed = pushed_filters(filters)
        return filters
