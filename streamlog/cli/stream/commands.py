"""The commands of ``streamlog stream``; the options of ``add`` and ``edit`` are in ``settings``."""

import asyncio
import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streamlog.cli.options import options as o
from streamlog.cli.options.connection_options import chosen_security
from streamlog.cli.options.nats_options import ask
from streamlog.cli.output import print_json, print_pairs, print_table, say
from streamlog.cli.stream import move
from streamlog.cli.stream.settings import with_settings
from streamlog.errors import StreamlogError

if TYPE_CHECKING:
    from streamlog.client.topology import PartitionInfo
    from streamlog.jetstream.client import ManagementClient, StreamDetails
    from streamlog.metadata.stream.config import StreamConfig


Partitions = list[dict[str, Any]]


def info(
    stream: o.StreamName,
    servers: o.Servers = o.SERVERS,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    domain: o.Domain = o.DOMAIN,
    as_json: o.Json = False,
) -> None:
    """One stream: its settings, what is in it, and which nodes keep it."""
    details, partitions, problem = ask(
        nats, creds, domain, lambda client: _look_up(client, stream, servers)
    )
    if as_json:
        print_json({**details_json(details), "partitions": partitions})
        return
    content = dataclasses.asdict(details)
    for hidden in ("config", "did_create", "replicas"):
        del content[hidden]
    print_pairs((*details.config, *content.items()))
    say()
    if partitions is None:
        say(f"which nodes keep it is not known without --bootstrap-server: {problem}")
        return
    print_table(
        ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "RECORDS BEHIND"),
        (_row(partition) for partition in partitions),
    )


def details_json(details: "StreamDetails") -> dict[str, Any]:
    """As ``--json`` shows a stream."""
    return {
        "config": details.config.model_dump(),
        "created": details.created.isoformat(),
        "messages": details.messages,
        "size_bytes": details.size_bytes,
        "first_sequence": details.first_sequence,
        "last_sequence": details.last_sequence,
        "first_time": details.first_time and details.first_time.isoformat(),
        "last_time": details.last_time and details.last_time.isoformat(),
        "leader": details.leader,
        "auto_paused": details.auto_paused,
    }


async def _look_up(
    client: "ManagementClient", stream: str, servers: str
) -> tuple["StreamDetails", Partitions | None, str]:
    """Details; partitions, or why no node could be asked for them."""
    details = await client.info(stream)
    try:
        return details, await _partitions(client, stream, servers), ""
    except StreamlogError as error:
        return details, None, str(error)


async def _partitions(client: "ManagementClient", stream: str, servers: str) -> Partitions:
    from streamlog.client.cluster import Cluster

    async with Cluster.at(servers, security=chosen_security()) as cluster:
        infos = (await cluster.topic(stream)).partitions
    return [_partition(it, {}) for it in infos]


def _partition(info: "PartitionInfo", lags: dict[Any, int]) -> dict[str, Any]:
    """A follower's ``lag`` is None where the leader could not be asked."""
    return {
        "partition": info.partition,
        "leader": None if info.leader < 0 else info.leader,
        "leader_epoch": info.leader_epoch,
        "replicas": [
            {
                "node_id": node,
                "in_sync": node in info.isr,
                "lag": 0 if node == info.leader else lags.get(node),
            }
            for node in info.replicas
        ],
    }


def _row(partition: dict[str, Any]) -> tuple[object, ...]:
    replicas = partition["replicas"]
    behind = [f"{it['node_id']}: {it['lag']}" for it in replicas if it["lag"]]
    return (
        partition["partition"],
        partition["leader"],
        partition["leader_epoch"],
        [it["node_id"] for it in replicas],
        [it["node_id"] for it in replicas if it["in_sync"]],
        behind,
    )


def pause(
    stream: o.StreamName,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    domain: o.Domain = o.DOMAIN,
) -> None:
    """Take no records for now: publishers are refused at once, readers go on."""
    _change(nats, creds, domain, stream, paused=True)


def resume(
    stream: o.StreamName,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    domain: o.Domain = o.DOMAIN,
) -> None:
    """Take records again after a pause."""
    _change(nats, creds, domain, stream, paused=False)


def seal(
    stream: o.StreamName,
    yes: o.Yes = False,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    domain: o.Domain = o.DOMAIN,
) -> None:
    """Keep what it has, for ever: no records come, none go by retention or purges."""
    if not yes:
        typer.confirm(f"Seal stream {stream}? It can never be undone", abort=True, err=True)
    _change(nats, creds, domain, stream, sealed=True)


def _change(nats: str, creds: str | None, domain: str, stream: str, **settings: bool) -> None:
    async def change(client: "ManagementClient") -> "StreamDetails":
        config = (await client.info(stream)).config
        return await client.update(config.changed(**settings))

    say(told(ask(nats, creds, domain, change).config))


def told(config: "StreamConfig") -> str:
    """How it is now: of several reasons to take no records one may be left."""
    from streamlog.metadata.stream.write_state import WriteState, standstill

    match standstill(config):
        case None:
            return f"stream {config.name} takes records"
        case WriteState.PAUSED:
            return f"stream {config.name} is paused; publishers are refused until it is resumed"
        case WriteState.READONLY if config.paused:
            return f"stream {config.name} is read-only, and paused"
        case why:
            return f"stream {config.name} is {why.value}"


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


app.command()(info)


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
    """Change what is named; all else stays. Partitions can be added; replicas are placed again."""

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
app.command()(pause)
app.command()(resume)
app.command()(seal)


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


TIMEOUT_MS: Final = 30_000


def create_at_nodes(servers: str, config: "StreamConfig", given: Collection[str]) -> None:
    """``given``: the settings that were named. Raises what the node answers."""
    from streamlog.client.cluster import Cluster
    from streamlog.wire import registry
    from streamlog.wire.errors import check

    request = {
        "topics": [_topic(config, given)],
        "timeout_ms": TIMEOUT_MS,
        "validate_only": False,
    }

    async def made() -> dict[str, Any]:
        async with Cluster.at(servers, security=chosen_security()) as cluster:
            return await cluster.ask_any(registry.CREATE_TOPICS, request)

    (topic,) = asyncio.run(made())["topics"]
    check(topic["error_code"], topic["error_message"] or f"stream {config.name!r}")


def _topic(config: "StreamConfig", given: Collection[str]) -> dict[str, Any]:
    """Only what was named: for all else the nodes have defaults."""
    from streamlog.metadata.stream.settings_table import SETTINGS

    configs = [
        {"name": it.kafka, "value": it.to_text(getattr(config, it.name))}
        for it in SETTINGS
        if it.kafka is not None and it.name in given
    ]
    return {
        "name": config.name,
        "num_partitions": config.partitions,
        "replication_factor": config.replicas,
        "assignments": [],
        "configs": configs,
    }
