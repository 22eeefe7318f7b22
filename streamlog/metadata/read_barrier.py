"""How a node comes to know what the controller has decided by now."""

import asyncio
import logging
from typing import Final, Protocol

from streamlog.errors import StreamlogError
from streamlog.metadata.commands import AwaitApplied, Command, DescribeCluster, Granted

logger = logging.getLogger(__name__)

CATCH_UP_S: Final = 0.5
"""How long it is waited for, before what there is will do."""


class AskedController(Protocol):
    """What is needed of ``metadata.service.MetadataService``."""

    @property
    def is_current(self) -> bool: ...
    async def request(self, command: Command) -> Granted: ...
    async def take(self, command: Command, *, forwarded: bool) -> Granted: ...


async def catch_up(metadata: AskedController) -> bool:
    """Whether the node's image has all that was decided before this was called.

    False without a controller: the image stays as it is, and may be older than what other nodes
    have told. A node that has just started knows less than it knew before it was killed.
    """
    if metadata.is_current:
        return True
    try:
        async with asyncio.timeout(CATCH_UP_S):
            described = await metadata.request(DescribeCluster())
            offset = int(described.result["high_watermark"])
            command = AwaitApplied(offset=offset, wait_ms=int(CATCH_UP_S * 1000))
            await metadata.take(command, forwarded=True)
    except (StreamlogError, TimeoutError) as error:
        logger.debug("metadata may be old", extra={"error": str(error)})
        return False
    return True
