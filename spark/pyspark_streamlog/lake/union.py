"""A table up to its position, and the log from there, as one DataFrame: each file and each range is a task."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from streamlog.lake.union_view import UnionPlan, union_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "streamlog_union"


def union(spark: "SparkSession", stream: str, table: str, **arguments: Any) -> "DataFrame":
    """As ``streamlog.lake.union`` with the same arguments. The snapshot and the ranges are fixed now: the DataFrame has
    the same rows whenever it is used, as long as neither is removed.
    """
    planned = union_plan(stream, table, **arguments)
    spark.dataSource.register(_source_of(planned))
    return spark.read.format(NAME).load()


def _source_of(planned: UnionPlan) -> type[DataSource]:
    class UnionSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> StructType:
            from pyspark.sql.pandas.types import from_arrow_schema

            return from_arrow_schema(planned.schema)

        def reader(self, schema: StructType) -> DataSourceReader:
            return UnionReader(planned)

    return UnionSource


class UnionReader(DataSourceReader):
    """The plan is pickled with it."""

    def __init__(self, planned: UnionPlan) -> None:
        self._planned = planned

    def partitions(self) -> list[InputPartition]:
        files = [InputPartition(("file", it)) for it in self._planned.files]
        return [*files, *(InputPartition(("range", it)) for it in self._planned.ranges)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if partition.value is None:  # of an empty plan Spark makes one partition
            return
        kind, part = partition.value
        planned = self._planned
        yield from planned.rows_of_file(part) if kind == "file" else planned.rows_of_range(part)
