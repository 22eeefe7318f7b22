"""Columns by a schema: values that fit it are rows, others are dead letters with a reason.

A format decodes each value into a row (a dict) or an error; JSON has a faster way for batches without an odd record,
which agrees with the slower one on what fits.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from streamlog.errors import ConfigError
from streamlog.lake.columns.schema_file import schema_in_file
from streamlog.lake.columns.table_columns import (
    OPAQUE,
    OpaqueColumns,
    TableColumns,
    dead_letter_schema,
    record_schema,
)
from streamlog.lake.columns.value_format import ValueFormat
from streamlog.record.schema.table_schema import TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

BESIDE: Final = tuple(name for name in OPAQUE if name != "value")
"""Of the record, beside the schema's columns."""
REASON_CHARS_MAX: Final = 500
CHUNK_ROWS: Final = 4_096
"""Decoded at once, where the format has a faster way and all of them fit."""
PIECE_ROWS: Final = 512
"""Of a chunk with a record that does not fit: a piece with one goes the slower way, one by one. Smaller ones would take
longer in all: each has its beginning.
"""
ODD_ROWS: Final = 1_024
"""After a chunk in which one of so many does not fit, or more, many pieces of the next have one, too: the faster way is
not tried.
"""


@dataclass(frozen=True)
class SchemaColumns:
    """The schema's columns, and the record's."""

    values: ValueFormat
    began_opaque: bool = False
    """The table's first rows are without a schema. The record's columns have the same names in all rows then, and
    ``value`` is null where the schema's columns say what it is.
    """
    has_dead_letters: bool = True

    @property
    def time_column(self) -> str:
        return "timestamp" if self.began_opaque else "_timestamp"

    def of_table(self, names: Collection[str]) -> "SchemaColumns":
        began_opaque = "offset" in names and "_offset" not in names
        return replace(self, began_opaque=began_opaque)

    def schema(self) -> "pa.Schema":
        import pyarrow as pa

        if self.began_opaque:
            beside = list(record_schema())
        else:
            beside = [record_schema().field(name).with_name(f"_{name}") for name in BESIDE]
        fields = list(self.values.schema())
        taken = {it.name for it in beside}
        for it in fields:
            if it.name in taken:
                problem = f"the field {it.name} has the name of a column of records"
                remedy = "write into another table" if self.began_opaque else "rename it"
                raise ConfigError("--schema", problem, remedy)
        return pa.schema([*beside, *(it.with_nullable(True) for it in fields)])

    def converter(self) -> "SchemaConverter":
        return SchemaConverter(self)


