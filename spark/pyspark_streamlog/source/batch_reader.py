from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_streamlog.options.read_options import ReadOptions
from pyspark_streamlog.source.filter_pushdown import EVERYTHING, pushed_filters
from pyspark_streamlog.source.location import Location, PartitionRange
from pyspark_streamlog.source.offset_ranges import plan_offset_ranges
from pyspark_streamlog.source.schema import arrow_schema_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter


class StreamlogReader(DataSourceReader):
    """A batch read: planned on the driver, pickled, run once for each partition on executors."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
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
            yield from rows_of(task, self._options, self._schema)


class FilteringReader(StreamlogReader):
    """The same, which Spark tells the filters of the query.

    Spark refuses a reader that has this method unless it is configured to push filters down.
    """

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802
        """Spark checks all of them again, so they only need to spare us reading."""
        self._pushed = pushed_filters(filters)
        return filters


def rows_of(
    task: PartitionRange, options: ReadOptions, schema: "pa.Schema"
) -> Iterator["pa.RecordBatch"]:
    """Each kind imports what it needs when it is used."""
    if options.path is not None:
        from pyspark_streamlog.files.file_reader import FileReader

        yield from FileReader(task, options, schema).read()
    else:
        from pyspark_streamlog.servers.fetch_reader import FetchReader

        yield from FetchReader(task, options, schema).read()


def open_location(options: ReadOptions) -> Location:
    """Each kind imports what it needs when it is used: who reads files needs no client."""
    if options.path is not None:
        from pyspark_streamlog.files.stream_folder import FolderLocation

        return FolderLocation(options.path, options.keys)
    from pyspark_streamlog.servers.cluster import ClusterLocation

    return ClusterLocation(options)
