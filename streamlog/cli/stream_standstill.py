"""``streamlog stream pause``, ``resume``, ``readonly`` and ``seal``: whether it takes records."""

import asyncio
from typing import Annotated

import typer

from streamlog.cli import options as o
from streamlog.cli.nats_settings import nats_settings


def pause(
    stream: o.StreamName,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    domain: o.Domain = o.DOMAIN,
) -> None:
    """Take no records for now: publishers are refused at once, readers go on."""
    _change(nats, creds, domain, stream, paused=True)
    print(f"stream {stream} is paused; publishers are refused until it is resumed")


def resume(
    stream: o.StreamName,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    domain: o.Domain = o.DOMAIN,
) -> None:
    """Take records again after a pause."""
    _change(nats, creds, domain, stream, paused=False)
    print(f"stream {stream} takes records")


def readonly(
    stream: o.StreamName,
    off: Annotated[bool, typer.Option("--off", help="Take records again.")] = False,
    nats: o.NatsUrl = o.NATS_URL,
    creds: o.Credentials = None,
    domain: o.Domain = o.DOMAIN,
) -> None:
    """Take no records; retention, compaction and purges go on."""
    _change(nats, creds, domain, stream, readonly=not off)
    print(f"stream {stream} {'takes records' if off else 'is read-only'}")


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
    print(f"stream {stream} is sealed")


def _change(nats: str, creds: str | None, domain: str, stream: str, **settings: bool) -> None:
    from streamlog.admin.requests import ManagementClient

    async def change() -> None:
        async with ManagementClient(nats_settings(nats, creds), domain=domain) as client:
            config = (await client.info(stream)).config
            await client.update(config.changed(**settings))

    asyncio.run(change())
