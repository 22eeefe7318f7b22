"""How a node comes to know what has been decided by now, once for all who ask together."""

import asyncio
import logging
from typing import Final, Protocol

from streamlog.errors import StreamlogError
from streamlog.metadata.commands import AwaitApplied, Command, DescribeCluster
from streamlog.metadata.forwarding import Granted

logger = logging.getLogger(__name__)

CATCH_UP_S: Final = 0.5
"""How long an answer waits to be of the latest metadata, before it is of what there is."""


class Asked(Protocol):
    """What is needed of ``metadata.service.MetadataService``."""

    async def request(self, command: Command) -> Granted: ...
    async def take(self, command: Command, *, forwarded: bool) -> Granted: ...


class Freshness:
    """``catch_up``, and the image has all that the controller had decided before it was called."""

    def __init__(self, metadata: Asked) -> None:
        self._metadata = metadata
        self._next: asyncio.Future[None] | None = None
        """The end of the round that has yet to begin: a question that is on its way may be older
        than whoever comes now."""
        self._round = asyncio.Lock()

    async def catch_up(self) -> None:
        """Whoever was told of a decision by another node finds it here.

        Without a controller nothing is decided, and what there is will do.
        """
        if self._next is not None:
            await asyncio.shield(self._next)
            return
        joined = self._next = asyncio.get_running_loop().create_future()
        try:
            async with self._round:
                await asyncio.sleep(0)  # those that came together with this one join it
                self._next = None
                await self._ask()
        finally:
            if self._next is joined:
                self._next = None
            joined.set_result(None)

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(CATCH_UP_S):
                described = await self._metadata.request(DescribeCluster())
                offset = int(described.result["high_watermark"])
                command = AwaitApplied(offset=offset, wait_ms=int(CATCH_UP_S * 1000))
                await self._metadata.take(command, forwarded=True)
        except (StreamlogError, TimeoutError) as error:
            logger.debug("metadata may be old", extra={"error": str(error)})
