"""``streamlog export``: a stream's records into files."""

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamlog.cli.options.connection_options import chosen_security
from streamlog.cli.options.names import StreamName
from streamlog.cli.options.options import SERVERS, Servers
from streamlog.cli.output import progress_bar, say
from streamlog.errors import ConfigError

if TYPE_CHECKING:
    from streamlog.arrow.stream_read import Bound

STDOUT: Final = "-"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def export(
    stream: StreamName,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|FOLDER|-",
            help="A file for all partitions; a folder (one that is there, or with / at the end), where each partition"
            " gets a file; or - for standard output.",
        ),
    ],
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format", help="parquet, jsonl or csv; by default the ending of FILE says it."
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Some of the columns, by commas; by default all, which an import needs."),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option(min=0, help="Only this one. May be repeated.")
    ] = None,
    start: Annotated[
        str, typer.Option("--from", help="earliest, an offset, or a time (ISO 8601).")
    ] = "earliest",
    end: Annotated[
        str, typer.Option("--to", help="latest, an offset, or a time: the first that is left out.")
    ] = "latest",
    subject: Annotated[
        list[str] | None,
        typer.Option(
            help="Only records with this NATS subject; * and > as in NATS. May be repeated."
        ),
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(help="Read this data folder of a node, or URL, instead of asking nodes."),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The nodes' tier.url: what tiered storage has is read there, the rest from nodes.",
        ),
    ] = None,
    store_endpoint: Annotated[
        str | None, typer.Option(metavar="URL", help="With --store: as the nodes' tier.endpoint.")
    ] = None,
    encryption_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SOURCE",
            help="With --path or --store: where a key to encrypted streams is.",
        ),
    ] = None,
    allow_loss: Annotated[
        bool,
        typer.Option("--allow-loss", help="Go on where records are removed during the export."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
    servers: Servers = SERVERS,
) -> None:
    """Write a stream's records into files: Parquet, lines of JSON or CSV.

    What is committed when it begins is exported, partition by partition, by rising offset. A file gets its name when it
    is complete. docs/arrow.md says how bytes are written as text.

    \b
      streamlog export flights --output flights.parquet
      streamlog export flights --format jsonl --output - | head
      streamlog export flights --format csv --output flights/ --from 2026-01-31T00:00:00Z
      streamlog export flights --output flights.parquet --store s3://bucket/streamlog
    """
    from streamlog.arrow.formats.file_format import format_of
    from streamlog.arrow.formats.stream_export import (
        export_to_file,
        export_to_folder,
        export_to_path,
    )
    from streamlog.arrow.options.encryption_keys import KeySources
    from streamlog.arrow.stream_read import plan
    from streamlog.record.columns import COLUMNS

    file_format = format_of(format_name, output, "--format")
    to_stdout = output == STDOUT
    if to_stdout and file_format.name != "jsonl" and sys.stdout.isatty():
        problem = f"{file_format.name} may hold what a terminal obeys"
        raise ConfigError("--output", problem, "name a file or a pipe, or set --format jsonl")
    if path is not None and store is not None:
        problem = "a data folder is read as it is, and a store beside the nodes that use it"
        raise ConfigError("--store", problem, "leave one of --path and --store out")
    keys = KeySources.of(encryption_key or (), "--encryption-key")
    planned = plan(
        stream,
        servers=None if path is not None else servers,
        path=path,
        store=store,
        store_endpoint=store_endpoint,
        columns=COLUMNS if columns is None else [it.strip() for it in columns.split(",")],
        partitions=partition or None,
        start=_bound(start, "--from"),
        end=_bound(end, "--to"),
        subjects=subject or (),
        fail_on_data_loss=not allow_loss,
        security=None if path is not None else chosen_security(),
        encryption_keys=None if path is None and store is None else dict(keys.sources),
    )
    place = Path(output)
    with progress_bar(stream, planned.offset_count) as advance:
        if to_stdout:
            try:
                count = export_to_file(planned, sys.stdout.buffer, file_format, advance)
                sys.stdout.flush()
            except BrokenPipeError:  # `streamlog export … | head` has seen enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return
        elif place.is_dir() or output.endswith("/"):
            count = export_to_folder(planned, place, file_format, advance, replace=force)
        else:
            count = export_to_path(planned, place, file_format, advance, replace=force)
    if not to_stdout:
        say(f"{count} records of {stream} are in {output}")


def _bound(text: str, option: str) -> "Bound":
    """Raises ConfigError."""
    from streamlog.cli.options.position import parse_position
    from streamlog.client.position import EARLIEST, Offset, Timestamp

    match parse_position(text, option):
        case Offset(offset):
            return offset
        case Timestamp(timestamp_ms):
            return _EPOCH + timedelta(milliseconds=timestamp_ms)
        case word:
            return "earliest" if word == EARLIEST else "latest"
