"""``union``: a table up to its position, and the log from there: all records, as of the moment of the call.

The snapshot is fixed first, then the ranges of the log that follow its position, up to the high watermarks of that
moment. So a record is in one of both parts, also while a job goes on committing.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamlog.arrow.location import PartitionRange
from streamlog.arrow.options.read_options import ReadOptions
from streamlog.arrow.range_reader import open_location, rows_of
from streamlog.arrow.stream_read import plan
from streamlog.errors import ConfigError
from streamlog.lake.catalog import DEFAULT_CATALOG, TableName, check_pyiceberg
from streamlog.lake.columns.table_columns import OPAQUE, OpaqueColumns, TableColumns, record_schema
from streamlog.lake.job import look
from streamlog.lake.position import TablePosition, next_ranges
from streamlog.lake.table import LakeTable, position_of
from streamlog.model import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.metadata import TableMetadata

    from streamlog.arrow.options.security_files import SecurityFiles
    from streamlog.client.security import Security


@dataclass(frozen=True)
class UnionPlan:
    """Can be pickled; each part may be read by itself, and again."""

    metadata: "TableMetadata"
    io: "FileIO"
    snapshot_id: int | None
    files: "tuple[FileScanTask, ...]"
    ranges: tuple[PartitionRange, ...]
    read: ReadOptions
    columns: TableColumns

    @property
    def schema(self) -> "pa.Schema":
        return self.columns.schema()

    def reader(self) -> "pa.RecordBatchReader":
        import pyarrow as pa

        def batches() -> Iterator[pa.RecordBatch]:
            for task in self.files:
                yield from self.rows_of_file(task)
            for range_ in self.ranges:
                yield from self.rows_of_range(range_)

        return pa.RecordBatchReader.from_batches(self.schema, batches())

    def rows_of_file(self, task: "FileScanTask") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        schema = self.schema
        projected = self.metadata.schema().select(*schema.names)
        scan = ArrowScan(self.metadata, self.io, projected, AlwaysTrue())
        for batch in scan.to_record_batches([task]):
            columns = [batch.column(it.name).cast(it.type) for it in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def rows_of_range(self, range_: PartitionRange) -> "Iterator[pa.RecordBatch]":
        """Dead letters are left out, as they are of the table."""
        converter = self.columns.converter()
        for records in rows_of(range_, self.read, record_schema()):
            rows, _ = converter.rows_of(records)
            if rows.num_rows:
                yield rows


def union(
    stream: str,
    table: str,
    *,
    catalog: str = DEFAULT_CATALOG,
    catalog_properties: Mapping[str, str] | None = None,
    schema: str | None = None,
    servers: str | None = None,
    path: str | os.PathLike[str] | None = None,
    security: "SecurityFiles | Security | None" = None,
) -> "pa.RecordBatchReader":
    """All records of a stream, those of the table first, as a ``pyarrow.RecordBatchReader``.

    ``schema``: as of ``streamlog lake run --schema``, if the table's columns are by one that is not the stream's
    setting; ``none``: without the schema's columns, of a table that began without one. Others as of
    ``streamlog.arrow.read``, and of ``streamlog.lake.TableName``. Raises ConfigError, PositionError if the table is of
    another stream, and RecordsGone if the log has lost records that the table does not have.
    """
    return union_plan(
        stream,
        table,
        catalog=catalog,
        catalog_properties=catalog_properties,
        schema=schema,
        servers=servers,
        path=path,
        security=security,
    ).reader()


def union_plan(
    stream: str,
    table: str,
    *,
    catalog: str = DEFAULT_CATALOG,
    catalog_properties: Mapping[str, str] | None = None,
    schema: str | None = None,
    servers: str | None = None,
    path: str | os.PathLike[str] | None = None,
    security: "SecurityFiles | Security | None" = None,
) -> UnionPlan:
    """What ``union`` with the same arguments is going to read."""
    from streamlog.lake.columns.schema_columns import columns_by, schema_columns
    from streamlog.lake.job import TABLE_SCHEMA, JobOptions

    check_pyiceberg()
    name = TableName(table, catalog, catalog_properties or {})
    loaded = LakeTable.at(name).load()
    read = plan(stream, servers=servers, path=path, security=security).options
    columns: TableColumns = OpaqueColumns()
    names = {it.name for it in loaded.schema().fields}
    if schema is not None:
        columns = OpaqueColumns() if schema == "none" else schema_columns(schema)
    elif not names <= set(OPAQUE):
        with open_location(read) as location:
            columns = columns_by(str(location.settings(stream).get(TABLE_SCHEMA, "")))
    columns = columns.of_table(names)
    lacking = set(columns.schema().names) - names
    if lacking:
        problem = f"{table} has no columns {', '.join(sorted(lacking))}"
        raise ConfigError("schema", problem, "give the schema that the table is written by")
    if schema is None and isinstance(columns, OpaqueColumns) and not names <= set(OPAQUE):
        problem = f"{table} has columns by a schema, and the stream names none"
        remedy = "give the schema that the table is written by, or 'none' for bytes"
        raise ConfigError("schema", problem, remedy)
    snapshot = loaded.current_snapshot()
    position = position_of(loaded.metadata)
    with open_location(read) as location:
        stream_id, bounds = look(location, JobOptions(stream, read, name))
    known = (position or TablePosition(stream, stream_id)).of_stream(stream, stream_id)
    ranges = next_ranges(
        known, {number: (it.log_start, it.high_watermark) for number, it in bounds.items()}
    )
    return UnionPlan(
        loaded.metadata,
        loaded.io,
        None if snapshot is None else snapshot.snapshot_id,
        () if snapshot is None else tuple(loaded.scan().plan_files()),
        tuple(
            PartitionRange(
                TopicPartition(stream, it.partition), stream_id, it.start_offset, it.end_offset
            )
            for it in ranges
            if it.start_offset < it.end_offset
        ),
        read,
        columns,
    )
