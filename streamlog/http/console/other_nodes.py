"""What the page asks other nodes for.

The groups that they coordinate, while the page is watched; and, while there is no controller to say so,
whether they answer.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from streamlog.client.cluster import Cluster
from streamlog.client.connection import Connection
from streamlog.client.security import NO_SECURITY, Security
from streamlog.client.topology import NodeInfo
from streamlog.errors import StreamlogError
from streamlog.http.console.cluster_snapshot import CoordinatedGroup
from streamlog.metadata.image.image_types import NodeImage
from streamlog.metadata.image.metadata_image import MetadataImage
from streamlog.model import NodeId, TopicPartition
from streamlog.wire import registry
from streamlog.wire.error_codes import ErrorCode
from streamlog.wire.errors import check

PROBE_PERIOD_S: Final = 1.0
PROBE_TIMEOUT_MS: Final = 1_000


class NodeProbe:
    """``run`` as a task. With a controller no node is asked: it knows who is alive."""

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
            await asyncio.sleep(PROBE_PERIOD_S)

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
            async with asyncio.timeout(PROBE_TIMEOUT_MS / 1000):
                connection = await Connection.open(
                    node.host, node.port, timeout_ms=PROBE_TIMEOUT_MS, security=self._security
                )
        except (StreamlogError, TimeoutError):
            return False
        connection.close()
        return True


PERIOD_S: Final = 2.0
TIMEOUT_MS: Final = 2_000
GROUPS_PER_PARTITION_MAX: Final = 1_000
"""Of one node; more are not shown, and it is said how many."""
AT_ONCE: Final = 100
NOT_COMMITTED: Final = -1


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
        self._told: dict[NodeId, list[CoordinatedGroup]] = {}
        self._hidden: dict[NodeId, int] = {}

    @property
    def groups(self) -> list[CoordinatedGroup]:
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

    async def _ask(self, cluster: Cluster, node: NodeInfo) -> list[CoordinatedGroup]:
        answer = await cluster.ask(node, registry.LIST_GROUPS, {})
        check(answer["error_code"], f"the groups of node {node.node_id}")
        ids = sorted(it["group_id"] for it in answer["groups"])
        self._hidden[node.node_id] = max(0, len(ids) - GROUPS_PER_PARTITION_MAX)
        found: list[CoordinatedGroup] = []
        for start in range(0, min(len(ids), GROUPS_PER_PARTITION_MAX), AT_ONCE):
            found += await self._describe(cluster, node, ids[start : start + AT_ONCE])
        return found

    async def _describe(
        self, cluster: Cluster, node: NodeInfo, ids: list[str]
    ) -> list[CoordinatedGroup]:
        described = await cluster.ask(node, registry.DESCRIBE_GROUPS, {"groups": ids})
        wanted = [{"group_id": group_id, "topics": None} for group_id in ids]
        fetched = await cluster.ask(node, registry.OFFSET_FETCH, {"groups": wanted})
        offsets = {it["group_id"]: _committed_in(it) for it in fetched["groups"]}
        # A group that has gone meanwhile is an error from version 6 on, before that it was dead (KIP-1043).
        there = [
            it for it in described["groups"] if it["error_code"] != ErrorCode.group_id_not_found
        ]
        for it in there:
            check(it["error_code"], f"group {it['group_id']!r}")
        return [
            CoordinatedGroup(
                it["group_id"],
                it["group_state"],
                len(it["members"]),
                offsets.get(it["group_id"], {}),
                node.node_id,
            )
            for it in there
        ]


def _committed_in(fields: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Of a group in an OffsetFetch answer; partitions without a commit are left out."""
    check(fields["error_code"], f"group {fields['group_id']!r}")
    return {
        TopicPartition(topic["name"], it["partition_index"]): it["committed_offset"]
        for topic in fields["topics"]
        for it in topic["partitions"]
        if it["committed_offset"] != NOT_COMMITTED
    }
