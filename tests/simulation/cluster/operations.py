"""Stories in which operators and applications use ``control``: what a node is asked, it has the controller or a
leader do, wherever that is.
"""

from streamlog.metadata.commands import Command, CreateStream, DeleteStream
from streamlog.metadata.image.metadata_image import StreamImage
from tests.simulation.cluster.node import ClusterNode
from tests.simulation.cluster.swarm import Kind, SwarmWorld


class OperationsWorld(SwarmWorld):
    """As its parent; but streams are created and deleted by operations, and applications publish by them, too."""

    def always(self) -> list[Kind]:
        return [self._recreate]

    async def _carry_out(self, node: ClusterNode, command: Command) -> None:
        match command:
            case CreateStream(config=config):
                await node.control.streams.create(config)
            case DeleteStream(name=name):
                await node.control.streams.delete(name)
            case _:
                await super()._carry_out(node, command)

    def _is_created(self, stream: StreamImage) -> None:
        is_new = stream.name not in self._created
        super()._is_created(stream)
        if is_new:
            self.publishers.publish_by_operations(stream, self._ready_node)
