"""``streamlog group reset-offsets``: the target of a reset, and what becomes of it in each partition."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamlog.cli.group.client import ask
from streamlog.cli.options import names
from streamlog.cli.options.names import GroupName
from streamlog.cli.options.options import SERVERS, Json, Servers, Yes
from streamlog.cli.options.position import parse_time
from streamlog.cli.output import print_json, print_table, say
from streamlog.errors import ConfigError, GroupNotFound

if TYPE_CHECKING:
    from streamlog.cli.group.client import GroupClient


def parse_target(
    *,
    to_earliest: bool = False,
    to_latest: bool = False,
    to_offset: int | None = None,
    to_datetime: str | None = None,
    shift_by: int | None = None,
) -> dict[str, Any]:
    """Of the options, one of which must be given: an argument of the operation. Raises ConfigError."""
    given = {
        "--to-earliest": to_earliest or None,
        "--to-latest": to_latest or None,
        "--to-offset": to_offset,
        "--to-datetime": to_datetime,
        "--shift-by": shift_by,
    }
    named = [name for name, value in given.items() if value is not None]
    if not named:
        *most, last = given
        raise ConfigError("GROUP", "no position is given", f"name {', '.join(most)} or {last}")
    if len(named) > 1:
        raise ConfigError(named[0], f"cannot go with {named[1]}", "name one of them")
    if to_datetime is not None:
        return {"to_ms": parse_time(to_datetime, "--to-datetime").timestamp_ms}
    return {named[0].removeprefix("--").replace("-", "_"): given[named[0]]}


def reset_offsets(
    group: GroupName,
    to_earliest: Annotated[
        bool, typer.Option("--to-earliest", help="To the first record of each partition.")
    ] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="To the end of each partition.")
    ] = False,
    to_offset: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="To this offset.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="To the first record that is not older: 2026-01-31T18:00:00, local without a zone.",
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(metavar="N", help="Shift the offset by N records (negative: back)."),
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            "--stream",
            help="Only these; may be repeated. Default: all it committed in.",
            autocompletion=names.streams,
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, help="Only these of the stream; may be repeated."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would become of it; change nothing.")
    ] = False,
    yes: Yes = False,
    servers: Servers = SERVERS,
    as_json: Json = False,
) -> None:
    """Set a group's offsets. The group must have no members; the changes are shown first."""
    target = parse_target(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_offset=to_offset,
        to_datetime=to_datetime,
        shift_by=shift_by,
    )
    if partition and len(stream or ()) != 1:
        raise ConfigError("--partition", "needs one stream", "name it with --stream")
    changes = ask(servers, lambda asker: _plan(asker, group, stream, partition, target))
    if not as_json:
        _print(changes)
    if not dry_run:
        if not yes:
            typer.confirm(f"Have group {group} go on there?", abort=True, err=True)
        ask(servers, lambda asker: _carry_out(asker, group, changes))
    if as_json:
        print_json({"group": group, "changed": not dry_run, "partitions": changes})
    else:
        say(f"group {group} {'stays as it is' if dry_run else 'goes on there'}")


async def _plan(
    asker: "GroupClient",
    group: str,
    streams: list[str] | None,
    partitions: list[int] | None,
    target: dict[str, Any],
) -> list[dict[str, Any]]:
    """What would change."""
    try:
        found = await asker.operate(
            "reset",
            group=group,
            streams=streams or [],
            partitions=partitions or [],
            validate_only=True,
            **target,
        )
    except GroupNotFound as error:
        if streams:
            raise
        raise GroupNotFound(
            f"{error}; `streamlog group ls` names those there are, and --stream sets where a new one begins"
        ) from None
    changes: list[dict[str, Any]] = found["partitions"]
    return changes


async def _carry_out(asker: "GroupClient", group: str, changes: Sequence[dict[str, Any]]) -> None:
    """Only if it is as it was shown. A request that is repeated finds it done."""
    fields = ("stream", "partition", "committed_offset", "new_offset")
    shown = [{name: it[name] for name in fields} for it in changes]
    await asker.operate("reset", group=group, changes=shown)


def effect_of(change: dict[str, Any]) -> str:
    """In words."""
    if change["committed_offset"] is None:
        words = "nothing was committed yet"
    elif change["skipped"]:
        words = f"skips {_records(change['skipped'])}"
    elif change["repeated"]:
        words = f"repeats {_records(change['repeated'])}"
    else:
        same = change["new_offset"] == change["committed_offset"]
        words = "no change" if same else "skips nothing"
    return f"{words} ({change['note']})" if change["note"] else words


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count} records"


def _print(changes: Sequence[dict[str, Any]]) -> None:
    names_of = ("stream", "partition", "committed_offset", "new_offset")
    print_table(
        ("STREAM", "PARTITION", "COMMITTED", "NEW", "EFFECT"),
        ([*(it[name] for name in names_of), effect_of(it)] for it in changes),
    )
