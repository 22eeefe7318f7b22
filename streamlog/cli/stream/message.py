"""``streamlog stream get`` and ``erase``: a single record."""

from base64 import b64decode
from typing import Annotated, Final, NamedTuple

import typer

from streamlog.cli.options.connection_options import operate
from streamlog.cli.options.names import StreamName
from streamlog.cli.options.options import SERVERS, Json, Servers, Yes
from streamlog.cli.output import print_json, say, write_value
from streamlog.errors import ConfigError

KEY: Final = "Streamlog-Key"


class FoundRecord(NamedTuple):
    """As ``record_lines`` prints it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes | None]]


def get(
    stream: StreamName,
    offset: Annotated[int | None, typer.Argument(metavar="[OFFSET]", min=0)] = None,
    last: Annotated[
        str, typer.Option(metavar="SUBJECT", help="The last record of a subject.")
    ] = "",
    next_: Annotated[
        str,
        typer.Option("--next", metavar="SUBJECT", help="The first of a subject, from OFFSET on."),
    ] = "",
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="The first that is not older (ISO 8601).")
    ] = None,
    servers: Servers = SERVERS,
    as_json: Json = False,
) -> None:
    """Print one record of partition 0: at an offset, or the last or next of a subject."""
    from streamlog.cli.messages.record_lines import json_record
    from streamlog.cli.options.position import parse_time

    if offset is None and not (last or next_ or since):
        raise ConfigError("OFFSET", "is missing", "name it, or --last, --next or --since")
    found = operate(
        servers,
        "messages.get",
        stream=stream,
        offset=offset,
        last_by_subject=last,
        next_by_subject=next_,
        start_ms=None if since is None else parse_time(since, "--since").timestamp_ms,
    )
    if not as_json:
        write_value(b64decode(found["data"]))
        return
    headers = [(it["name"], b64decode(it["value"])) for it in found["headers"]]
    record = FoundRecord(
        found["offset"],
        found["timestamp_ms"],
        next((value for name, value in headers if name == KEY), None),
        b64decode(found["data"]),
        [("subject", found["subject"].encode()), *headers],
    )
    print_json(json_record(found["partition"], record))


def erase(
    stream: StreamName,
    offset: Annotated[int, typer.Argument(min=0)],
    partition: Annotated[int, typer.Option(min=0, help="Which one, from 0.")] = 0,
    yes: Yes = False,
    servers: Servers = SERVERS,
) -> None:
    """Erase one record on every replica. Its offset is not used again."""
    if not yes:
        question = f"Erase record {offset} of {stream}/{partition}, for ever?"
        typer.confirm(question, abort=True, err=True)
    operate(servers, "messages.delete", stream=stream, offset=offset, partition=partition)
    say(f"record {offset} of {stream}/{partition} is erased")
