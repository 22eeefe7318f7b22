"""Groups that other nodes coordinate: asked of them while somebody watches."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from streamlog.client.cluster import Cluster
from streamlog.client.groups import GroupInfo, committed_in
from streamlog.client.security import NO_SECURITY, Security
from streamlog.client.topology import NodeInfo
from streamlog.errors import StreamlogError
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import NodeId, TopicPartition
from streamlog.wire import registry
from streamlog.wire.errors import check

PERIOD_S: Final = 2.0
TIMEOUT_MS: Final = 2_000
GROUPS_PER_PARTITION_MAX: Final = 1_000
"""Of one node; more are not shown, and it is said how many."""
AT_ONCE: Final = 100


class RemoteGroupSource(NamedTuple):
    """A group at one moment, as its coordinator has told."""

    group_id: str
    state: str
    member_count: int
    committed: Mapping[TopicPartition, int]
    coordinator: NodeId


class RemoteGroups:
    """``run`` as a task. A node that does not answer leaves its groups as they were last told,
    until it is gone from the cluster's live nodes.
    """

    def __init__(
        self,
        *,
        node_id: NodeId,
        image: Callable[[], MetadataImage],
        is_watched: Callable[[], bool],
        security: Security = NO_SECURITY,
    ) -> None:
        self._security = security
        self.hidden = 0
        self._node_id = node_id
        self._image = image
        self._is_watched = is_watched
        self._told: dict[NodeId, list[RemoteGroupSource]] = {}
        self._hidden: dict[NodeId, int] = {}

    @property
    def groups(self) -> list[RemoteGroupSource]:
        return [it for told in self._told.values() for it in told]

    async def run(self) -> None:
        async with Cluster([], timeout_ms=TIMEOUT_MS, security=self._security) as cluster:
            while True:
                if self._is_watched():
                    await self.refresh(cluster)
                await asyncio.sleep(PERIOD_S)

    async def refresh(self, cluster: Cluster) -> None:
        """Ask each of the others once, one after the other."""
        others = {
            node.node_id: NodeInfo(node.node_id, node.host, node.port, None)
            for node in self._image().nodes.values()
            if node.node_id != self._node_id and not node.fenced
        }
        for gone in self._told.keys() - others.keys():
            del self._told[gone]
            self._hidden.pop(gone, None)
        for node_id, node in others.items():
            try:
                self._told[node_id] = await self._ask(cluster, node)
            except StreamlogError:
                continue
        self.hidden = sum(self._hidden.values())

    async def _ask(self, cluster: Cluster, node: NodeInfo) -> list[RemoteGroupSource]:
        answer = await cluster.ask(node, registry.LIST_GROUPS, {})
        check(answer["error_code"], f"the groups of node {node.node_id}")
        ids = sorted(it["group_id"] for it in answer["groups"])
        self._hidden[node.node_id] = max(0, len(ids) - GROUPS_PER_PARTITION_MAX)
        found: list[RemoteGroupSource] = []
        for start in range(0, min(len(ids), GROUPS_PER_PARTITION_MAX), AT_ONCE):
            found += await self._describe(cluster, node, ids[start : start + AT_ONCE])
        return found

    async def _describe(
        self, cluster: Cluster, node: NodeInfo, ids: list[str]
    ) -> list[RemoteGroupSource]:
        described = await cluster.ask(node, registry.DESCRIBE_GROUPS, {"groups": ids})
        wanted = [{"group_id": group_id, "topics": None} for group_id in ids]
        fetched = await cluster.ask(node, registry.OFFSET_FETCH, {"groups": wanted})
        offsets = {it["group_id"]: committed_in(it) for it in fetched["groups"]}
        groups = [GroupInfo.of(it, node.node_id) for it in described["groups"]]
        return [
            RemoteGroupSource(
                it.group_id,
                it.state,
                len(it.members),
                {tp: commit.offset for tp, commit in offsets.get(it.group_id, {}).items()},
                node.node_id,
            )
            for it in groups
        ]
