"""Rows into data files of a table: Parquet, as PyIceberg writes it, in as much memory as named here.

A table that is partitioned by time gets a file for each day, or hour, that a piece of the log has. Rows wait in
memory until there is enough for a row group; the fullest partition is written first.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from streamlog.lake.position import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionKey
    from pyiceberg.table.metadata import TableMetadata

ROW_GROUP_BYTES: Final = 32 << 20
"""Of Arrow's memory: rows of a partition that are written at once."""
WAITING_BYTES_MAX: Final = 128 << 20
"""Of all partitions; above it the fullest one is written."""
OPEN_FILES_MAX: Final = 64
"""Above it all files are closed, and later rows get new ones."""
FILE_BYTES: Final = 512 << 20
"""A file that has as many, of Arrow's memory, is closed."""


_UNITS_US: Final = {"day": 86_400_000_000, "hour": 3_600_000_000}


@dataclass(frozen=True)
class WriteTarget:
    """What a writer needs to know of a table. Can be pickled, for writers may run on other machines."""

    metadata: "TableMetadata"
    io: "FileIO"


@dataclass(frozen=True)
class WrittenRange:
    """A piece of the log that is in files, which no snapshot has yet. Can be pickled."""

    range_: OffsetRange
    stream_id: str
    files: "tuple[DataFile, ...]" = ()
    row_count: int = 0
    byte_count: int = 0
    """Of Arrow's memory."""
    dead_files: "tuple[DataFile, ...]" = ()
    dead_count: int = 0


@dataclass
class _OpenPartition:
    """One value of the partition spec. ``batches`` wait to be written."""

    key: "PartitionKey | None"
    batches: "list[pa.RecordBatch]" = field(default_factory=list)
    waiting: int = 0
    writer: Any = None
    path: str = ""
    output: Any = None
    written: int = 0


