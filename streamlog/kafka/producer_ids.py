"""Ids for idempotent producers, out of blocks that the controller gives each node for good."""

import asyncio
from typing import TYPE_CHECKING, Final

from streamlog.metadata.commands import AllocateProducerIds
from streamlog.model import NodeId

if TYPE_CHECKING:
    from streamlog.authz.visibility import Metadata

EPOCH_MAX: Final = 2**15 - 1


class ProducerIds:
    """This node's; what is left of a block when the process ends is never given out."""

    def __init__(self) -> None:
        self._next = 0
        self._end = 0  # of the block; all below ``_next`` are given away
        self._asking = asyncio.Lock()

    async def take(self, metadata: "Metadata", node_id: NodeId) -> int:
        """One that no producer has had. Raises NoController, RequestTimedOut: ask again."""
        async with self._asking:
            if self._next == self._end:
                granted = await metadata.take(AllocateProducerIds(node_id=node_id), forwarded=False)
                self._next, self._end = granted.result["first"], granted.result["end"]
            self._next += 1
            return self._next - 1
