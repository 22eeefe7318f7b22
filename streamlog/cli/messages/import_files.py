"""``streamlog import``: records of files into a stream."""

import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamlog.cli.options.connection_options import chosen_security
from streamlog.cli.options.names import StreamName
from streamlog.cli.options.options import SERVERS, Servers
from streamlog.cli.output import progress_bar, say
from streamlog.errors import ConfigError, StreamlogError

if TYPE_CHECKING:
    import pyarrow as pa

    from streamlog.arrow.formats.file_format import FileFormat

STDIN: Final = "-"


def import_files(
    stream: StreamName,
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="One after the other; - is standard input."),
    ],
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format", help="parquet, jsonl or csv; by default the ending of FILE says it."
        ),
    ] = None,
    import_id: Annotated[
        str | None,
        typer.Option(
            "--id",
            help="Of this import. Run again with the same id and the same files, it writes what is missing, and"
            " nothing twice.",
        ),
    ] = None,
    by_key: Annotated[
        bool,
        typer.Option("--by-key", help="The key decides the partition, not the column of the file."),
    ] = False,
    compression: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")] = "none",
    servers: Servers = SERVERS,
) -> None:
    """Write records of files into a stream, each once, also after an interruption.

    The stream must be there, with as many partitions as the files name. It gets keys, values, headers with
    subjects, and the order within partitions; times, too, if it takes its producers' times
    (message.timestamp.type=CreateTime). Offsets are its own. Each record is on every in-sync replica when the
    command ends.

    \b
      streamlog import copy flights.parquet
      streamlog import copy flights/*.csv --id monday
    """
    from streamlog.arrow.formats.file_format import format_of
    from streamlog.arrow.stream_write import write

    formats = [format_of(format_name, it, "--format") for it in files]
    size = _size_of(files)
    if STDIN in files and import_id is not None:
        problem = "what came from standard input cannot be read again"
        raise ConfigError("--id", problem, "name files, or leave it out")
    again = ""
    if STDIN not in files:
        import_id = import_id or secrets.token_hex(6)
        again = f"run the same command with --id {import_id} to write what is missing"
        say(f"import {import_id}; if it is interrupted, {again}", to_stderr=True)
    try:
        with progress_bar(stream, size) as advance:
            result = write(
                _batches(files, formats, advance),
                stream,
                servers=servers,
                write_id=import_id,
                keep_partitions=not by_key,
                compression=compression,
                security=chosen_security(),
            )
    except (StreamlogError, KeyboardInterrupt) as error:
        if again and not isinstance(error, ConfigError):
            say(f"interrupted: {again}", to_stderr=True)
        raise
    found = f"; {result.found} were there already" if result.found else ""
    say(f"{result.written} records written to {stream}{found}")


def _size_of(files: Sequence[str]) -> int:
    """In bytes. Raises ConfigError for a file that cannot be read."""
    size = 0
    for name in files:
        if name == STDIN:
            continue
        try:
            with Path(name).open("rb") as file:
                size += file.seek(0, 2)
        except OSError as error:
            raise ConfigError("FILE", f"{name}: {error.strerror}", "name files to read") from None
    return size


def _batches(
    files: Sequence[str], formats: "Sequence[FileFormat]", advance: Callable[[int], None]
) -> "Iterator[pa.RecordBatch]":
    for name, file_format in zip(files, formats, strict=True):
        if name == STDIN:
            if not file_format.is_text:
                raise ConfigError("FILE", "Parquet is not read from a pipe", "name a file")
            yield from file_format.read(sys.stdin.buffer, "standard input")
            continue
        passed = 0
        with Path(name).open("rb") as file:
            for batch in file_format.read(file, name):
                yield batch
                if file_format.is_text:
                    advance(file.tell() - passed)
                    passed = file.tell()
            advance(Path(name).stat().st_size - passed)
