"""Records between Arrow and formats of text: names of columns, times, and rows back into batches."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from streamlog.errors import InvalidRecord
from streamlog.record.columns import COLUMNS, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

TIMESTAMP_MS: Final = "timestamp_ms"
"""What the column ``timestamp`` is in text."""


def text_names(columns: Iterable[str]) -> list[str]:
    return [TIMESTAMP_MS if name == "timestamp" else name for name in columns]


def milliseconds(column: "pa.Array") -> list[int]:
    """Of a column of times: all of them are whole milliseconds."""
    import pyarrow as pa

    return [it // 1_000 for it in column.cast(pa.int64()).to_pylist()]


def batch_of_records(rows: Sequence[dict[str, Any]], where: str) -> "pa.RecordBatch":
    """Those columns that any of the rows has. Raises InvalidRecord."""
    import pyarrow as pa

    names = dict.fromkeys(name for row in rows for name in row)
    check_columns(text_names(names), where)
    wanted = ["timestamp" if name == TIMESTAMP_MS else name for name in names]
    schema = arrow_schema(wanted)
    try:
        arrays = []
        for name, field in zip(names, schema, strict=True):
            values = [row.get(name) for row in rows]
            if name == TIMESTAMP_MS:
                micros = [None if it is None else it * 1_000 for it in values]
                arrays.append(pa.array(micros, pa.int64()).cast(field.type))
            else:
                arrays.append(pa.array(values, field.type))
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InvalidRecord(f"{where}: {name}: {error}") from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def check_columns(names: Iterable[str], where: str) -> None:
    """``names``: as in text. Raises InvalidRecord."""
    known = text_names(COLUMNS)
    for name in names:
        if name not in known:
            remedy = f"there are {', '.join(known)}"
            raise InvalidRecord(f"{where}: no record has a column {name!r}; {remedy}")
