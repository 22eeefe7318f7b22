"""``streamlog stream pause``, ``resume``, ``readonly`` and ``seal``: whether it takes records."""

from typing import TYPE_CHECKING, Annotated

import typer

from streamlog.cli.options import options as o
from streamlog.cli.options.management import ask
from streamlog.cli.output import say

if TYPE_CHECKING:
    from streamlog.jetstream.client import ManagementClient, StreamDetails
    from streamlog.metadata.stream.config import StreamConfig


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


def readonly(
    stream: o.StreamName,
    off: Annotated[bool, typer.Option("--off", help="Take records again.")] = False,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    domain: o.Domain = o.DOMAIN,
) -> None:
    """Take no records; retention, compaction and purges go on."""
    _change(nats, creds, domain, stream, readonly=not off)


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
