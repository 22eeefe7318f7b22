"""A streaming source whose rows are not records but data files with them, written by the tasks that read the log."""

import pickle
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_streamlog.options.read_options import SourceOptions
from pyspark_streamlog.source.checkpoint_offsets import StreamOffsets
from pyspark_streamlog.source.schema import source_schema
from pyspark_streamlog.source.stream_reader import StreamlogStreamReader
from streamlog.arrow.range_reader import open_location
from streamlog.lake.position import TablePosition
from streamlog.lake.range_writer import RangeWriter
from streamlog.lake.table import patiently
from streamlog.model import TopicPartition

NAME: Final = "streamlog_lake"
WRITTEN: Final = StructType([StructField("written", BinaryType(), nullable=False)])


def written_files(
    options: SourceOptions, writer: RangeWriter, position: TablePosition, patience_s: float
) -> type[DataSource]:
    """The source, to be registered. What it is about travels with the class: an option would be shown in plans."""

    class WrittenFiles(DataSource):
        @classmethod
        def name(cls) -> str:
            return NAME

        def schema(self) -> StructType:
            return WRITTEN

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return WritingStreamReader(options, writer, position, patience_s)

    return WrittenFiles


class WritingStreamReader(StreamlogStreamReader):
    """Begins at the table's position. A task's one row is a pickled ``WrittenRange``. A store that is away is waited
    for: Spark would try the task again at once, a few times, and give up.
    """

    def __init__(
        self,
        options: SourceOptions,
        writer: RangeWriter,
        position: TablePosition,
        patience_s: float,
    ) -> None:
        super().__init__(options, source_schema(include_headers=True))
        self._writer = writer
        self._position = position
        self._patience_s = patience_s

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        stream = self._position.stream
        with open_location(self._options) as location:
            names = location.listing(self._options.subscription).choose(
                self._options.subscription, self._options.names
            )
            bounds = location.bounds(names)
        known = {TopicPartition(stream, n): end for n, end in self._position.ends.items()}
        ends = {name: it.log_start for name, it in bounds.items()} | known
        return StreamOffsets(ends, {stream: self._position.stream_id}).to_json()

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Raises PositionError for a stream that was created again, whatever loss is allowed."""
        found = super().latestOffset(start, limit)
        stream = self._position.stream
        stream_id = StreamOffsets.from_json(found).stream_ids.get(stream, "")
        self._position.of_stream(stream, stream_id)
        return found

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if partition.value is not None:
            write = partial(self._writer.write, partition.value)
            yield (pickle.dumps(patiently(write, self._patience_s)),)