class DataFileWriter:
    """Writes batches of any schema that fits the table's. ``abort`` removes what it has written."""

    def __init__(self, target: WriteTarget, stem: str) -> None:
        """``stem``: the files' names begin so."""
        from pyiceberg.io.pyarrow import schema_to_pyarrow
        from pyiceberg.table.locations import load_location_provider

        metadata = target.metadata
        self._io = target.io
        self._metadata = metadata
        self._schema = schema_to_pyarrow(metadata.schema())
        self._spec = metadata.spec()
        self._locations = load_location_provider(metadata.location, metadata.properties)
        self._transforms = _transforms(metadata)
        self._stem = stem
        self._open: dict[tuple[Any, ...], _OpenPartition] = {}
        self._files: list[DataFile] = []
        self._paths: list[str] = []
        self.row_count = 0
        self.byte_count = 0

    def write(self, batch: "pa.RecordBatch") -> None:
        """Columns that the batch lacks are null."""
        if not batch.num_rows:
            return
        for values, rows in self._by_partition(self._fitted(batch)):
            partition = self._partition_of(values)
            partition.batches.append(rows)
            partition.waiting += rows.nbytes
            self.byte_count += rows.nbytes
            if partition.waiting >= ROW_GROUP_BYTES:
                self._flush(partition)
        self.row_count += batch.num_rows
        while sum(it.waiting for it in self._open.values()) > WAITING_BYTES_MAX:
            self._flush(max(self._open.values(), key=lambda it: it.waiting))

    def close(self) -> "tuple[DataFile, ...]":
        self._close_all()
        return tuple(self._files)

    def abort(self) -> None:
        """What cannot be removed now is found by ``maintain``."""
        for it in self._open.values():
            if it.writer is not None:
                _quietly(it.writer.close)
        delete_files(self._io, self._paths)
        self._open.clear()

    def _fitted(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        import pyarrow as pa

        arrays = []
        for column in self._schema:
            index = batch.schema.get_field_index(column.name)
            if index < 0:
                arrays.append(pa.nulls(batch.num_rows, column.type))
            else:
                array = batch.column(index)
                arrays.append(array if array.type == column.type else array.cast(column.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _by_partition(
        self, batch: "pa.RecordBatch"
    ) -> "Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]":
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._transforms:
            yield (), batch
            return
        columns = [transform(batch.column(name)) for name, transform in self._transforms]
        limits = [pc.min_max(it) for it in columns]
        if all(it["min"].equals(it["max"]) and column.null_count == 0
               for it, column in zip(limits, columns, strict=True)):  # fmt: skip
            yield tuple(it["min"].as_py() for it in limits), batch
            return
        names = [f"p{i}" for i in range(len(columns))]
        table = pa.table(columns, names)
        for values in table.group_by(names, use_threads=False).aggregate([]).to_pylist():
            mask = None
            for name, column in zip(names, columns, strict=True):
                value = values[name]
                same = pc.is_null(column) if value is None else pc.fill_null(
                    pc.equal(column, pa.scalar(value, column.type)), False)  # fmt: skip
                mask = same if mask is None else pc.and_(mask, same)
            yield tuple(values.values()), batch.filter(mask)

    def _partition_of(self, values: tuple[Any, ...]) -> _OpenPartition:
        found = self._open.get(values)
        if found is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._close_all()
            found = self._open[values] = _OpenPartition(self._key(values))
        return found

    def _key(self, values: tuple[Any, ...]) -> "PartitionKey | None":
        from pyiceberg.partitioning import PartitionFieldValue, PartitionKey

        if not self._transforms:
            return None
        pairs = [
            PartitionFieldValue(field=it, value=value)
            for it, value in zip(self._spec.fields, values, strict=True)
        ]
        return PartitionKey(pairs, self._spec, self._metadata.schema())

    def _flush(self, partition: _OpenPartition) -> None:
        import pyarrow as pa

        if not partition.batches:
            return
        if partition.writer is None:
            self._begin(partition)
        partition.writer.write(pa.Table.from_batches(partition.batches, self._schema))
        partition.written += partition.waiting
        partition.batches, partition.waiting = [], 0
        if partition.written >= FILE_BYTES:
            self._end(partition)

    def _begin(self, partition: _OpenPartition) -> None:
        from pyiceberg.io.fileformat import FileFormatFactory
        from pyiceberg.manifest import FileFormat

        name = f"{self._stem}-{uuid.uuid4()}.parquet"
        partition.path = self._locations.new_data_location(name, partition.key)
        partition.output = self._io.new_output(partition.path)
        self._paths.append(partition.path)
        model = FileFormatFactory.get(FileFormat.PARQUET)
        schema, properties = self._metadata.schema(), self._metadata.properties
        partition.writer = model.create_writer(partition.output, schema, properties)
        partition.written = 0

    def _end(self, partition: _OpenPartition) -> None:
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        statistics = partition.writer.close()
        self._files.append(
            DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=partition.path,
                file_format=FileFormat.PARQUET,
                partition=Record() if partition.key is None else partition.key.partition,
                file_size_in_bytes=len(partition.output),
                sort_order_id=None,
                spec_id=self._metadata.default_spec_id,
                equality_ids=None,
                key_metadata=None,
                **statistics.to_serialized_dict(),
            )
        )
        partition.writer = None

    def _close_all(self) -> None:
        for it in self._open.values():
            self._flush(it)
            if it.writer is not None:
                self._end(it)
        self._open.clear()


def delete_files(io: "FileIO", paths: Sequence[str]) -> None:
    """What cannot be removed now is found by ``maintain``."""
    for path in paths:
        _quietly(partial(io.delete, path))


def _transforms(metadata: "TableMetadata") -> "list[tuple[str, Callable[[pa.Array], pa.Array]]]":
    """Days and hours are computed here; for other transforms PyIceberg needs pyiceberg-core."""
    schema = metadata.schema()
    found: list[tuple[str, Callable[[pa.Array], pa.Array]]] = []
    for it in metadata.spec().fields:
        column = schema.find_field(it.source_id)
        unit = _UNITS_US.get(str(it.transform))
        if unit is not None and str(column.field_type).startswith("timestamp"):
            found.append((column.name, partial(_periods, unit_us=unit)))
        else:
            found.append((column.name, it.transform.pyarrow_transform(column.field_type)))
    return found


def _periods(times: "pa.Array", unit_us: int) -> "pa.Array":
    """Whole periods since 1970, rounded down."""
    import pyarrow as pa
    import pyarrow.compute as pc

    microseconds = times.cast("int64")
    unit = pa.scalar(unit_us, pa.int64())
    cut = pc.divide(microseconds, unit)
    inexact = pc.not_equal(pc.multiply(cut, unit), microseconds)
    before_1970 = pc.and_(pc.less(microseconds, pa.scalar(0, pa.int64())), inexact)
    return pc.subtract(cut, before_1970.cast("int64")).cast("int32")


def _quietly(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:  # a store raises what it likes
        return
