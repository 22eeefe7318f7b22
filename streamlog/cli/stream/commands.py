from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamlog.cli.options import options as o
from streamlog.cli.options.management import ask
from streamlog.cli.output import print_json, print_table, say
from streamlog.cli.stream import info, move, write_state
from streamlog.cli.stream.create import create_at_nodes
from streamlog.cli.stream.info import details_json
from streamlog.cli.stream.settings import with_settings

if TYPE_CHECKING:
    from streamlog.jetstream.client import ManagementClient, StreamDetails

app = typer.Typer(help="Make, look at, change and remove streams.", no_args_is_help=True)


@app.command()
@with_settings
def add(
    stream: o.StreamName,
    settings: dict[str, Any],
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    domain: o.Domain = o.DOMAIN,
    servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            help="Ask these nodes instead of NATS, by the options for TLS and logins below:"
            " host:port, several by commas.",
        ),
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Make a stream. The same one again is a success (with --bootstrap-server: it exists)."""
    from streamlog.metadata.stream.config import StreamConfig

    config = StreamConfig.of(name=stream, **settings)
    if servers is not None:
        create_at_nodes(servers, config, settings)
        if as_json:
            print_json({"config": config.model_dump()})
        else:
            say(f"stream {stream} stores {', '.join(config.subjects)}")
        return
    details = ask(nats, creds, domain, lambda client: client.create(config))
    if as_json:
        print_json(details_json(details))
    elif details.did_create:
        say(f"stream {stream} stores {', '.join(details.config.subjects)}")
    else:
        say(f"stream {stream} is there already, with the same configuration")


@app.command("ls")
def list_streams(
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    domain: o.Domain = o.DOMAIN,
    as_json: o.Json = False,
) -> None:
    """All streams."""
    streams = ask(nats, creds, domain, lambda client: client.list())
    if as_json:
        print_json([details_json(details) for details in streams])
        return
    print_table(
        ("STREAM", "SUBJECTS", "PARTITIONS", "RECORDS", "BYTES", "LAST"),
        (
            (
                details.config.name,
                details.config.subjects,
                details.config.partitions,
                details.messages,
                details.size_bytes,
                details.last_time,
            )
            for details in streams
        ),
    )


app.command()(info.info)


@app.command()
@with_settings
def edit(
    stream: o.StreamName,
    settings: dict[str, Any],
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    domain: o.Domain = o.DOMAIN,
    as_json: o.Json = False,
) -> None:
    """Change what is named; all else stays. Partitions can be added; replicas are placed anew."""

    async def change(client: "ManagementClient") -> "StreamDetails":
        config = (await client.info(stream)).config
        retention_ms = settings.get("retention_ms", -1)
        if 0 < retention_ms < config.duplicate_window_ms:  # it may not be longer
            settings.setdefault("duplicate_window_ms", retention_ms)
        return await client.update(config.changed(**settings))

    details = ask(nats, creds, domain, change)
    if as_json:
        print_json(details_json(details))
    else:
        say(f"stream {stream} is changed")


app.command()(move.move)
app.command()(move.cancel_move)
app.command()(write_state.pause)
app.command()(write_state.resume)
app.command()(write_state.readonly)
app.command()(write_state.seal)


@app.command()
def purge(
    stream: o.StreamName,
    before: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="Only records below it.")
    ] = None,
    keep: Annotated[int | None, typer.Option(min=1, help="All but the last so many.")] = None,
    yes: o.Yes = False,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    domain: o.Domain = o.DOMAIN,
    as_json: o.Json = False,
) -> None:
    """Remove records; the stream stays, and offsets go on."""
    if not yes:
        typer.confirm(f"Remove records of stream {stream}, for ever?", abort=True, err=True)
    sequence = None if before is None else before + 1
    purged = ask(
        nats,
        creds,
        domain,
        lambda client: client.purge(stream, before_sequence=sequence, keep=keep),
    )
    if as_json:
        print_json({"stream": stream, "purged": purged})
    else:
        say(f"{purged} records of stream {stream} are removed")


@app.command("rm")
def remove(
    stream: o.StreamName,
    yes: o.Yes = False,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    domain: o.Domain = o.DOMAIN,
) -> None:
    """Remove a stream and all its records."""
    if not yes:
        typer.confirm(f"Remove stream {stream} and its records, for ever?", abort=True, err=True)
    ask(nats, creds, domain, lambda client: client.delete(stream))
    say(f"stream {stream} is removed")
