import asyncio
import os
import sys
from typing import Annotated

import typer

from streamlog.cli.options.options import SERVERS, Json, Servers


def read(
    stream: Annotated[str, typer.Argument(help="The stream's name.")],
    partition: Annotated[int | None, typer.Option(min=0, help="Only this one.")] = None,
    start: Annotated[
        str, typer.Option("--from", help="earliest, latest, an offset, or a time (ISO 8601).")
    ] = "earliest",
    count: Annotated[int | None, typer.Option(min=0, help="Stop after so many records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more.")] = False,
    servers: Servers = SERVERS,
    as_json: Json = False,
) -> None:
    """Print a stream's records: values as they are, or each record as a line of JSON."""
    from streamlog.cli.messages.reading import Printer, print_stream
    from streamlog.cli.options.position import parse_position

    position = parse_position(start)
    if count == 0:
        return
    printer = Printer(count, as_json=as_json)
    try:
        asyncio.run(print_stream(servers, stream, partition, position, printer, follow=follow))
    except* BrokenPipeError:  # `streamlog read … | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
