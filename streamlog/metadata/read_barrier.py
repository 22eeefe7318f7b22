"""How a node comes to know what the controller has decided by now, once for all who ask together."""

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


class ReadBarrier:
    """``catch_up``, and the image has all that the controller had decided before it was called."""

    def __init__(self, metadata: AskedController) -> None:
        self._metadata = metadata
        self._next: list[asyncio.Future[bool]] | None = None
        """Callers that wait for the round that has yet to begin; None: no caller is about to begin one.
        A question that is on its way may be older than the caller that comes now."""
        self._round = asyncio.Lock()

    @property
    def is_current(self) -> bool:
        """Nothing is to be waited for: this node decides, and has applied what is committed."""
        return self._metadata.is_current

    async def catch_up(self) -> bool:
        """A client that learned of a decision from another node finds it here.

        False without a controller: nothing is decided, and what there is will do, but for saying that
        something is not there. The controller's own node waits for nothing, unless it has yet to apply what
        is committed.
        """
        if self._metadata.is_current:
            return True
        if self._next is not None:
            done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._next.append(done)
            return await done
        joined, is_newest = list[asyncio.Future[bool]](), False
        self._next = joined
        try:
            async with self._round:
                await asyncio.sleep(0)  # those that came together with this one join it
                self._next = None
                is_newest = await catch_up(self._metadata)
                return is_newest
        finally:
            if self._next is joined:
                self._next = None
            for done in joined:
                if not done.done():
                    done.set_result(is_newest)
