"""Which nodes answer, while there is no controller to say so: asked by this node itself."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from streamlog.client.connection import Connection
from streamlog.client.security import NO_SECURITY, Security
from streamlog.errors import StreamlogError
from streamlog.metadata.image.image_types import NodeImage
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import NodeId

PERIOD_S: Final = 1.0
TIMEOUT_MS: Final = 1_000


class NodeProbe:
    """``run`` as a task. With a controller nobody is asked: it knows who is alive."""

    def __init__(
        self,
        *,
        node_id: NodeId,
        image: Callable[[], MetadataImage],
        has_controller: Callable[[], bool],
        security: Security = NO_SECURITY,
    ) -> None:
        self.answers: Mapping[NodeId, bool] = {}
        """Whether each node that was asked answered; empty while there is a controller."""
        self._node_id = node_id
        self._image = image
        self._has_controller = has_controller
        self._security = security

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(PERIOD_S)

    async def look(self) -> None:
        """Ask each of the others once."""
        if self._has_controller():
            self.answers = {}
            return
        others = [
            node
            for node in self._image().nodes.values()
            if node.node_id != self._node_id and node.has_address
        ]
        found = await asyncio.gather(*map(self._answers, others))
        told = {node.node_id: it for node, it in zip(others, found, strict=True)}
        self.answers = {} if self._has_controller() else told

    async def _answers(self, node: NodeImage) -> bool:
        try:
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                connection = await Connection.open(
                    node.host, node.port, timeout_ms=TIMEOUT_MS, security=self._security
                )
        except (StreamlogError, TimeoutError):
            return False
        connection.close()
        return True
