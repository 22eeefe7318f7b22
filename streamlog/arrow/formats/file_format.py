"""The formats by their names, and by the endings of files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple, Protocol

from streamlog.arrow.formats.csv_file import CsvWriter, read_csv
from streamlog.arrow.formats.json_lines import JsonLinesWriter, read_json_lines
from streamlog.arrow.formats.parquet_file import ParquetFileWriter, read_parquet
from streamlog.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa


class FormatWriter(Protocol):
    """Writes batches of one schema to one file."""

    def write(self, batch: "pa.RecordBatch") -> None: ...

    def close(self) -> None:
        """All has been written to the file, which stays open."""


class FileFormat(NamedTuple):
    """How records are written to a file, and read from one."""

    name: str
    suffixes: tuple[str, ...]
    """The first one is given to files."""
    writer: "Callable[[BinaryIO, pa.Schema], FormatWriter]"
    read: "Callable[[BinaryIO, str], Iterator[pa.RecordBatch]]"
    is_text: bool


FORMATS: Final = (
    FileFormat("parquet", (".parquet",), ParquetFileWriter, read_parquet, False),
    FileFormat("jsonl", (".jsonl", ".ndjson"), JsonLinesWriter, read_json_lines, True),
    FileFormat("csv", (".csv",), CsvWriter, read_csv, True),
)
NAMES: Final = tuple(it.name for it in FORMATS)


def format_of(name: str | None, path: str, option: str) -> FileFormat:
    """By its name, else by the ending of the file. Raises ConfigError."""
    for it in FORMATS:
        if name == it.name or (name is None and Path(path).suffix in it.suffixes):
            return it
    remedy = f"name {', '.join(NAMES[:-1])} or {NAMES[-1]}"
    if name is None:
        raise ConfigError(option, f"the ending of {path} does not say it", remedy)
    raise ConfigError(option, f"there is no format {name!r}", remedy)