class SchemaConverter:
    """Of records that follow one another. It remembers whether the last ones fitted: so do the next, probably."""

    def __init__(self, columns: SchemaColumns) -> None:
        self._columns = columns
        self._values = columns.values
        self._schema = columns.schema()
        self._decode = columns.values.decoder()
        self._size = CHUNK_ROWS if columns.values.decodes_batches else 0

    def rows_of(self, records: "pa.RecordBatch") -> "tuple[pa.RecordBatch, pa.RecordBatch | None]":
        import pyarrow as pa

        good, bad = [], []
        for start in range(0, records.num_rows, CHUNK_ROWS):
            chunk = records.slice(start, CHUNK_ROWS)
            misfit_count = 0
            for rows, misfits in self._rows_of(chunk, self._size):
                good.append(rows)
                if misfits is not None:
                    bad.append(misfits)
                    misfit_count += misfits.num_rows
            if self._values.decodes_batches:
                is_odd = misfit_count * ODD_ROWS >= chunk.num_rows
                self._size = 0 if is_odd else PIECE_ROWS if misfit_count else CHUNK_ROWS
        rows = pa.Table.from_batches(good, self._schema).combine_chunks().to_batches()
        empty = pa.RecordBatch.from_pylist([], self._schema)
        dead = pa.Table.from_batches(bad, dead_letter_schema()).combine_chunks().to_batches()
        return rows[0] if rows else empty, dead[0] if dead else None

    def _rows_of(
        self, records: "pa.RecordBatch", size: int
    ) -> "Iterator[tuple[pa.RecordBatch, pa.RecordBatch | None]]":
        """``size``: of what is tried at once; 0: all go the slower way."""
        if not size:
            yield self._one_by_one(records)
            return
        for start in range(0, records.num_rows, size):
            part = records.slice(start, size)
            decoded = self._all_of(part)
            if decoded is not None:
                yield decoded, None
            else:
                yield from self._rows_of(part, PIECE_ROWS if size > PIECE_ROWS else 0)

    def _all_of(self, records: "pa.RecordBatch") -> "pa.RecordBatch | None":
        """By the format's faster way. None: there is one that does not fit, or that only the slower way can tell."""
        values = records.column("value")
        decoded = None if values.null_count else self._values.decode_all(values)
        return None if decoded is None else self._beside(records, decoded)

    def _one_by_one(
        self, records: "pa.RecordBatch"
    ) -> "tuple[pa.RecordBatch, pa.RecordBatch | None]":
        import pyarrow as pa

        schema = self._values.schema()
        rows: list[dict[str, Any]] = []
        good: list[int] = []
        bad: list[int] = []
        reasons: list[str] = []
        for index, found in enumerate(self._decode(records.column("value").to_pylist())):
            if isinstance(found, Exception):
                bad.append(index)
                text = str(found).partition("\n")[0][:REASON_CHARS_MAX]
                reasons.append(text or type(found).__name__)
            else:
                rows.append(found)
                good.append(index)
        decoded = pa.RecordBatch.from_arrays(
            [pa.array([row.get(it.name) for row in rows], it.type) for it in schema],
            schema=pa.schema([it.with_nullable(True) for it in schema]),
        )
        fitting = self._beside(records.take(pa.array(good, pa.int64())), decoded)
        if not bad:
            return fitting, None
        misfits = records.take(pa.array(bad, pa.int64()))
        columns = [*misfits.columns, pa.array(reasons, pa.string())]
        return fitting, pa.RecordBatch.from_arrays(columns, schema=dead_letter_schema())

    def _beside(self, records: "pa.RecordBatch", decoded: "pa.RecordBatch") -> "pa.RecordBatch":
        import pyarrow as pa

        if self._columns.began_opaque:
            index = records.schema.get_field_index("value")
            records = records.set_column(
                index, records.schema.field(index), pa.nulls(records.num_rows, pa.binary())
            )
            beside = list(records.columns)
        else:
            beside = [records.column(name) for name in BESIDE]
        columns = [*beside, *decoded.columns]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def schema_columns(text: str) -> SchemaColumns:
    """By a file: ``x.json`` (JSON Schema), ``x.avsc`` (Avro) or ``x.desc:package.Message`` (Protobuf). Raises
    ConfigError.
    """
    return columns_of(schema_in_file(text))


def columns_by(setting: str) -> TableColumns:
    """By a stream's setting ``table_schema``, which may be empty. Raises ConfigError."""
    if not setting:
        return OpaqueColumns()
    try:
        return columns_of(TableSchema.parse(setting))
    except ConfigError as error:
        problem, remedy = error.problem, error.remedy
    except ValueError as error:
        problem, remedy = str(error), "alter the stream, or name a schema by --schema"
    raise ConfigError("table_schema", problem, remedy)


def columns_of(schema: TableSchema) -> SchemaColumns:
    """Raises ConfigError."""
    match schema.kind:
        case "json":
            from streamlog.lake.columns.json_values import JsonValues

            return SchemaColumns(JsonValues.parse(schema.data))
        case "avro":
            from streamlog.lake.columns.avro_values import AvroValues

            return SchemaColumns(AvroValues.parse(schema.data))
        case "protobuf":
            from streamlog.lake.columns.protobuf_values import ProtobufValues

            return SchemaColumns(ProtobufValues.parse(schema.data, schema.message))
