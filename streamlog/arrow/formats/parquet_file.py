"""Records as Parquet: the columns as they are in Arrow, compressed by zstd."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from streamlog.arrow.formats.record_table import check_columns, text_names
from streamlog.errors import InvalidRecord

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_BYTES: Final = 64 << 20
"""Of Arrow, before compression: more is not held."""
ROW_GROUP_ROWS: Final = 1 << 20
ROWS_MAX: Final = 65_536
"""Of an Arrow batch that is read."""
BATCH_BYTES: Final = 16 << 20
"""Of one, on the average of its file."""


class ParquetFileWriter:
    """Collects batches into row groups."""

    def __init__(self, file: BinaryIO, schema: "pa.Schema") -> None:
        from pyarrow import parquet

        self._schema = schema
        self._writer: Any = parquet.ParquetWriter(file, schema, compression="zstd")
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def write(self, batch: "pa.RecordBatch") -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """The file is complete only then."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._batches:
            self._writer.write_table(pa.Table.from_batches(self._batches, self._schema))
        self._batches = []
        self._rows = self._bytes = 0


def read_parquet(file: BinaryIO, name: str) -> Iterator["pa.RecordBatch"]:
    """``name``: of the file, for errors. Raises InvalidRecord."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        found = parquet.ParquetFile(file)
        names = [it for it in found.schema_arrow.names if it != "__index_level_0__"]
        check_columns(text_names(names), name)
        yield from found.iter_batches(_batch_rows(found.metadata), columns=names)
    except (pa.ArrowException, OSError) as error:
        raise InvalidRecord(f"{name}: {error}") from None


def _batch_rows(metadata: Any) -> int:
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    row_bytes: int = sum(it.total_byte_size for it in groups) // max(1, metadata.num_rows)
    return max(1, min(ROWS_MAX, BATCH_BYTES // max(1, row_bytes)))
