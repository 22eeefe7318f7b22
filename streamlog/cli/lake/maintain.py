"""``streamlog lake maintain``: upkeep of a table; and ``streamlog lake info``: where it is."""

from typing import Annotated

import typer

from streamlog.arrow.location import Bounds
from streamlog.arrow.stream_read import plan
from streamlog.cli.lake.options import Catalog, CatalogProperty, Table, age_ms, say_done, table_name
from streamlog.cli.options.connection_options import chosen_security
from streamlog.cli.options.options import SERVERS, Json, Servers
from streamlog.cli.output import print_json, print_pairs, print_table, say
from streamlog.config.units import size_bytes
from streamlog.errors import ConfigError


def maintain(
    table: Table,
    catalog: Catalog = "default",
    catalog_property: CatalogProperty = None,
    small: Annotated[
        str, typer.Option("--small", help="Files below this size are put together.")
    ] = "32MiB",
    large: Annotated[str, typer.Option("--large", help="Up to about this size each.")] = "256MiB",
    expire: Annotated[
        str, typer.Option("--expire", help="Snapshots older than this go; never: none.")
    ] = "1d",
    orphans: Annotated[
        str,
        typer.Option(
            "--orphans", help="Files that no snapshot has go if they are older; never: none."
        ),
    ] = "1d",
    follow_retention: Annotated[
        bool,
        typer.Option(
            "--follow-retention",
            help="Remove files whose records are all before the log's start: asks the nodes.",
        ),
    ] = False,
    as_json: Json = False,
    servers: Servers = SERVERS,
) -> None:
    """Put small files together, expire snapshots, remove files of killed jobs. Jobs may go on meanwhile.

    The table of dead letters is maintained, too, if there is one.
    """
    from streamlog.lake.catalog import check_pyiceberg
    from streamlog.lake.maintain import Upkeep
    from streamlog.lake.maintain import maintain as carry_out
    from streamlog.lake.table import LakeTable

    check_pyiceberg()
    name = table_name(table, catalog, catalog_property)
    found = LakeTable.at(name)
    position = found.position()
    log_starts = None
    if follow_retention:
        if position is None:
            raise ConfigError("--table", f"{table} has no stream's records", "name another")
        bounds = _bounds(position.stream, position.stream_id, servers)
        log_starts = {number: it.log_start for number, it in bounds.items()}
    upkeep = Upkeep(
        small_bytes=_size(small, "--small"),
        large_bytes=_size(large, "--large"),
        expire_ms=age_ms(expire, "--expire"),
        orphan_ms=age_ms(orphans, "--orphans"),
        log_starts=log_starts,
    )
    tables = [found]
    dead_letters = LakeTable.at(name.dead_letters)
    if dead_letters.exists():
        tables.append(dead_letters)
    for it in tables:
        done = carry_out(it, upkeep)
        if as_json:
            print_json({"table": it.name.table, **vars(done)})
            continue
        say_done(it.name.table, done)


def info(
    table: Table,
    catalog: Catalog = "default",
    catalog_property: CatalogProperty = None,
    as_json: Json = False,
    servers: Servers = SERVERS,
) -> None:
    """Where a table is: its stream, rows, files, and how far each partition is behind the log."""
    from streamlog.lake.catalog import check_pyiceberg
    from streamlog.lake.table import LakeTable, position_of

    check_pyiceberg()
    loaded = LakeTable.at(table_name(table, catalog, catalog_property)).load()
    position = position_of(loaded.metadata)
    if position is None:
        raise ConfigError("--table", f"{table} has no stream's records", "name another")
    bounds = _bounds(position.stream, position.stream_id, servers)
    snapshot = loaded.current_snapshot()
    totals = (
        {}
        if snapshot is None or snapshot.summary is None
        else snapshot.summary.additional_properties
    )
    partitions = [
        {
            "partition": number,
            "table_end": position.ends.get(number, it.log_start),
            "log_end": it.high_watermark,
            "behind": max(0, it.high_watermark - position.ends.get(number, it.log_start)),
        }
        for number, it in sorted(bounds.items())
    ]
    shown = {
        "table": table,
        "location": loaded.location(),
        "stream": position.stream,
        "stream_id": position.stream_id,
        "rows": int(totals.get("total-records", 0)),
        "files": int(totals.get("total-data-files", 0)),
        "snapshots": len(loaded.snapshots()),
    }
    if as_json:
        print_json({**shown, "partitions": partitions})
        return
    print_pairs(shown.items())
    say()
    print_table(
        ("PARTITION", "TABLE'S END", "LOG'S END", "BEHIND"),
        [tuple(it.values()) for it in partitions],
    )


def _bounds(stream: str, stream_id: str, servers: str) -> dict[int, Bounds]:
    """Raises PositionError where the stream is another one."""
    from streamlog.arrow.range_reader import open_location
    from streamlog.lake.catalog import TableName
    from streamlog.lake.job import JobOptions, look
    from streamlog.lake.position import TablePosition

    read = plan(stream, servers=servers, security=chosen_security()).options
    with open_location(read) as location:
        found, bounds = look(location, JobOptions(stream, read, TableName("a.b")))
    TablePosition(stream, stream_id).of_stream(stream, found)
    return bounds


def _size(text: str, option: str) -> int:
    try:
        return size_bytes(text)
    except ValueError as error:
        raise ConfigError(option, str(error), "write 32MiB, or a number of bytes") from None
