r"""A record as a line of CSV (RFC 4180), below a line with the columns' names.

``timestamp`` is the column ``timestamp_ms``, milliseconds since 1970; ``headers`` is JSON, a list of pairs. Keys,
values and subjects are cells of ``text_bytes``.
"""

import csv
import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from streamlog.arrow.formats.json_lines import (
    BATCH_BYTES,
    ROWS_MAX,
    headers_of_json,
    headers_to_json,
)
from streamlog.arrow.formats.record_table import (
    TIMESTAMP_MS,
    batch_of_records,
    milliseconds,
    text_names,
)
from streamlog.arrow.formats.text_bytes import of_cell, to_cell
from streamlog.errors import InvalidRecord

if TYPE_CHECKING:
    import pyarrow as pa

CELL_BYTES_MAX: Final = 1 << 30
_NUMBERS: Final = frozenset({"partition", "offset", "timestampType", TIMESTAMP_MS})


class CsvWriter:
    """Writes a line for each row. The caller closes the file."""

    def __init__(self, file: BinaryIO, schema: "pa.Schema") -> None:
        self._names = text_names(schema.names)
        self._text = io.StringIO(newline="")
        self._lines = csv.writer(self._text)
        self._file = file
        self._lines.writerow(self._names)

    def write(self, batch: "pa.RecordBatch") -> None:
        columns = [_cells(name, batch.column(i)) for i, name in enumerate(self._names)]
        self._lines.writerows(zip(*columns, strict=True))
        self._flush()

    def close(self) -> None:
        self._flush()

    def _flush(self) -> None:
        self._file.write(self._text.getvalue().encode())
        self._text.seek(0)
        self._text.truncate()


def read_csv(file: BinaryIO, name: str) -> Iterator["pa.RecordBatch"]:
    """``name``: of the file, for errors. Raises InvalidRecord with the number of the line."""
    csv.field_size_limit(CELL_BYTES_MAX)
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    lines = csv.reader(text, strict=True)
    try:
        names = next(lines, None)
        if names is None:
            return
        rows: list[dict[str, Any]] = []
        size = 0
        for line in lines:
            rows.append(_record(names, line))
            size += sum(map(len, line))
            if len(rows) == ROWS_MAX or size >= BATCH_BYTES:
                yield batch_of_records(rows, f"{name}, up to line {lines.line_num}")
                rows, size = [], 0
        if rows:
            yield batch_of_records(rows, name)
    except (csv.Error, UnicodeDecodeError, InvalidRecord) as error:
        raise InvalidRecord(f"{name}, line {lines.line_num}: {error}") from None
    finally:
        text.detach()


def _cells(name: str, column: "pa.Array") -> list[Any]:
    if name in ("key", "value"):
        return [to_cell(data) for data in column.to_pylist()]
    if name == "subject":
        return [to_cell(None if it is None else it.encode()) for it in column.to_pylist()]
    if name == "headers":
        import orjson

        return [orjson.dumps(headers_to_json(it)).decode() for it in column.to_pylist()]
    if name == TIMESTAMP_MS:
        return milliseconds(column)
    values: list[Any] = column.to_pylist()
    return values


def _record(names: list[str], line: list[str]) -> dict[str, Any]:
    if len(line) != len(names):
        raise InvalidRecord(f"{len(line)} cells, where there are {len(names)} columns")
    return {name: _value(name, cell) for name, cell in zip(names, line, strict=True)}


def _value(name: str, cell: str) -> Any:
    if name in ("key", "value"):
        return of_cell(cell)
    if name == "subject":
        data = of_cell(cell)
        return None if data is None else data.decode(errors="replace")
    if name == "headers":
        import orjson

        try:
            return headers_of_json(orjson.loads(cell))
        except orjson.JSONDecodeError:
            raise InvalidRecord(f"{cell[:40]!r} is not JSON") from None
    if name in _NUMBERS:
        try:
            return int(cell)
        except ValueError:
            raise InvalidRecord(f"{name} is {cell[:40]!r}, no number") from None
    return cell
