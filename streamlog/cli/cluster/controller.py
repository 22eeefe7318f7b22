"""What the command line asks of the controller, through whichever node answers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from streamlog.cli.cluster.description import Description
from streamlog.cli.node_security import chosen_security

if TYPE_CHECKING:
    from streamlog.client.cluster import Cluster
    from streamlog.client.topology import Topology
    from streamlog.metadata.commands import Command

T = TypeVar("T")


class Controller:
    """A node hands on what it is asked; with no controller it says so after some seconds."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster

    async def ask(self, command: "Command") -> dict[str, Any]:
        """What came of it. Raises what the controller answers, and NoController."""
        from streamlog.metadata.commands import encode_command

        answer = await self._cluster.command(encode_command(command))
        return dict(answer["result"])

    async def describe(self) -> Description:
        """Quorum and nodes as the controller knows them."""
        from streamlog.metadata.commands import DescribeCluster

        return Description.of(await self.ask(DescribeCluster()))

    async def topology(self) -> "Topology":
        """Streams, and who leads them, as a node tells Kafka clients."""
        return await self._cluster.topology()


def ask(servers: str, question: Callable[[Controller], Awaitable[T]]) -> T:
    """What ``question`` finds out from the cluster at ``servers``."""
    from streamlog.client.cluster import Cluster

    async def asked() -> T:
        async with Cluster.at(servers, security=chosen_security()) as cluster:
            return await question(Controller(cluster))

    return asyncio.run(asked())
