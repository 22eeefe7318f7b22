"""A record as a line of JSON: one object, a member for each column.

``timestamp`` is the member ``timestamp_ms``, milliseconds since 1970; ``headers`` is a list of pairs. ``streamlog
consume --json`` prints such lines, too.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from streamlog.arrow.formats.record_table import (
    TIMESTAMP_MS,
    batch_of_records,
    milliseconds,
    text_names,
)
from streamlog.arrow.formats.text_bytes import of_json, to_json
from streamlog.errors import InvalidRecord

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX: Final = 16_384
"""Of an Arrow batch that is read."""
BATCH_BYTES: Final = 16 << 20
"""Of text: a batch ends at the line that reaches it."""
IGNORED: Final = frozenset({"time"})
"""What ``consume --json`` prints for eyes."""


class JsonLinesWriter:
    """Writes a line for each row. The caller closes the file."""

    def __init__(self, file: BinaryIO, schema: "pa.Schema") -> None:
        self._file = file
        self._names = text_names(schema.names)

    def write(self, batch: "pa.RecordBatch") -> None:
        import orjson

        names = self._names
        columns = [_members(name, batch.column(i)) for i, name in enumerate(names)]
        option = orjson.OPT_APPEND_NEWLINE
        self._file.write(
            b"".join(
                orjson.dumps(dict(zip(names, row, strict=True)), option=option)
                for row in zip(*columns, strict=True)
            )
        )

    def close(self) -> None:
        """Nothing follows the last line."""


def read_json_lines(file: BinaryIO, name: str) -> Iterator["pa.RecordBatch"]:
    """``name``: of the file, for errors. Raises InvalidRecord with the number of the line."""
    import orjson

    rows: list[dict[str, Any]] = []
    size = 0
    for number, line in enumerate(file, 1):
        if line.isspace():
            continue
        try:
            rows.append(_record(orjson.loads(line)))
        except (orjson.JSONDecodeError, InvalidRecord) as error:
            raise InvalidRecord(f"{name}, line {number}: {error}") from None
        size += len(line)
        if len(rows) == ROWS_MAX or size >= BATCH_BYTES:
            yield batch_of_records(rows, f"{name}, up to line {number}")
            rows, size = [], 0
    if rows:
        yield batch_of_records(rows, name)


def _members(name: str, column: "pa.Array") -> list[Any]:
    if name in ("key", "value"):
        return [to_json(data) for data in column.to_pylist()]
    if name == "headers":
        return [headers_to_json(headers) for headers in column.to_pylist()]
    if name == TIMESTAMP_MS:
        return milliseconds(column)
    values: list[Any] = column.to_pylist()
    return values


def headers_to_json(headers: list[dict[str, Any]] | None) -> list[list[Any]]:
    return [[it["key"], to_json(it["value"])] for it in headers or ()]


def headers_of_json(pairs: Any) -> list[dict[str, Any]]:
    """Raises InvalidRecord."""
    if not isinstance(pairs, list):
        raise InvalidRecord("headers are a list of pairs")
    found = []
    for pair in pairs:
        match pair:
            case [str(name), value]:
                found.append({"key": name, "value": of_json(value)})
            case _:
                raise InvalidRecord("a header is a pair of a name and a value")
    return found


def _record(line: Any) -> dict[str, Any]:
    if not isinstance(line, dict):
        raise InvalidRecord("a record is an object")
    row: dict[str, Any] = {}
    for name, value in line.items():
        if name in ("key", "value"):
            row[name] = of_json(value)
        elif name == "headers":
            row[name] = headers_of_json(value)
        elif name == TIMESTAMP_MS and type(value) is not int:
            raise InvalidRecord(f"{name} is {str(value)[:40]!r}, no whole number")
        elif name not in IGNORED:
            row[name] = value
    return row
