"""A question to the management API, asked by a command."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from streamlog.cli.options.nats_options import nats_settings

if TYPE_CHECKING:
    from streamlog.jetstream.client import ManagementClient

T = TypeVar("T")


def ask(
    nats: str,
    creds: str | None,
    domain: str,
    question: Callable[["ManagementClient"], Awaitable[T]],
) -> T:
    """What ``question`` brings, of a client that is connected for it alone."""
    from streamlog.jetstream.client import ManagementClient

    async def asked() -> T:
        async with ManagementClient(nats_settings(nats, creds), domain=domain) as client:
            return await question(client)

    return asyncio.run(asked())
