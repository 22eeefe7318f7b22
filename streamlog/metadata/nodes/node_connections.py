"""The controller's eye on the nodes: an idle connection to each tells at once when one is gone."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from streamlog.errors import NodeUnreachable, StreamlogError
from streamlog.metadata.image.metadata_image import NodeImage
from streamlog.metadata.quorum.peers import PeerAddress, Peers
from streamlog.model import NodeId

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.02
RETRY_MAX_S: Final = 0.5
REFUSALS: Final = 2
"""In a row, so that a process that is only being replaced is not taken for gone by mistake."""

Gone = Callable[[NodeImage], Awaitable[None]]


class NodeConnections:
    """Tells of a node whose address refuses connections; of silence it says nothing."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._wanted: dict[NodeId, NodeImage] = {}
        self._watching: dict[NodeId, tuple[int, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()

    def keep(self, nodes: Iterable[NodeImage]) -> None:
        """Watch these and no others."""
        wanted = {node.node_id: node for node in nodes}
        if wanted != self._wanted:
            self._wanted = wanted
            self._changed.set()

    def forget(self) -> None:
        self.keep(())

    async def run(self, gone: Gone) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                for node_id, (epoch, task) in list(self._watching.items()):
                    node = self._wanted.get(node_id)
                    if node is None or node.epoch != epoch or task.done():
                        task.cancel()
                        del self._watching[node_id]
                for node_id, node in self._wanted.items():
                    if node_id not in self._watching:
                        task = group.create_task(self._watch(node, gone))
                        self._watching[node_id] = (node.epoch, task)
                await self._changed.wait()

    async def _watch(self, node: NodeImage, gone: Gone) -> None:
        """Until the node is gone; it is watched again when it has registered again."""
        pause_s, refusals = RETRY_S, 0
        while refusals < REFUSALS:
            try:
                async with asyncio.timeout(RETRY_MAX_S):
                    watched = await self._peers.watch(PeerAddress(node.host, node.port))
            except (StreamlogError, TimeoutError) as error:
                refused = isinstance(error, NodeUnreachable) and error.refused
                refusals = refusals + 1 if refused else 0
                await asyncio.sleep(pause_s)
                pause_s = pause_s if refused else min(2 * pause_s, RETRY_MAX_S)
            else:
                pause_s, refusals = RETRY_S, 0
                with contextlib.closing(watched):
                    await watched.wait_closed()
        await gone(node)
