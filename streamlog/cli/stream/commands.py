"""The commands of ``streamlog stream``; the options of ``add`` and ``edit`` are in ``settings``.

What they show as JSON is what the operation answers: the same as over HTTP.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from streamlog.cli.options import options as o
from streamlog.cli.options.connection_options import cluster_at, operate, run
from streamlog.cli.options.names import StreamName
from streamlog.cli.output import Size, print_json, print_pairs, print_table, say
from streamlog.cli.stream import message, move
from streamlog.cli.stream.settings import (
    SettingsCommand,
    check_min_isr,
    given_settings,
    shown_settings,
)
from streamlog.config.units import size_text
from streamlog.metadata.stream.settings_translation import BY_NAME

PAGE: Final = 500
"""Streams that are asked for at once."""

NAMED_MAX: Final = 3
"""Streams that a note names."""

Described = dict[str, Any]
"""A StreamDescription of ``control.streams``, in JSON."""


def info(stream: StreamName, servers: o.Servers = o.SERVERS, as_json: o.Json = False) -> None:
    """One stream: its settings, what is in it, and which nodes keep it."""
    found = operate(servers, "streams.describe", name=stream)
    if as_json:
        print_json(found)
        return
    partitions = found["partitions"]
    print_pairs(
        (
            *shown_settings(found["config"]),
            ("stream_id", found["stream_id"]),
            ("created", _time(found["created_ms"])),
            ("messages", _if_known(found, found["messages"])),
            ("size", _if_known(found, Size(found["size_bytes"]))),
            ("first message", _time(_first(min, partitions, "first_ms"))),
            ("last message", _time(_first(max, partitions, "last_ms"))),
            ("auto-paused", all(it["is_auto_paused"] for it in partitions)),
        )
    )
    say()
    print_table(
        ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "RECORDS BEHIND", "START", "END"),
        map(_row, partitions),
    )
    origins = [(it["partition"], origin) for it in partitions for origin in it.get("origins", ())]
    if origins:
        say()
        print_table(
            ("PARTITION", "ORIGIN", "LAG", "HEARD", "ERROR"),
            (
                (number, it["name"], it["lag"], _ago(it["active_ms"]), it["error"])
                for number, it in origins
            ),
        )
    tiers = [(it["partition"], it["tier"]) for it in partitions if it.get("tier") is not None]
    if tiers:
        say()
        print_table(
            ("PARTITION", "LOCAL START", "IN THE STORE UP TO", "YET TO BE COPIED"),
            (
                (
                    number,
                    it["local_log_start_offset"],
                    "-" if it["tiered_end_offset"] is None else it["tiered_end_offset"],
                    size_text(it["lag_bytes"]),
                )
                for number, it in tiers
            ),
        )
    _note_silence([found])


def _is_known(stream: Described) -> bool:
    """Whether the leaders of all of its partitions have answered."""
    return all(it["high_watermark"] is not None for it in stream["partitions"])


def _if_known(stream: Described, value: object) -> object:
    return value if _is_known(stream) else "?"


def _note_silence(streams: Iterable[Described]) -> None:
    silent = [it["config"]["name"] for it in streams if not _is_known(it)]
    if silent:
        more = f" and {len(silent) - NAMED_MAX} more" if len(silent) > NAMED_MAX else ""
        say(
            f"not all leaders of {', '.join(silent[:NAMED_MAX])}{more} answer;"
            " `streamlog cluster check` says why",
            to_stderr=True,
        )


def _time(time_ms: int | None) -> datetime | None:
    return None if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC)


def _ago(time_ms: int | None) -> str:
    return "never" if time_ms is None else f"{time_ms / 1000:.1f} s ago"


def _first(choose: Any, partitions: Iterable[Mapping[str, Any]], name: str) -> int | None:
    found: int | None = choose(
        (it[name] for it in partitions if it[name] is not None), default=None
    )
    return found


def _row(partition: Mapping[str, Any]) -> tuple[object, ...]:
    """``RECORDS BEHIND`` has the followers that lack records; a question mark: the leader does not answer."""
    behind: object = [f"{node}: {lag}" for node, lag in partition["replica_lags"].items() if lag]
    if partition["high_watermark"] is None:
        behind = "?"
    return (
        partition["partition"],
        partition["leader"],
        partition["leader_epoch"],
        partition["replicas"],
        partition["isr"],
        behind,
        partition["log_start_offset"],
        partition["high_watermark"],
    )


def pause(stream: StreamName, servers: o.Servers = o.SERVERS) -> None:
    """Take no records for now: publishers are refused at once, readers go on."""
    _change(servers, stream, {"paused": True})


def resume(stream: StreamName, servers: o.Servers = o.SERVERS) -> None:
    """Take records again after a pause."""
    _change(servers, stream, {"paused": False})


def seal(stream: StreamName, yes: o.Yes = False, servers: o.Servers = o.SERVERS) -> None:
    """Keep what it has, for ever: no records come, none go by retention or purges."""
    if not yes:
        typer.confirm(f"Seal stream {stream}? It can never be undone", abort=True, err=True)
    _change(servers, stream, {"sealed": True})


def _change(servers: str, stream: str, settings: Mapping[str, Any]) -> None:
    config = operate(servers, "streams.alter", name=stream, changes=changes_of(settings))["config"]
    say(told(config))


def changes_of(settings: Mapping[str, Any]) -> list[dict[str, str]]:
    """``SettingChange`` of each, in JSON."""
    return [
        {"setting": name, "text": BY_NAME[name].form.to_text(value)}
        for name, value in settings.items()
    ]


def told(config: Mapping[str, Any]) -> str:
    """How it is now: of several reasons to take no records one may be left."""
    name = config["name"]
    if config["sealed"]:
        return f"stream {name} is sealed"
    if config["readonly"]:
        return f"stream {name} is read-only{', and paused' if config['paused'] else ''}"
    if config["paused"]:
        return f"stream {name} is paused; publishers are refused until it is resumed"
    return f"stream {name} takes records"


app = typer.Typer(help="Make, look at, change and remove streams.", no_args_is_help=True)


@app.command(cls=SettingsCommand)
def add(
    ctx: typer.Context,
    stream: o.NewStreamName,
    servers: o.Servers = o.SERVERS,
    as_json: o.Json = False,
) -> None:
    """Make a stream. The same one again is a success."""
    settings = given_settings(ctx)
    check_min_isr(settings)
    made = operate(servers, "streams.create", config={"name": stream, **settings})
    if as_json:
        print_json(made)
    elif made["created"]:
        say(f"stream {stream} stores {', '.join(made['config']['subjects'])}")
    else:
        say(f"stream {stream} is there already, with the same configuration")


@app.command("ls")
def list_streams(
    subject: Annotated[
        str, typer.Option(metavar="SUBJECT", help="Only streams that store messages of it.")
    ] = "",
    servers: o.Servers = o.SERVERS,
    as_json: o.Json = False,
) -> None:
    """All streams."""
    streams = run(_all_streams(servers, subject))
    if as_json:
        print_json(streams)
        return
    print_table(
        ("STREAM", "SUBJECTS", "PARTITIONS", "RECORDS", "SIZE", "LAST"),
        (
            (
                it["config"]["name"],
                it["config"]["subjects"],
                it["config"]["partitions"],
                _if_known(it, it["messages"]),
                _if_known(it, Size(it["size_bytes"])),
                _time(_first(max, it["partitions"], "last_ms")),
            )
            for it in streams
        ),
    )
    _note_silence(streams)


async def _all_streams(servers: str, subject: str) -> list[Described]:
    """By name. One that is added or removed meanwhile may be missed."""
    found: dict[str, Described] = {}
    offset, total = 0, 1
    async with cluster_at(servers) as cluster:
        while offset < total:
            asked = {"offset": offset, "limit": PAGE, "subject": subject}
            page = await cluster.operate("streams.list", asked)
            found.update((it["config"]["name"], it) for it in page["streams"])
            offset, total = offset + PAGE, page["total"]
    return list(found.values())


app.command()(info)


@app.command(cls=SettingsCommand)
def edit(
    ctx: typer.Context,
    stream: StreamName,
    servers: o.Servers = o.SERVERS,
    as_json: o.Json = False,
) -> None:
    """Change what is named; all else stays. Partitions can be added; replicas are placed again."""
    changes = changes_of(given_settings(ctx))
    changed = operate(servers, "streams.alter", name=stream, changes=changes)
    if as_json:
        print_json(changed)
    else:
        say(f"stream {stream} is changed")


app.command()(move.move)
app.command()(move.cancel_move)
app.command()(pause)
app.command()(resume)
app.command()(seal)


@app.command()
def purge(
    stream: StreamName,
    before: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="Only records below it.")
    ] = None,
    keep: Annotated[int | None, typer.Option(min=1, help="All but the last so many.")] = None,
    subject: Annotated[
        str, typer.Option(metavar="SUBJECT", help="Only records whose subject matches.")
    ] = "",
    partition: Annotated[int | None, typer.Option(min=0, help="Only this one.")] = None,
    yes: o.Yes = False,
    servers: o.Servers = o.SERVERS,
    as_json: o.Json = False,
) -> None:
    """Remove records; the stream stays, and offsets go on."""
    if not yes:
        typer.confirm(f"Remove records of stream {stream}, for ever?", abort=True, err=True)
    purged = operate(
        servers,
        "streams.purge",
        name=stream,
        partition=partition,
        before_offset=before,
        keep=keep or 0,
        subject=subject,
    )["purged"]
    if as_json:
        print_json({"stream": stream, "purged": purged})
    else:
        say(f"{purged} records of stream {stream} are removed")


@app.command("rm")
def remove(stream: StreamName, yes: o.Yes = False, servers: o.Servers = o.SERVERS) -> None:
    """Remove a stream and all its records."""
    if not yes:
        typer.confirm(f"Remove stream {stream} and its records, for ever?", abort=True, err=True)
    operate(servers, "streams.delete", name=stream)
    say(f"stream {stream} is removed")


app.command("get")(message.get)
app.command("erase")(message.erase)
