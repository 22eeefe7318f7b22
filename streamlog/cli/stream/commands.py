from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamlog.cli.options import options as o
from streamlog.cli.options.management import ask
from streamlog.cli.output import print_json, print_table, say
from streamlog.cli.stream import info, move, write_state
from streamlog.cli.stream.create import create_at_nodes
from streamlog.cli.stream.info import details_json

if TYPE_CHECKING:
    from streamlog.jetstream.client import ManagementClient, StreamDetails

app = typer.Typer(help="Make, look at, change and remove streams.", no_args_is_help=True)


@app.command()
def add(
    stream: o.StreamName,
    subject: o.Subjects = None,
    partitions: o.Partitions = None,
    partition_by: o.PartitionBy = None,
    group: o.Group = None,
    replicas: o.Replicas = None,
    retention_bytes: o.RetentionBytes = None,
    retention_ms: o.RetentionMs = None,
    retention_messages: o.RetentionMessages = None,
    message_bytes_max: o.MessageBytesMax = None,
    duplicate_window_ms: o.DuplicateWindowMs = None,
    sync: o.Sync = None,
    compression: o.Compression = None,
    segment_bytes: o.SegmentBytes = None,
    segment_age_ms: o.SegmentAgeMs = None,
    auto_pause_ms: o.AutoPauseMs = None,
    cleanup_policy: o.CleanupPolicy = None,
    delete_retention_ms: o.DeleteRetentionMs = None,
    min_compaction_lag_ms: o.MinCompactionLagMs = None,
    max_compaction_lag_ms: o.MaxCompactionLagMs = None,
    min_cleanable_dirty_ratio: o.MinCleanableDirtyRatio = None,
    min_isr: o.MinIsr = None,
    unclean_election: o.UncleanElection = None,
    acks: o.Acks = None,
    max_messages_per_subject: o.MaxMessagesPerSubject = None,
    allow_atomic: o.AllowAtomic = None,
    allow_rollup: o.AllowRollup = None,
    allow_ttl: o.AllowTtl = None,
    encrypted: o.Encrypted = None,
    subject_transform: o.SubjectTransform = None,
    republish: o.Republish = None,
    description: o.Description = None,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    domain: o.Domain = o.DOMAIN,
    servers: Annotated[
        str | None,
        typer.Option(
            "--servers",
            help="Ask these nodes instead of NATS, by the options for TLS and logins below:"
            " host:port, several by commas.",
        ),
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Make a stream. The same one again is a success (with --servers: it exists)."""
    settings = _given(locals())
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
def edit(
    stream: o.StreamName,
    subject: o.Subjects = None,
    partitions: o.Partitions = None,
    partition_by: o.PartitionBy = None,
    group: o.Group = None,
    replicas: o.Replicas = None,
    retention_bytes: o.RetentionBytes = None,
    retention_ms: o.RetentionMs = None,
    retention_messages: o.RetentionMessages = None,
    message_bytes_max: o.MessageBytesMax = None,
    duplicate_window_ms: o.DuplicateWindowMs = None,
    sync: o.Sync = None,
    compression: o.Compression = None,
    segment_bytes: o.SegmentBytes = None,
    segment_age_ms: o.SegmentAgeMs = None,
    auto_pause_ms: o.AutoPauseMs = None,
    cleanup_policy: o.CleanupPolicy = None,
    delete_retention_ms: o.DeleteRetentionMs = None,
    min_compaction_lag_ms: o.MinCompactionLagMs = None,
    max_compaction_lag_ms: o.MaxCompactionLagMs = None,
    min_cleanable_dirty_ratio: o.MinCleanableDirtyRatio = None,
    min_isr: o.MinIsr = None,
    unclean_election: o.UncleanElection = None,
    acks: o.Acks = None,
    max_messages_per_subject: o.MaxMessagesPerSubject = None,
    allow_atomic: o.AllowAtomic = None,
    allow_rollup: o.AllowRollup = None,
    allow_ttl: o.AllowTtl = None,
    encrypted: o.Encrypted = None,
    subject_transform: o.SubjectTransform = None,
    republish: o.Republish = None,
    description: o.Description = None,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    domain: o.Domain = o.DOMAIN,
    as_json: o.Json = False,
) -> None:
    """Change what is named; all else stays. Partitions can be added; replicas are placed anew."""
    settings = _given(locals())

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


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    """The settings among a command's arguments that were named on the command line."""
    others = {"stream", "servers", "nats", "creds", "domain", "as_json"}
    given = {k: v for k, v in arguments.items() if k not in others and v is not None}
    if "subject" in given:
        given["subjects"] = tuple(given.pop("subject"))
    return given
