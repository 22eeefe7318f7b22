"""A piece of the log into data files: what an executor does, and what a job without Spark does itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamlog.arrow.location import PartitionRange
from streamlog.arrow.options.read_options import ReadOptions
from streamlog.arrow.range_reader import rows_of
from streamlog.lake.columns.table_columns import TableColumns, record_schema
from streamlog.lake.data_files import DataFileWriter, WriteTarget, WrittenRange
from streamlog.lake.position import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class RangeWriter:
    """Can be pickled, for executors."""

    read: ReadOptions
    columns: TableColumns
    target: WriteTarget
    dead_target: WriteTarget | None = None
    dead_ends: Mapping[int, int] = field(default_factory=dict)
    """What is before these offsets is among the dead letters already, where it belongs there."""

    def write(self, task: PartitionRange) -> WrittenRange:
        """If it fails, nothing is left, unless the process is killed: then ``maintain`` removes the files."""
        number = task.name.partition
        range_ = OffsetRange(number, task.start_offset, task.end_offset)
        if task.start_offset >= task.end_offset:
            return WrittenRange(range_, task.stream_id)
        stem = f"{number}-{task.start_offset}-{task.end_offset}"
        rows = DataFileWriter(self.target, stem)
        dead = None if self.dead_target is None else DataFileWriter(self.dead_target, stem)
        try:
            converter = self.columns.converter()
            for records in rows_of(task, self.read, record_schema()):
                good, bad = converter.rows_of(records)
                rows.write(good)
                if bad is not None and dead is not None:
                    dead.write(self._not_there_yet(bad, number))
            return WrittenRange(
                range_,
                task.stream_id,
                rows.close(),
                rows.row_count,
                rows.byte_count,
                () if dead is None else dead.close(),
                0 if dead is None else dead.row_count,
            )
        except BaseException:
            rows.abort()
            if dead is not None:
                dead.abort()
            raise

    def _not_there_yet(self, bad: "pa.RecordBatch", number: int) -> "pa.RecordBatch":
        import pyarrow.compute as pc

        end = self.dead_ends.get(number, 0)
        return bad.filter(pc.greater_equal(bad.column("offset"), end))
