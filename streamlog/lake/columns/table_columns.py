"""Columns without a schema: a record's own. And what all kinds of columns have to do.

Columns by a schema are the schema's, and those of the record beside them, each with ``_`` before its name, or without
it in a table that began without a schema.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from streamlog.record.columns import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

OPAQUE: Final = ("partition", "offset", "timestamp", "subject", "key", "value", "headers")
_REQUIRED: Final = ("partition", "offset", "timestamp")
REASON: Final = "reason"


class TableColumns(Protocol):
    """Can be pickled: rows are made where records are read."""

    @property
    def time_column(self) -> str:
        """The one that a table is partitioned by."""

    @property
    def has_dead_letters(self) -> bool: ...

    def of_table(self, names: Collection[str]) -> "TableColumns":
        """As they are in a table with these columns; with none it is yet to be made."""

    def schema(self) -> "pa.Schema":
        """Of the table."""

    def converter(self) -> "RecordConverter":
        """Cannot be pickled."""


class RecordConverter(Protocol):
    """From records to rows."""

    def rows_of(self, records: "pa.RecordBatch") -> "tuple[pa.RecordBatch, pa.RecordBatch | None]":
        """Of records with the columns ``OPAQUE``: the table's rows, and the dead letters: records and reasons."""


@dataclass(frozen=True)
class OpaqueColumns:
    """All of a record, its value as bytes: every record fits."""

    time_column: str = "timestamp"
    has_dead_letters: bool = False

    def of_table(self, names: Collection[str]) -> "OpaqueColumns":
        return self

    def schema(self) -> "pa.Schema":
        return record_schema()

    def converter(self) -> "OpaqueColumns":
        return self

    def rows_of(self, records: "pa.RecordBatch") -> "tuple[pa.RecordBatch, pa.RecordBatch | None]":
        return records, None


def record_schema() -> "pa.Schema":
    """What is read of a stream."""
    return arrow_schema(OPAQUE, _REQUIRED)


def dead_letter_schema() -> "pa.Schema":
    import pyarrow as pa

    return record_schema().append(pa.field(REASON, pa.string(), nullable=False))
