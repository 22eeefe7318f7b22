"""A connection of a command, which tries once."""

import nats.errors

from streamlog.config import NatsSection
from streamlog.errors import NodeUnreachable
from streamlog.ingest.nats.errors import understood
from streamlog.ingest.nats.options import NatsOptions
from streamlog.nats_tools.client import NatsClient

Nats = str | NatsSection
"""An address, or all about the way to NATS."""


def section_of(nats: Nats) -> NatsSection:
    return NatsSection(servers=(nats,)) if isinstance(nats, str) else nats


async def connect_once(where: Nats, *, timeout_s: float, name: str = "streamlog") -> NatsClient:
    """A connection that is there now, and no other when it breaks.

    Raises NodeUnreachable, and ConfigError for settings that cannot be used.
    """
    access = NatsOptions(section_of(where))
    client = NatsClient(access)
    failures: list[Exception] = []

    async def failed(error: Exception) -> None:
        failures.append(error)

    try:
        await client.connect(**access.options_once(name, timeout_s), error_cb=failed)
    except (nats.errors.Error, OSError, TimeoutError) as error:
        client.abandon()
        cause = understood(failures[0] if failures else error, access.login)
        raise NodeUnreachable(f"NATS at {', '.join(access.servers)}: {cause}") from None
    return client
