"""Operations on nodes, on the metadata quorum and on the cluster as a whole."""

from typing import Any

from streamlog.acl.rules import Operation
from streamlog.control.operation import Operations, operation
from streamlog.metadata.commands import (
    AddVoter,
    DescribeCluster,
    DrainNode,
    RaiseLevel,
    RemoveNode,
    RemoveVoter,
    TransferController,
)
from streamlog.model import NodeId


class ClusterOperations(Operations):
    """To describe it needs DESCRIBE of the cluster, all else ALTER."""

    def _check(self, right: Operation = Operation.ALTER) -> None:
        """Raises ClusterForbidden."""
        if self._access is not None:
            self._access.check_cluster(right)

    @operation("GET /cluster")
    async def describe(self, local: bool = False) -> dict[str, Any]:
        """Describe the quorum and the nodes, as the controller knows them; ``local``: as this node does."""
        self._check(Operation.DESCRIBE)
        granted = await self._metadata.take(DescribeCluster(local=local), forwarded=False)
        return dict(granted.result)

    @operation("POST /nodes/{node}/drain", about=("node",), act=True)
    async def drain(self, node: NodeId, undo: bool = False) -> None:
        """Have a node lead nothing and get no new partitions; ``undo``: have it take part again."""
        self._check()
        await self._metadata.request(DrainNode(node_id=node, undo=undo))

    @operation("DELETE /nodes/{node}", about=("node",), act=True)
    async def remove_node(self, node: NodeId) -> None:
        """Remove a node that keeps nothing and is not alive."""
        self._check()
        await self._metadata.request(RemoveNode(node_id=node))

    @operation("POST /voters/{node}", about=("node",), act=True)
    async def add_voter(self, node: NodeId) -> None:
        """Have a node vote in the metadata quorum."""
        self._check()
        await self._metadata.request(AddVoter(node_id=node))

    @operation("DELETE /voters/{node}", about=("node",), act=True)
    async def remove_voter(self, node: NodeId) -> None:
        """Have a node vote no more in the metadata quorum."""
        self._check()
        await self._metadata.request(RemoveVoter(node_id=node))

    @operation("POST /controller/transfer", about=("node",), act=True)
    async def transfer_controller(self, node: NodeId | None = None) -> None:
        """Have another voter be the controller: the one that is named, or any."""
        self._check()
        await self._metadata.request(TransferController(node_id=node))

    @operation("POST /features", about=("level",), act=True)
    async def raise_feature_level(self, level: int) -> None:
        """Raise the feature level of the cluster. It cannot be lowered again."""
        self._check()
        await self._metadata.request(RaiseLevel(level=level))
